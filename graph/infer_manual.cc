// The borders of per-place programs: shapes and devices of LOCAL, GLOBAL and PASS, and what varies.
#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/own_extent.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

using How = Placement::Kind;

// The side that is no place's own: the source of a LOCAL, the result of a GLOBAL.
struct Border {
  Sharding outside, inside;
};

absl::StatusOr<Border> BorderOf(Op op, const UOp& src, Device to) {
  if (!src.device().is_sharding() || !to.is_sharding()) {
    return Misplaced("takes a tensor on a Sharding to a Sharding, not ", Describe(src), " to ",
                     to.ToString());
  }
  const Sharding from = src.device().sharding(), other = to.sharding();
  if (!(from.mesh() == other.mesh())) {
    return Misplaced("stays on one mesh, not from ", from.ToString(), " to ", other.ToString());
  }
  const Border b = op == Op::kLocal ? Border{from, other} : Border{other, from};
  for (int d = 0; d < from.mesh().ndim(); ++d) {
    if (b.outside(d) == b.inside(d)) continue;
    const bool enters = b.inside(d).is(How::kManual) &&
                        (b.outside(d).is(How::kReplicate) || b.outside(d).is(How::kShard));
    if (enters) continue;
    return Misplaced("mesh dim ", from.mesh().DimName(d), " cannot be ", b.inside(d).ToString(),
                     " inside and ", b.outside(d).ToString(), " outside");
  }
  return b;
}

// The sizes of the pieces of an axis, by coordinate.
std::vector<int64_t> SizesOf(const Sharding& s, int axis, int64_t n) {
  const Cut cut = CutAxis(s.NestOf(axis), n);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i + 1 < cut.size(); ++i) sizes.push_back(cut[i + 1] - cut[i]);
  return sizes;
}

// The extent that places have of an axis cut by no dim that stays.
Extent OwnExtentOf(const Sharding& s, int axis, int64_t n) {
  OwnSizes own;
  for (int d : s.DimsOf(axis)) own.dims.emplace_back(d, s.mesh().dims()[d].size);
  own.sizes = SizesOf(s, axis, n);
  return OwnExtent(own);
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

Extent OwnExtent(const OwnSizes& own) {
  const auto [low, high] = std::minmax_element(own.sizes.begin(), own.sizes.end());
  if (*low == *high) return *low;
  int64_t unit = 0;
  for (int64_t n : own.sizes) unit = std::gcd(unit, n);
  const auto dim = [](std::string* out, const std::pair<int, int64_t>& d) {
    absl::StrAppend(out, d.first, "x", d.second);
  };
  const auto number = [unit](std::string* out, int64_t n) { absl::StrAppend(out, n / unit); };
  const std::string name = absl::StrCat(kOwnVariable, absl::StrJoin(own.dims, ".", dim), ":",
                                        absl::StrJoin(own.sizes, ".", number));
  const UOp v = UOp::Make(Op::kVar, kInt64, {}, VarArg{name, *low / unit, *high / unit});
  return Extent(unit) * Extent(v);
}

namespace {
// Whether a name that may come from a text says what this variable can be: a size for each
// coordinate over dims in order, the least and the largest of them its bounds.
bool IsOwn(const OwnSizes& own, const VarArg& variable) {
  int64_t points = 1, sum = 0;
  int before = -1;
  for (const auto& [dim, size] : own.dims) {
    if (dim <= before || size < 1 || __builtin_mul_overflow(points, size, &points)) return false;
    before = dim;
  }
  if (points != static_cast<int64_t>(own.sizes.size())) return false;
  for (int64_t n : own.sizes) {
    if (n < 0 || __builtin_add_overflow(sum, n, &sum)) return false;
  }
  const auto [low, high] = std::minmax_element(own.sizes.begin(), own.sizes.end());
  return *low == variable.min && *high == variable.max;
}

// Whether its dims are of this mesh.
bool IsOver(const OwnSizes& own, const Mesh& mesh) {
  return std::all_of(own.dims.begin(), own.dims.end(), [&mesh](const auto& d) {
    return d.first < mesh.ndim() && mesh.dims()[d.first].size == d.second;
  });
}
}  // namespace

std::optional<OwnSizes> OwnSizesOf(const UOp& variable) {
  if (!variable.is(Op::kVar)) return std::nullopt;
  absl::string_view name = variable.arg<VarArg>().name;
  if (!absl::ConsumePrefix(&name, kOwnVariable)) return std::nullopt;
  const std::vector<absl::string_view> halves = absl::StrSplit(name, ':');
  OwnSizes out;
  for (absl::string_view d : absl::StrSplit(halves[0], '.')) {
    const std::vector<absl::string_view> pair = absl::StrSplit(d, 'x');
    out.dims.emplace_back();
    if (pair.size() != 2 || !absl::SimpleAtoi(pair[0], &out.dims.back().first) ||
        !absl::SimpleAtoi(pair[1], &out.dims.back().second)) {
      return std::nullopt;
    }
  }
  for (absl::string_view n : absl::StrSplit(halves.size() > 1 ? halves[1] : "", '.')) {
    out.sizes.emplace_back();
    if (!absl::SimpleAtoi(n, &out.sizes.back())) return std::nullopt;
  }
  return IsOwn(out, variable.arg<VarArg>()) ? std::optional(out) : std::nullopt;
}

std::optional<OwnSizes> OwnSizesOf(const Extent& e) {
  if (e.is_int()) return std::nullopt;
  const Sum sum = ToSum(e.expr());
  if (sum.constant != 0 || sum.terms.size() != 1) return std::nullopt;
  std::optional<OwnSizes> own = OwnSizesOf(sum.terms[0].term);
  if (!own) return std::nullopt;
  int64_t all = 0;
  for (int64_t& n : own->sizes) {
    if (__builtin_mul_overflow(n, sum.terms[0].factor, &n) || n < 0 ||
        __builtin_add_overflow(all, n, &all)) {
      return std::nullopt;
    }
  }
  return own;
}

bool DiffersAlong(const Shape& shape, int dim) {
  for (const Extent& e : shape) {
    if (e.is_int()) continue;
    const UOp expr = e.expr();
    for (const UOp& u : TopoSort({&expr, 1})) {
      const std::optional<OwnSizes> own = OwnSizesOf(u);
      if (!own) continue;
      for (const auto& [d, size] : own->dims) {
        if (dim < 0 || d == dim) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<Shape> ManualShape(Op op, const UOp& src, Device to) {
  ASSIGN_OR_RETURN(const Border b, BorderOf(op, src, to));
  Extents dims = src.shape().ToExtents();
  for (const Placement& p : b.outside.placements()) {
    if (p.is(How::kShard) && p.axis >= src.rank()) {
      return Misplaced("there is no axis ", p.axis, " in ", Describe(src));
    }
  }
  for (int a = 0; a < src.rank(); ++a) {
    const int64_t parts = PartsOf(b, a);
    if (parts == 1) continue;
    const std::optional<OwnSizes> own = OwnSizesOf(dims[a]);
    if (op == Op::kGlobal && own) {
      dims[a] = std::accumulate(own->sizes.begin(), own->sizes.end(), int64_t{0});
      continue;
    }
    if (!dims[a].is_int()) {
      return Misplaced("axis ", a, " of ", Describe(src), " is symbolic and cut");
    }
    int64_t whole = 0;
    if (op == Op::kGlobal && __builtin_mul_overflow(dims[a].value(), parts, &whole)) {
      return Misplaced("the parts of axis ", a, " of ", Describe(src), " are too many elements");
    }
    if (op == Op::kLocal && b.inside.NestOf(a).empty()) {
      const absl::Status fits = CheckNest(b.outside.NestOf(a), dims[a].value());
      if (!fits.ok()) return fits;
      dims[a] = OwnExtentOf(b.outside, a, dims[a].value());
    } else if (op == Op::kGlobal) {
      dims[a] = whole;
    } else if (dims[a].value() % parts == 0) {
      dims[a] = dims[a].value() / parts;
    } else {
      return Misplaced("axis ", a, " of ", Describe(src), " is not cut into ", parts,
                       " equal parts, which other mesh dims cut on; pad it first");
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
    const auto uneven = [&] {
      return Misplaced(
          "axis ", a, " of ", Describe(src.dtype(), outside, b.outside),
          " is not cut into equal parts, which other mesh dims cut on; pad it, or .To(...) "
          "an even layout first");
    };
    if (PartsOf(b, a) == 1) {  // a clip is held by the outermost dim, which may be one that enters
      const Nest out = b.outside.NestOf(a), in = b.inside.NestOf(a);
      if (in.empty() || !outside[a].is_int()) continue;
      if (CutAxis(out, outside[a].value()) != CutAxis(in, outside[a].value())) return uneven();
      continue;
    }
    // What other dims cut of it must be as much on both sides: the same bytes lie on each place.
    const Nest own = b.inside.NestOf(a);
    const Shape& within = op == Op::kLocal ? other : src.shape();
    const bool numbers = outside[a].is_int() && (own.empty() || within[a].is_int());
    const Cut cut = numbers ? CutAxis(b.outside.NestOf(a), outside[a].value()) : Cut();
    if (numbers && own.empty()) {
      if (OwnExtentOf(b.outside, a, outside[a].value()) == within[a]) continue;
      return Misplaced("the places' parts of axis ", a, " of ", Describe(src.dtype(), within, to),
                       " are not those of ", b.outside.ToString(),
                       "; give the result the layout of its parts");
    }
    const auto even = [&](const Cut& c) {
      for (size_t i = 0; i + 1 < c.size(); ++i) {
        if (c[i + 1] - c[i] != cut[1]) return false;
      }
      return true;
    };
    if (!numbers || !even(cut) || !even(CutAxis(own, within[a].value()))) return uneven();
  }
  if (op == Op::kLocal) return absl::OkStatus();
  for (int a = 0; a < src.rank(); ++a) {
    const std::optional<OwnSizes> own = OwnSizesOf(src.shape()[a]);
    if (!own) continue;
    if (!IsOver(*own, b.outside.mesh())) {
      return Misplaced("axis ", a, " of ", Describe(src), " is of places of another mesh than ",
                       b.outside.mesh().ToString());
    }
    for (const auto& [d, size] : own->dims) {
      if (b.inside(d).is(How::kManual) == b.outside(d).is(How::kManual)) continue;
      if (b.outside(d).ShardsAxis(a)) continue;
      return Misplaced("the places along mesh dim ", b.outside.mesh().DimName(d),
                       " have parts of different sizes of axis ", a, " of ", Describe(src),
                       "; give the result a Shard placement of that axis, or AllGather it first");
    }
  }
  for (int d = 0; d < b.outside.mesh().ndim(); ++d) {
    if (!b.inside(d).is(How::kManual) || !b.outside(d).is(How::kReplicate) || !Varies(src, d)) {
      continue;
    }
    return Misplaced("what the places along mesh dim ", b.outside.mesh().DimName(d),
                     " have may differ, so it cannot be one value on all of them; AllReduce or "
                     "AllGather it first, or give the result a Shard placement");
  }
  return absl::OkStatus();
}

absl::Status CheckPass(const UOp& src, const Ints& arg) {
  if (!src.device().is_sharding()) return Misplaced("takes a tensor on a Sharding");
  const Sharding s = src.device().sharding();
  if (arg.empty() || arg[0] < 0 || arg[0] >= s.mesh().ndim()) {
    return Misplaced("names no dim of ", s.mesh().ToString());
  }
  const auto dim = static_cast<int>(arg[0]);
  const int64_t places = s.mesh().dims()[dim].size;
  if (!s(dim).is(How::kManual)) {
    return Misplaced("mesh dim ", s.mesh().DimName(dim), " is ", s(dim).ToString(), ", not Manual");
  }
  if (static_cast<int64_t>(arg.size()) != places + 1) {
    return Misplaced("has ", arg.size() - 1, " sources for ", places, " places");
  }
  for (size_t i = 1; i < arg.size(); ++i) {
    if (arg[i] >= 0 && arg[i] < places) continue;
    return Misplaced("place ", i - 1, " has the source ", arg[i], ", which is not one of ", places);
  }
  if (DiffersAlong(src.shape(), -1)) {
    return Misplaced("places have parts of different sizes, ", src.shape().ToString(),
                     "; AllGather them, or pad them to one size");
  }
  if (src.rank() == 0 || !src.shape()[0].is_int(1) || !s.DimsOf(0).empty()) {
    return Misplaced("axis 0 of ", Describe(src), " is not whole and of extent 1");
  }
  return absl::OkStatus();
}

bool SameManualDims(Device a, Device b) {
  const bool one_mesh =
      a.is_sharding() && b.is_sharding() && a.sharding().mesh() == b.sharding().mesh();
  if (!one_mesh) {
    const auto own = [](Device d) { return d.is_sharding() && d.sharding().Has(How::kManual); };
    return !own(a) && !own(b);
  }
  const Sharding x = a.sharding(), y = b.sharding();
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
