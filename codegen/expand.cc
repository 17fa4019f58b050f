// Expansion: unrolled ranges become copies, vector ranges become lanes.
#include <string>
#include <vector>

#include "codegen/byte_dots.h"
#include "codegen/passes.h"
#include "codegen/split.h"
#include "codegen/vectorise.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

UOp FindRange(const UOp& sink, RangeKind kind) {
  const auto is_one = [kind](const UOp& u) {
    return u.is(Op::kRange) && u.arg<RangeArg>().kind == kind;
  };
  const UOp* found = FindBelow({&sink, 1}, is_one);
  return found ? *found : UOp();
}

// Stages in registers as vectors, of which reads are parts.
UOp VectorsOfStages(const UOp& sink, bool shuffles) {
  Substitution parts;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kStage)) continue;
    const UOp& stage = u.src(0);
    if (stage.arg<StageArg>().space != Space::kRegister) continue;
    const UOp &value = stage.src(1).src(1), &lane = ClosedRanges(stage.src(1))[0];
    const UOp all = AllLanes(value, lane, shuffles);
    parts.emplace(u, UOp::Make(Op::kPart, u.dtype(), {all, UOp(u.src(1))}));
  }
  return parts.empty() ? sink : UOp(Substitute(sink, parts));
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
  // Dot products take up the sum that they are added to.
  const auto add = [](const Match& m) {
    for (int i : {0, 1}) {
      const UOp &dot = m.root.src(i), &other = m.root.src(1 - i);
      if (!dot.is(Op::kMma) || !IsByteDot(dot)) continue;
      if (dot.size() == 2) return dot.WithSrcs({dot.src(0), dot.src(1), other});
      const UOp sum = UOp::Make(Op::kAdd, {UOp(dot.src(2)), other});
      return dot.WithSrcs({dot.src(0), dot.src(1), sum});
    }
    return UOp();
  };
  const Pat folded = OpPat(Op::kFold, {Any(3)}), other = OpPat(Op::kFold, {Any(4)});
  static const RuleSet& rules =
      *new RuleSet("lanes", {{OpPat(Op::kPart, {Any(0), ConstAny(1)}), part},
                             {OpPat(Op::kAdd, {Any(0), Any(1)}), add},
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
  const UOp decided = DecideStores(Simplify(sink));
  const RuleSet* const rules[] = {&GateRules(), &LaneRules()};
  return Simplify(Rewrite({&decided, 1}, rules)[0]);
}

}  // namespace

UOp Expand(const UOp& sink, const Target& target) {
  UOp out = sink;
  while (UOp r = FindRange(out, RangeKind::kUnroll)) {
    std::vector<LoopSegment> copies;
    for (int64_t i = 0; i < r.src(0).vmax(); ++i) copies.push_back({UOp::Index(i), {}});
    out = SplitIntoSegments(out, r, copies);
  }
  const bool shuffles = target.dialect == Dialect::kCpp;
  out = VectorsOfStages(Decide(out), shuffles);
  while (UOp r = FindRange(out, RangeKind::kVector)) {
    out = Vectorise(out, r, shuffles);
  }
  return Decide(out);
}

}  // namespace tessera
