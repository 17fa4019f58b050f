// What one place has of a tensor: extents that differ between places as variables, and parts cut
// out of other parts.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/box.h"
#include "graph/uop.h"
#include "schedule/localise.h"

namespace tessera {

// Numbers by coordinate as extents: a constant where they are all equal, else a multiple of a
// variable, so that an axis and its image under a reshape share one.
class PlaceVariables {
 public:
  Extent Of(Device device, absl::Span<const int> dims, const std::vector<int64_t>& values);
  // What of each piece lies below a symbolic extent.
  Extent Below(Device device, absl::Span<const int> dims, absl::Span<const Interval> pieces,
               const Extent& within);
  std::vector<PlaceVariable> Take() { return std::move(all_); }

 private:
  // By device, dims, numbers by coordinate, and the symbolic extent if there is one.
  using Key = std::tuple<uint64_t, std::vector<int>, std::vector<int64_t>, const Node*>;
  UOp Variable(Device device, absl::Span<const int> dims, std::vector<int64_t> units);
  UOp Add(PlaceVariable v, int64_t low, int64_t high);

  std::map<Key, UOp> known_;
  std::vector<PlaceVariable> all_;
};

// An extent that has one value only as that number: a cut axis is measured in numbers, and others
// that it meets must be as well.
Extent Fixed(const Extent& e);
Extents Fixed(Extents dims);
// The node over other sources, with its own extents so.
UOp WithFixed(const UOp& u, absl::Span<const UOp> srcs);

// Nodes are those of one graph, in which every mesh dim is Manual.
class LocalParts {
 public:
  static Device ManualOf(Device d);
  // The boxes of a tensor, on the Manual mesh.
  static Boxes PartsOf(const UOp& u);
  static Boxes PartsOf(const Shape& shape, Device device);

  // Of one axis by place: how long its pieces are, of an axis of that extent; or other numbers.
  Extent SizeOf(Device manual, const AxisBoxes& axis);
  Extent SizeOf(Device manual, const AxisBoxes& axis, const Extent& extent);
  Extent Number(Device manual, const AxisBoxes& axis, absl::Span<const int64_t> values);
  // The extents of a place's part; those of axes that are not divided as they are.
  Extents LocalShape(const Shape& shape, Device device);
  Extents ShapeOf(const Shape& shape, const Boxes& boxes);
  // The same extents, written as others are.
  static UOp Recast(const UOp& u, const Extents& dims);

  // Elements begin, begin + size of each axis; below the repetitions that it cuts.
  static UOp Cut(const UOp& x, const Pairs& parts);
  // The same of what is computed element by element, from parts of what that reads.
  static UOp CutBelow(const UOp& x, const Pairs& parts);
  // Where a place's part of `to` begins in its part of `from`, both in one index space, and its
  // size; and that part.
  Pairs PartsWithin(const Shape& shape, const Boxes& from, const Boxes& to);
  UOp CutWithin(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to);
  // The parts that lie in `from`, as they lie in `to`: cut where no place wants what it has not.
  UOp Exchange(const UOp& x, const Shape& shape, const Boxes& from, const Boxes& to);

  // What has no device, computed by each place for itself: should it get a buffer, then one there.
  UOp Home(const UOp& x, Device manual);
  // A place's part of what every place can compute whole: it computes no more than that.
  UOp PartOf(const UOp& given, const Shape& shape, Device device);

  std::vector<PlaceVariable> TakeVariables() { return variables_.Take(); }

 private:
  PlaceVariables variables_;
  // By device, axis and extent.
  std::map<std::tuple<uint64_t, int, int64_t, const Node*>, Extent> sizes_;
  absl::flat_hash_map<Device, absl::flat_hash_map<const Node*, UOp>> homed_;
};

}  // namespace tessera
