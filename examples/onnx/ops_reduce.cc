// Reductions, softmax and its kin, running sums and products, norms of vectors.
#include <algorithm>
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

using Reduction = Tensor (*)(const Tensor& x, const Axes& axes, bool keep);

// The axes that a reduction is over.
struct Over {
  std::vector<int64_t> axes;  // none: nothing is reduced
  bool keep = true;
};
Over OverOf(Call& c, int rank) {
  Over out;
  out.keep = c.Int("keepdims", 1) != 0;
  const std::optional<std::vector<int64_t>> given = c.IntsOf(1, "axes");
  if (given && !given->empty()) {
    for (const int64_t a : *given) out.axes.push_back(c.Axis(a, rank));
  } else if (c.Int("noop_with_empty_axes", 0) == 0) {
    for (int a = 0; a < rank; ++a) out.axes.push_back(a);
  }
  return out;
}
std::vector<int64_t> ReducedShape(const Tensor& x, const Over& over) {
  std::vector<int64_t> out;
  for (int a = 0; a < x.rank(); ++a) {
    const bool gone = std::find(over.axes.begin(), over.axes.end(), a) != over.axes.end();
    if (!gone) out.push_back(x.size(a));
    if (gone && over.keep) out.push_back(1);
  }
  return out;
}
bool IsEmpty(const Tensor& x, const Over& over) {
  return std::any_of(over.axes.begin(), over.axes.end(),
                     [&](int64_t a) { return x.size(static_cast<int>(a)) == 0; });
}

// `before` makes the terms and `after` the result of the reduced ones; both also run where nothing
// is reduced.
using Map = Tensor (*)(const Tensor& x);
Tensor Same(const Tensor& x) { return x; }
template <Map before, Reduction reduce, Map after>
void Reduce(Call& c) {
  const Tensor x = c.In(0);
  const Over over = OverOf(c, x.rank());
  Tensor y = before(x);
  if (!over.axes.empty()) y = reduce(y, over.axes, over.keep);
  c.Out(after(y).Cast(x.dtype()));  // sums of narrow integers are wide
}

Tensor Sum(const Tensor& x, const Axes& axes, bool keep) { return x.Sum(axes, keep); }
Tensor Prod(const Tensor& x, const Axes& axes, bool keep) { return x.Prod(axes, keep); }
// Of integers without loss, then rounded toward 0.
Tensor Mean(const Tensor& x, const Axes& axes, bool keep) {
  if (!x.dtype().IsInt()) return x.Mean(axes, keep);
  const Tensor wide = x.Cast(x.dtype() == kUInt64 ? kUInt64 : kInt64);
  const Tensor sum = wide.Sum(axes, keep);
  return sum.TruncDiv(x.elements() / std::max<int64_t>(1, sum.elements()));
}
Tensor LogSumExp(const Tensor& x, const Axes& axes, bool keep) { return x.LogSumExp(axes, keep); }
Tensor Abs(const Tensor& x) { return x.Abs(); }
Tensor Square(const Tensor& x) { return x.Square(); }
// What is taken of integers before their results are rounded.
Tensor Real(const Tensor& x) { return x.dtype().IsInt() ? x.Cast(kFloat64) : x; }
Tensor Sqrt(const Tensor& x) { return Real(x).Sqrt(); }
Tensor Log(const Tensor& x) { return Real(x).Log(); }

void LogSumExpOf(Call& c) {
  const Tensor x = c.In(0);
  const Over over = OverOf(c, x.rank());
  if (over.axes.empty()) return c.Out(x);
  if (IsEmpty(x, over)) {
    return c.Out(Tensor::Full(ReducedShape(x, over), -INFINITY, x.dtype()));
  }
  c.Out(LogSumExp(Real(x), over.axes, over.keep).Cast(x.dtype()));
}

// The extreme of nothing is the dtype's lowest or highest value.
template <bool max>
void Extreme(Call& c) {
  const Tensor x = c.In(0);
  const Over over = OverOf(c, x.rank());
  if (over.axes.empty()) return c.Out(x);
  const DType dtype = x.dtype();
  if (IsEmpty(x, over)) {
    const Scalar s = max ? LowestScalar(dtype) : HighestScalar(dtype);
    const std::vector<int64_t> shape = ReducedShape(x, over);
    if (dtype.IsFloat()) return c.Out(Tensor::Full(shape, s.AsFloat(), dtype));
    return c.Out(Tensor::Full(shape, s.AsInt(), dtype));
  }
  if (dtype.IsBool()) {
    return c.Out(max ? x.Any(over.axes, over.keep) : x.All(over.axes, over.keep));
  }
  c.Out(max ? x.Max(over.axes, over.keep) : x.Min(over.axes, over.keep));
}

template <bool max>
void ArgExtreme(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", 0), x.rank());
  const bool keep = c.Int("keepdims", 1) != 0, last = c.Int("select_last_index", 0) != 0;
  const Tensor in = last ? x.Flip(axis) : x;
  const Tensor first = max ? in.ArgMax(axis, keep) : in.ArgMin(axis, keep);
  c.Out((last ? x.size(axis) - 1 - first : first).Cast(kInt64));
}

// Before version 13 softmax and its kin saw a matrix, whose rows began at the axis.
template <Tensor (*fn)(const Tensor& x, int axis)>
void AlongAxis(Call& c) {
  const Tensor x = c.In(0);
  if (c.opset() >= 13) return c.Out(fn(x, c.Axis(c.Int("axis", -1), x.rank())));
  const int axis = c.Axis(c.Int("axis", 1), x.rank());
  const std::vector<int64_t> shape = Sizes(x);
  const int64_t rows = Product(absl::MakeSpan(shape).first(axis));
  c.Out(fn(x.Reshape({rows, Product(absl::MakeSpan(shape).subspan(axis))}), 1).Reshape(shape));
}
Tensor Softmax(const Tensor& x, int axis) { return x.Softmax(axis); }
Tensor LogSoftmax(const Tensor& x, int axis) { return x.LogSoftmax(axis); }
Tensor Hardmax(const Tensor& x, int axis) { return x.Hardmax(axis); }

ScanOptions ScanOf(const Call& c) { return {c.Int("exclusive", 0) != 0, c.Int("reverse", 0) != 0}; }
void CumSum(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x.CumSum(c.Axis(c.HostInt(1), x.rank()), ScanOf(c)).Cast(x.dtype()));
}
void CumProd(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x.CumProd(c.Axis(c.HostInt(1), x.rank()), ScanOf(c)).Cast(x.dtype()));
}

void LpNormalization(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", -1), x.rank());
  const int64_t p = c.Int("p", 2);
  if (p != 1 && p != 2) c.Fail("p is ", p, "; it is 1 or 2");
  const Tensor norm = p == 1 ? x.Abs().Sum(axis, true) : x.Square().Sum(axis, true).Sqrt();
  c.Out(Where(norm == 0, 0, x / norm).Cast(x.dtype()));
}

void MeanVarianceNormalization(Call& c) {
  const Tensor x = c.In(0);
  const Axes axes = c.Ints("axes", {0, 2, 3});
  const Tensor centred = x - x.Mean(axes, true);
  c.Out(centred / (centred.Square().Mean(axes, true).Sqrt() + 1e-9));
}

void TopK(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", -1), x.rank());
  const int64_t k = c.Has(1) ? c.HostInt(1) : c.Int("k");
  const ValuesAndIndices top = x.TopK(k, axis, c.Int("largest", 1) != 0);
  c.Out(top.values);
  c.Out(top.indices.Cast(kInt64));
}

constexpr uint32_t kAxes = HostInput({1});
constexpr OpRow kRows[] = {
    {"ArgMax", ArgExtreme<true>},
    {"ArgMin", ArgExtreme<false>},
    {"CumProd", CumProd, HostInput({1})},
    {"CumSum", CumSum, HostInput({1})},
    {"Hardmax", AlongAxis<Hardmax>},
    {"LogSoftmax", AlongAxis<LogSoftmax>},
    {"LpNormalization", LpNormalization},
    {"MeanVarianceNormalization", MeanVarianceNormalization},
    {"ReduceL1", Reduce<Abs, Sum, Same>, kAxes, Flow::kReduce},
    {"ReduceL2", Reduce<Square, Sum, Sqrt>, kAxes, Flow::kReduce},
    {"ReduceLogSum", Reduce<Same, Sum, Log>, kAxes, Flow::kReduce},
    {"ReduceLogSumExp", LogSumExpOf, kAxes, Flow::kReduce},
    {"ReduceMax", Extreme<true>, kAxes, Flow::kReduce},
    {"ReduceMean", Reduce<Same, Mean, Same>, kAxes, Flow::kReduce},
    {"ReduceMin", Extreme<false>, kAxes, Flow::kReduce},
    {"ReduceProd", Reduce<Same, Prod, Same>, kAxes, Flow::kReduce},
    {"ReduceSum", Reduce<Same, Sum, Same>, kAxes, Flow::kReduce},
    {"ReduceSumSquare", Reduce<Square, Sum, Same>, kAxes, Flow::kReduce},
    {"Softmax", AlongAxis<Softmax>},
    {"TopK", TopK, HostInput({1})},
};

}  // namespace

absl::Span<const OpRow> ReduceOps() { return kRows; }

}  // namespace tessera::onnx
