// Sums of several products of matrices, one by one.
#include <algorithm>

#include "graph/rewrite.h"
#include "schedule/axis_map.h"
#include "schedule/fuse.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr size_t kMostTerms = 1024;

struct Term {
  UOp value;
  bool negative = false;
};

// The products that are added up, past additions, subtractions and signs; none where there is
// anything else.
std::vector<Term> ProductsOf(const UOp& sum) {
  std::vector<Term> out, stack = {{sum}};
  while (!stack.empty()) {
    const Term t = stack.back();
    stack.pop_back();
    const UOp& u = t.value;
    if (out.size() + stack.size() > kMostTerms) return {};
    if (u.is(Op::kAdd) || u.is(Op::kSub)) {
      stack.push_back({UOp(u.src(1)), t.negative != u.is(Op::kSub)});
      stack.push_back({UOp(u.src(0)), t.negative});
    } else if (u.is(Op::kNeg)) {
      stack.push_back({UOp(u.src(0)), !t.negative});
    } else if (u.is(Op::kMul)) {
      out.push_back(t);
    } else {
      return {};
    }
  }
  return out;
}

// Whether each operand is read again for all rows, or all columns, of the other.
bool IsMatrixProduct(const UOp& reduce) {
  if (!IsContraction(reduce)) return false;
  const auto& summed = reduce.arg<ReduceArg>().axes;
  const auto read_again = [&](const UOp& operand) {
    for (int axis = 0; axis < operand.rank(); ++axis) {
      const bool kept = std::find(summed.begin(), summed.end(), axis) == summed.end();
      if (kept && operand.shape()[axis].max() > 1 && !VariesOnAxis(operand, axis)) return true;
    }
    return false;
  };
  return read_again(reduce.src(0).src(0)) && read_again(reduce.src(0).src(1));
}

UOp CastTo(DType dtype, const UOp& u) {
  return u.dtype() == dtype ? u : UOp::Make(Op::kCast, dtype, {u});
}

UOp Parted(const UOp& u) {
  if (!u.is(Op::kReduce) || u.arg<ReduceArg>().op != Op::kAdd || u.size() != 1) return UOp();
  std::vector<Term> terms = ProductsOf(u.src(0));
  if (terms.size() < 2) return UOp();
  // Sums of narrow floats are rounded once, as before: when they are added up.
  const bool narrow = u.dtype().IsFloat() && u.dtype().bytes() < 4;
  const DType wide = narrow ? kFloat32 : u.dtype();
  for (Term& t : terms) {
    const UOp a = CastTo(wide, t.value.src(0)), b = CastTo(wide, t.value.src(1));
    t.value = UOp::Make(Op::kReduce, {UOp::Make(Op::kMul, {a, b})}, u.arg<ReduceArg>());
    if (!IsMatrixProduct(t.value)) return UOp();
  }
  // One to begin with that is not taken away, or whose operand is negative: a sum is never -0.
  const auto first =
      std::find_if(terms.begin(), terms.end(), [](const Term& t) { return !t.negative; });
  if (first != terms.end()) {
    std::rotate(terms.begin(), first, first + 1);
  } else {
    const UOp product = terms[0].value.src(0), minus = UOp::Make(Op::kNeg, {UOp(product.src(0))});
    terms[0].value = terms[0].value.WithSrcs({product.WithSrcs({minus, UOp(product.src(1))})});
  }
  UOp sum = terms[0].value;
  for (size_t i = 1; i < terms.size(); ++i) {
    sum = UOp::Make(terms[i].negative ? Op::kSub : Op::kAdd, {sum, terms[i].value});
  }
  return CastTo(u.dtype(), sum);
}

}  // namespace

std::vector<UOp> PartProducts(absl::Span<const UOp> roots) {
  return Rebuild(roots, [](const UOp& u, const UOp&) { return Parted(u); });
}

}  // namespace tessera
