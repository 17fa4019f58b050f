// Inference of the shapes of what is made of the parts of a mesh, or moved between them.
#include <algorithm>

#include "graph/box.h"
#include "graph/infer_context.h"
#include "graph/status.h"

namespace tessera {
namespace {

using Context = InferContext;

// Whether an interval is made of elements that some piece holds.
bool Held(const Interval& part, absl::Span<const Interval> sorted) {
  int64_t from = part.begin;
  for (const Interval& p : sorted) {
    if (p.begin <= from) from = std::max(from, p.end);
  }
  return from >= part.end;
}

// What is there holds what is wanted; a place that wants nothing along one axis may name anything
// along another.
absl::Status CheckPieces(const Context& c, const ExchangeArg& x) {
  std::vector<std::pair<size_t, Interval>> missing;  // by axis
  for (size_t a = 0; a < x.shape.size(); ++a) {
    std::vector<Interval> own = x.from->axes[a].pieces;
    std::sort(own.begin(), own.end(), [](const Interval& l, const Interval& r) {
      return std::pair(l.begin, l.end) < std::pair(r.begin, r.end);
    });
    for (const Interval& p : x.to->axes[a].pieces) {
      if (p.begin > p.end || !Held(p, own)) missing.emplace_back(a, p);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  for (int place = 0; place < static_cast<int>(x.to->device.places().size()); ++place) {
    const Box box = x.to->At(place);
    if (Volume(box) == 0) continue;
    for (const auto& [a, p] : missing) {
      if (!(box[a] == p)) continue;
      return c.Fail("nobody holds all of ", p.begin, "..", p.end, " of axis ", a);
    }
  }
  return absl::OkStatus();
}

// The sizes of an extent's pieces, where it is the same for all.
absl::Status CheckSizes(const Context& c, const Extent& e, const AxisBoxes& axis, size_t a) {
  if (!e.is_int()) return absl::OkStatus();
  for (const Interval& p : axis.pieces) {
    if (p.size() == e.value()) continue;
    return c.Fail("a part of ", e.value(), " along axis ", a, " does not fit ", p.begin, "..",
                  p.end);
  }
  return absl::OkStatus();
}

// The boxes are of the tensor's axes, and what is combined lies on a mesh that has the dims.
absl::Status CheckExchange(const Context& c, const ExchangeArg& x) {
  const size_t rank = x.shape.size();
  if (x.from->axes.size() != rank || x.to->axes.size() != rank) {
    return c.Fail("has boxes of ", x.from->axes.size(), " and ", x.to->axes.size(),
                  " axes for a result of ", rank);
  }
  for (const UOp& s : c.srcs) {
    if (s.rank() != static_cast<int>(rank)) return c.Fail("takes parts of ", rank, " axes");
  }
  RETURN_IF_ERROR(CheckPieces(c, x));
  const absl::Span<const Place> places = x.from->device.places();
  for (size_t i = 0; i < c.srcs.size(); ++i) {
    const absl::Span<const Place> own = c.srcs[i].device().places();
    const auto at = c.srcs.size() == 1 ? places : places.subspan(std::min(i, places.size()), 1);
    if (!own.empty() && own != at)
      return c.Fail("the parts are not on ", x.from->device.ToString());
  }
  for (size_t a = 0; a < rank; ++a) {
    RETURN_IF_ERROR(CheckSizes(c, x.shape[a], x.to->axes[a], a));
    if (c.srcs.size() > 1) continue;
    RETURN_IF_ERROR(CheckSizes(c, c.srcs[0].shape()[static_cast<int>(a)], x.from->axes[a], a));
  }
  if (x.over.empty()) return absl::OkStatus();
  if (x.op != Op::kWhere) RETURN_IF_ERROR(CheckCombines(c, x.op, c.srcs[0].dtype()));
  if (!x.from->device.is_sharding()) return c.Fail("combines what is on one place");
  return CheckMeshDims(c, x.over, x.from->device.sharding().mesh());
}

}  // namespace

absl::StatusOr<Shape> InferExchange(const Context& c) {
  ASSIGN_OR_RETURN(const ExchangeArg* x, ArgOf<ExchangeArg>(c));
  RETURN_IF_ERROR(CheckExtents(c, x->shape));
  RETURN_IF_ERROR(CheckExchange(c, *x));
  return Shape(x->shape);
}

// The parts' extents along the places that divide an axis add up; along others
// they agree.
absl::StatusOr<Shape> InferStack(const Context& c) {
  ASSIGN_OR_RETURN(const Device* to, ArgOf<Device>(c));
  if (!to->is_sharding() || static_cast<int>(c.srcs.size()) != to->sharding().size()) {
    return c.Fail("needs a part for each place of ", to->ToString());
  }
  const Sharding s = to->sharding();
  Extents dims = c.srcs[0].shape().ToExtents();
  for (int a = 0; a < c.srcs[0].rank(); ++a) {
    const std::vector<int> over = s.DimsOf(a);
    if (over.empty()) continue;
    dims[a] = 0;
    const std::vector<std::vector<int>> groups = s.mesh().Groups(over);
    for (int i : groups[0]) {
      if (c.srcs[i].rank() <= a) return c.Fail("the parts differ in rank");
      dims[a] = dims[a] + c.srcs[i].shape()[a];
    }
  }
  RETURN_IF_ERROR(CheckExtents(c, dims));
  return Shape(std::move(dims));
}

absl::StatusOr<Shape> InferSelect(const Context& c) {
  ASSIGN_OR_RETURN(const int64_t* i, ArgOf<int64_t>(c));
  const Device from = c.srcs[0].device();
  if (!from.is_sharding()) return c.Fail("takes a tensor on a Sharding");
  if (*i < 0 || *i >= from.sharding().size()) return c.Fail("there is no shard ", *i);
  Extents dims;
  for (const Interval& part : BoxesOf(c.srcs[0].shape(), from).At(static_cast<int>(*i))) {
    dims.push_back(PartBelow(part, c.srcs[0].shape()[static_cast<int>(dims.size())]));
  }
  return Shape(std::move(dims));
}

}  // namespace tessera
