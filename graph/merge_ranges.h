// Loops of a kernel joined and divided, so that few divisions are left in its indices.
#pragma once

#include "graph/uop.h"

namespace tessera {

// Adjacent loops that every access runs through as one become one loop.
UOp MergeRanges(const UOp& sink);

// A loop whose index is divided becomes two, so that quotient and remainder are their indices.
UOp SplitRanges(const UOp& sink);

// The kernel with a range as two loops, the inner one of that extent, which divides it; the outer
// one is of the range's kind.
struct SplitLoops {
  UOp sink, outer, inner;
};
SplitLoops SplitRange(const UOp& sink, const UOp& range, int64_t inner_extent);

}  // namespace tessera
