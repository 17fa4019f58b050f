// Which loops of a kernel index each axis of a value: what fusion knows without index expressions.
#pragma once

#include <cstdint>

#include "graph/uop.h"

namespace tessera {

// One axis: indexed by nothing (extent 1, id 0), by loop r itself (id r + 1), or by some expression
// of the loops in the mask (another id, equal where the expressions are).
struct AxisLoop {
  uint64_t id = 0, mask = 0;
  bool one_loop = false;  // an expression of one loop, another value at each of its points
  friend bool operator==(const AxisLoop&, const AxisLoop&) = default;
};

struct AxisMap {
  absl::InlinedVector<AxisLoop, 4> axes;
  uint64_t gate = 0;  // tells values under a padding's condition from those that are not

  uint64_t Mask() const;
  // Every axis is indexed by one of the first `loops` loops, no two by the same: what is there is
  // computed for one point of them.
  bool OneToOne(int loops) const;
  friend bool operator==(const AxisMap&, const AxisMap&) = default;
};

// Loop r over axis r of the shape, for axes of more than one element.
AxisMap IdentityMap(const Shape& shape);

// How source s of u is indexed where u is indexed by `map`, in a kernel whose own loops run over
// `loops`. A reduction runs over a loop of the kernel where that has its extent and does not index
// the result; else its loops come after the kernel's own.
AxisMap SourceMap(const UOp& u, int s, const AxisMap& map, const Shape& loops);

// Whether a value can differ along an axis: false where an EXPAND below repeats it.
bool VariesOnAxis(const UOp& u, int axis);

// Whether a reduction runs along memory: over the adjacent axis of a buffer that it reads most of.
// So does one that reads none, or of which too much would have to be looked at.
bool RunsAlongMemory(const UOp& reduce);

// The reshape's axes in groups: input axes [in_begin, in_end) and output axes [out_begin, out_end)
// with as many elements, as small as possible.
struct ReshapeGroup {
  int in_begin, in_end, out_begin, out_end;
};
absl::InlinedVector<ReshapeGroup, 4> ReshapeGroups(const Shape& in, const Shape& out);

}  // namespace tessera
