// A range's steps as lanes of vectors.
#pragma once

#include "graph/uop.h"

namespace tessera {

// The kernel with the steps of `range`, of constant extent, as lanes: what depends on it is
// vectors, a REDUCE over it is folded, a STORE stores vectors. Unless lanes can be moved within
// vectors (`shuffles`), what lies apart in memory is loaded one by one.
UOp Vectorise(const UOp& sink, const UOp& range, bool shuffles);

// A value by itself, at all steps of a range: a vector, of which the range is no part any more.
UOp AllLanes(const UOp& value, const UOp& range, bool shuffles);

}  // namespace tessera
