// Sums of several products of matrices, one by one.
#include <algorithm>

#include "graph/rewrite.h"
#include "schedule/axis_map.h"
#include "schedule/fuse.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr size_t kMostTerms = 1024;
constexpr int64_t kLeastSteps = 16;  // below, tiles gain little

// The products that are added up; none where there is anything else. What is subtracted stays: it
// may be nearly the same, element by element.
std::vector<UOp> ProductsOf(const UOp& sum) {
  std::vector<UOp> out, stack = {sum};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (out.size() + stack.size() > kMostTerms) return {};
    if (u.is(Op::kAdd)) {
      stack.push_back(UOp(u.src(1)));
      stack.push_back(UOp(u.src(0)));
    } else if (u.is(Op::kMul)) {
      out.push_back(u);
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
  const std::vector<UOp> products = ProductsOf(u.src(0));
  int64_t steps = 1;
  for (const int64_t axis : u.arg<ReduceArg>().axes) {
    steps = std::min(kLeastSteps, steps * u.src(0).shape()[static_cast<int>(axis)].max());
  }
  if (products.size() < 2 || steps < kLeastSteps) return UOp();
  // Sums of narrow floats are rounded once, as before: when they are added up.
  const bool narrow = u.dtype().IsFloat() && u.dtype().bytes() < 4;
  const DType wide = narrow ? kFloat32 : u.dtype();
  UOp sum;
  for (const UOp& p : products) {
    const UOp product = UOp::Make(Op::kMul, {CastTo(wide, p.src(0)), CastTo(wide, p.src(1))});
    const UOp own = UOp::Make(Op::kReduce, {product}, u.arg<ReduceArg>());
    if (!IsMatrixProduct(own)) return UOp();
    sum = sum ? UOp::Make(Op::kAdd, {sum, own}) : own;
  }
  return CastTo(u.dtype(), sum);
}

}  // namespace

std::vector<UOp> PartProducts(absl::Span<const UOp> roots) {
  return Rebuild(roots, [](const UOp& u, const UOp&) { return Parted(u); });
}

}  // namespace tessera
