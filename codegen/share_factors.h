// Sums of copies whose common factor multiplies them once.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/uop.h"

namespace tessera {

// Whether a value is read from bytes alone.
bool OfBytes(const UOp& value);

// What a product multiplies, in order, and the product of some factors.
std::vector<UOp> FactorsOf(const UOp& product);
UOp ProductOf(const std::vector<UOp>& factors);

// A factor that the copies of a step share, as the scale of a block is, multiplies their sum, where
// that is less work than what they are times, which so many rows share. Copies are made of what
// will be `written_out`, too. What bytes stand for is small enough that sums without the factor are
// numbers wherever those with it are.
UOp ShareFactors(const UOp& sink, const std::vector<UOp>& written_out, int64_t rows);

}  // namespace tessera
