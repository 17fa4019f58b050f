// One walk from the leaves up: plain nodes to plain nodes, Manual ones to one for each coordinate.
#include "graph/unmap.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/box.h"
#include "graph/infer.h"
#include "graph/own_extent.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"
#include "graph/unroll.h"

namespace tessera {
namespace {

using How = Placement::Kind;
using Coordinates = std::vector<int64_t>;

// The mesh dims along which each place has a value of its own.
std::vector<int> ManualDims(Device device) {
  std::vector<int> out;
  if (!device.is_sharding()) return out;
  const Sharding s = device.sharding();
  for (int d = 0; d < s.mesh().ndim(); ++d) {
    if (s(d).is(How::kManual)) out.push_back(d);
  }
  return out;
}

// Calls fn with each point of those dims, row-major; 0 along the others.
template <typename Fn>
void ForEachPoint(const Mesh& mesh, const std::vector<int>& dims, Fn fn) {
  Coordinates at(mesh.ndim(), 0);
  for (;;) {
    fn(at);
    size_t i = dims.size();
    for (; i-- > 0;) {
      if (++at[dims[i]] < mesh.dims()[dims[i]].size) break;
      at[dims[i]] = 0;
    }
    if (i == static_cast<size_t>(-1)) return;
  }
}

class Unmapper {
 public:
  explicit Unmapper(bool stop_at_realized) : stop_at_realized_(stop_at_realized) {}

  absl::StatusOr<std::vector<UOp>> Run(absl::Span<const UOp> roots) {
    for (const UOp& u : TopoSort(roots)) {
      const std::vector<int> own = ManualDims(u.device());
      if (!u.device() && IsOwn(u)) {
        AddOwn(u);
        continue;
      }
      if (own.empty()) {
        plain_[u.get()] = u.is(Op::kGlobal) && !IsLeaf(u) ? Joined(u, {}) : Plain(u);
        continue;
      }
      std::vector<UOp>& parts = parts_[u.get()];
      ForEachPoint(u.device().sharding().mesh(), own,
                   [&](const Coordinates& at) { parts.push_back(Part(u, at)); });
    }
    std::vector<UOp> out;
    for (const UOp& r : roots) {
      if (!ManualDims(r.device()).empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "Evaluate: ", Describe(r), " is each place's own, and has no value as a whole"));
      }
      out.push_back(plain_.at(r.get()));
    }
    return out;
  }

 private:
  bool IsLeaf(const UOp& u) const { return u.size() == 0 || (stop_at_realized_ && u.realized()); }

  UOp Plain(const UOp& u) const {
    if (IsLeaf(u)) return u;
    absl::InlinedVector<UOp, 4> srcs;
    bool same = true;
    for (const UOp& s : u.srcs()) {
      srcs.push_back(plain_.at(s.get()));
      same &= srcs.back() == s;
    }
    return same ? u : u.WithSrcs(srcs);
  }

  // ---- what has no device, and extents that are each place's own

  using Dims = std::vector<std::pair<int, int64_t>>;  // of a mesh, with their sizes

  // The own extents that an argument mentions.
  static Dims OwnDims(const UOp& u) {
    Dims out;
    const auto add = [&out](const UOp& v) {
      const std::optional<OwnSizes> own = OwnSizesOf(v);
      if (own) out.insert(out.end(), own->dims.begin(), own->dims.end());
    };
    add(u);
    ForEachArgUOp(u.arg(), [&](const UOp& e) {
      for (const UOp& v : TopoSort({&e, 1})) add(v);
    });
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }
  bool IsOwn(const UOp& u) const {
    const auto has = [this](const UOp& s) { return own_.contains(s.get()); };
    return !OwnDims(u).empty() || std::any_of(u.srcs().begin(), u.srcs().end(), has);
  }

  void AddOwn(const UOp& u) {
    Dims dims = OwnDims(u);
    for (const UOp& s : u.srcs()) {
      const auto it = own_.find(s.get());
      if (it != own_.end()) dims.insert(dims.end(), it->second.dims.begin(), it->second.dims.end());
    }
    std::sort(dims.begin(), dims.end());
    dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
    std::vector<UOp> parts;
    int64_t points = 1;
    for (const auto& [d, size] : dims) points *= size;
    for (int64_t p = 0; p < points; ++p) {
      Coordinates at(dims.back().first + 1, 0);
      int64_t rest = p;
      for (auto d = dims.rbegin(); d != dims.rend(); ++d) {
        at[d->first] = rest % d->second;
        rest /= d->second;
      }
      parts.push_back(Made(u, at));
    }
    own_[u.get()] = {std::move(dims), std::move(parts)};
  }

  static int64_t IndexOf(const Dims& dims, const Coordinates& at) {
    int64_t index = 0;
    for (const auto& [d, size] : dims) index = index * size + at[d];
    return index;
  }

  static Extent ExtentFor(const Extent& e, const Coordinates& at) {
    if (e.is_int()) return e;
    Substitution values;
    const UOp expr = e.expr();
    for (const UOp& v : TopoSort({&expr, 1})) {
      const std::optional<OwnSizes> own = OwnSizesOf(v);
      if (own) values.emplace(v, UOp::Index(own->sizes[IndexOf(own->dims, at)]));
    }
    return values.empty() ? e : Extent(Simplify(Substitute(expr, values)));
  }

  // A node as it is at a place.
  UOp Made(const UOp& u, const Coordinates& at) const {
    if (const std::optional<OwnSizes> own = OwnSizesOf(u)) {
      return UOp::Index(own->sizes[IndexOf(own->dims, at)]);
    }
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(At(s, at));
    if (OwnDims(u).empty()) return u.WithSrcs(srcs);
    Arg arg = u.arg();
    if (auto* list = std::get_if<Extents>(&arg.value)) {
      for (Extent& e : *list) e = ExtentFor(e, at);
    } else if (auto* pairs = std::get_if<Pairs>(&arg.value)) {
      for (auto& [a, b] : *pairs) a = ExtentFor(a, at), b = ExtentFor(b, at);
    }
    return UOp::Make(u.op(), u.dtype(), srcs, std::move(arg));
  }

  // What the place at these coordinates has of a node.
  UOp At(const UOp& u, const Coordinates& at) const {
    const std::vector<int> own = ManualDims(u.device());
    if (const auto it = own_.find(u.get()); it != own_.end()) {
      return it->second.parts[IndexOf(it->second.dims, at)];
    }
    if (own.empty()) return plain_.at(u.get());
    const Mesh mesh = u.device().sharding().mesh();
    int64_t index = 0;
    for (int d : own) index = index * mesh.dims()[d].size + at[d];
    return parts_.at(u.get())[index];
  }

  UOp Part(const UOp& u, const Coordinates& at) const {
    switch (u.op()) {
      case Op::kLocal:
        return Cut(u, at);
      case Op::kGlobal:
        return Joined(u, at);
      case Op::kCopy:  // among the places that stay
        return At(u.src(0), at);
      case Op::kPass: {
        const Ints& arg = u.arg<Ints>();
        Coordinates from = at;
        from[arg[0]] = arg[1 + at[arg[0]]];
        return At(u.src(0), from);
      }
      case Op::kAllReduce:
        return Combined(u, at);
      default:
        break;
    }
    return Made(u, at);
  }

  // The pieces of an axis in their order, and which of them a place takes along by entering: those
  // with its coordinates along the dims that become Manual. Dims that stay cut what it takes on.
  struct Taken {
    AxisBoxes axis;
    std::vector<int> dims;  // of the axis, that become Manual
  };
  static Taken TakenOf(const Shape& shape, const Sharding& outside, const Sharding& inside,
                       int axis) {
    Taken t{BoxesOf(shape, outside).axes[axis], {}};
    for (int d : t.axis.dims) {
      if (inside(d).is(How::kManual)) t.dims.push_back(d);
    }
    return t;
  }
  static bool Takes(const Taken& t, const Mesh& mesh, size_t piece, const Coordinates& at) {
    int64_t rest = static_cast<int64_t>(piece);
    for (size_t i = t.axis.dims.size(); i-- > 0;) {
      const int d = t.axis.dims[i];
      const int64_t own = rest % mesh.dims()[d].size;
      rest /= mesh.dims()[d].size;
      if (Has(t.dims, d) && own != at[d]) return false;
    }
    return true;
  }
  static bool Has(const std::vector<int>& dims, int d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  }
  static UOp Slice(const UOp& x, int axis, Interval i) {
    Pairs pairs;
    for (const Extent& e : x.shape()) pairs.emplace_back(Extent(0), e);
    pairs[axis] = {Extent(i.begin), Extent(i.end)};
    return UOp::Make(Op::kShrink, {x}, pairs);
  }
  static UOp SideBySide(const std::vector<UOp>& pieces, int axis) {
    return pieces.size() == 1 ? pieces[0] : UOp::Make(Op::kCat, pieces, int64_t{axis});
  }

  // Its own part of what a place enters with.
  UOp Cut(const UOp& u, const Coordinates& at) const {
    const UOp& src = u.src(0);
    const Sharding outside = src.device().sharding(), inside = u.device().sharding();
    UOp x = At(src, at);
    if (x.device().is_sharding()) {
      x = UOp::Make(Op::kCopy, {x}, Device(outside.mesh().places()[0]));
    }
    for (int a = 0; a < src.rank(); ++a) {
      const Taken t = TakenOf(src.shape(), outside, inside, a);
      if (t.dims.empty()) continue;
      std::vector<UOp> pieces;
      for (size_t i = 0; i < t.axis.pieces.size(); ++i) {
        if (Takes(t, outside.mesh(), i, at)) pieces.push_back(Slice(x, a, t.axis.pieces[i]));
      }
      x = SideBySide(pieces, a);
    }
    return x;
  }

  // The parts put together again, along the dims that are no longer each place's own.
  UOp Joined(const UOp& u, Coordinates at) const {
    at.resize(u.device().sharding().mesh().ndim(), 0);
    const UOp whole = JoinedFrom(u, 0, at);
    return ManualDims(u.device()).empty() ? UOp::Make(Op::kCopy, {whole}, u.device()) : whole;
  }
  UOp JoinedFrom(const UOp& u, int axis, const Coordinates& at) const {
    if (axis == u.rank()) return At(u.src(0), at);  // of replicas the first; all are equal
    const Sharding outside = u.device().sharding(), inside = u.src(0).device().sharding();
    const Taken t = TakenOf(u.shape(), outside, inside, axis);
    if (t.dims.empty()) return JoinedFrom(u, axis + 1, at);
    std::vector<UOp> pieces(t.axis.pieces.size());
    ForEachPoint(outside.mesh(), t.dims, [&](const Coordinates& point) {
      Coordinates from = at;
      for (int d : t.dims) from[d] = point[d];
      const UOp part = JoinedFrom(u, axis + 1, from);
      int64_t begin = 0;  // within the part
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (!Takes(t, outside.mesh(), i, from)) continue;
        const int64_t n = t.axis.pieces[i].size();
        pieces[i] = Slice(part, axis, {begin, begin + n});
        begin += n;
      }
    });
    return SideBySide(pieces, axis);
  }

  // Over dims that are Manual, of all the places along them; along others the REDUCE below was.
  UOp Combined(const UOp& u, const Coordinates& at) const {
    const ReduceArg& arg = u.arg<ReduceArg>();
    const std::vector<int> own = ManualDims(u.src(0).device());
    std::vector<int> over;
    for (int64_t d : arg.axes) {
      if (std::find(own.begin(), own.end(), d) != own.end()) over.push_back(static_cast<int>(d));
    }
    if (over.empty()) return At(u.src(0), at);
    const DType wide = AccumulateType(u.dtype());
    UOp sum;
    ForEachPoint(u.device().sharding().mesh(), over, [&](const Coordinates& point) {
      Coordinates from = at;
      for (int d : over) from[d] = point[d];
      const UOp part = As(At(u.src(0), from), wide);
      sum = sum ? UOp::Make(arg.op, {sum, part}) : part;
    });
    return As(sum, u.dtype());
  }
  static UOp As(const UOp& u, DType t) { return u.dtype() == t ? u : UOp::Make(Op::kCast, t, {u}); }

  const bool stop_at_realized_;
  absl::flat_hash_map<const Node*, UOp> plain_;
  absl::flat_hash_map<const Node*, std::vector<UOp>> parts_;
  struct Own {
    Dims dims;
    std::vector<UOp> parts;
  };
  absl::flat_hash_map<const Node*, Own> own_;
};

}  // namespace

absl::StatusOr<std::vector<UOp>> WithoutPrograms(absl::Span<const UOp> roots,
                                                 bool stop_at_realized) {
  const std::vector<UOp> order = TopoSort(roots);
  const bool none = std::none_of(order.begin(), order.end(), [](const UOp& u) {
    return u.is(Op::kLocal) || u.is(Op::kGlobal) || u.is(Op::kPass);
  });
  if (none) return std::vector<UOp>(roots.begin(), roots.end());
  ASSIGN_OR_RETURN(const std::vector<UOp> written_out, WithoutLoops(roots, stop_at_realized));
  return Unmapper(stop_at_realized).Run(written_out);
}

}  // namespace tessera
