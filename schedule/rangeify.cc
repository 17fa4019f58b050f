// Index form in two passes: positions flow from the outputs down, values from the leaves up.
#include "schedule/rangeify.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/fold.h"
#include "graph/kernel_form.h"
#include "graph/lookup.h"
#include "graph/merge_ranges.h"
#include "graph/product_chain.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"
#include "schedule/fuse.h"
#include "schedule/position.h"

namespace tessera {
namespace {

using namespace simplified;

class Rangeifier {
 public:
  absl::StatusOr<UOp> Run(absl::Span<const KernelOutput> outputs, int64_t parts) {
    std::vector<UOp> roots;
    for (const KernelOutput& o : outputs) {
      roots.push_back(o.value);
      roots.push_back(o.target);
    }
    order_ = TopoSort(roots);
    for (size_t i = 0; i < order_.size(); ++i) index_[order_[i].get()] = static_cast<int>(i);
    places_.resize(order_.size());

    Position out;
    const UOp& first = outputs[0].value;
    UOp part;  // of the axis that a SCATTER writes
    for (int a = 0; a < first.rank(); ++a) {
      out.index.push_back(UOp());
      if (parts > 1 && a == Lookup::Of(first).axis) {
        part = InParts(first.shape()[a], parts, out.index.back());
      } else {
        out.index.back() = RootRange(first.shape()[a]);
      }
    }
    for (const KernelOutput& o : outputs) Want(o.value, out);
    for (int i = static_cast<int>(order_.size()) - 1; i >= 0; --i) {
      for (size_t p = 0; p < places_[i].size(); ++p) RETURN_IF_ERROR(Descend(i, p));
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      for (Place& place : places_[i]) {
        ASSIGN_OR_RETURN(place.value, Compute(order_[i], place));
      }
    }

    std::vector<UOp> stores;
    for (const KernelOutput& o : outputs) {
      const UOp value = places_[index_[o.value.get()]][0].value;
      UOp param;
      const Position at = ThroughTarget(o.target, out, param);
      std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {param, Flat(param.shape(), at)}), value};
      for (const UOp& i : out.index) {
        if (part && i == out.index[Lookup::Of(o.value).axis]) srcs.push_back(part);
        for (const UOp& r : TopoSort({&i, 1})) {
          if (r.is(Op::kRange) && !(r == part)) srcs.push_back(r);
        }
      }
      stores.push_back(UOp::Make(Op::kStore, srcs, Arg(static_cast<int64_t>(stores.size()))));
      if (!o.value.is(Op::kScatter) || o.value.src(2).shape().MaxElements() == 0) continue;
      if (UOp update = UpdateOf(o.value, param, part)) stores.push_back(std::move(update));
    }
    UOp sink = UOp::Make(Op::kSink, stores);
    // Gathered indices stand in one another's expressions, whichever was met first.
    Substitution indices;
    for (const auto& [stand_in, value] : gathered_) indices.emplace(stand_in, value);
    for (size_t i = 0; i < gathered_.size(); ++i) {
      const UOp next = Substitute(sink, indices);
      if (next == sink) break;
      sink = next;
    }
    return Simplify(sink);
  }

 private:
  struct Place {
    Position at;
    std::vector<std::pair<int, int>> srcs;  // node and place of each source
    std::vector<UOp> ranges;                // of a reduction
    UOp gathered;                           // stands for a gathered index until it is known
    std::vector<UOp> conditions;            // of PAD and CAT
    UOp value;
  };

  UOp RootRange(const Extent& extent) {
    if (extent.is_int(1)) return UOp::Index(0);
    return NewRange(extent);
  }

  UOp NewRange(const Extent& extent) {
    const RangeArg arg{static_cast<int64_t>(ranges_.size()), RangeKind::kLoop};
    ranges_.push_back(UOp::Make(Op::kRange, kInt64, {extent.ToUOp()}, arg));
    return ranges_.back();
  }

  // The RANGEs in an expression, as a mask by id.
  RangeMask MaskOf(const UOp& u) {
    if (u.is(Op::kRange))
      return RangeMask{1} << std::min<int64_t>(kMostRanges - 1, u.arg<RangeArg>().id);
    if (u.size() == 0) {
      auto it = gathered_mask_.find(u);
      return it == gathered_mask_.end() ? 0 : it->second;
    }
    if (auto it = masks_.find(u); it != masks_.end()) return it->second;
    RangeMask mask = 0;
    for (const UOp& s : TopoSort({&u, 1})) {
      if (s.size() == 0 || s.is(Op::kRange)) mask |= MaskOf(s);
    }
    masks_.emplace(u, mask);
    return mask;
  }

  // The RANGEs on which a computed value still depends.
  RangeMask FreeMask(const UOp& value) {
    if (auto it = free_.find(value); it != free_.end()) return it->second;
    for (const UOp& u : TopoSort({&value, 1})) {
      if (free_.contains(u)) continue;
      RangeMask mask = u.is(Op::kRange) || u.size() == 0 ? MaskOf(u) : 0;
      const size_t values = u.size() - ClosedRanges(u).size();
      for (size_t i = 0; i < values && !u.is(Op::kRange); ++i)
        mask |= free_.at(u.src(static_cast<int>(i)));
      for (const UOp& r : ClosedRanges(u)) mask &= ~MaskOf(r);
      free_.emplace(u, mask);
    }
    return free_.at(value);
  }

  UOp ReduceRange(const Extent& extent, const Position& at, absl::Span<const UOp> taken) {
    RangeMask used = at.gate ? MaskOf(at.gate) : 0;
    for (const UOp& i : at.index) used |= MaskOf(i);
    for (const UOp& t : taken) used |= MaskOf(t);
    if (FaultPlanted(Fault::kReduceRangeShared)) used = 0;
    for (const UOp& r : ranges_) {
      if (r.src(0) == extent.ToUOp() && !(used & MaskOf(r))) return r;
    }
    return NewRange(extent);
  }

  // Asks for node u at a position; returns its place.
  std::pair<int, int> Want(const UOp& u, const Position& at) {
    const int i = index_.at(u.get());
    for (size_t p = 0; p < places_[i].size(); ++p) {
      if (places_[i][p].at == at) return {i, static_cast<int>(p)};
    }
    places_[i].push_back({});
    places_[i].back().at = at;
    return {i, static_cast<int>(places_[i].size()) - 1};
  }

  absl::Status Descend(int i, size_t p) {
    const UOp u = order_[i];
    const Position at = places_[i][p].at;
    Place fresh;
    if (IsElementwise(u.op())) {
      Position scalar;
      scalar.gate = at.gate;
      for (const UOp& s : u.srcs()) {
        fresh.srcs.push_back(Want(s, s.rank() == 0 ? scalar : at));
      }
    } else if (IsMovement(u.op())) {
      const Position below = ThroughMovement(u, at, &fresh.conditions);
      fresh.srcs.push_back(Want(u.src(0), below));
    } else {
      switch (u.op()) {
        case Op::kReduce: {
          Position below = at;
          for (int64_t a : u.arg<ReduceArg>().axes) {
            const Extent& e = u.src(0).shape()[a];
            if (e.is_int(1)) continue;
            below.index[a] = ReduceRange(e, at, fresh.ranges);
            fresh.ranges.push_back(below.index[a]);
          }
          fresh.srcs.push_back(Want(u.src(0), below));
          break;
        }
        case Op::kContiguous:
        case Op::kCopy:
          fresh.srcs.push_back(Want(u.src(0), at));
          break;
        case Op::kGather:
          DescendGather(u, at, fresh);
          break;
        case Op::kScatter:
          DescendScatter(u, at, fresh);
          break;
        case Op::kCat: {
          const int axis = static_cast<int>(u.arg<int64_t>());
          UOp begin = UOp::Index(0);
          for (const UOp& s : u.srcs()) {
            Position below = at;
            below.index[axis] = Minus(at.index[axis], begin);
            const UOp end = Plus(begin, s.shape()[axis].ToUOp());
            const UOp inside = Below(at.index[axis], end);
            fresh.conditions.push_back(inside);
            below.gate = Both(Both(at.gate, NotBelow(at.index[axis], begin)), inside);
            fresh.srcs.push_back(Want(s, below));
            begin = end;
          }
          break;
        }
        case Op::kParam:
        case Op::kConst:
        case Op::kIota:
        case Op::kVar:
          break;
        default:
          return absl::InternalError(absl::StrCat(Info(u.op()).text, ": cannot stand in a kernel"));
      }
    }
    fresh.at = at;
    places_[i][p] = std::move(fresh);
    return absl::OkStatus();
  }

  void DescendGather(const UOp& u, const Position& at, Place& fresh) {
    const Lookup l = Lookup::Of(u);
    Position index;
    index.gate = at.gate;
    for (int i = 0; i < l.index_rank; ++i) index.index.push_back(at.index[l.FromIndex(i)]);
    const Extent& n = u.src(0).shape()[l.axis];
    // Not yet known: a variable of its own stands in, with the bounds that the gate enforces.
    fresh.gathered =
        UOp::Make(Op::kVar, kInt64, {},
                  VarArg{absl::StrCat("@", gathered_.size()), INT64_MIN / 4, INT64_MAX / 4});
    RangeMask mask = 0;
    for (const UOp& i : index.index) mask |= MaskOf(i);
    gathered_mask_[fresh.gathered] = mask;
    gathered_.emplace_back(fresh.gathered, UOp());
    const UOp inside =
        Both(NotBelow(fresh.gathered, UOp::Index(0)), Below(fresh.gathered, n.ToUOp()));
    fresh.conditions.push_back(inside);
    // Of a long row that does not exist another is read, and not used: its loads have no gates.
    const bool another = ShowsLongRows(u) && n.is_int() && n.value() > 0;
    const UOp row = another
                        ? UOp::Make(Op::kMin, {UOp::Make(Op::kMax, {fresh.gathered, UOp::Index(0)}),
                                               UOp::Index(n.value() - 1)})
                        : fresh.gathered;
    Position below;
    for (int t = 0; t < l.table_rank; ++t) {
      below.index.push_back(t == l.axis ? row : at.index[l.FromTable(t)]);
    }
    below.gate = another ? at.gate : Both(at.gate, inside);
    fresh.srcs.push_back(Want(u.src(0), below));
    fresh.srcs.push_back(Want(u.src(1), index));
  }

  // The base is copied at the position; the updates have loops of their own beside.
  void DescendScatter(const UOp& u, const Position& at, Place& fresh) {
    const Lookup l = Lookup::Of(u);
    Position elements, index;
    for (int e = 0; e < l.element_rank(); ++e) {
      if (!l.IsOwn(e)) {
        elements.index.push_back(at.index[l.ToTable(e)]);
        continue;
      }
      elements.index.push_back(RootRange(u.src(2).shape()[e]));
      if (elements.index.back().is(Op::kRange)) fresh.ranges.push_back(elements.index.back());
    }
    for (int i = 0; i < l.index_rank; ++i) index.index.push_back(elements.index[l.FromIndex(i)]);
    fresh.srcs.push_back(Want(u.src(0), at));
    fresh.srcs.push_back(Want(u.src(1), index));
    fresh.srcs.push_back(Want(u.src(2), elements));
  }

  // The axis in parts of which each is written by itself: the loop over them, and the position.
  UOp InParts(const Extent& n, int64_t parts, UOp& position) {
    const UOp chunk =
        Simplify(UOp::Make(Op::kFloorDiv, {(n + Extent(parts - 1)).ToUOp(), UOp::Index(parts)}));
    const UOp part = NewRange(parts);
    part_begin_ = Times(part, chunk);
    part_end_ = Simplify(UOp::Make(Op::kMin, {Plus(part_begin_, chunk), n.ToUOp()}));
    position = Plus(part_begin_, NewRange(Extent(Minus(part_end_, part_begin_))));
    return part;
  }

  // What the updates write, after the base's STORE: the loops around both first, then the updates,
  // then what lies side by side.
  UOp UpdateOf(const UOp& u, const UOp& param, const UOp& part) {
    const Lookup l = Lookup::Of(u);
    const Place& place = places_[index_[u.get()]][0];
    const UOp at = Simplify(UOp::Make(Op::kCast, kInt64, {Value(place, 1)}));
    Position to;
    std::vector<UOp> ranges, inner;
    for (int t = 0; t < l.table_rank; ++t) {
      to.index.push_back(t == l.axis ? at : place.at.index[t]);
      const UOp& i = to.index.back();
      if (t != l.axis && i.is(Op::kRange)) (t < l.axis ? ranges : inner).push_back(i);
    }
    const UOp begin = part ? part_begin_ : UOp::Index(0);
    const UOp end = part ? part_end_ : u.shape()[l.axis].ToUOp();
    const UOp inside = Both(NotBelow(at, begin), Below(at, end));
    if (inside.IsConst(0)) return UOp();
    std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {param, Flat(param.shape(), to), inside}),
                             Value(place, 2)};
    if (part) ranges.push_back(part);
    ranges.insert(ranges.end(), place.ranges.begin(), place.ranges.end());
    srcs.insert(srcs.end(), ranges.begin(), ranges.end());
    srcs.insert(srcs.end(), inner.begin(), inner.end());
    return UOp::Make(Op::kUpdate, srcs, ReduceArg{u.arg<ReduceArg>().op, {}});
  }

  const UOp& Value(const Place& place, int s) {
    const auto [node, p] = place.srcs[s];
    return places_[node][p].value;
  }

  absl::StatusOr<UOp> Compute(const UOp& u, const Place& place) {
    if (IsElementwise(u.op())) {
      absl::InlinedVector<UOp, 3> srcs;
      for (int s = 0; s < u.size(); ++s) srcs.push_back(Value(place, s));
      return UOp::TryMake(u.op(), u.dtype(), srcs, Arg());
    }
    const UOp zero = UOp::Const(u.dtype(), int64_t{0});
    switch (u.op()) {
      case Op::kPad:
        if (FaultPlanted(Fault::kPadMaskLost)) return Value(place, 0);
        return UOp::Make(Op::kWhere, {place.conditions[0], Value(place, 0), zero});
      case Op::kReduce: {
        if (place.ranges.empty()) return ReducedOnce(u.arg<ReduceArg>(), Value(place, 0));
        for (const UOp& r : place.ranges) {  // whose index may be none, whatever becomes of it
          if (r.src(0).IsConst() && r.src(0).vmax() <= 0) {
            return UOp::Const(u.dtype(), ReduceIdentity(u.arg<ReduceArg>().op, u.dtype()));
          }
        }
        std::vector<UOp> srcs = {Value(place, 0)};
        const RangeMask free = FreeMask(srcs[0]);
        for (const UOp& r : place.ranges) {
          // A value that has run over the range itself does not depend on it: another range counts
          // the repetitions.
          const bool own = !(free & MaskOf(r)) && srcs[0].size() > 0;
          srcs.push_back(own ? NewRange(Extent(r.src(0))) : r);
        }
        return UOp::Make(Op::kReduce, srcs, ReduceArg{u.arg<ReduceArg>().op, {}});
      }
      case Op::kGather: {
        for (auto& [stand_in, value] : gathered_) {
          if (stand_in == place.gathered) {
            value = Simplify(UOp::Make(Op::kCast, kInt64, {Value(place, 1)}));
          }
        }
        return UOp::Make(Op::kWhere, {place.conditions[0], Value(place, 0), zero});
      }
      case Op::kCat: {
        UOp value = Value(place, u.size() - 1);
        for (int s = u.size() - 2; s >= 0; --s) {
          value = UOp::Make(Op::kWhere, {place.conditions[s], Value(place, s), value});
        }
        return value;
      }
      case Op::kParam: {
        std::vector<UOp> srcs = {u, Flat(u.shape(), place.at)};
        if (place.at.gate) srcs.push_back(place.at.gate);
        return UOp::Make(Op::kIndex, srcs);
      }
      case Op::kConst:
      case Op::kVar:
        return u;
      case Op::kIota:
        return Simplify(UOp::Make(Op::kCast, u.dtype(), {place.at.index[0]}));
      default:
        return Value(place, 0);
    }
  }

  std::vector<UOp> order_;
  absl::flat_hash_map<const Node*, int> index_;
  std::vector<std::vector<Place>> places_;
  std::vector<UOp> ranges_;
  std::vector<std::pair<UOp, UOp>> gathered_;
  UOp part_begin_, part_end_;
  absl::flat_hash_map<UOp, RangeMask> gathered_mask_, masks_, free_;
};

}  // namespace

absl::StatusOr<UOp> Rangeify(absl::Span<const KernelOutput> outputs, int64_t parts) {
  return Rangeifier().Run(outputs, parts);
}

UOp KernelIdentity(absl::Span<const KernelOutput> outputs) {
  std::vector<UOp> values;
  for (const KernelOutput& o : outputs) {
    values.push_back(o.value);
    if (!FaultPlanted(Fault::kKernelTargetIgnored)) values.push_back(o.target);
  }
  return UOp::Make(Op::kSink, values);
}

absl::StatusOr<UOp> IndexForm(absl::Span<const KernelOutput> outputs, int64_t parts) {
  ASSIGN_OR_RETURN(UOp sink, Rangeify(outputs, parts));
  const RangeSets sets(sink);
  if (const std::optional<ProductChain> c = FindProductChain(sets)) {
    // Its first product reads nothing that the others do: how their loops divide is not its matter.
    int64_t id = FreshRangeId(sets);
    Substitution own;
    for (const UOp& r : ClosedRanges(c->first)) {
      own.emplace(r, UOp::Make(Op::kRange, kInt64, {UOp(r.src(0))},
                               RangeArg{id++, r.arg<RangeArg>().kind}));
    }
    sink = Substitute(sink, {{c->first, Substitute(c->first, own)}});
  }
  return SeparateRanges(MergeRanges(SplitRanges(MergeRanges(sink))));
}

absl::StatusOr<UOp> IndexForm(absl::Span<const KernelOutput> outputs, IndexForms& forms,
                              int64_t parts) {
  const UOp identity = KernelIdentity(outputs);
  const auto known = forms.find(identity);
  if (known != forms.end()) return known->second;
  ASSIGN_OR_RETURN(UOp form, IndexForm(outputs, parts));
  forms.emplace(identity, form);
  return form;
}

}  // namespace tessera
