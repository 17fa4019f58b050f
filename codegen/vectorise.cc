// Lanes for a range: what each node is as a vector.
#include "codegen/vectorise.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "codegen/byte_dots.h"
#include "codegen/lane_loads.h"
#include "codegen/lane_values.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "graph/kernel_form.h"
#include "graph/node_map.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

class Vectoriser {
 public:
  Vectoriser(const UOp& sink, const UOp& range, bool shuffles)
      : sets_(sink),
        bit_(sets_.Bit(range)),
        range_(range),
        lanes_(range.src(0).vmax()),
        shuffles_(shuffles),
        loads_(sets_, range, shuffles, done_) {}

  UOp Run(const UOp& sink) {
    FindDots();
    FindRuns();
    for (const UOp& u : sets_.order()) {
      if (inside_dots_.contains(u.get())) continue;
      if (dots_.contains(u.get())) {
        done_.TryEmplace(u.get(), Dot(u));
      } else if (WritesElements(u)) {
        Store(u);
      } else if (u.is(Op::kSink) || u.is(Op::kStage)) {
        done_.TryEmplace(u.get(), Gathered(u));
      } else if (u == range_) {
        done_.TryEmplace(
            u.get(), UOp::Make(Op::kRamp, kInt64.WithLanes(Lanes()), {UOp::Index(0)}, int64_t{1}));
      } else if (sets_.Free(u) & bit_) {
        done_.TryEmplace(u.get(), in_runs_.contains(u.get()) ? InFewLanes(u, in_runs_.at(u.get()))
                                  : u.is(Op::kIndex)         ? loads_.Of(u)
                                  : u.is(Op::kPart)          ? Parts(u)
                                  : AssemblesBytes(u)        ? Assembled(u)
                                                             : Vector(u));
      } else if (sets_.Closed(u) & bit_) {
        done_.TryEmplace(u.get(), Fold(u));
      } else {
        done_.TryEmplace(u.get(), Scalar(u));
      }
    }
    return done_.At(sink.get());
  }

  // A value by itself, as lanes.
  UOp AllLanes(const UOp& value) { return Splat(Run(value)); }

 private:
  // A SINK or STAGE over what its stores have become.
  UOp Gathered(const UOp& u) {
    std::vector<UOp> srcs;
    for (const UOp& s : u.srcs()) {
      if (WritesElements(s)) {
        const std::vector<UOp>& parts = stores_.at(s);
        srcs.insert(srcs.end(), parts.begin(), parts.end());
      } else {
        srcs.push_back(done_.At(s.get()));
      }
    }
    return u.WithSrcs(srcs);
  }

  // Sums over the few steps of a unit, of products of bytes or bf16 that depend on the lane, and
  // what is read inside of them: those are lanes of as many numbers each.
  void FindDots() {
    RangeMask steps = 0;
    for (const UOp& r : sets_.ranges()) {
      const bool unit = r.arg<RangeArg>().kind == RangeKind::kMatrix && !(r == range_);
      if (unit) steps |= sets_.Bit(r);
    }
    if (steps == 0) return;
    for (const UOp& u : sets_.order()) {
      if (!u.is(Op::kReduce) || !(sets_.Closed(u) & steps)) continue;
      if ((sets_.Free(u.src(0)) & bit_) && IsDot(u)) dots_.insert(u.get());
    }
    // What nothing else reads.
    absl::flat_hash_set<const Node*> read;
    for (size_t i = sets_.order().size(); i-- > 0;) {
      const UOp& u = sets_.order()[i];
      if (i + 1 < sets_.order().size() && !read.contains(u.get()) && !u.is(Op::kStage)) {
        inside_dots_.insert(u.get());
        continue;
      }
      const absl::Span<const UOp> needed = dots_.contains(u.get()) ? ClosedRanges(u) : u.srcs();
      for (const UOp& s : needed) read.insert(s.get());
    }
  }

  // Numbers that are alike in runs of lanes, where others read them: what they are computed from
  // takes a lane for each run.
  void FindRuns() {
    if (!shuffles_) return;
    absl::flat_hash_map<const Node*, int64_t> runs;  // 1: different in each lane, 0: alike in all
    for (const UOp& u : sets_.order()) {
      int64_t run = 0;
      if (u == range_) {
        run = 1;
      } else if (u.is(Op::kFloorDiv) && u.src(0) == range_ && u.src(1).IsConst() &&
                 lanes_ % u.src(1).vmin() == 0) {
        run = u.src(1).vmin();
      } else {
        for (const UOp& s : u.srcs()) run = std::gcd(run, runs.at(s.get()));
        const bool plain = IsElementwise(u.op()) || u.is(Op::kIndex);
        if (run != 0 && !plain) run = 1;
      }
      runs.emplace(u.get(), run);
      if (run != 1) continue;
      for (const UOp& s : u.srcs()) {
        const int64_t n = runs.at(s.get());
        const bool number = s.dtype().bytes() == 4 && s.dtype().lanes() == 1;
        if (n > 1 && number && IsElementwise(s.op()) && !AssemblesBytes(s)) {
          in_runs_.emplace(s.get(), n);
        }
      }
    }
  }

  static UOp UnitOf(const UOp& reduce) {
    for (const UOp& r : ClosedRanges(reduce)) {
      if (r.arg<RangeArg>().kind == RangeKind::kMatrix) return r;
    }
    return UOp();
  }

  static bool IsDot(const UOp& u) {
    const UOp &value = u.src(0), step = UnitOf(u);
    const auto of = [&](bool (*is)(const UOp&)) {
      return value.is(Op::kMul) && is(value.src(0)) && is(value.src(1));
    };
    if (step.src(0).IsConst(kStepsOfPair)) return u.dtype() == kFloat32 && of(IsWidened);
    return step.src(0).IsConst(kBytesOfDot) && u.dtype() == kInt32 && (of(IsByte) || IsByte(value));
  }

  UOp InFewLanes(const UOp& u, int64_t run) {
    const UOp few = UOp::Make(Op::kRange, kInt64, {UOp::Index(lanes_ / run)},
                              RangeArg{FreshRangeId(sets_), RangeKind::kVector});
    const UOp first = UOp::Make(Op::kMul, {few, UOp::Index(run)});
    const UOp value = Simplify(Substitute(u, {{range_, first}}));
    Vectoriser inner(value, few, shuffles_);
    const UOp each = inner.AllLanes(value);
    Ints from;
    for (int64_t l = 0; l < lanes_; ++l) from.push_back(l / run);
    return UOp::Make(Op::kShuffle, u.dtype().WithLanes(Lanes()), {each, each}, from);
  }

  UOp Dot(const UOp& u) {
    const UOp step = UnitOf(u);
    const UOp& value = u.src(0);
    UOp a, b;
    if (value.is(Op::kMul)) {
      a = UOp(value.src(0).src(0));
      b = UOp(value.src(1).src(0));
    } else {  // a sum of bytes
      b = UOp(value.src(0));
      a = UOp::Const(b.dtype().IsUnsigned() ? kInt8 : kUInt8, int64_t{1});
    }
    if (b.dtype().IsUnsigned()) std::swap(a, b);
    const DType sums = u.dtype().WithLanes(Lanes());
    std::string name = u.dtype().IsFloat() ? kPairName : kDotName;
    if (u.dtype().IsInt() && 2 * Magnitude(a) * Magnitude(b) <= INT16_MAX) {
      name = kSmallDotName;
      if (!a.dtype().IsUnsigned() && b.vmin() == INT8_MIN) std::swap(a, b);  // which a may be
    }
    std::vector<UOp> srcs = {
        UOp::Make(Op::kMma, sums, {OfDot(a, step), OfDot(b, step)}, Arg(name))};
    for (const UOp& r : ClosedRanges(u)) {
      if (!(r == step)) srcs.push_back(done_.At(r.get()));
    }
    return srcs.size() == 1 ? srcs[0] : UOp::Make(Op::kReduce, srcs, u.arg());
  }

  // The numbers of a dot product's operand: lanes of the steps of all lanes.
  UOp OfDot(const UOp& u, const UOp& step) {
    const int64_t steps = step.src(0).vmax();
    if (u.IsConst()) {
      const int all = static_cast<int>(lanes_ * steps);
      return UOp::Make(Op::kSplat, u.dtype().WithLanes(all), {u});
    }
    const bool by_lane{sets_.Free(u) & bit_};
    const int64_t id = FreshRangeId(sets_), n = by_lane ? lanes_ * steps : steps;
    const UOp all =
        UOp::Make(Op::kRange, kInt64, {UOp::Index(n)}, RangeArg{id, RangeKind::kVector});
    const UOp each = UOp::Index(steps);
    Substitution map = {{step, by_lane ? UOp::Make(Op::kFloorMod, {all, each}) : all}};
    if (by_lane) map.emplace(range_, UOp::Make(Op::kFloorDiv, {all, each}));
    // What a stage has inside has lanes of its own.
    Substitution filled;
    for (const UOp& s : TopoSort({&u, 1})) {
      if (!s.is(Op::kStage)) continue;
      map.emplace(s, UOp(s.src(0)));
      filled.emplace(UOp(s.src(0)), done_.At(s.get()));
    }
    const UOp flat = Simplify(Substitute(u, map));
    Vectoriser inner(flat, all, shuffles_);
    UOp out = Substitute(inner.AllLanes(flat), filled);
    if (by_lane) return out;
    Ints from;
    for (int64_t l = 0; l < lanes_ * steps; ++l) from.push_back(l % steps);
    const DType wide = u.dtype().WithLanes(static_cast<int>(lanes_ * steps));
    return UOp::Make(Op::kShuffle, wide, {out, out}, from);
  }

  // Whether the lanes are numbers that are put together from bytes all over memory: scalars, whose
  // loads the compiler makes one of.
  bool AssemblesBytes(const UOp& u) const {
    if (!u.is(Op::kOr) || u.dtype().bytes() < 2) return false;
    std::vector<UOp> stack = {u};
    while (!stack.empty()) {
      const UOp s = stack.back();
      stack.pop_back();
      if (s.IsConst()) continue;
      if (s.is(Op::kIndex)) {
        if (s.dtype().bytes() != 1 || s.size() != 2) return false;
        if (RunLength(LaneOffsets(s.src(1), range_)) > 1) return false;
        int64_t stride;
        if (LaneStride(s.src(1), range_, stride) && std::abs(stride) <= MostShuffled(lanes_)) {
          return false;
        }
        continue;
      }
      if (!s.is(Op::kOr) && !s.is(Op::kShl) && !s.is(Op::kCast)) return false;
      stack.insert(stack.end(), s.srcs().begin(), s.srcs().end());
    }
    return true;
  }

  UOp Assembled(const UOp& u) { return OfScalars(AtLanes(u, range_)); }

  int Lanes() const { return static_cast<int>(lanes_); }

  UOp Splat(const UOp& u) {
    if (u.dtype().lanes() == Lanes()) return u;
    return UOp::Make(Op::kSplat, u.dtype().WithLanes(Lanes()), {u});
  }

  UOp Scalar(const UOp& u) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done_.At(s.get()));
    return u.WithSrcs(srcs);
  }

  // A node that depends on the lane, over vectors.
  UOp Vector(const UOp& u) {
    absl::InlinedVector<UOp, 4> srcs;
    for (int i = 0; i < u.size(); ++i) {
      const UOp& s = done_.At(u.src(i).get());
      const bool loop = u.src(i).is(Op::kRange) &&
                        (u.is(Op::kReduce) || u.is(Op::kRunning) || u.is(Op::kRescale));
      srcs.push_back(loop ? s : Splat(s));
    }
    return UOp::Make(u.op(), u.dtype().WithLanes(Lanes()), srcs, u.arg());
  }

  // Lanes of another vector, which is the same for all of ours.
  UOp Parts(const UOp& u) {
    CHECK(!(sets_.Free(u.src(0)) & bit_), "a vector of lanes of vectors");
    const UOp& vector = done_.At(u.src(0).get());
    const std::vector<UOp> places = AtLanes(u.src(1), range_);
    Ints from;
    for (const UOp& at : places) {
      if (shuffles_ && at.IsConst()) from.push_back(at.vmin());
    }
    if (static_cast<int64_t>(from.size()) == lanes_) {
      return UOp::Make(Op::kShuffle, u.dtype().WithLanes(Lanes()), {vector, vector}, from);
    }
    std::vector<UOp> parts;
    for (const UOp& at : places) parts.push_back(UOp::Make(Op::kPart, u.dtype(), {vector, at}));
    return UOp::Make(Op::kLanes, u.dtype().WithLanes(Lanes()), parts);
  }

  // A reduction over the lanes: lane by lane over its other ranges, then the lanes.
  UOp Fold(const UOp& u) {
    CHECK(u.is(Op::kReduce), "only reductions and stores run over lanes");
    std::vector<UOp> srcs = {Splat(done_.At(u.src(0).get()))};
    for (const UOp& r : ClosedRanges(u)) {
      if (!(r == range_)) srcs.push_back(done_.At(r.get()));
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
      if (!(r == range_)) ranges.push_back(done_.At(r.get()));
    }
    const auto emit = [&](const UOp& at, const UOp& value) {
      std::vector<UOp> srcs = {at, value};
      srcs.insert(srcs.end(), ranges.begin(), ranges.end());
      stores_[u].push_back(UOp::Make(u.op(), srcs, u.arg()));
    };
    if (!over_lanes) {
      emit(Scalar(index), done_.At(u.src(1).get()));
      return;
    }
    const UOp value = Splat(done_.At(u.src(1).get()));
    int64_t stride;
    const auto at_lane = [&](int64_t l) {
      std::vector<UOp> srcs = {done_.At(index.src(0).get()), AtLane(index.src(1), range_, l)};
      if (index.size() == 3) srcs.push_back(AtLane(index.src(2), range_, l));
      return UOp::Make(Op::kIndex, srcs);
    };
    const bool one_gate = index.size() < 3 || !(sets_.Free(index.src(2)) & bit_);
    const bool masks = !one_gate && shuffles_ && index.src(0).is(Op::kParam);
    if (masks && LaneStride(index.src(1), range_, stride) && stride == 1) {
      emit(UOp::Make(Op::kIndex, {done_.At(index.src(0).get()), AtLane(index.src(1), range_, 0),
                                  Splat(done_.At(index.src(2).get()))}),
           value);
      return;
    }
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
    const int64_t run = one_gate && shuffles_ ? RunLength(LaneOffsets(index.src(1), range_)) : 1;
    for (int64_t l = 0; l < lanes_; l += run < kLeastLanes ? 1 : run) {
      if (run < kLeastLanes) {
        emit(at_lane(l), UOp::Make(Op::kLane, u.src(1).dtype(), {value}, l));
        continue;
      }
      Ints from(run);
      std::iota(from.begin(), from.end(), l);
      const DType dtype = u.src(1).dtype().WithLanes(static_cast<int>(run));
      emit(at_lane(l), UOp::Make(Op::kShuffle, dtype, {value, value}, from));
    }
  }

  const RangeSets sets_;
  const RangeMask bit_;
  const UOp range_;
  const int64_t lanes_;
  const bool shuffles_;  // whether the target's vectors have lanes that move
  absl::flat_hash_set<const Node*> dots_, inside_dots_;
  absl::flat_hash_map<const Node*, int64_t> in_runs_;  // and how long these are
  NodeMap<UOp> done_;
  const LaneLoads loads_;
  absl::flat_hash_map<UOp, std::vector<UOp>> stores_;  // what each has become
};

}  // namespace

UOp Vectorise(const UOp& sink, const UOp& range, bool shuffles) {
  return Vectoriser(sink, range, shuffles).Run(sink);
}

UOp AllLanes(const UOp& value, const UOp& range, bool shuffles) {
  return Vectoriser(value, range, shuffles).AllLanes(value);
}

}  // namespace tessera
