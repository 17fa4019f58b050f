// Random graphs over the Tensor API.
#pragma once

#include <cstdint>

#include "tests/fuzz/fuzz_case.h"

namespace tessera {

// The case of a seed: always the same one.
//
// The seed also picks what the leaves hold. Small dyadic numbers: sums are exact in any order, so
// comparing, rounding and indexing what was summed is fair. Special values: zeros of both signs,
// NaN, infinities, subnormals, limits. Smooth numbers: all bits of the mantissa are in use.
FuzzCase RandomCase(uint64_t seed);

}  // namespace tessera
