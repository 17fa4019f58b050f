// Columns of contractions over several ranges, laid out in a row.
#pragma once

#include "codegen/contraction.h"
#include "graph/target.h"

namespace tessera {

// Columns over several ranges, as a convolution's are, become one: what the products read of b is
// first laid out with as many of them in a row as a cache holds. Nothing where b is in order.
UOp FlattenColumns(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target);

}  // namespace tessera
