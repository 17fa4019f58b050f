// The borders of per-place programs: shapes and devices of LOCAL, GLOBAL and PASS, and what varies.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/status.h"

namespace tessera {
namespace {

using How = Placement::Kind;

template <typename... Parts>
absl::Status Fail(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The side that is no place's own: the source of a LOCAL, the result of a GLOBAL.
struct Border {
  Sharding outside, inside;
};

absl::StatusOr<Border> BorderOf(Op op, const UOp& src, Device to) {
  if (!src.device().is_sharding() || !to.is_sharding()) {
    return Fail("takes a tensor on a Sharding to a Sharding, not ", Describe(src), " to ",
                to.ToString());
  }
  const Sharding from = src.device().sharding(), other = to.sharding();
  if (!(from.mesh() == other.mesh())) {
    return Fail("stays on one mesh, not from ", from.ToString(), " to ", other.ToString());
  }
  const Border b = op == Op::kLocal ? Border{from, other} : Border{other, from};
  for (int d = 0; d < from.mesh().ndim(); ++d) {
    if (b.outside(d) == b.inside(d)) continue;
    const bool enters = b.inside(d).is(How::kManual) &&
                        (b.outside(d).is(How::kReplicate) || b.outside(d).is(How::kShard));
    if (enters) continue;
    return Fail("mesh dim ", from.mesh().DimName(d), " cannot be ", b.inside(d).ToString(),
                " inside and ", b.outside(d).ToString(), " outside");
  }
  return b;
}

// The mesh dims that become Manual and cut this axis outside.
int64_t PartsOf(const Border& b, int axis) {
  int64_t parts = 1;
  for (int d : b.outside.DimsOf(axis)) {
    if (b.inside(d).is(How::kManual)) parts *= b.outside.mesh().dims()[d].size;
  }
  return parts;
}

}  // namespace

absl::StatusOr<Shape> ManualShape(Op op, const UOp& src, Device to) {
  ASSIGN_OR_RETURN(const Border b, BorderOf(op, src, to));
  Extents dims = src.shape().ToExtents();
  for (const Placement& p : b.outside.placements()) {
    if (p.is(How::kShard) && p.axis >= src.rank()) {
      return Fail("there is no axis ", p.axis, " in ", Describe(src));
    }
  }
  for (int a = 0; a < src.rank(); ++a) {
    const int64_t parts = PartsOf(b, a);
    if (parts == 1) continue;
    if (!dims[a].is_int()) return Fail("axis ", a, " of ", Describe(src), " is symbolic and cut");
    if (op == Op::kGlobal) {
      dims[a] = dims[a].value() * parts;
    } else if (dims[a].value() % parts == 0) {
      dims[a] = dims[a].value() / parts;
    } else {
      return Fail("axis ", a, " of ", Describe(src), " is not cut into ", parts,
                  " equal parts, and a per-place program has one shape; pad it first");
    }
  }
  return Shape(std::move(dims));
}

absl::Status CheckBorder(Op op, const UOp& src, Device to) {
  ASSIGN_OR_RETURN(const Border b, BorderOf(op, src, to));
  ASSIGN_OR_RETURN(const Shape other, ManualShape(op, src, to));
  const Shape& outside = op == Op::kLocal ? src.shape() : other;
  RETURN_IF_ERROR(CheckPlacement(outside, b.outside));
  RETURN_IF_ERROR(CheckPlacement(op == Op::kLocal ? other : src.shape(), b.inside));
  for (int a = 0; a < outside.rank(); ++a) {
    if (PartsOf(b, a) == 1) continue;
    // What other dims cut of it must be as much on both sides: the same bytes lie on each place.
    const Cut cut = CutAxis(b.outside.NestOf(a), outside[a].value());
    const Nest own = b.inside.NestOf(a);
    const Shape& within = op == Op::kLocal ? other : src.shape();
    const Cut rest = own.empty() ? Cut{0, cut[1]} : CutAxis(own, within[a].value());
    const auto even = [&](const Cut& c) {
      for (size_t i = 0; i + 1 < c.size(); ++i) {
        if (c[i + 1] - c[i] != cut[1]) return false;
      }
      return true;
    };
    if (!even(cut) || !even(rest)) {
      return Fail("axis ", a, " of ", Describe(src.dtype(), outside, b.outside),
                  " is not cut into equal parts, and a per-place program has one shape; pad it, "
                  "or .To(...) an even layout first");
    }
  }
  if (op == Op::kLocal) return absl::OkStatus();
  for (int d = 0; d < b.outside.mesh().ndim(); ++d) {
    if (!b.inside(d).is(How::kManual) || !b.outside(d).is(How::kReplicate) || !Varies(src, d)) {
      continue;
    }
    return Fail("what the places along mesh dim ", b.outside.mesh().DimName(d),
                " have may differ, so it cannot be one value on all of them; AllReduce or "
                "AllGather it first, or give the result a Shard placement");
  }
  return absl::OkStatus();
}

absl::Status CheckPass(const UOp& src, const Ints& arg) {
  if (!src.device().is_sharding()) return Fail("takes a tensor on a Sharding");
  const Sharding s = src.device().sharding();
  if (arg.empty() || arg[0] < 0 || arg[0] >= s.mesh().ndim()) {
    return Fail("names no dim of ", s.mesh().ToString());
  }
  const auto dim = static_cast<int>(arg[0]);
  const int64_t places = s.mesh().dims()[dim].size;
  if (!s(dim).is(How::kManual)) {
    return Fail("mesh dim ", s.mesh().DimName(dim), " is ", s(dim).ToString(), ", not Manual");
  }
  if (static_cast<int64_t>(arg.size()) != places + 1) {
    return Fail("has ", arg.size() - 1, " sources for ", places, " places");
  }
  for (size_t i = 1; i < arg.size(); ++i) {
    if (arg[i] >= 0 && arg[i] < places) continue;
    return Fail("place ", i - 1, " has the source ", arg[i], ", which is not one of ", places);
  }
  if (src.rank() == 0 || !src.shape()[0].is_int(1) || !s.DimsOf(0).empty()) {
    return Fail("axis 0 of ", Describe(src), " is not whole and of extent 1");
  }
  return absl::OkStatus();
}

bool SameManualDims(Device a, Device b) {
  const Sharding x = a.sharding(), y = b.sharding();
  if (!(x.mesh() == y.mesh())) return !x.Has(How::kManual) && !y.Has(How::kManual);
  for (int d = 0; d < x.mesh().ndim(); ++d) {
    if (x(d).is(How::kManual) != y(d).is(How::kManual)) return false;
  }
  return true;
}

bool Varies(const UOp& u, int dim) {
  absl::flat_hash_set<const Node*> seen;
  std::vector<UOp> stack = {u};
  while (!stack.empty()) {
    const UOp at = std::move(stack.back());
    stack.pop_back();
    if (!at.device().is_sharding() || !at.device().sharding()(dim).is(How::kManual)) continue;
    if (!seen.insert(at.get()).second) continue;
    if (at.size() == 0 || at.is(Op::kPass)) return true;
    if (at.is(Op::kLocal) && at.src(0).device().sharding()(dim).is(How::kShard)) return true;
    if (at.is(Op::kAllReduce)) {
      const Ints& over = at.arg<ReduceArg>().axes;
      if (std::find(over.begin(), over.end(), dim) != over.end()) continue;
    }
    if (at.is(Op::kExchange)) return true;
    for (const UOp& s : at.srcs()) stack.push_back(s);
  }
  return false;
}

}  // namespace tessera
