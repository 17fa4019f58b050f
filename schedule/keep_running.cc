// Reductions that grow along a loop, as those of running sums do: at each point they take up one
// element more than at the point before, so that what was combined there can be kept.
//
// That they do is proved by the index algebra. With t for the loop and a for the place in the
// reduction, both counted from the newest element on: what lies at a > t changes nothing, and the
// element that is s points in, wherever it lies at a later time s + d, does not depend on d. Two
// ways of writing it are known: windows, in which elements move away from the newest, and masks, in
// which each keeps its place.
#include <algorithm>

#include "graph/fold.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

UOp FromEnd(const UOp& extent, const UOp& i) { return Minus(Minus(extent, UOp::Index(1)), i); }

// Whether a reduction stays the same where it meets this value.
bool IsNeutral(const UOp& reduce, const UOp& value) {
  if (!value.IsConst()) return false;
  const Op op = reduce.arg<ReduceArg>().op;
  if (value.arg<Scalar>() == ReduceIdentity(op, value.dtype())) return true;
  if (!value.dtype().IsInt()) return false;
  return (op == Op::kMax && value.vmax() <= reduce.src(0).vmin()) ||
         (op == Op::kMin && value.vmin() >= reduce.src(0).vmax());
}

// Whether something in a reduction's value compares the loop with the place in the reduction, and
// nothing in it runs over either.
bool MayGrow(const UOp& reduce, RangeMask both, const RangeSets& sets) {
  bool compares = false;
  for (const UOp& u : TopoSort({&reduce.src(0), 1})) {
    if (sets.Closed(u) & both) return false;
    compares |= u.dtype().IsBool() && (sets.Free(u) & both) == both;
  }
  return compares;
}

// Whether a value is made of what is kept running along the loop: that is there at the loop's own
// point alone.
bool ReadsRunning(const UOp& value, const UOp& loop) {
  const std::vector<UOp> nodes = TopoSort({&value, 1});
  return std::any_of(nodes.begin(), nodes.end(),
                     [&loop](const UOp& u) { return u.is(Op::kRunning) && u.src(1) == loop; });
}

// What the reduction takes up at each point of the loop, or nothing where it does not grow so.
UOp TakenUp(const UOp& reduce, const UOp& loop, int64_t fresh_id) {
  if (ReadsRunning(reduce.src(0), loop)) return UOp();
  const UOp& place = reduce.src(1);
  const UOp &n = loop.src(0), &length = place.src(0);
  if (Simplify(UOp::Make(Op::kSub, {length, n})).vmin() < 0) return UOp();
  const auto below = [&](const UOp& extent) {
    return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{fresh_id++, RangeKind::kLoop});
  };
  const UOp s = below(n), d = below(n), beyond = below(length);
  for (const bool newest_last : {true, false}) {
    const auto at = [&](const UOp& time, const UOp& age) {
      const UOp p = newest_last ? FromEnd(length, age) : age;
      const UOp value = Simplify(Substitute(reduce.src(0), {{loop, time}, {place, p}}));
      return Simplify(Rewrite(value, GateRules()));
    };
    if (!IsNeutral(reduce, at(s, Plus(Plus(s, beyond), UOp::Index(1))))) continue;
    for (const bool window : {true, false}) {
      const UOp element = at(Plus(s, d), window ? d : s);
      const std::vector<UOp> nodes = TopoSort({&element, 1});
      if (std::find(nodes.begin(), nodes.end(), d) != nodes.end()) continue;
      return Simplify(Substitute(element, {{s, loop}}));
    }
  }
  return UOp();
}

// The kernel with reductions that grow along the loop kept running, or nothing where none does.
UOp Along(const UOp& sink, const UOp& loop) {
  const RangeSets sets(sink);
  const RangeMask reduced = sets.ClosedBy(Op::kReduce);
  Substitution running;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce) || u.size() != 2 || (sets.Free(u) & reduced)) continue;
    const RangeMask both = sets.Bit(loop) | sets.Closed(u);
    if (!MayGrow(u, both, sets)) continue;
    if (const UOp element = TakenUp(u, loop, FreshRangeId(sets))) {
      running.emplace(u, UOp::Make(Op::kRunning, {element, loop}, u.arg()));
    }
  }
  return running.empty() ? UOp() : Simplify(Substitute(sink, running));
}

}  // namespace

UOp KeepRunning(const UOp& sink) {
  if (HasUpdates(sink)) return sink;
  const RangeSets sets(sink);
  const RangeMask reduced = sets.ClosedBy(Op::kReduce);
  if (reduced == 0) return sink;
  for (const UOp& loop : ClosedRanges(sink.src(0))) {
    const RangeMask bit = sets.Bit(loop);
    const bool may = std::any_of(sets.order().begin(), sets.order().end(), [&](const UOp& u) {
      return u.is(Op::kReduce) && u.size() == 2 && MayGrow(u, bit | sets.Closed(u), sets);
    });
    if ((bit & reduced) || loop.src(0).vmax() < 2 || !may) continue;
    // As it is, then run backward. What was within what is kept may be kept after it.
    const UOp back = UOp::Make(Op::kRange, kInt64, {loop.src(0)},
                               RangeArg{FreshRangeId(sets), RangeKind::kLoop});
    const RangeReplacements turn = {{loop, {FromEnd(loop.src(0), back), {back}}}};
    for (const bool backward : {false, true}) {
      const UOp& along = backward ? back : loop;
      UOp out = Along(backward ? Simplify(ReplaceRanges(sink, turn)) : sink, along);
      for (UOp next = out; next; next = Along(next, along)) out = next;
      if (out) return out;
    }
  }
  return sink;
}

}  // namespace tessera
