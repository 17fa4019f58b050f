// Where a kernel wants a value, and how movement ops change that.
#pragma once

#include <vector>

#include "absl/container/inlined_vector.h"
#include "graph/uop.h"

namespace tessera {

// Where a value is wanted: one index an axis, and the condition under which it counts (none:
// always). Under a false condition loads give 0 and touch no memory.
struct Position {
  absl::InlinedVector<UOp, 4> index;
  UOp gate;
  friend bool operator==(const Position& a, const Position& b) {
    return a.index == b.index && a.gate == b.gate;
  }
};

// The index of a movement's source, from that of its result. Where PAD gives 0, the condition is
// false.
Position ThroughMovement(const UOp& u, const Position& at, std::vector<UOp>* conditions);

// The same through a chain of movements down to the PARAM that they are a view of.
Position ThroughTarget(const UOp& target, const Position& at, UOp& param);

// The number of an element in a buffer of this shape.
UOp Flat(const Shape& shape, const Position& at);

// The index arithmetic of graph/index_math.h, simplified.
namespace simplified {
UOp Plus(const UOp& a, const UOp& b);
UOp Minus(const UOp& a, const UOp& b);
UOp Times(const UOp& a, const UOp& b);
UOp Below(const UOp& a, const UOp& b);
UOp NotBelow(const UOp& a, const UOp& b);  // a >= b
UOp Both(const UOp& a, const UOp& b);      // either may be none, for true
}  // namespace simplified

}  // namespace tessera
