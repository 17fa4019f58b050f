// Error bounds, node by node: how each op carries the errors of its sources.
#include "tests/support/error_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/fold.h"
#include "graph/infer.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "graph/unmap.h"
#include "graph/unroll.h"
#include "tests/support/scalar_error.h"

namespace tessera {
namespace {

using Errors = std::vector<double>;  // empty: all 0

// The errors of a node's elements. A product that a sum may take up unrounded (by FMA) brings what
// its rounding took away.
struct NodeErrors {
  Errors error;
  Errors unrounded;
};

double At(const Errors& e, int64_t i) { return e.empty() ? 0 : e[i]; }

class BoundsOf {
 public:
  explicit BoundsOf(const EvaluateOptions& options) : options_(options) {}

  absl::StatusOr<std::vector<Bounded>> Run(absl::Span<const UOp> roots) {
    const std::vector<UOp> order = Needed(roots);
    ASSIGN_OR_RETURN(std::vector<HostArray> values, Evaluate(order, options_));
    for (size_t i = 0; i < order.size(); ++i) values_[order[i].get()] = std::move(values[i]);
    for (const UOp& u : order) {
      ASSIGN_OR_RETURN(errors_[u.get()], Compute(u));
    }
    std::vector<Bounded> out;
    for (const UOp& r : roots) out.push_back({values_.at(r.get()), errors_.at(r.get()).error});
    return out;
  }

 private:
  static bool IsOverwrite(const UOp& u) { return u.is(Op::kAssign) && u.src(0) == u.src(1); }

  // What the evaluator computes: not the old content of what is overwritten whole.
  std::vector<UOp> Needed(absl::Span<const UOp> roots) const {
    absl::flat_hash_map<const Node*, bool> needed;
    for (const UOp& r : roots) needed[r.get()] = true;
    const std::vector<UOp> order = TopoSort(roots);
    std::vector<UOp> out;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (!needed.contains(it->get())) continue;
      out.push_back(*it);
      if (options_.stop_at_realized && it->realized()) continue;
      for (int i = IsOverwrite(*it) ? 2 : 0; i < it->size(); ++i) needed[it->src(i).get()] = true;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  const HostArray& Value(const UOp& u) const { return values_.at(u.get()); }
  const NodeErrors& ErrorsOf(const UOp& u) const { return errors_.at(u.get()); }

  absl::StatusOr<NodeErrors> Compute(const UOp& u) {
    if (u.size() == 0 || (options_.stop_at_realized && u.realized())) return NodeErrors{};
    if (IsElementwise(u.op())) return Elementwise(u);
    if (u.is(Op::kReduce)) return Reduce(u);
    if (u.is(Op::kScatter) && u.arg<ReduceArg>().op != Op::kAssign) return Scattered(u);
    if (IsOverwrite(u)) return NodeErrors{ErrorsOf(u.src(2)).error, {}};
    const bool same = u.is(Op::kCopy) || u.is(Op::kAllReduce) || u.is(Op::kContiguous) ||
                      u.is(Op::kMark) || u.is(Op::kStandIn);
    if (same) return NodeErrors(ErrorsOf(u.src(0)));
    return Moved(u);
  }

  NodeErrors Elementwise(const UOp& u) {
    const HostArray& r = Value(u);
    const int64_t n = r.elements();
    NodeErrors out;
    bool any = false, clean = true;
    Errors error(n, 0), unrounded;
    for (const UOp& s : u.srcs()) clean &= ErrorsOf(s).error.empty();
    if (u.is(Op::kMul) && u.dtype().IsFloat()) unrounded.assign(n, 0);
    if (clean && IsExact(u)) {
      if (unrounded.empty()) return out;
    }
    for (int64_t i = 0; i < n; ++i) {
      ScalarWithError args[3];
      for (int s = 0; s < u.size(); ++s) {
        const int64_t at = u.src(s).rank() == 0 ? 0 : i;
        args[s] = {Value(u.src(s)).At(at), At(ErrorsOf(u.src(s)).error, at)};
      }
      error[i] = ErrorOf(u, args, r.At(i));
      any |= error[i] != 0;
      if (!unrounded.empty()) {
        unrounded[i] =
            std::fabs(std::fma(args[0].value.AsFloat(), args[1].value.AsFloat(), -r.AsDouble(i)));
        const bool finite =
            std::isfinite(args[0].value.AsFloat()) && std::isfinite(args[1].value.AsFloat());
        if (!std::isfinite(unrounded[i])) unrounded[i] = finite ? kUnknown : 0;
      }
    }
    if (any) out.error = std::move(error);
    out.unrounded = std::move(unrounded);
    return out;
  }

  static bool HasIndex(const UOp& u) { return u.is(Op::kGather) || u.is(Op::kScatter); }

  // Movement, GATHER, CAT, ASSIGN, SCATTER that overwrites: which source element each element of
  // the result is, found by moving their numbers.
  absl::StatusOr<NodeErrors> Moved(const UOp& u) {
    bool clean = true;
    for (const UOp& s : u.srcs()) {
      clean &= ErrorsOf(s).error.empty() && ErrorsOf(s).unrounded.empty();
    }
    if (clean) return NodeErrors{};
    const int64_t n = Value(u).elements();
    if (HasIndex(u) && !ErrorsOf(u.src(1)).error.empty()) {
      return NodeErrors{Errors(n, kUnknown), {}};
    }
    std::vector<std::vector<uint8_t>> bytes;
    Substitution params;
    std::vector<std::pair<const NodeErrors*, int64_t>> from;  // by number
    from.emplace_back(nullptr, 0);
    for (int s = 0; s < u.size(); ++s) {
      const UOp& src = u.src(s);
      if (u.is(Op::kAssign) && s == 1) continue;
      const bool index = HasIndex(u) && s == 1;
      const UOp param = UOp::Make(
          Op::kParam, index ? src.dtype() : kInt64, {},
          ParamArg{static_cast<int64_t>(bytes.size()), src.shape().ToExtents(), src.device()});
      params.emplace(src, param);
      if (index) {
        bytes.push_back(Value(src).bytes);
        continue;
      }
      const int64_t count = Value(src).elements();
      bytes.emplace_back(count * 8);
      for (int64_t i = 0; i < count; ++i) {
        const auto number = static_cast<int64_t>(from.size());
        StoreScalar(&bytes.back()[i * 8], kInt64, Scalar::Int(number));
        from.emplace_back(&ErrorsOf(src), i);
      }
    }
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(Substitute(s, params));
    // A view that is also the value is moved as a view.
    if (u.is(Op::kAssign)) srcs[1] = Substitute(u.src(1), {{u.src(0), srcs[0]}});
    EvaluateOptions options;
    options.vars = options_.vars;
    options.contents = [&](const UOp& leaf) { return bytes[leaf.arg<ParamArg>().slot].data(); };
    ASSIGN_OR_RETURN(const auto numbers, Evaluate({u.WithSrcs(srcs)}, options));
    NodeErrors out{Errors(n, 0), Errors(n, 0)};
    for (int64_t i = 0; i < n; ++i) {
      const auto [errors, at] = from[numbers[0].At(i).AsInt()];
      if (errors == nullptr) continue;
      out.error[i] = At(errors->error, at);
      out.unrounded[i] = At(errors->unrounded, at);
    }
    return out;
  }

  // A reduction for each element of the base, of itself and the updates that a GATHER of the
  // numbers of all elements finds to be its own.
  absl::StatusOr<NodeErrors> Scattered(const UOp& u) {
    const UOp &base = u.src(0), &index = u.src(1), &updates = u.src(2);
    const ReduceArg& arg = u.arg<ReduceArg>();
    const HostArray &x = Value(base), &v = Value(updates), &r = Value(u);
    const NodeErrors &e = ErrorsOf(base), &f = ErrorsOf(updates);
    if (!u.dtype().IsFloat() && e.error.empty() && f.error.empty()) return NodeErrors{};
    const int64_t n = r.elements();
    if (!ErrorsOf(index).error.empty()) return NodeErrors{Errors(n, kUnknown), {}};
    std::vector<uint8_t> numbers(n * 8);
    for (int64_t i = 0; i < n; ++i) StoreScalar(&numbers[i * 8], kInt64, Scalar::Int(i + 1));
    const auto param = [](const UOp& of, DType t, int64_t slot) {
      return UOp::Make(Op::kParam, t, {}, ParamArg{slot, of.shape().ToExtents(), of.device()});
    };
    EvaluateOptions options;
    options.vars = options_.vars;
    options.contents = [&](const UOp& leaf) {
      return leaf.arg<ParamArg>().slot == 0 ? numbers.data() : Value(index).bytes.data();
    };
    const UOp found =
        UOp::Make(Op::kGather, {param(base, kInt64, 0), param(index, index.dtype(), 1)}, arg.axes);
    ASSIGN_OR_RETURN(const auto cells, Evaluate({found}, options));
    std::vector<ReduceError> sums(n, ReduceError(arg.op, u.dtype()));
    std::vector<bool> touched(n, false);
    for (int64_t i = 0; i < n; ++i) sums[i].Add({x.At(i), At(e.error, i)}, At(e.unrounded, i));
    for (int64_t i = 0; i < v.elements(); ++i) {
      const int64_t cell = cells[0].At(i).AsInt() - 1;
      if (cell < 0) continue;
      sums[cell].Add({v.At(i), At(f.error, i)}, At(f.unrounded, i));
      touched[cell] = true;
    }
    Errors error(n);
    bool any = false;
    for (int64_t i = 0; i < n; ++i) {
      error[i] = touched[i] ? sums[i].Error(r.At(i)) : At(e.error, i);
      any |= error[i] != 0;
    }
    return any ? NodeErrors{std::move(error), {}} : NodeErrors{};
  }

  // What a sum adds up in any order: products that are added up before, too.
  static std::vector<UOp> TermsOf(const UOp& reduce) {
    const std::vector<UOp> whole = {UOp(reduce.src(0))};
    if (reduce.arg<ReduceArg>().op != Op::kAdd) return whole;
    std::vector<UOp> products, stack = whole;
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (!u.is(Op::kMul) && !u.is(Op::kAdd)) return whole;
      if (u.is(Op::kMul)) products.push_back(u);
      if (u.is(Op::kAdd)) stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    return products;
  }

  NodeErrors Reduce(const UOp& u) {
    const HostArray &x = Value(u.src(0)), &r = Value(u);
    const Op op = u.arg<ReduceArg>().op;
    const int64_t n = x.elements(), outputs = r.elements();
    if (!u.dtype().IsFloat() && ErrorsOf(u.src(0)).error.empty()) return {};
    const std::vector<UOp> terms = n > outputs ? TermsOf(u) : std::vector<UOp>{UOp(u.src(0))};
    std::vector<ReduceError> sums(outputs, ReduceError(op, u.dtype()));
    // Where each element goes: row-major strides of the result, 0 on the reduced axes.
    std::vector<int64_t> strides(x.shape.size()), at(x.shape.size(), 0);
    int64_t stride = 1;
    for (size_t a = x.shape.size(); a-- > 0;) {
      strides[a] = r.shape[a] == 1 ? 0 : stride;
      stride *= r.shape[a];
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = std::inner_product(at.begin(), at.end(), strides.begin(), int64_t{0});
      for (const UOp& term : terms) {
        const NodeErrors& e = ErrorsOf(term);
        sums[to].Add({Value(term).At(i), At(e.error, i)}, At(e.unrounded, i));
      }
      for (size_t a = at.size(); a-- > 0;) {
        if (++at[a] < x.shape[a]) break;
        at[a] = 0;
      }
    }
    NodeErrors out;
    bool any = false;
    Errors error(outputs);
    for (int64_t i = 0; i < outputs; ++i) any |= (error[i] = sums[i].Error(r.At(i))) != 0;
    if (any) out.error = std::move(error);
    return out;
  }

  const EvaluateOptions& options_;
  absl::flat_hash_map<const Node*, HostArray> values_;
  absl::flat_hash_map<const Node*, NodeErrors> errors_;
};

}  // namespace

absl::StatusOr<std::vector<Bounded>> EvaluateWithBounds(absl::Span<const UOp> roots,
                                                        const EvaluateOptions& options) {
  // What a loop is off by is what its turns are, written out.
  ASSIGN_OR_RETURN(const std::vector<UOp> turns, WithoutLoops(roots, options.stop_at_realized));
  ASSIGN_OR_RETURN(const std::vector<UOp> plain, WithoutPrograms(turns, options.stop_at_realized));
  return BoundsOf(options).Run(plain);
}

std::string Difference(const HostArray& got, const Bounded& want, Compared* compared) {
  const HostArray& ref = want.value;
  if (!(got.dtype == ref.dtype) || got.shape != ref.shape) {
    return absl::StrCat("got ", got.dtype.ToString(), " of ", got.elements(), " elements, not ",
                        ref.dtype.ToString(), " of ", ref.elements());
  }
  std::string first;
  int64_t wrong = 0;
  Compared count;
  for (int64_t i = 0; i < ref.elements(); ++i) {
    const Scalar a = got.At(i), b = ref.At(i);
    const double error = want.ErrorAt(i);
    ++(error == 0 ? count.exact : error < kUnknown ? count.within : count.unknown);
    if (error == kUnknown || a == b) continue;
    if (ref.dtype.IsFloat()) {
      const double x = a.AsFloat(), y = b.AsFloat();
      if (std::isnan(x) && std::isnan(y)) continue;
      if (error > 0 && std::fabs(x - y) <= error) continue;
    }
    ++wrong;
    if (first.empty()) {
      first = absl::StrCat("element ", i, " is ", ScalarToString(a, ref.dtype), ", not ",
                           ScalarToString(b, ref.dtype), " within ", error);
    }
  }
  if (compared != nullptr) {
    compared->exact += count.exact;
    compared->within += count.within;
    compared->unknown += count.unknown;
  }
  if (wrong == 0) return "";
  return absl::StrCat(first, " (", wrong, " of ", ref.elements(), " differ)");
}

}  // namespace tessera
