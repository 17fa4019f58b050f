// A sum over places of which each reads only its own part: every place gets just that part.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "graph/box.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

class Scatterer {
 public:
  Scatterer(absl::Span<const UOp> roots, absl::Span<const PlaceVariable> variables)
      : order_(TopoSort(roots)), variables_(variables) {
    for (const UOp& r : roots) ++uses_[r.get()];
    for (const UOp& u : order_) {
      for (const UOp& s : u.srcs()) ++uses_[s.get()];
    }
  }

  std::vector<UOp> Run(absl::Span<const UOp> roots) {
    for (const UOp& u : order_) {
      absl::InlinedVector<UOp, 4> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(done_.at(s.get()));
      UOp made = u.is(Op::kShrink) ? Scattered(u) : UOp();
      if (!made) made = u.WithSrcs(srcs);
      if (!(made == u)) made.SetMarks(u);
      done_.emplace(u.get(), std::move(made));
    }
    std::vector<UOp> out;
    for (const UOp& r : roots) out.push_back(done_.at(r.get()));
    return out;
  }

 private:
  // The number that an extent is at a place; nothing where it depends on more than the place.
  std::optional<int64_t> At(const Extent& e, Device mesh, int place) {
    if (e.is_int()) return e.value();
    Substitution values;
    for (const PlaceVariable& v : variables_) {
      if (v.mesh == mesh) values.emplace(v.variable, v.At(place).ToUOp());
    }
    const Extent known(Simplify(Substitute(e.expr(), values)));
    return known.is_int() ? std::optional<int64_t>(known.value()) : std::nullopt;
  }

  // Intervals by place as pieces over the mesh dims on which they depend.
  static AxisBoxes ByDims(const Mesh& mesh, const std::vector<Interval>& intervals) {
    AxisBoxes out;
    for (int d = 0; d < mesh.ndim(); ++d) {
      bool depends = false;
      for (const std::vector<int>& group : mesh.Groups({d})) {
        for (int i : group) depends |= !(intervals[i] == intervals[group[0]]);
      }
      if (depends) out.dims.push_back(d);
    }
    int64_t n = 1;
    for (int d : out.dims) n *= mesh.dims()[d].size;
    out.pieces.resize(n);
    for (size_t i = 0; i < intervals.size(); ++i) {
      out.pieces[mesh.CoordinateOver(static_cast<int>(i), out.dims)] = intervals[i];
    }
    return out;
  }

  // The boxes that a SHRINK leaves, or that are shrunk; nothing where they are not known by place.
  bool BoxesOfPart(const UOp& shrink, Boxes* from, Boxes* to) {
    const Device device = shrink.device();
    const Mesh mesh = device.sharding().mesh();
    *from = *to = Boxes{device, {}};
    for (int a = 0; a < shrink.rank(); ++a) {
      std::vector<Interval> whole, part;
      for (int i = 0; i < mesh.size(); ++i) {
        const auto n = At(shrink.src(0).shape()[a], device, i);
        const auto begin = At(shrink.arg<Pairs>()[a].first, device, i);
        const auto end = At(shrink.arg<Pairs>()[a].second, device, i);
        if (!n || !begin || !end) return false;
        whole.push_back({0, *n});
        part.push_back(*begin < *end ? Interval{*begin, *end} : Interval{0, 0});
      }
      from->axes.push_back(ByDims(mesh, whole));
      to->axes.push_back(ByDims(mesh, part));
    }
    return true;
  }

  // Whether the parts take fewer bytes than the whole for all, and each is of the same whole.
  static bool Saves(const Boxes& from, const Boxes& to, absl::Span<const int> over) {
    const Mesh mesh = from.device.sharding().mesh();
    int64_t whole = 0, parts = 0;
    for (const std::vector<int>& group : mesh.Groups(over)) {
      for (int i : group) {
        if (!(from.At(i) == from.At(group[0]))) return false;
        parts += Volume(to.At(i));
      }
      whole += 2 * Volume(from.At(group[0]));
    }
    return parts < whole;
  }

  // Down through casts and the like, which nobody else reads.
  UOp Scattered(const UOp& shrink) {
    if (!shrink.device().is_manual()) return UOp();
    std::vector<UOp> above;
    UOp at(shrink.src(0));
    while (uses_.at(at.get()) == 1 && IsElementwise(at.op()) && at.size() == 1) {
      above.push_back(at);
      at = UOp(at.src(0));
    }
    if (!at.is(Op::kAllReduce) || uses_.at(at.get()) > 1) return UOp();
    const ReduceArg& sum = at.arg<ReduceArg>();
    const std::vector<int> over(sum.axes.begin(), sum.axes.end());
    Boxes from, to;
    if (!BoxesOfPart(shrink, &from, &to) || !Saves(from, to, over)) return UOp();
    UOp out = UOp::Make(Op::kExchange, {done_.at(at.src(0).get())},
                        ExchangeArg{std::make_shared<const Boxes>(std::move(from)),
                                    std::make_shared<const Boxes>(std::move(to)),
                                    shrink.shape().ToExtents(), sum.op, sum.axes});
    out.SetMarks(at);
    for (size_t i = above.size(); i-- > 0;) {
      out = UOp::Make(above[i].op(), above[i].dtype(), {out}, above[i].arg());
      out.SetMarks(above[i]);
    }
    return out;
  }

  const std::vector<UOp> order_;
  const absl::Span<const PlaceVariable> variables_;
  absl::flat_hash_map<const Node*, int> uses_;
  absl::flat_hash_map<const Node*, UOp> done_;
};

}  // namespace

std::vector<UOp> ScatterReductions(absl::Span<const UOp> roots,
                                   absl::Span<const PlaceVariable> variables) {
  return Scatterer(roots, variables).Run(roots);
}

}  // namespace tessera
