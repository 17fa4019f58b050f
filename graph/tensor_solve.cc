// Square matrices: elimination, determinants, systems of equations, and powers.
//
// The steps are written out, one for each row: these are for small matrices. After each step rows
// and columns move up, so that all steps are the same graph, whose kernels are compiled once.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

namespace {

void CheckSquare(const Tensor& t) {
  if (t.rank() > 1 && t.shape()[t.rank() - 1] == t.shape()[t.rank() - 2]) return;
  Fail("takes square matrices, not ", Show(t));
}

int64_t SquareSize(const Tensor& t) {
  CheckSquare(t);
  const Extent& n = t.shape()[t.rank() - 1];
  if (!n.is_int()) {
    Fail("takes matrices of a known size, as its graph grows with it, not ", Show(t));
  }
  return n.value();
}

// The elements after the first of an axis, and a zero.
Tensor MovedUp(const Tensor& t, int axis) {
  Pairs pairs(t.rank(), {0, 0});
  pairs[internal::NormalAxis(axis, t.rank())] = {0, 1};
  return t.SliceAxis(axis, {1, {}}).Pad(pairs);
}

// The columns of lower triangles, as rows that begin at the diagonal, and zeros: read as rows of
// n+1 elements, those of the transposed matrix each go one step further.
Tensor FromPivots(const Tensor& m) {
  const int64_t n = m.size(-1);
  Pairs pairs(m.rank() - 1, {0, 0});
  pairs.back() = {0, n};
  const Tensor apart = m.Tril().Transpose().Flatten(-2).Pad(pairs).Unflatten(-1, {n, n + 1});
  return apart.SliceAxis(-1, {0, n}).Contiguous();
}

// The pivots of elimination, the sign of each exchange of rows in them: their product is the
// determinant. The row with the largest pivot is exchanged for the first of those left, which zeros
// follow.
std::vector<Tensor> Pivots(const Tensor& matrix) {
  Tensor m = WideFloat(matrix);
  const int64_t n = m.size(-1);
  const Tensor row = Tensor::Arange(n);
  std::vector<Tensor> pivots;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor at_row = m.Select(-1, 0).Abs().ArgMax(-1, /*keepdim=*/true);
    const Tensor chosen = (at_row == row).Unsqueeze(-1);
    const Tensor pivot_row = Where(chosen, m, 0).Sum(-2, /*keepdim=*/true);
    const Tensor pivot = pivot_row.SliceAxis(-1, {0, 1});
    const Tensor moved = Where(chosen, m.SliceAxis(-2, {0, 1}), m);
    const Tensor share = moved.SliceAxis(-1, {0, 1}) / Where(pivot == 0, 1, pivot);
    m = MovedUp(MovedUp(moved - share * pivot_row, -1), -2).Contiguous();
    const Tensor number = pivot.Squeeze({-2, -1});
    pivots.push_back(Where(at_row.Squeeze(-1) == 0, number, -number).Contiguous());
  }
  return pivots;
}

// What is left of right sides [..., N, K] when the matrices beside them have become the identity.
// Rows that have been used go to the end.
Tensor Eliminated(const Tensor& matrix, const Tensor& sides) {
  const int64_t n = matrix.size(-1);
  if (n == 0) return sides;
  const Tensor row = Tensor::Arange(n);
  Tensor m = Cat({matrix, sides}, -1), used = matrix.Select(-1, 0).ZerosLike(kInt32).Contiguous();
  const Tensor one = used.SliceAxis(-1, {0, 1}).OnesLike();
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = m.Select(-1, 0).Abs();
    const Tensor at_row = Where(used == 0, column, -1).ArgMax(-1, /*keepdim=*/true);
    const Tensor chosen = (at_row == row).Unsqueeze(-1);
    const Tensor pivot_row = Where(chosen, m, 0).Sum(-2, /*keepdim=*/true);
    const Tensor scaled = pivot_row / pivot_row.SliceAxis(-1, {0, 1});
    const Tensor moved = Where(chosen, m.SliceAxis(-2, {0, 1}), m).SliceAxis(-2, {1, {}});
    const Tensor rest = moved - moved.SliceAxis(-1, {0, 1}) * scaled;
    m = MovedUp(Cat({rest, scaled}, -2), -1).Contiguous();
    used = Cat({used.SliceAxis(-1, {1, {}}), one}, -1).Contiguous();
  }
  return m.SliceAxis(-1, {0, sides.shape()[sides.rank() - 1]});
}

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
  Tensor det = Ones(Dims(Extents(shape().begin(), shape().end() - 2)), WideFloat(*this).dtype());
  for (const Tensor& pivot : Pivots(*this)) det = det * pivot;
  return det.Cast(FloatResult(dtype()));
}

std::pair<Tensor, Tensor> Tensor::SlogDet(CallSite at) const {
  Call call("SlogDet", at, *this);
  SquareSize(*this);
  const Dims dims(Extents(shape().begin(), shape().end() - 2));
  const DType wide = WideFloat(*this).dtype(), type = FloatResult(dtype());
  Tensor sign = Ones(dims, wide), log = Zeros(dims, wide);
  for (const Tensor& pivot : Pivots(*this)) {
    sign = sign * pivot.Sign();
    log = log + pivot.Abs().Log();
  }
  return {sign.Cast(type), log.Cast(type)};
}

Tensor Tensor::Solve(const Tensor& b, CallSite at) const {
  Call call("Solve", at, *this, b);
  const System s(*this, b);
  return s.Ended(Eliminated(s.matrix, s.sides));
}

Tensor Tensor::SolveTriangular(const Tensor& b, bool upper, CallSite at) const {
  Call call("SolveTriangular", at, *this, b);
  const System s(*this, b);
  const auto turned = [&](const Tensor& t, const Axes& axes) { return upper ? t.Flip(axes) : t; };
  Tensor sides = turned(s.sides, {-2});
  const int64_t n = size(-1);
  std::vector<Tensor> rows(n);
  if (n == 0) return s.Ended(sides);
  const Tensor columns = FromPivots(turned(s.matrix, {-2, -1}));
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = columns.Select(-2, k).Unsqueeze(-1);
    rows[k] = (sides.SliceAxis(-2, {0, 1}) / column.SliceAxis(-2, {0, 1})).Contiguous();
    sides = MovedUp(sides - column * rows[k], -2).Contiguous();
  }
  return s.Ended(turned(Cat(rows, -2), {-2}));
}

Tensor Tensor::Inverse(CallSite at) const {
  Call call("Inverse", at, *this);
  if (SquareSize(*this) == 0) return Cast(FloatResult(dtype()));
  return Solve(Eye(SquareSize(*this), -1, FloatResult(dtype())));
}

// Column by column; what each contributes is taken off the matrix that is left. A column begins at
// its pivot: as rows of n + 1 elements that are read as rows of n, each goes one step further.
Tensor Tensor::Cholesky(CallSite at) const {
  Call call("Cholesky", at, *this);
  const int64_t n = SquareSize(*this);
  Tensor m = WideFloat(*this);
  if (n == 0) return m.Cast(FloatResult(dtype()));
  std::vector<Tensor> columns;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = m.Select(-1, 0);
    columns.push_back((column / column.SliceAxis(-1, {0, 1}).Sqrt()).Contiguous());
    const Tensor& c = columns.back();
    m = MovedUp(MovedUp(m - c.Unsqueeze(-1) * c.Unsqueeze(-2), -1), -2).Contiguous();
  }
  Pairs pairs(rank(), {0, 0});
  pairs.back() = {0, 1};
  const Tensor apart = Stack(columns, -2).Pad(pairs).Flatten(-2).SliceAxis(-1, {0, n * n});
  return apart.Unflatten(-1, {n, n}).Transpose().Tril().Cast(FloatResult(dtype()));
}

Tensor Tensor::MatrixPower(int64_t n, CallSite at) const {
  Call call("MatrixPower", at, *this);
  CheckSquare(*this);
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
