// Optimisation choices by heuristic: which loop becomes lanes, and how far loops are unrolled.
#include <algorithm>

#include "codegen/passes.h"
#include "codegen/split.h"
#include "graph/flags.h"
#include "graph/kernel_form.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// How an index moves with a range: not at all (0), by a fixed step, or in no regular way.
struct Step {
  bool linear = true;
  int64_t factor = 0;
};

Step StepOf(const UOp& index, const UOp& range, const RangeSets& sets) {
  Step step;
  const uint64_t bit = sets.Bit(range);
  for (const Sum sum = ToSum(index); const Sum::Term& t : sum.terms) {
    if (t.term == range) {
      step.factor = t.factor;
    } else if (sets.Free(t.term) & bit) {
      step.linear = false;
    }
  }
  return step;
}

// Bytes moved without gathering if the range became lanes, less those gathered.
int64_t LaneScore(const UOp& range, const RangeSets& sets) {
  const uint64_t bit = sets.Bit(range);
  int64_t score = 0;
  const auto count = [&](const UOp& index, int64_t weight) {
    if (!(sets.Free(index) & bit)) return;
    const Step s = StepOf(index.src(1), range, sets);
    const bool gated = index.size() == 3 && (sets.Free(index.src(2)) & bit);
    const bool good = s.linear && (s.factor == 1 || s.factor == 0) && !gated;
    score += (good ? 2 : -3) * weight * index.dtype().bytes();
  };
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kStore)) count(u.src(0), 3);
    if (u.is(Op::kIndex)) count(u, 2);
  }
  return score;
}

// Lanes by the widest type that the range's values are computed in.
int64_t LanesFor(const UOp& range, const RangeSets& sets, const Target& target) {
  const uint64_t bit = sets.Bit(range);
  int widest = 1;
  for (const UOp& u : sets.order()) {
    if (!(sets.Free(u) & bit) || u.dtype().IsVoid() || u.is(Op::kRange)) continue;
    if (u.dtype() == kInt64 && !u.is(Op::kIndex)) continue;  // mostly indices
    int bytes = u.dtype().bytes();
    if (u.dtype().IsFloat()) bytes = std::max(bytes, 4);
    widest = std::max(widest, bytes);
  }
  return std::max<int64_t>(1, target.vector_bytes / widest);
}

int ArithmeticOf(const UOp& range, const RangeSets& sets) {
  const uint64_t bit = sets.Bit(range);
  int ops = 0;
  for (const UOp& u : sets.order()) {
    if (!IsElementwise(u.op()) || !(sets.Free(u) & bit)) continue;
    if (u.dtype() == kInt64 || u.dtype().IsBool()) continue;
    ops += HasProperty(u.op(), kExpensive) ? 12 : 1;
  }
  return ops;
}

}  // namespace

UOp Optimise(const UOp& sink, const Target& target) {
  if (IntFlag(Flag::kNoOpt) != 0) return sink;
  const RangeSets sets(sink);
  UOp best;
  int64_t best_score = 0;
  for (const UOp& r : sets.ranges()) {
    if (!r.src(0).IsConst() && r.src(0).vmax() < 64) continue;
    if (r.src(0).vmax() < 4) continue;
    if (const int64_t score = LaneScore(r, sets); score > best_score) {
      best = r;
      best_score = score;
    }
  }
  if (!best) return sink;
  int64_t lanes = LanesFor(best, sets, target);
  while (lanes > 1 && lanes > best.src(0).vmax()) lanes /= 2;
  if (lanes < 2) return sink;
  // Short bodies are unrolled: reductions for independent sums, others for longer streaks.
  const int ops = ArithmeticOf(best, sets);
  const bool reduced = (sets.ClosedBy(Op::kReduce) & sets.Bit(best)) != 0;
  int64_t unroll = reduced ? std::clamp(24 / std::max(1, ops), 1, 8) : ops <= 4 ? 4 : ops <= 8 ? 2 : 1;
  while (unroll > 1 && unroll * lanes * 2 > best.src(0).vmax()) unroll /= 2;
  return Simplify(Tile(sink, best, unroll, lanes));
}

}  // namespace tessera
