// Linear algebra on small matrices and vectors.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::NormalAxes;
using internal::NormalAxis;
using internal::Show;
using internal::WideFloat;

Tensor Tensor::TensorDot(const Tensor& b, int axes, CallSite at) const {
  Call call("TensorDot", at, *this, b);
  if (axes < 0 || axes > rank() || axes > b.rank()) {
    Fail("cannot join ", axes, " axes of ", Show(*this), " and ", Show(b));
  }
  Ints own(axes), of_b(axes);
  std::iota(own.begin(), own.end(), rank() - axes);
  std::iota(of_b.begin(), of_b.end(), 0);
  if (axes == 0)
    return Reshape([&] {
             Extents dims(shape().begin(), shape().end());
             dims.insert(dims.end(), b.rank(), 1);
             return Dims(dims);
           }()) *
           b;
  return TensorDot(b, Axes(own), Axes(of_b));
}

Tensor Tensor::TensorDot(const Tensor& b, const Axes& own, const Axes& of_b, CallSite at) const {
  Call call("TensorDot", at, *this, b);
  if (own.axes().size() != of_b.axes().size() || own.axes().empty()) {
    Fail("joins as many axes of ", Show(*this), " as of ", Show(b), ", not ", own.axes().size(),
         " and ", of_b.axes().size());
  }
  const Ints x = NormalAxes(own, rank()), y = NormalAxes(of_b, b.rank());
  const auto has = [](const Ints& axes, int64_t a) {
    return std::find(axes.begin(), axes.end(), a) != axes.end();
  };
  Ints rows, columns(y);
  Extents dims;
  Extent m = 1, k = 1, n = 1;
  for (int i = 0; i < rank(); ++i) {
    if (has(x, i)) continue;
    rows.push_back(i);
    dims.push_back(shape()[i]);
    m = m * shape()[i];
  }
  for (size_t i = 0; i < x.size(); ++i) {
    rows.push_back(x[i]);
    const Extent &p = shape()[static_cast<int>(x[i])], &q = b.shape()[static_cast<int>(y[i])];
    if (!(p == q)) {
      Fail("axis ", x[i], " of ", Show(*this), " and axis ", y[i], " of ", Show(b), " differ");
    }
    k = k * p;
  }
  for (int i = 0; i < b.rank(); ++i) {
    if (has(y, i)) continue;
    columns.push_back(i);
    dims.push_back(b.shape()[i]);
    n = n * b.shape()[i];
  }
  return Permute(rows).Reshape({m, k}).MatMul(b.Permute(columns).Reshape({k, n})).Reshape(dims);
}

Tensor Tensor::Outer(const Tensor& b, CallSite at) const {
  Call call("Outer", at, *this, b);
  return Reshape({shape().Elements(), 1}) * b.Reshape({b.shape().Elements()});
}

Tensor Tensor::Inner(const Tensor& b, CallSite at) const {
  Call call("Inner", at, *this, b);
  if (rank() == 0 || b.rank() == 0) return *this * b;
  return TensorDot(b, Axes(-1), Axes(-1));
}

Tensor Tensor::Kron(const Tensor& b, CallSite at) const {
  Call call("Kron", at, *this, b);
  const int n = std::max(rank(), b.rank());
  const Tensor x = AtLeast(n), y = b.AtLeast(n);
  Extents of_x, of_y, dims;
  for (int i = 0; i < n; ++i) {
    of_x.insert(of_x.end(), {x.shape()[i], Extent(1)});
    of_y.insert(of_y.end(), {Extent(1), y.shape()[i]});
    dims.push_back(x.shape()[i] * y.shape()[i]);
  }
  return (x.Reshape(of_x) * y.Reshape(of_y)).Reshape(dims);
}

Tensor Tensor::Cross(const Tensor& b, int axis, CallSite at) const {
  Call call("Cross", at, *this, b);
  if (rank() < b.rank()) return Unsqueeze(0).Cross(b, axis);
  if (b.rank() < rank()) return Cross(b.Unsqueeze(0), axis);
  const int a = NormalAxis(axis, rank());
  if (size(a) != 3 || b.size(a) != 3) {
    Fail("takes two tensors with 3 elements along axis ", axis, ", not ", Show(*this), " and ",
         Show(b));
  }
  const auto turned = [a](const Tensor& t, int64_t by) { return t.Roll(-by, a); };
  return turned(*this, 1) * turned(b, 2) - turned(*this, 2) * turned(b, 1);
}

Tensor Tensor::Trace(int64_t offset, int a, int b, CallSite at) const {
  Call call("Trace", at, *this);
  return Diagonal(offset, a, b).Sum(-1);
}

Tensor Tensor::CDist(const Tensor& b, double p, CallSite at) const {
  Call call("CDist", at, *this, b);
  if (rank() < 2 || b.rank() < 2 || !(shape()[rank() - 1] == b.shape()[b.rank() - 1])) {
    Fail("takes rows [..., M, E] and [..., N, E], not ", Show(*this), " and ", Show(b));
  }
  const DType type = FloatResult(Promote(dtype(), b.dtype()));
  const DType wide = AccumulateType(type);
  const Tensor apart = Cast(wide).Unsqueeze(-2) - b.Cast(wide).Unsqueeze(-3);
  // Points without coordinates are all one.
  if (apart.shape()[apart.rank() - 1].is_int(0)) return apart.Sum(-1).Cast(type);
  return apart.Norm(p, -1).Cast(type);
}

}  // namespace tessera
