// Square matrices: determinants, systems of equations, and powers.
#include "graph/elimination.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Elimination;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::Sides;
using internal::SquareSize;
using internal::WideFloat;

namespace {

// The two with the same batches, the right side as columns.
struct System {
  Tensor matrix, sides;
  bool vector;
  DType type;
  System(const Tensor& a, const Tensor& b) : type(FloatResult(Promote(a.dtype(), b.dtype()))) {
    SquareSize(a);
    vector = b.rank() == 1;
    const Tensor columns = vector ? b.Unsqueeze(-1) : b;
    const int axis = columns.rank() - 2;
    if (columns.rank() < 2 || !(columns.shape()[axis] == a.shape()[a.rank() - 1])) {
      Fail("the right side ", Show(b), " must have as many rows as ", Show(a));
    }
    Extents own(a.shape().begin(), a.shape().end() - 2);
    Extents other(columns.shape().begin(), columns.shape().end() - 2);
    const Shape batch = internal::BroadcastShape(Shape(own), Shape(other));
    const auto with = [&](const Tensor& t) {
      Extents dims(batch.begin(), batch.end());
      dims.insert(dims.end(), t.shape().end() - 2, t.shape().end());
      return t.Cast(AccumulateType(type)).Expand(dims);
    };
    matrix = with(a);
    sides = with(columns);
  }
  Tensor Ended(const Tensor& x) const { return (vector ? x.Squeeze(-1) : x).Cast(type); }
};

}  // namespace

Tensor Tensor::Det(CallSite at) const {
  Call call("Det", at, *this);
  SquareSize(*this);
  const DType type = FloatResult(dtype());
  if (size(-1) == 0) return Ones(Dims(Extents(shape().begin(), shape().end() - 2)), type);
  const auto [pivots, sign] = Elimination(WideFloat(*this)).Pivots();
  return (pivots.Prod({-1}) * sign).Cast(type);
}

std::pair<Tensor, Tensor> Tensor::SlogDet(CallSite at) const {
  Call call("SlogDet", at, *this);
  SquareSize(*this);
  const Dims dims(Extents(shape().begin(), shape().end() - 2));
  const DType type = FloatResult(dtype());
  if (size(-1) == 0) return {Ones(dims, type), Zeros(dims, type)};
  const auto [pivots, sign] = Elimination(WideFloat(*this)).Pivots();
  return {(pivots.Sign().Prod({-1}) * sign).Cast(type), pivots.Abs().Log().Sum({-1}).Cast(type)};
}

Tensor Tensor::Solve(const Tensor& b, CallSite at) const {
  Call call("Solve", at, *this, b);
  const System s(*this, b);
  return s.Ended(internal::Solved(s.matrix, s.sides));
}

Tensor Tensor::SolveTriangular(const Tensor& b, bool upper, CallSite at) const {
  Call call("SolveTriangular", at, *this, b);
  const System s(*this, b);
  const auto turned = [&](const Tensor& t, const Axes& axes) { return upper ? t.Flip(axes) : t; };
  const Tensor sides = turned(s.sides, {-2});
  if (size(-1) == 0) return s.Ended(sides);
  return s.Ended(
      turned(internal::SolvedLower(turned(s.matrix, {-2, -1}), sides, Sides::kStepByStep), {-2}));
}

Tensor Tensor::Inverse(CallSite at) const {
  Call call("Inverse", at, *this);
  SquareSize(*this);
  return internal::Inverted(WideFloat(*this)).Cast(FloatResult(dtype()));
}

Tensor Tensor::Cholesky(CallSite at) const {
  Call call("Cholesky", at, *this);
  const int64_t n = SquareSize(*this);
  const Tensor m = WideFloat(*this);
  return (n == 0 ? m : internal::LowerFactor(m)).Cast(FloatResult(dtype()));
}

Tensor Tensor::MatrixPower(int64_t n, CallSite at) const {
  Call call("MatrixPower", at, *this);
  internal::CheckSquare(*this);
  Tensor square = n < 0 ? Inverse() : *this, power;
  for (uint64_t left = n < 0 ? -static_cast<uint64_t>(n) : n; left > 0; left >>= 1) {
    if (left & 1) power = power ? power.MatMul(square) : square;
    if (left > 1) square = square.MatMul(square).Contiguous();
  }
  if (!power) {
    const Extent& size = shape()[rank() - 1];
    return (Arange(size).Unsqueeze(1) == Arange(size)).Cast(dtype()).Expand(shape());
  }
  const bool itself = power.uop() == uop();  // a tensor of its own all the same
  return itself ? Tensor(internal::Build(Op::kContiguous, {uop()})) : power;
}

Tensor Tensor::AddMatMul(const Tensor& a, const Tensor& b, double beta, double alpha,
                         CallSite at) const {
  Call call("AddMatMul", at, *this, a, b);
  const Tensor product = a.MatMul(b) * alpha;
  // By 0 nothing of it counts, not even a NaN; its shape does.
  return beta == 0 ? product + Zeros(shape(), dtype()) : *this * beta + product;
}

namespace {

// How much of a convolution of k elements comes before the whole overlaps, and after them.
std::pair<Extent, Extent> Around(absl::string_view mode, const Extent& k) {
  const Extent more = k - Extent(1);
  if (mode == "valid") return {0, 0};
  if (mode == "full") return {more, more};
  if (mode != "same") Fail("the mode is '", mode, "'; it is full, same or valid");
  const Extent after = tessera::FloorDiv(more, 2);
  return {more - after, after};
}

// Each overlap as a sum over w, whose extent may vary: outside x there is nothing.
Tensor VaryingConvolved(const Tensor& x, const Tensor& w, absl::string_view mode) {
  const Extent n = x.shape()[0], k = w.shape()[0];
  const auto [before, after] = Around(mode, k);
  const Tensor result = internal::CountAlong(0, 2, n - k + Extent(1) + before + after, kInt64);
  const Tensor first = result + Tensor::FromExtent(k - Extent(1) - before, kInt64);
  const DType type = SumType(x.dtype()), wide = AccumulateType(type);
  const Tensor from = x.Cast(wide).Take(first - internal::CountAlong(1, 2, k, kInt64));
  return (from * w.Cast(wide)).Sum(-1).Cast(type);
}

}  // namespace

Tensor Tensor::Convolve(const Tensor& b, absl::string_view mode, CallSite at) const {
  Call call("Convolve", at, *this, b);
  const bool fits = rank() < 2 && b.rank() < 2;
  if (!fits || shape().Elements().min() == 0 || b.shape().Elements().min() == 0) {
    Fail("takes vectors with elements, not ", Show(*this), " and ", Show(b));
  }
  const DType type = Promote(dtype(), b.dtype());
  const Tensor p = Cast(type).AtLeast(1), q = b.Cast(type).AtLeast(1);
  const Extent of_p = p.shape()[0], of_q = q.shape()[0];
  const bool swapped = (of_q - of_p).min() > 0;
  const Tensor x = swapped ? q : p, w = swapped ? p : q;
  const Extent n = x.shape()[0], k = w.shape()[0];
  if (!n.is_int() || !k.is_int()) {
    if (mode != "full" && (n - k).min() < 0) {
      Fail("which of ", Show(*this), " and ", Show(b), " is longer is not known; use \"full\"");
    }
    return VaryingConvolved(x, w, mode);
  }
  const auto [before, after] = Around(mode, k);
  ConvOptions o;
  o.padding = {before.value(), after.value()};
  return x.Reshape({1, 1, n}).Conv1d(w.Flip(0).Reshape({1, 1, k}), o).Flatten();
}

}  // namespace tessera
