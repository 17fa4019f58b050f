// Panels of CPUs' products of matrices: what a tile of sums reads of the right operand, in order.
#pragma once

#include <cstdint>

#include "graph/target.h"

namespace tessera {

// The bytes that a panel may have: every tile of rows reads it whole, from the core's own cache or
// its part of the last one, which is slower by less than packing gains.
int64_t MostOfPanel(const Target& target);

// How many vectors of columns a tile takes, of so many columns in all and steps of the sum: two
// where there are enough columns and the panel stays in cache, else one. `lanes` is a vector's.
int64_t VectorsOfPanel(const Target& target, int64_t columns, int64_t lanes, int64_t steps);

// Below so many rows the right operand is read in its own order.
inline constexpr int64_t kLeastRowsOfPanel = 4;

}  // namespace tessera
