// Sums of multiples, floor division, modulo and comparison of index expressions.
#include "graph/index_algebra.h"

#include <algorithm>
#include <numeric>

#include "graph/fault.h"
#include "graph/scalar_math.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// Sums of more terms stay as they are written: their parts would be put in order again and again.
constexpr size_t kMaxTerms = 32;
// Enough for two sums of so many terms.
constexpr int kMaxSteps = 2 * kMaxTerms;

bool IsScalarInt(const UOp& u) {
  return u.dtype().IsInt() && u.dtype().lanes() == 1 && u.rank() == 0;
}

int64_t ConstValue(const UOp& c) { return c.arg<Scalar>().AsInt(); }

// Bounds of a sum in exact arithmetic; false if they leave the dtype, where the sum would wrap.
bool SumBounds(const Sum& s, DType dtype, int64_t& low, int64_t& high) {
  low = high = s.constant;
  for (const Sum::Term& t : s.terms) {
    int64_t a, b;
    if (__builtin_mul_overflow(t.term.vmin(), t.factor, &a) ||
        __builtin_mul_overflow(t.term.vmax(), t.factor, &b) ||
        __builtin_add_overflow(low, std::min(a, b), &low) ||
        __builtin_add_overflow(high, std::max(a, b), &high)) {
      return false;
    }
  }
  return (low >= MinInt(dtype) && high <= MaxInt(dtype)) || FaultPlanted(Fault::kWrapIgnored);
}

void DropZeroTerms(Sum& sum, DType dtype) {
  const auto zero = [&](const Sum::Term& t) {
    return Convert(Scalar::Int(t.factor), kInt64, dtype).bits == 0;
  };
  sum.terms.erase(std::remove_if(sum.terms.begin(), sum.terms.end(), zero), sum.terms.end());
}

void AddTerm(Sum& sum, const UOp& term, int64_t factor) {
  for (Sum::Term& t : sum.terms) {
    if (t.term == term) {
      t.factor = ev::Add(t.factor, factor);
      return;
    }
  }
  sum.terms.push_back({term, factor});
}

// The node that x/c is once simplified, where it stays one division: (y/a)/c is y/(a*c).
UOp Quotient(const UOp& x, const UOp& c) {
  UOp out = UOp::Make(Op::kFloorDiv, {x, c});
  while (out.is(Op::kFloorDiv) && out.src(1).IsConst()) {
    const UOp next = SimplifyFloorDiv(out.src(0), out.src(1));
    if (!next) break;
    out = next;
  }
  return out;
}

// x%c * m and x/c * (m*c) are together x * m.
void JoinDivMod(Sum& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const UOp mod = sum.terms[i].term;
    if (!mod.is(Op::kFloorMod) || !mod.src(1).IsConst()) continue;
    const int64_t c = ConstValue(mod.src(1)), factor = sum.terms[i].factor;
    int64_t whole;
    if (c <= 0 || __builtin_mul_overflow(factor, c, &whole)) continue;
    UOp quotient;  // made only where something could be it
    for (size_t j = 0; j < sum.terms.size(); ++j) {
      const UOp& div = sum.terms[j].term;
      if (!div.is(Op::kFloorDiv) || sum.terms[j].factor != whole) continue;
      if (!quotient) quotient = Quotient(mod.src(0), mod.src(1));
      if (!(div == quotient)) continue;
      sum.terms.erase(sum.terms.begin() + std::max(i, j));
      sum.terms.erase(sum.terms.begin() + std::min(i, j));
      Sum inner = ToSum(mod.src(0));
      for (const Sum::Term& t : inner.terms) AddTerm(sum, t.term, ev::Mul(t.factor, factor));
      sum.constant = ev::Add(sum.constant, ev::Mul(inner.constant, factor));
      return JoinDivMod(sum);  // one term fewer each time
    }
  }
}

// In the order that FromSum writes them in; false if there are too many to be put in order.
bool PutInOrder(Sum& sum, DType dtype) {
  JoinDivMod(sum);
  DropZeroTerms(sum, dtype);
  if (sum.terms.size() > kMaxTerms) return false;
  std::stable_sort(sum.terms.begin(), sum.terms.end(),
                   [](const auto& a, const auto& b) { return CompareExpr(a.term, b.term) < 0; });
  return true;
}

// Whether u is what FromSum gives, told without making that.
bool IsWritten(const UOp& u, const Sum& sum) {
  const UOp* rest = &u;
  const auto adds = [&] { return rest->is(Op::kAdd); };
  if (sum.terms.empty()) return false;
  if (sum.constant != 0) {
    if (!adds() || !rest->src(1).IsConst() || ConstValue(rest->src(1)) != sum.constant)
      return false;
    rest = &rest->src(0);
  }
  for (size_t i = sum.terms.size(); i-- > 0;) {
    if (i > 0 && !adds()) return false;
    const UOp& part = i > 0 ? rest->src(1) : *rest;
    const auto& [term, factor] = sum.terms[i];
    const bool same = factor == 1 ? part == term
                                  : part.is(Op::kMul) && part.src(0) == term &&
                                        part.src(1).IsConst() && ConstValue(part.src(1)) == factor;
    if (!same) return false;
    if (i > 0) rest = &rest->src(0);
  }
  return true;
}

// Splits a sum by divisibility: sum = c * quotient + rest.
void SplitMultiples(const Sum& sum, int64_t c, Sum& quotient, Sum& rest) {
  for (const Sum::Term& t : sum.terms) {
    if (t.factor % c == 0) {
      quotient.terms.push_back({t.term, t.factor / c});
    } else {
      rest.terms.push_back(t);
    }
  }
  quotient.constant = ev::FloorDiv(sum.constant, c);
  rest.constant = ev::FloorMod(sum.constant, c);
}

int64_t FactorGcd(const Sum& sum, int64_t c) {
  for (const Sum::Term& t : sum.terms) c = std::gcd(c, t.factor);
  return c;
}

Sum Divided(const Sum& sum, int64_t g) {
  Sum out = sum;
  for (Sum::Term& t : out.terms) t.factor /= g;
  out.constant = ev::FloorDiv(sum.constant, g);
  return out;
}

// The sum as a multiple of some g > 1 that divides c, and a rest of at least 0 that is less than g:
// what is divided by c is then the multiple alone. 0 where there is no such g.
int64_t SplitBelow(const Sum& sum, int64_t c, DType dtype, Sum& multiple, Sum& rest) {
  for (const Sum::Term& candidate : sum.terms) {
    const int64_t g = std::gcd(c, candidate.factor);
    if (g <= 1 || g == c) continue;
    multiple = rest = Sum();
    for (const Sum::Term& t : sum.terms) (t.factor % g == 0 ? multiple : rest).terms.push_back(t);
    rest.constant = ev::FloorMod(sum.constant, g);
    multiple.constant = ev::Sub(sum.constant, rest.constant);
    int64_t low, high;
    if (rest.terms.empty() || !SumBounds(rest, dtype, low, high)) continue;
    if (low >= 0 && high < g) return g;
  }
  return 0;
}

bool BoundsKnown(const UOp& x) { return x.vmin() > INT64_MIN && x.vmax() < INT64_MAX; }

UOp Div(const UOp& a, int64_t c) {
  return c == 1 ? a : UOp::Make(Op::kFloorDiv, {a, UOp::Const(a.dtype(), c)});
}
UOp Mod(const UOp& a, int64_t c) { return UOp::Make(Op::kFloorMod, {a, UOp::Const(a.dtype(), c)}); }

}  // namespace

int CompareExpr(const UOp& a, const UOp& b) {
  // Index expressions are small; a comparison that goes on for long calls them equal, which only
  // leaves two terms in the order in which they were written.
  std::vector<std::pair<const UOp*, const UOp*>> stack = {{&a, &b}};
  const auto cmp = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  for (int steps = 0; !stack.empty() && steps < 256; ++steps) {
    const auto [x, y] = stack.back();
    stack.pop_back();
    if (*x == *y) continue;
    if (int c = cmp(x->op(), y->op())) return c;
    if (int c = cmp(x->size(), y->size())) return c;
    const Arg::Value &p = x->arg().value, &q = y->arg().value;
    if (int c = cmp(p.index(), q.index())) return c;
    if (auto* r = std::get_if<RangeArg>(&p)) {
      if (int c = cmp(r->id, std::get<RangeArg>(q).id)) return c;
    } else if (auto* s = std::get_if<Scalar>(&p)) {
      if (int c = cmp(s->AsInt(), std::get<Scalar>(q).AsInt())) return c;
    } else if (auto* v = std::get_if<VarArg>(&p)) {
      if (int c = v->name.compare(std::get<VarArg>(q).name)) return c;
    } else if (auto* slot = std::get_if<ParamArg>(&p)) {
      if (int c = cmp(slot->slot, std::get<ParamArg>(q).slot)) return c;
    } else if (auto* i = std::get_if<int64_t>(&p)) {
      if (int c = cmp(*i, std::get<int64_t>(q))) return c;
    }
    for (int i = x->size() - 1; i >= 0; --i) stack.emplace_back(&x->src(i), &y->src(i));
  }
  return 0;
}

namespace {
// Multiples of expressions that are taken apart into a sum.
struct Expansion {
  absl::InlinedVector<std::pair<UOp, int64_t>, 8> stack;
  Sum sum = {};
  int steps = 0;  // additions so far; those beyond kMaxSteps become terms

  // Whether there were no such additions, and no more terms than are put in order.
  bool Run() {
    bool whole = true;
    while (!stack.empty()) {
      const auto [x, factor] = std::move(stack.back());
      stack.pop_back();
      const bool adds = x.is(Op::kAdd) || x.is(Op::kSub);
      const bool room = steps < kMaxSteps;
      whole = whole && (room || !adds);
      steps += adds ? 1 : 0;
      if (x.IsConst()) {
        sum.constant = ev::Add(sum.constant, ev::Mul(ConstValue(x), factor));
      } else if (x.is(Op::kAdd) && room) {
        stack.push_back({x.src(1), factor});
        stack.push_back({x.src(0), factor});
      } else if (x.is(Op::kSub) && room) {
        stack.push_back({x.src(1), ev::Neg(factor)});
        stack.push_back({x.src(0), factor});
      } else if (x.is(Op::kNeg)) {
        stack.push_back({x.src(0), ev::Neg(factor)});
      } else if (x.is(Op::kMul) && (x.src(0).IsConst() || x.src(1).IsConst())) {
        const bool first = x.src(0).IsConst();
        stack.push_back({x.src(first ? 1 : 0), ev::Mul(factor, ConstValue(x.src(first ? 0 : 1)))});
      } else {
        AddTerm(sum, x, factor);
      }
    }
    return whole && sum.terms.size() <= kMaxTerms;
  }
};
}  // namespace

Sum ToSum(const UOp& u) {
  Expansion parts{{{u, 1}}};
  parts.Run();
  return std::move(parts.sum);
}

UOp FromSum(const Sum& sum, DType dtype) {
  UOp out;
  for (const Sum::Term& t : sum.terms) {
    const UOp part =
        t.factor == 1 ? t.term : UOp::Make(Op::kMul, {t.term, UOp::Const(dtype, t.factor)});
    out = out ? UOp::Make(Op::kAdd, {out, part}) : part;
  }
  if (!out) return UOp::Const(dtype, sum.constant);
  return sum.constant == 0 ? out : UOp::Make(Op::kAdd, {out, UOp::Const(dtype, sum.constant)});
}

UOp SimplifySum(const UOp& u) {
  if (!IsScalarInt(u)) return UOp();
  Expansion parts{{{u, 1}}};
  if (!parts.Run() || !PutInOrder(parts.sum, u.dtype())) return UOp();
  return IsWritten(u, parts.sum) ? UOp() : FromSum(parts.sum, u.dtype());
}

std::optional<Extent> SimplifiedSum(Op op, const Extent& a, const Extent& b) {
  const auto simple = [](const Extent& e) {
    return e.is_int() || e.expr().get()->simplest.load(std::memory_order_relaxed);
  };
  if (!simple(a) || !simple(b)) return std::nullopt;
  Expansion parts;
  parts.steps = 1;
  const int64_t sign = op == Op::kSub ? -1 : 1;
  if (!b.is_int()) parts.stack.push_back({b.expr(), sign});
  if (!a.is_int()) parts.stack.push_back({a.expr(), 1});
  if (a.is_int()) parts.sum.constant = a.value();
  if (b.is_int()) parts.sum.constant = ev::Add(parts.sum.constant, ev::Mul(b.value(), sign));
  if (!parts.Run() || !PutInOrder(parts.sum, kInt64)) return std::nullopt;
  if (parts.sum.terms.empty()) return Extent(parts.sum.constant);
  return Extent(Simplify(FromSum(parts.sum, kInt64)));
}

UOp SimplifyFloorDiv(const UOp& x, const UOp& divisor) {
  if (!IsScalarInt(x) || x.dtype().IsUnsigned()) return UOp();
  const int64_t c = ConstValue(divisor);
  if (c <= 0 || !BoundsKnown(x)) return UOp();
  const Sum sum = ToSum(x);
  int64_t low, high;
  if (!SumBounds(sum, x.dtype(), low, high)) return UOp();
  if (ev::FloorDiv(low, c) == ev::FloorDiv(high, c)) {
    return UOp::Const(x.dtype(), ev::FloorDiv(low, c));
  }
  if (x.is(Op::kFloorDiv) && x.src(1).IsConst() && ConstValue(x.src(1)) > 0) {
    int64_t product;
    if (!__builtin_mul_overflow(ConstValue(x.src(1)), c, &product) &&
        product <= MaxInt(x.dtype())) {
      return Div(x.src(0), product);
    }
  }
  if (x.is(Op::kFloorMod) && x.src(1).IsConst()) {  // (x % ab) / b = (x / b) % a
    const int64_t whole = ConstValue(x.src(1));
    if (whole > c && whole % c == 0) return Mod(Div(x.src(0), c), whole / c);
  }
  Sum quotient, rest;
  // Of each factor the multiple of c; where what is left has one quotient, that is all.
  for (const Sum::Term& t : sum.terms) {
    if (const int64_t q = ev::FloorDiv(t.factor, c); q != 0) quotient.terms.push_back({t.term, q});
    if (const int64_t r = ev::FloorMod(t.factor, c); r != 0) rest.terms.push_back({t.term, r});
  }
  rest.constant = sum.constant;
  if (!quotient.terms.empty() && SumBounds(rest, x.dtype(), low, high) &&
      ev::FloorDiv(low, c) == ev::FloorDiv(high, c)) {
    quotient.constant = ev::FloorDiv(low, c);
    return FromSum(quotient, x.dtype());
  }
  quotient = rest = Sum();
  SplitMultiples(sum, c, quotient, rest);
  if (!SumBounds(rest, x.dtype(), low, high)) return UOp();
  if (!quotient.terms.empty() || quotient.constant != 0) {
    const UOp q = FromSum(quotient, x.dtype());
    if (ev::FloorDiv(low, c) == ev::FloorDiv(high, c)) {
      return UOp::Make(Op::kAdd, {q, UOp::Const(x.dtype(), ev::FloorDiv(low, c))});
    }
    return UOp::Make(Op::kAdd, {q, Div(FromSum(rest, x.dtype()), c)});
  }
  if (const int64_t g = FactorGcd(rest, c); g > 1 && !rest.terms.empty()) {
    return Div(FromSum(Divided(rest, g), x.dtype()), c / g);
  }
  // (g*m + r) / c = m / (c/g) for 0 <= r < g
  if (const int64_t g = SplitBelow(sum, c, x.dtype(), quotient, rest); g > 0) {
    return Div(FromSum(Divided(quotient, g), x.dtype()), c / g);
  }
  return UOp();
}

UOp SimplifyFloorMod(const UOp& x, const UOp& divisor) {
  if (!IsScalarInt(x) || x.dtype().IsUnsigned()) return UOp();
  const int64_t c = ConstValue(divisor);
  if (c <= 0 || !BoundsKnown(x)) return UOp();
  if (c == 1) return UOp::Const(x.dtype(), int64_t{0});
  const Sum sum = ToSum(x);
  int64_t low, high;
  if (!SumBounds(sum, x.dtype(), low, high)) return UOp();
  high -= FaultPlanted(Fault::kModuloOffByOne);
  if (const int64_t q = ev::FloorDiv(low, c); q == ev::FloorDiv(high, c)) {
    if (q == 0) return x;
    Sum shifted = sum;
    shifted.constant = ev::Sub(shifted.constant, ev::Mul(q, c));
    return FromSum(shifted, x.dtype());
  }
  if (x.is(Op::kFloorMod) && x.src(1).IsConst() && ConstValue(x.src(1)) > 0 &&
      ConstValue(x.src(1)) % c == 0) {
    return Mod(x.src(0), c);
  }
  // Multiples of c add nothing; other factors count modulo c.
  Sum rest;
  rest.constant = ev::FloorMod(sum.constant, c);
  bool changed = rest.constant != sum.constant;
  for (const Sum::Term& t : sum.terms) {
    int64_t factor = t.factor % c;
    if (factor < 0 && factor != t.factor) factor += c;
    changed |= factor != t.factor;
    if (factor != 0) rest.terms.push_back({t.term, factor});
  }
  if (changed) {
    return SumBounds(rest, x.dtype(), low, high) ? Mod(FromSum(rest, x.dtype()), c) : UOp();
  }
  if (const int64_t g = FactorGcd(rest, c); g > 1 && !rest.terms.empty()) {
    // (g*r + k) % c = g * (r % (c/g)) + k for 0 <= k < g
    const UOp r = FromSum(Divided(rest, g), x.dtype());
    const int64_t k = ev::FloorMod(rest.constant, g);
    UOp out = UOp::Make(Op::kMul, {Mod(r, c / g), UOp::Const(x.dtype(), g)});
    return k == 0 ? out : UOp::Make(Op::kAdd, {out, UOp::Const(x.dtype(), k)});
  }
  // (g*m + r) % c = g * (m % (c/g)) + r for 0 <= r < g
  Sum multiple;
  if (const int64_t g = SplitBelow(sum, c, x.dtype(), multiple, rest); g > 0) {
    const UOp m = Mod(FromSum(Divided(multiple, g), x.dtype()), c / g);
    const UOp high_part = UOp::Make(Op::kMul, {m, UOp::Const(x.dtype(), g)});
    return UOp::Make(Op::kAdd, {high_part, FromSum(rest, x.dtype())});
  }
  return UOp();
}

namespace {
// Whether a product never wraps.
bool IsExactProduct(const UOp& u) {
  for (int64_t a : {u.src(0).vmin(), u.src(0).vmax()}) {
    for (int64_t b : {u.src(1).vmin(), u.src(1).vmax()}) {
      int64_t v;
      if (__builtin_mul_overflow(a, b, &v) || v < MinInt(u.dtype()) || v > MaxInt(u.dtype())) {
        return false;
      }
    }
  }
  return true;
}

// Splits x = n*q + r where r is a RANGE that ends at n, or nothing.
bool SplitByVariable(const UOp& x, const UOp& n, UOp& quotient, UOp& rest) {
  if (!IsScalarInt(x) || x.dtype().kind() == Kind::kU64 || n.IsConst() || n.vmin() < 1) {
    return false;
  }
  Sum q, r;
  const Sum sum = ToSum(x);
  int64_t low, high;
  if (!SumBounds(sum, x.dtype(), low, high)) return false;
  for (const Sum::Term& t : sum.terms) {
    const bool multiple = t.term.is(Op::kMul) && (t.term.src(0) == n || t.term.src(1) == n);
    if (multiple && !IsExactProduct(t.term)) return false;
    if (t.term == n) {
      q.constant += t.factor;
    } else if (multiple) {
      q.terms.push_back({t.term.src(t.term.src(0) == n ? 1 : 0), t.factor});
    } else {
      r.terms.push_back(t);
    }
  }
  r.constant = sum.constant;
  if (r.terms.size() > 1 || r.constant != 0) return false;
  rest = FromSum(r, x.dtype());
  const bool below =
      r.terms.empty() ||
      (r.terms[0].factor == 1 && rest.is(Op::kRange) && rest.size() == 1 && rest.src(0) == n) ||
      (rest.vmin() >= 0 && rest.vmax() < n.vmin()) || FaultPlanted(Fault::kRemainderOfVariable);
  quotient = FromSum(q, x.dtype());
  return below;
}
}  // namespace

UOp DivideByVariable(const UOp& x, const UOp& divisor) {
  UOp q, r;
  return SplitByVariable(x, divisor, q, r) ? q : UOp();
}

UOp ModuloByVariable(const UOp& x, const UOp& divisor) {
  UOp q, r;
  return SplitByVariable(x, divisor, q, r) ? r : UOp();
}

UOp SimplifyLess(const UOp& a, const UOp& b) {
  if (!IsScalarInt(a) || a.dtype().IsUnsigned() || a.IsConst()) return UOp();
  Sum sum = ToSum(a);
  const Sum other = ToSum(b);
  int64_t low, high;  // neither side may wrap
  if (!SumBounds(sum, a.dtype(), low, high) || !SumBounds(other, a.dtype(), low, high))
    return UOp();
  for (const Sum::Term& t : other.terms) AddTerm(sum, t.term, ev::Neg(t.factor));
  sum.constant = ev::Sub(sum.constant, other.constant);
  DropZeroTerms(sum, kInt64);
  if (!SumBounds(sum, kInt64, low, high)) return UOp();
  high -= FaultPlanted(Fault::kLessOffByOne);
  if (high < 0) return UOp::Const(kBool, int64_t{1});
  if (low >= 0) return UOp::Const(kBool, int64_t{0});
  return UOp();
}

UOp PickByBounds(const UOp& u, const UOp& a, const UOp& b) {
  if (a.dtype().kind() == Kind::kU64 || a.rank() != b.rank()) return UOp();
  const UOp& larger = a.vmin() >= b.vmax() ? a : b.vmin() >= a.vmax() ? b : UOp();
  if (!larger) return UOp();
  const UOp& smaller = larger == a ? b : a;
  return u.is(Op::kMax) ? larger : smaller;
}

UOp SimplifyBoolConst(const UOp& u, const UOp& x, const UOp& constant) {
  if (!x.dtype().IsBool()) return UOp();
  const bool value = constant.arg<Scalar>().bits != 0;
  if (value == u.is(Op::kAnd)) return x;
  return x.rank() == 0 ? UOp::Const(kBool.WithLanes(u.dtype().lanes()), int64_t{value}) : UOp();
}

}  // namespace tessera
