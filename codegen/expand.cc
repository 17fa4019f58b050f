// Expansion: unrolled ranges become copies, vector ranges become lanes.
#include <algorithm>

#include "codegen/lanes.h"
#include "codegen/passes.h"
#include "codegen/split.h"
#include "graph/fault.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

bool DependsOn(const UOp& u, const UOp& range) {
  for (const UOp& s : TopoSort({&u, 1})) {
    if (s == range) return true;
  }
  return false;
}

UOp AtLane(const UOp& u, const UOp& range, int64_t lane) {
  return Simplify(Substitute(u, {{range, UOp::Index(lane)}}));
}

// The step between the values of an index at neighbouring lanes, or false where it is not one.
bool LaneStride(const UOp& index, const UOp& range, int64_t& stride) {
  stride = 0;
  for (const Sum sum = ToSum(index); const Sum::Term& t : sum.terms) {
    if (t.term == range) {
      stride = t.factor;
    } else if (DependsOn(t.term, range)) {
      return false;
    }
  }
  return true;
}

class Vectoriser {
 public:
  Vectoriser(const UOp& sink, const UOp& range, bool shuffles)
      : sets_(sink),
        bit_(sets_.Bit(range)),
        range_(range),
        lanes_(range.src(0).vmax()),
        shuffles_(shuffles) {}

  UOp Run(const UOp& sink) {
    for (const UOp& u : sets_.order()) {
      if (WritesElements(u)) {
        Store(u);
      } else if (u.is(Op::kSink) || u.is(Op::kStage)) {
        done_.emplace(u, Gathered(u));
      } else if (u == range_) {
        done_.emplace(u,
                      UOp::Make(Op::kRamp, kInt64.WithLanes(Lanes()), {UOp::Index(0)}, int64_t{1}));
      } else if (sets_.Free(u) & bit_) {
        done_.emplace(u, u.is(Op::kIndex) ? Load(u) : u.is(Op::kPart) ? Parts(u) : Vector(u));
      } else if (sets_.Closed(u) & bit_) {
        done_.emplace(u, Fold(u));
      } else {
        done_.emplace(u, Scalar(u));
      }
    }
    return done_.at(sink);
  }

 private:
  // A SINK or STAGE over what its stores have become.
  UOp Gathered(const UOp& u) {
    std::vector<UOp> srcs;
    for (const UOp& s : u.srcs()) {
      if (WritesElements(s)) {
        const std::vector<UOp>& parts = stores_.at(s);
        srcs.insert(srcs.end(), parts.begin(), parts.end());
      } else {
        srcs.push_back(done_.at(s));
      }
    }
    return u.WithSrcs(srcs);
  }

  int Lanes() const { return static_cast<int>(lanes_); }

  UOp Splat(const UOp& u) {
    if (u.dtype().lanes() == Lanes()) return u;
    return UOp::Make(Op::kSplat, u.dtype().WithLanes(Lanes()), {u});
  }

  UOp Scalar(const UOp& u) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done_.at(s));
    return u.WithSrcs(srcs);
  }

  // A node that depends on the lane, over vectors.
  UOp Vector(const UOp& u) {
    absl::InlinedVector<UOp, 4> srcs;
    for (int i = 0; i < u.size(); ++i) {
      const UOp& s = done_.at(u.src(i));
      const bool loop = i > 0 && (u.is(Op::kReduce) || u.is(Op::kRunning));
      srcs.push_back(loop ? s : Splat(s));
    }
    return UOp::Make(u.op(), u.dtype().WithLanes(Lanes()), srcs, u.arg());
  }

  // Lanes of another vector, which is the same for all of ours.
  UOp Parts(const UOp& u) {
    CHECK(!(sets_.Free(u.src(0)) & bit_), "a vector of lanes of vectors");
    std::vector<UOp> parts;
    for (int64_t l = 0; l < lanes_; ++l) {
      parts.push_back(
          UOp::Make(Op::kPart, u.dtype(), {done_.at(u.src(0)), AtLane(u.src(1), range_, l)}));
    }
    return UOp::Make(Op::kLanes, u.dtype().WithLanes(Lanes()), parts);
  }

  UOp Load(const UOp& u) {
    const bool gated = u.size() == 3;
    int64_t stride;
    const bool linear = LaneStride(u.src(1), range_, stride);
    if (linear && FaultPlanted(Fault::kLanesNotAdjacent)) stride = 1;
    if (linear && stride == 1) {
      std::vector<UOp> srcs = {done_.at(u.src(0)), AtLane(u.src(1), range_, 0)};
      if (gated) srcs.push_back(done_.at(u.src(2)));  // one for all lanes, or one each
      return UOp::Make(Op::kLoad, u.dtype().WithLanes(Lanes()), srcs, int64_t{0});
    }
    if (linear && shuffles_ && std::abs(stride) <= kMostShuffled && stride != 0 &&
        !(gated && (sets_.Free(u.src(2)) & bit_))) {
      return Shuffled(u, stride);
    }
    std::vector<UOp> parts;
    for (int64_t l = 0; l < lanes_; ++l) {
      std::vector<UOp> srcs = {done_.at(u.src(0)), AtLane(u.src(1), range_, l)};
      if (gated) srcs.push_back(AtLane(u.src(2), range_, l));
      parts.push_back(UOp::Make(Op::kIndex, srcs));
    }
    return UOp::Make(Op::kLanes, u.dtype().WithLanes(Lanes()), parts);
  }

  // Lanes that lie 2 apart, or backward: the vectors from the first of them on and up to the last,
  // of which they are taken. Nothing beyond them is read.
  UOp Shuffled(const UOp& u, int64_t stride) {
    const int64_t step = std::abs(stride);
    const UOp low = AtLane(u.src(1), range_, stride > 0 ? 0 : lanes_ - 1);
    const auto vector = [&](int64_t ahead) {
      const UOp at = Simplify(UOp::Make(Op::kAdd, {low, UOp::Index(ahead)}));
      std::vector<UOp> srcs = {done_.at(u.src(0)), at};
      if (u.size() == 3) srcs.push_back(done_.at(u.src(2)));
      return UOp::Make(Op::kLoad, u.dtype().WithLanes(Lanes()), srcs, int64_t{0});
    };
    const int64_t ahead = (step - 1) * (lanes_ - 1);  // from the first vector to the second
    const UOp first = vector(0), second = ahead == 0 ? first : vector(ahead);
    Ints from;
    for (int64_t l = 0; l < lanes_; ++l) {
      const int64_t at = (stride > 0 ? l : lanes_ - 1 - l) * step;
      from.push_back(at < lanes_ ? at : at - ahead + lanes_);
    }
    return UOp::Make(Op::kShuffle, u.dtype().WithLanes(Lanes()), {first, second}, from);
  }

  // A reduction over the lanes: lane by lane over its other ranges, then the lanes.
  UOp Fold(const UOp& u) {
    CHECK(u.is(Op::kReduce), "only reductions and stores run over lanes");
    std::vector<UOp> srcs = {Splat(done_.at(u.src(0)))};
    for (const UOp& r : ClosedRanges(u)) {
      if (!(r == range_)) srcs.push_back(done_.at(r));
    }
    if (srcs.size() > 1) {
      const UOp lanes = UOp::Make(Op::kReduce, srcs, u.arg());
      return UOp::Make(Op::kFold, u.dtype(), {lanes}, u.arg());
    }
    return ReducedOnce(u.arg<ReduceArg>(), UOp::Make(Op::kFold, u.dtype(), srcs, u.arg()));
  }

  void Store(const UOp& u) {
    const bool over_lanes{sets_.Closed(u) & bit_};
    const UOp& index = u.src(0);
    std::vector<UOp> ranges;
    for (const UOp& r : ClosedRanges(u)) {
      if (!(r == range_)) ranges.push_back(done_.at(r));
    }
    const auto emit = [&](const UOp& at, const UOp& value) {
      std::vector<UOp> srcs = {at, value};
      srcs.insert(srcs.end(), ranges.begin(), ranges.end());
      stores_[u].push_back(UOp::Make(u.op(), srcs, u.arg()));
    };
    if (!over_lanes) {
      emit(Scalar(index), done_.at(u.src(1)));
      return;
    }
    const UOp value = Splat(done_.at(u.src(1)));
    int64_t stride;
    const auto at_lane = [&](int64_t l) {
      std::vector<UOp> srcs = {done_.at(index.src(0)), AtLane(index.src(1), range_, l)};
      if (index.size() == 3) srcs.push_back(AtLane(index.src(2), range_, l));
      return UOp::Make(Op::kIndex, srcs);
    };
    const bool one_gate = index.size() < 3 || !(sets_.Free(index.src(2)) & bit_);
    if (one_gate && LaneStride(index.src(1), range_, stride) && stride == 1) {
      emit(at_lane(0), value);
      return;
    }
    if (one_gate && shuffles_ && LaneStride(index.src(1), range_, stride) && stride == -1) {
      Ints back;
      for (int64_t l = lanes_ - 1; l >= 0; --l) back.push_back(l);
      emit(at_lane(lanes_ - 1), UOp::Make(Op::kShuffle, value.dtype(), {value, value}, back));
      return;
    }
    for (int64_t l = 0; l < lanes_; ++l) {
      emit(at_lane(l), UOp::Make(Op::kLane, u.src(1).dtype(), {value}, l));
    }
  }

  const RangeSets sets_;
  const RangeMask bit_;
  const UOp range_;
  const int64_t lanes_;
  const bool shuffles_;  // whether the target's vectors have lanes that move
  absl::flat_hash_map<UOp, UOp> done_;
  absl::flat_hash_map<UOp, std::vector<UOp>> stores_;  // what each has become
};

UOp FindRange(const UOp& sink, RangeKind kind) {
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kRange) && u.arg<RangeArg>().kind == kind) return u;
  }
  return UOp();
}

// What shows once copies and lanes are made: lanes of two vectors that are combined more cheaply
// before than after their own.
const RuleSet& LaneRules() {
  const auto join = [](const Match& m) {
    const UOp &a = m.root.src(0), &b = m.root.src(1);
    if (!m.root.is(a.arg<ReduceArg>().op) || !(a.arg() == b.arg())) return UOp();
    if (!(a.src(0).dtype() == b.src(0).dtype())) return UOp();
    return UOp::Make(Op::kFold, a.dtype(), {UOp::Make(m.root.op(), {a.src(0), b.src(0)})}, a.arg());
  };
  const auto part = [](const Match& m) {
    return UOp::Make(Op::kLane, m.root.dtype(), {m.root.src(0)}, m.root.src(1).vmin());
  };
  const Pat folded = OpPat(Op::kFold, {Any(3)}), other = OpPat(Op::kFold, {Any(4)});
  static const RuleSet& rules =
      *new RuleSet("lanes", {{OpPat(Op::kPart, {Any(0), ConstAny(1)}), part},
                             {OpPat(Op::kAdd, {folded, other}), join},
                             {OpPat(Op::kMul, {folded, other}), join},
                             {OpPat(Op::kMax, {folded, other}), join},
                             {OpPat(Op::kMin, {folded, other}), join}});
  return rules;
}

// Stores whose gate has become a constant: always, or never.
UOp DecideStores(const UOp& sink) {
  std::vector<UOp> stores;
  for (const UOp& s : sink.srcs()) {
    const UOp& index = s.src(0);
    if (index.size() < 3 || !index.src(2).IsConst()) {
      stores.push_back(s);
    } else if (index.src(2).arg<Scalar>().bits != 0) {
      std::vector<UOp> srcs(s.srcs().begin(), s.srcs().end());
      srcs[0] = index.WithSrcs({index.src(0), index.src(1)});
      stores.push_back(s.WithSrcs(srcs));
    }
  }
  return sink.WithSrcs(stores);
}

// After copies or lanes have been made.
UOp Decide(const UOp& sink) {
  return Simplify(Rewrite(Rewrite(DecideStores(Simplify(sink)), GateRules()), LaneRules()));
}

}  // namespace

UOp Expand(const UOp& sink, const Target& target) {
  UOp out = sink;
  while (UOp r = FindRange(out, RangeKind::kUnroll)) {
    std::vector<Segment> copies;
    for (int64_t i = 0; i < r.src(0).vmax(); ++i) copies.push_back({UOp::Index(i), {}});
    out = SplitIntoSegments(out, r, copies);
  }
  out = Decide(out);
  while (UOp r = FindRange(out, RangeKind::kVector)) {
    out = Vectoriser(out, r, target.dialect == Dialect::kCpp).Run(out);
  }
  return Decide(out);
}

}  // namespace tessera
