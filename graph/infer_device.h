// The device of a node over several places: how placements go through each primitive.
#pragma once

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// What follows the op's name in a message.
template <typename... Parts>
absl::Status Misplaced(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The most elements that an axis may have.
inline int64_t ExtentOf(const Shape& shape, int axis) {
  return std::max<int64_t>(0, shape[axis].max());
}

// The device of a node of this shape, some of whose sources are sharded. Sources that do not fit
// together are an error: the builders of graph/tensor_align.h put reshards before such nodes. A
// message is what follows the op's name.
absl::StatusOr<Device> InferSharded(Op op, absl::Span<const UOp> srcs, const Arg& arg,
                                    const Shape& shape);

// ---- what is each place's own (Manual)

// The shape on the other side of a LOCAL or GLOBAL, and whether it may go there.
absl::StatusOr<Shape> ManualShape(Op op, const UOp& src, Device to);
absl::Status CheckBorder(Op op, const UOp& src, Device to);
absl::Status CheckPass(const UOp& src, const Ints& arg);
// Whether two shardings are over one mesh and Manual on the same of its dims.
bool SameManualDims(Device a, Device b);
// Whether the value may differ between places along a mesh dim that is Manual.
bool Varies(const UOp& u, int dim);

// Whether a tensor of this shape can be on the device: axes exist, sizes add up.
absl::Status CheckPlacement(const Shape& shape, const Sharding& sharding);

// Where a tensor of this shape lies once its symbolic extents are these numbers: the parts end
// sooner, and stay where the bounds have laid them.
Device DeviceWithin(const Shape& shape, Device device, absl::Span<const Extent> extents);

// Whether a PAD or SHRINK, to a shape, leaves the pieces of an axis where they lie.
bool KeepsPieces(Op op, const Shape& from, const Shape& to, int axis, const Pairs& pairs);

// Whether a PAD's padding, or the axis that it pads, depends on a variable: a WINDOW over the axis
// then reads the zeros as elements.
bool PadsSymbolic(const UOp& pad);

// Whether some piece of a CAT begins where one of symbolic extent ends, so that it lies nowhere for
// certain.
bool FollowsSymbolic(absl::Span<const UOp> pieces, int axis);

// Whether two devices hold the same box of a tensor of this shape at each place.
bool SamePlacement(const Shape& shape, Device a, Device b);

// The sharding with each axis in the form that sorts first.
Sharding CanonicalSharding(const Shape& shape, const Sharding& sharding);

// The placements after a reshape, dim by dim; nothing for the axes that do not survive, whose dims
// are left as Replicate and listed in `lost`.
Sharding ReshapeImage(const Shape& from, const Sharding& sharding, const Shape& to,
                      std::vector<int>* lost);
// The finest Aligned layout of an axis that survives the reshape with at least two units.
std::optional<Layout> SurvivingLayout(const Shape& from, int axis, const Shape& to);

}  // namespace tessera
