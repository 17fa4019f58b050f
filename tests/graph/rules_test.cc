// Every simplification rule, instantiated from its own pattern, against the arithmetic of the op
// table: at all values of 8-bit operands, at special and random ones of the others.
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/simplify.h"
#include "graph/text.h"
#include "tests/support/sample_evaluator.h"
#include "tests/testing.h"

namespace tessera {
namespace {

constexpr DType kAll[] = {kBool,       kInt8,    kInt16,    kInt32,   kInt64,
                          kUInt8,      kUInt16,  kUInt32,   kUInt64,  kFloat8E4M3,
                          kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};

class RuleFuzz {
 public:
  explicit RuleFuzz(uint64_t seed) : rng_(seed) {}

  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) < p * 0x1p53; }

  Scalar Value(DType t) {
    if (t.IsFloat()) {
      constexpr double inf = std::numeric_limits<double>::infinity();
      const double specials[] = {0.0,  -0.0,         1,     -1,   0.5, inf,
                                 -inf, std::nan(""), 1e-40, 1e30, 448, 3};
      const double d = Chance(0.5) ? specials[Int(0, 11)]
                                   : std::ldexp(Int(-999, 999), static_cast<int>(Int(-12, 6)));
      return Convert(Scalar::Float(d), kFloat64, t);
    }
    const int64_t specials[] = {0, 1, 2, -1, INT64_MIN, INT64_MAX, 127, -128, 255, 31, 32, 64};
    int64_t v = Chance(0.3)   ? specials[Int(0, 11)]
                : Chance(0.5) ? Int(-20, 20)
                              : static_cast<int64_t>(rng_());
    if (Chance(0.1)) v = Chance(0.5) ? MinInt(t) + Int(0, 2) : MaxInt(t) - Int(0, 2);
    return Convert(Scalar::Int(v), kInt64, t);
  }

  // What stands for a slot: a leaf, a constant, or something with bounds.
  UOp Operand(DType t) {
    const UOp leaf = UOp::Make(Op::kParam, t, {}, ParamArg{Int(0, 1), {}, {}});
    const auto constant = [&](DType type) { return UOp::Const(type, Value(type)); };
    if (Chance(0.2)) return constant(t);
    if (!t.IsInt() || Chance(0.4)) return leaf;
    switch (Int(0, 6)) {
      case 0: {
        const DType narrow = t.IsUnsigned() ? kUInt8 : kInt8;
        const UOp x = UOp::Make(Op::kParam, narrow, {}, ParamArg{2, {}, {}});
        return t == narrow ? x : UOp::Make(Op::kCast, t, {x});
      }
      case 1:
        return UOp::Make(Op::kFloorMod, {leaf, UOp::Const(t, Int(1, 12))});
      case 2:
        return UOp::Make(Op::kAnd, {leaf, UOp::Const(t, Int(0, 31))});
      case 3:
        return UOp::Make(Op::kMax, {leaf, UOp::Const(t, Int(1, 5))});
      case 4:
        return UOp::Make(Chance(0.5) ? Op::kFloorDiv : Op::kTruncDiv,
                         {leaf, UOp::Const(t, Int(1, 9))});
      default: {
        const Op ops[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kFloorMod, Op::kMin};
        return UOp::Make(ops[Int(0, 4)], {Operand(t), Operand(t)});
      }
    }
  }

  // A node that the pattern may match, or nothing where the dtype does not fit.
  absl::StatusOr<UOp> Instance(const Pat& p, DType t, std::map<int, UOp>& slots) {
    switch (p.kind) {
      case Pat::kLiteral:
        return UOp::Const(t, Convert(Scalar::Float(p.literal), kFloat64, t));
      case Pat::kConst:
      case Pat::kAny: {
        auto [it, fresh] = slots.try_emplace(p.slot);
        if (fresh) it->second = p.kind == Pat::kConst ? UOp::Const(t, Value(t)) : Operand(t);
        return it->second;
      }
      case Pat::kOp:
        break;
    }
    absl::InlinedVector<UOp, 3> srcs;
    const DType from = p.op == Op::kCast || p.op == Op::kBitcast ? kAll[Int(0, 14)] : t;
    for (size_t i = 0; i < p.srcs.size(); ++i) {
      const bool condition = p.op == Op::kWhere && i == 0;
      auto s = Instance(p.srcs[i], condition ? kBool : from, slots);
      if (!s.ok()) return s.status();
      srcs.push_back(*s);
    }
    // Casts of casts are what one of the rules is for.
    if (p.op == Op::kCast && Chance(0.6)) srcs[0] = UOp::Make(Op::kCast, kAll[Int(0, 14)], srcs);
    return UOp::TryMake(p.op, p.op == Op::kCast || p.op == Op::kBitcast ? t : kVoid, srcs, Arg());
  }

  // Points for the leaves of both sides: every one of them where they are few and narrow.
  SampleEvaluator Points(absl::Span<const UOp> roots, int64_t& n) {
    std::vector<UOp> leaves;
    int bits = 0;
    for (const UOp& u : TopoSort(roots)) {
      if (!u.is(Op::kParam)) continue;
      leaves.push_back(u);
      bits += u.dtype().bits();
    }
    const bool all = bits <= 16 && Chance(bits <= 8 ? 1.0 : 0.1);
    n = all ? int64_t{1} << bits : 150;
    SampleEvaluator out(n);
    int shift = 0;  // where a leaf's bits lie in the number of the point
    for (size_t i = 0; i < leaves.size(); ++i) {
      std::vector<Scalar> values(n);
      for (int64_t k = 0; k < n; ++k) {
        const DType t = leaves[i].dtype();
        const uint64_t raw = static_cast<uint64_t>(k) >> shift;
        values[k] = all ? LoadScalar(&raw, t) : Value(t);
      }
      if (all) shift += leaves[i].dtype().bits();
      out.Set(leaves[i], std::move(values));
    }
    return out;
  }

 private:
  std::mt19937_64 rng_;
};

std::string Show(Scalar s, DType t) { return ScalarToString(s, t); }

// "" where the two sides agree at every point.
std::string Compare(const UOp& left, const UOp& right, SampleEvaluator& points, int64_t n) {
  if (!(left.dtype() == right.dtype())) return "another dtype";
  if (!(left.shape() == right.shape())) return "another shape";
  const std::vector<Scalar>&a = points.Of(left), b = points.Of(right);
  for (int64_t i = 0; i < n; ++i) {
    if (a[i] == b[i]) continue;
    if (left.dtype().IsFloat() && std::isnan(a[i].AsFloat()) && std::isnan(b[i].AsFloat()))
      continue;
    std::string out =
        absl::StrCat(Show(a[i], left.dtype()), " became ", Show(b[i], left.dtype()), " at");
    for (const UOp& u : TopoSort({&left, 1})) {
      if (u.size() == 0 && !u.IsConst())
        absl::StrAppend(&out, " ", Show(points.Of(u)[i], u.dtype()));
    }
    return absl::StrCat(out, "\n", Print({&left, 1}), "=>\n", Print({&right, 1}));
  }
  return "";
}

TEST(Rules, BothSidesAreEqualSlow) {
  const auto& rules = SimplifyRules().rules();
  for (size_t k = 0; k < rules.size(); ++k) {
    RuleFuzz fuzz(k + 1);
    int fired = 0, failures = 0;
    // Few of what a pattern may match are simplified by some rules: then more are tried.
    for (int tries = 0; tries < 120 || (fired == 0 && tries < 2400); ++tries) {
      for (DType t : kAll) {
        if (failures == 2) break;
        std::map<int, UOp> slots;
        const auto u = fuzz.Instance(rules[k].pattern, t, slots);
        if (!u.ok()) continue;
        const DType operand = u->size() > 0 ? u->src(u->size() - 1).dtype() : u->dtype();
        if (operand.IsFloat() && !rules[k].floats) continue;
        Match m;
        if (!TryMatch(rules[k].pattern, *u, m)) continue;
        m.root = *u;
        const UOp r = rules[k].replace(m);
        if (!r || r == *u) continue;
        ++fired;
        int64_t n;
        SampleEvaluator points = fuzz.Points({*u, r}, n);
        const std::string wrong = Compare(*u, r, points, n);
        if (wrong.empty()) continue;
        ++failures;
        ADD_FAILURE() << "rule at line " << rules[k].line << ": " << wrong;
      }
    }
    // The bits of a constant are not folded.
    if (rules[k].pattern.op == Op::kBitcast) continue;
    EXPECT_GT(fired, 0) << "rule " << k << " at line " << rules[k].line << " never applied";
  }
}

// Random expressions through all rules together.
TEST(Rules, SimplifiedExpressionsAreEqual) {
  RuleFuzz fuzz(77);
  const Op kBinary[] = {Op::kAdd,      Op::kSub,      Op::kMul, Op::kFloorDiv, Op::kFloorMod,
                        Op::kTruncDiv, Op::kTruncMod, Op::kMax, Op::kMin,      Op::kAnd,
                        Op::kOr,       Op::kXor,      Op::kShl, Op::kShr,      Op::kPow};
  int failures = 0, changed = 0;
  for (int round = 0; round < 12000 && failures < 3; ++round) {
    const DType t = kAll[fuzz.Int(0, 14)];
    std::vector<UOp> nodes;
    for (int i = 0; i < 3; ++i) nodes.push_back(fuzz.Operand(t));
    for (int64_t steps = fuzz.Int(1, 6); steps > 0; --steps) {
      const UOp a = nodes[fuzz.Int(0, nodes.size() - 1)];
      UOp b =
          fuzz.Chance(0.4) ? UOp::Const(t, fuzz.Value(t)) : nodes[fuzz.Int(0, nodes.size() - 1)];
      if (t.IsInt() && fuzz.Chance(0.3)) b = UOp::Const(t, fuzz.Int(0, 12));
      absl::StatusOr<UOp> u = absl::InvalidArgumentError("");
      if (fuzz.Chance(0.12)) {
        const Op compare[] = {Op::kCmpLt, Op::kCmpLe, Op::kCmpEq, Op::kCmpNe};
        u = UOp::TryMake(Op::kWhere, kVoid,
                         {UOp::Make(compare[fuzz.Int(0, 3)], {a, b}), a, nodes[0]}, {});
      } else if (fuzz.Chance(0.12)) {
        u = UOp::Make(Op::kCast, t, {UOp::Make(Op::kCast, kAll[fuzz.Int(0, 14)], {a})});
      } else if (fuzz.Chance(0.1)) {
        u = UOp::TryMake(Op::kNeg, kVoid, {a}, {});
      } else {
        u = UOp::TryMake(kBinary[fuzz.Int(0, 14)], kVoid, {a, b}, {});
      }
      if (u.ok()) nodes.push_back(*u);
    }
    const UOp u = nodes.back(), r = Simplify(u);
    changed += !(u == r);
    int64_t n;
    SampleEvaluator points = fuzz.Points({u, r}, n);
    const std::string wrong = Compare(u, r, points, n);
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << "round " << round << ": " << wrong;
  }
  EXPECT_GT(changed, 4000);
}

TEST(Rules, BoundsHoldEveryValue) {
  RuleFuzz fuzz(5);
  int failures = 0, known = 0;
  for (int round = 0; round < 12000 && failures < 3; ++round) {
    const DType t = kAll[fuzz.Int(0, 8)];
    std::map<int, UOp> slots;
    const Op op = static_cast<Op>(fuzz.Int(0, kOpCount - 1));
    if (!IsElementwise(op)) continue;
    std::vector<Pat> any;
    for (int i = 0; i < Info(op).arity; ++i) any.push_back(Any(i));
    const auto u = fuzz.Instance(OpPat(op, any), t, slots);
    if (!u.ok()) continue;
    int64_t n;
    SampleEvaluator points = fuzz.Points({*u}, n);
    for (const UOp& node : TopoSort({&*u, 1})) {
      const DType type = node.dtype();
      if (type.IsFloat()) continue;
      known += node.vmin() > MinInt(type) || node.vmax() < MaxInt(type);
      for (const Scalar& v : points.Of(node)) {
        // Of a u64 the highest bound stands for all beyond it.
        const bool large = type.kind() == Kind::kU64 && v.AsInt() < 0;
        const bool inside =
            large ? node.vmax() == INT64_MAX : v.AsInt() >= node.vmin() && v.AsInt() <= node.vmax();
        if (inside) continue;
        ++failures;
        ADD_FAILURE() << ScalarToString(v, type) << " lies outside " << node.vmin() << ".."
                      << node.vmax() << "\n"
                      << Print({&node, 1});
        break;
      }
    }
  }
  EXPECT_GT(known, 3000);
}

TEST(Rules, RulesThatUndoEachOtherAreNamed) {
  const Pat x = Any(0), y = Any(1);
  const RuleSet loop("loop", {RewriteRule(x + y, OpPat(Op::kSub, {x, y}), 11),
                              RewriteRule(x - y, OpPat(Op::kAdd, {x, y}), 22)});
  const UOp a = UOp::Make(Op::kParam, kInt32, {}, ParamArg{0, {}, {}});
  const std::string message = ErrorOf([&] { Rewrite(UOp::Make(Op::kAdd, {a, a}), loop); });
  EXPECT_THAT(message, ::testing::StartsWith("loop: rules do not come to an end"));
  EXPECT_THAT(message, ::testing::AnyOf(::testing::HasSubstr("11 and 22"),
                                        ::testing::HasSubstr("22 and 11")));
}

}  // namespace
}  // namespace tessera
