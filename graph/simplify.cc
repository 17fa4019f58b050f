// The simplification rules, one a line; what needs more than a line is in index_algebra.cc.
#include "graph/simplify.h"

#include "graph/fault.h"
#include "graph/fold.h"
#include "graph/index_algebra.h"
#include "graph/status.h"

namespace tessera {
namespace {

// An elementwise node of scalar constants, as its value.
UOp FoldConstants(const UOp& u) {
  if (u.size() == 0 || u.size() > 3 || u.dtype().lanes() != 1 || u.rank() != 0) return UOp();
  if (u.is(Op::kBitcast)) return UOp();
  absl::InlinedVector<Scalar, 3> args;
  for (const UOp& s : u.srcs()) {
    if (!s.IsConst()) return UOp();
    args.push_back(s.arg<Scalar>());
  }
  if (u.is(Op::kCast)) return UOp::Const(u.dtype(), Convert(args[0], u.src(0).dtype(), u.dtype()));
  const DType operand = u.src(u.size() - 1).dtype();
  return UOp::Const(u.dtype(), EvaluateScalarOp(u.op(), u.dtype(), operand, args));
}

// A bool or integer whose bounds meet is that value (not in tensors: a scalar has no shape to
// keep).
UOp FoldByBounds(const UOp& u) {
  if (u.IsConst() || u.rank() != 0 || u.dtype().IsFloat() || u.dtype().lanes() != 1) return UOp();
  if (u.vmin() != u.vmax() || u.dtype().kind() == Kind::kU64) return UOp();
  return UOp::Const(u.dtype(), u.vmin());
}

UOp FoldScalar(const UOp& u) {
  if (UOp c = FoldConstants(u)) return c;
  return FoldByBounds(u);
}

// CAST of a CAST: one is enough where the inner one loses nothing.
UOp MergeCasts(const UOp& u) {
  const UOp& inner = u.src(0);
  if (!inner.is(Op::kCast)) return UOp();
  const DType from = inner.src(0).dtype(), mid = inner.dtype(), to = u.dtype();
  const bool widens =
      (from.IsFloat() && mid.IsFloat() && mid.bits() > from.bits() && mid.bits() >= 32) ||
      (from.IsBool() && !mid.IsBool()) ||
      (from.IsInt() && mid.IsInt() && mid.bits() > from.bits() &&
       (from.IsUnsigned() || !mid.IsUnsigned())) ||
      (from.IsInt() && mid.IsInt() && FaultPlanted(Fault::kNarrowCastMerged)) ||
      (from.IsFloat() && mid.IsFloat() && FaultPlanted(Fault::kRoundingSkipped));
  if (!widens) return UOp();
  return from == to ? inner.src(0) : UOp::Make(Op::kCast, to, {inner.src(0)});
}

// A load whose gate is a constant: without it, or 0.
UOp SimplifyGate(const UOp& load, const UOp& gate) {
  if (gate.arg<Scalar>().bits != 0) {
    return UOp::Make(load.op(), load.dtype(), {load.src(0), load.src(1)}, load.arg());
  }
  const UOp zero = UOp::Const(load.dtype().Scalar(), Scalar{});
  return load.dtype().lanes() == 1 ? zero : UOp::Make(Op::kSplat, load.dtype(), {zero});
}

std::vector<RewriteRule> MakeRules() {
  const Pat x = Any(0), y = Any(1), z = Any(2), c = ConstAny(3), d = ConstAny(4);
  const auto op = [](Op o, std::vector<Pat> srcs) { return OpPat(o, std::move(srcs)); };
  const auto ints_only = [](RewriteRule r, Fault fault) {
    return FaultPlanted(fault) ? r : r.IntsOnly();
  };
  std::vector<RewriteRule> rules = {
      // Identities that hold for floats too: NaN and the sign of zero survive.
      {x * Literal(1), x},
      {x - Literal(0), x},
      {x + Literal(-0.0), x},
      {-(-x), x},
      {op(Op::kDiv, {x, Literal(1)}), x},
      {op(Op::kMax, {x, x}), x},
      {op(Op::kMin, {x, x}), x},
      {WherePat(x, y, y), y},
      {WherePat(c, x, y),
       [=](const Match& m) {
         return (m[c].arg<Scalar>().bits != 0) != FaultPlanted(Fault::kWhereSwapped) ? m[x] : m[y];
       }},
      {WherePat(x, c, d),
       [=](const Match& m) {
         const bool same = m.root.dtype() == m[x].dtype() && m.root.dtype().IsBool();
         const bool is = same && m[c].arg<Scalar>().bits != 0 && m[d].arg<Scalar>().bits == 0;
         return is ? m[x] : UOp();
       }},
      {op(Op::kCast, {x}),
       [=](const Match& m) { return m[x].dtype() == m.root.dtype() ? m[x] : UOp(); }},
      {op(Op::kCast, {x}), [](const Match& m) { return MergeCasts(m.root); }},
      {op(Op::kBitcast, {x}),
       [=](const Match& m) { return m[x].dtype() == m.root.dtype() ? m[x] : UOp(); }},
      // By way of bits; floats and bools between may have several patterns for one value.
      {op(Op::kBitcast, {op(Op::kBitcast, {x})}),
       [=](const Match& m) {
         const bool back = m[x].dtype() == m.root.dtype() && m.root.src(0).dtype().IsInt();
         return back ? m[x] : UOp();
       }},
      // Integers and bools.
      ints_only({x + Literal(0), x}, Fault::kFloatPlusZero),
      ints_only({x * Literal(0),
                 [=](const Match& m) {
                   return m[x].rank() == 0 ? UOp::Const(m.root.dtype(), int64_t{0}) : UOp();
                 }},
                Fault::kZeroTimesFloat),
      RewriteRule{op(Op::kAnd, {x, x}), x}.IntsOnly(),
      RewriteRule{op(Op::kOr, {x, x}), x}.IntsOnly(),
      RewriteRule{FloorDivPat(x, Literal(1)), x}.IntsOnly(),
      RewriteRule{op(Op::kTruncDiv, {x, Literal(1)}), x}.IntsOnly(),
      RewriteRule{op(Op::kShl, {x, Literal(0)}), x}.IntsOnly(),
      RewriteRule{op(Op::kShr, {x, Literal(0)}), x}.IntsOnly(),
      RewriteRule{op(Op::kAnd, {x, c}),
                  [=](const Match& m) { return SimplifyBoolConst(m.root, m[x], m[c]); }}
          .IntsOnly(),
      RewriteRule{op(Op::kOr, {x, c}),
                  [=](const Match& m) { return SimplifyBoolConst(m.root, m[x], m[c]); }}
          .IntsOnly(),
      RewriteRule{op(Op::kXor, {op(Op::kXor, {x, c}), d}),
                  [=](const Match& m) {
                    return UOp::Make(Op::kXor, {m[x], UOp::Make(Op::kXor, {m[c], m[d]})});
                  }}
          .IntsOnly(),
      RewriteRule{op(Op::kMax, {x, y}),
                  [=](const Match& m) { return PickByBounds(m.root, m[x], m[y]); }}
          .IntsOnly(),
      RewriteRule{op(Op::kMin, {x, y}),
                  [=](const Match& m) { return PickByBounds(m.root, m[x], m[y]); }}
          .IntsOnly(),
      // Index algebra, on scalar i64.
      RewriteRule{x + y, [](const Match& m) { return SimplifySum(m.root); }}.IntsOnly(),
      RewriteRule{x - y, [](const Match& m) { return SimplifySum(m.root); }}.IntsOnly(),
      RewriteRule{x * y, [](const Match& m) { return SimplifySum(m.root); }}.IntsOnly(),
      RewriteRule{FloorDivPat(x, c), [=](const Match& m) { return SimplifyFloorDiv(m[x], m[c]); }}
          .IntsOnly(),
      RewriteRule{FloorModPat(x, c), [=](const Match& m) { return SimplifyFloorMod(m[x], m[c]); }}
          .IntsOnly(),
      RewriteRule{FloorDivPat(x, y), [=](const Match& m) { return DivideByVariable(m[x], m[y]); }}
          .IntsOnly(),
      RewriteRule{FloorModPat(x, y), [=](const Match& m) { return ModuloByVariable(m[x], m[y]); }}
          .IntsOnly(),
      RewriteRule{LessPat(x, y), [=](const Match& m) { return SimplifyLess(m[x], m[y]); }}
          .IntsOnly(),
  };
  // Folding applies to every elementwise op of the table.
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& info = Info(static_cast<Op>(i));
    if (info.cls != OpClass::kElementwise) continue;
    std::vector<Pat> any;
    for (int s = 0; s < info.arity; ++s) any.push_back(Any(s));
    rules.push_back(RewriteRule{OpPat(static_cast<Op>(i), any),
                                [](const Match& m) { return FoldScalar(m.root); }});
  }
  return rules;
}

}  // namespace

const RuleSet& SimplifyRules() {
  static const RuleSet& rules = *new RuleSet("simplify", MakeRules());
  return rules;
}

const RuleSet& GateRules() {
  const Pat pointer = Any(0), offset = Any(1), gate = ConstAny(2);
  const auto known = [](const Match& m) { return SimplifyGate(m.root, m.root.src(2)); };
  static const RuleSet& rules =
      *new RuleSet("gates", {{OpPat(Op::kIndex, {pointer, offset, gate}), known},
                             {OpPat(Op::kLoad, {pointer, offset, gate}), known}});
  return rules;
}

UOp Simplify(const UOp& u) {
  if (u.get()->simplest.load(std::memory_order_relaxed)) return u;
  return Rewrite(u, SimplifyRules(), /*mark=*/true);
}

}  // namespace tessera
