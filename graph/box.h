// Where the parts of a tensor lie: a box of the global index space for each place, and what must
// move when a tensor goes from one set of boxes to another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "graph/device.h"
#include "graph/layout.h"

namespace tessera {

class Extent;
class Shape;

// The pieces of one axis, by the coordinate along the mesh dims that divide it (row-major over
// them); one piece, of no dims, where none does.
struct AxisBoxes {
  absl::InlinedVector<int, 2> dims;
  std::vector<Interval> pieces;
  friend bool operator==(const AxisBoxes&, const AxisBoxes&) = default;
};

using Box = absl::InlinedVector<Interval, 4>;
int64_t Volume(const Box& box);

// Boxes by place of a device. Those of places that differ only in dims that divide no axis are
// equal (replicas). Boxes may overlap (halos) and leave elements out.
struct Boxes {
  Device device;
  std::vector<AxisBoxes> axes;
  Box At(int place) const;
  std::string ToString() const;  // "CPU:0-1{M}<0:0..3,3..5;:0..4>"
  static absl::StatusOr<Boxes> Parse(absl::string_view text);
  friend bool operator==(const Boxes&, const Boxes&) = default;
};

// The boxes of a tensor by its shape and device; symbolic extents count with their highest value.
Boxes BoxesOf(const Shape& shape, Device device);

// How many elements of an interval lie below a limit, which may be symbolic.
Extent PartBelow(const Interval& interval, const Extent& limit);

// Elements that some place wants and does not hold.
int64_t MovedElements(const Boxes& from, const Boxes& to);

// One box that place `to` of the target needs from place `from` of the source; they may be the same
// place. The source's pieces of an axis must be disjoint; of replicas one sends, the receiver
// itself where it has the part.
struct Move {
  int from = 0, to = 0;
  Box box;
};
std::vector<Move> MovesTo(const Boxes& from, const Boxes& to, int place);

}  // namespace tessera
