// Square matrices: elimination, determinants, systems of equations, and powers.
//
// The steps are written out, one for each row. After each step rows and columns move up, so that
// all steps are the same graph, whose kernels are compiled once. Larger matrices are halved until
// such steps are few; what halves do to one another are products.
#include <algorithm>

#include "graph/index_math.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

namespace {

constexpr int64_t kMostSteps = 64;  // of rows one after another

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

// A block of a matrix: rows and columns from one to another.
struct Span {
  int64_t begin, end;
};
Tensor Block(const Tensor& m, Span rows, Span columns) {
  return m.SliceAxis(-2, {rows.begin, rows.end}).SliceAxis(-1, {columns.begin, columns.end});
}

// What lower triangles make of right sides [..., N, K].
Tensor SolvedLower(const Tensor& lower, const Tensor& sides) {
  const int64_t n = lower.size(-1), half = n / 2;
  if (n > kMostSteps) {
    const Tensor x =
        SolvedLower(Block(lower, {0, half}, {0, half}), sides.SliceAxis(-2, {0, half}));
    const Tensor from = Block(lower, {half, n}, {0, half}).MatMul(x);
    const Tensor rest = (sides.SliceAxis(-2, {half, n}) - from).Contiguous();
    return Cat({x, SolvedLower(Block(lower, {half, n}, {half, n}), rest)}, -2).Contiguous();
  }
  const Extent& count = sides.shape()[sides.rank() - 1];
  if (count.is_int() && count.value() > n) {  // longer steps than of the inverse
    const Tensor one = Tensor::Eye(n, -1, lower.dtype()).Expand(lower.shape());
    return SolvedLower(lower, one.Contiguous()).MatMul(sides).Contiguous();
  }
  const Tensor columns = FromPivots(lower);
  std::vector<Tensor> rows(n);
  Tensor left = sides;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = columns.Select(-2, k).Unsqueeze(-1);
    rows[k] = (left.SliceAxis(-2, {0, 1}) / column.SliceAxis(-2, {0, 1})).Contiguous();
    left = MovedUp(left - column * rows[k], -2).Contiguous();
  }
  return Cat(rows, -2);
}

// Column by column; what each contributes is taken off the matrix that is left. A column begins at
// its pivot: as rows of n + 1 elements that are read as rows of n, each goes one step further.
Tensor LowerFactor(const Tensor& matrix) {
  const int64_t n = matrix.size(-1), half = n / 2;
  if (n > kMostSteps) {
    const Tensor a = LowerFactor(Block(matrix, {0, half}, {0, half}));
    const Tensor below = Block(matrix, {half, n}, {0, half}).Transpose().Contiguous();
    const Tensor b = SolvedLower(a, below).Transpose().Contiguous();
    const Tensor rest = Block(matrix, {half, n}, {half, n}) - b.MatMul(b.Transpose());
    Pairs right(matrix.rank(), {0, 0});
    right.back() = {0, n - half};
    return Cat({a.Pad(right), Cat({b, LowerFactor(rest.Contiguous())}, -1)}, -2).Contiguous();
  }
  Tensor m = matrix;
  std::vector<Tensor> columns;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = m.Select(-1, 0);
    columns.push_back((column / column.SliceAxis(-1, {0, 1}).Sqrt()).Contiguous());
    const Tensor& c = columns.back();
    m = MovedUp(MovedUp(m - c.Unsqueeze(-1) * c.Unsqueeze(-2), -1), -2).Contiguous();
  }
  Pairs pairs(matrix.rank(), {0, 0});
  pairs.back() = {0, 1};
  const Tensor apart = Stack(columns, -2).Pad(pairs).Flatten(-2).SliceAxis(-1, {0, n * n});
  return apart.Unflatten(-1, {n, n}).Transpose().Tril();
}

// What is left of right sides [..., N, K] when the matrices beside them have become the identity.
// Rows that have been used go to the end.
Tensor SolvedByStep(const Tensor& matrix, const Tensor& sides) {
  const int64_t n = matrix.size(-1);
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

// Elimination in some columns [..., N, W] of a matrix, of whose rows some are used already. Rows
// stay where they are: all panels of a matrix are the same graph.
struct Panel {
  Tensor shares;  // [..., N, W]: by how much of each pivot's row the others became less
  Tensor upper;   // [..., W, W]: the rows of the pivots
  Tensor at_row;  // [..., W]: where those are
  Tensor used;    // [..., N, 1]

  Panel(const Tensor& columns, const Tensor& used_before) {
    const int64_t w = columns.size(-1);
    const Tensor row = Tensor::Arange(columns.size(-2));
    Tensor m = Cat({columns, used_before}, -1).Contiguous();
    std::vector<Tensor> of_steps, pivot_rows, chosen_rows;
    for (int64_t k = 0; k < w; ++k) {
      const Tensor first = m.Select(-1, 0), last = m.Select(-1, w);
      const Tensor at = Where(last == 0, first.Abs(), -1).ArgMax(-1, /*keepdim=*/true);
      chosen_rows.push_back(at.Contiguous());
      const Tensor chosen = (chosen_rows.back() == row).Unsqueeze(-1);
      pivot_rows.push_back(Where(chosen, m, 0).Sum(-2, /*keepdim=*/true).Contiguous());
      const Tensor& pivot_row = pivot_rows.back();
      const Tensor pivot = pivot_row.SliceAxis(-1, {0, 1});
      const Tensor now = Where(chosen, 1, m.SliceAxis(-1, {w, w + 1}));
      const Tensor share = m.SliceAxis(-1, {0, 1}) / Where(pivot == 0, 1, pivot);
      of_steps.push_back(Where(now == 0, share, 0).Contiguous());
      const Tensor rest = m - of_steps.back() * pivot_row;
      const Tensor zero = now.ZerosLike();
      m = Cat({rest.SliceAxis(-1, {1, w}), zero, now}, -1).Contiguous();
    }
    shares = Cat(of_steps, -1).Contiguous();
    at_row = Cat(chosen_rows, -1).Contiguous();
    used = m.SliceAxis(-1, {w, w + 1});
    // Each row begins at its pivot: as rows of W + 1 elements, they are read one step further.
    const Tensor rows = Cat(pivot_rows, -2).Flatten(-2).SliceAxis(-1, {0, w * w});
    upper = rows.Unflatten(-1, {w, w}).Triu().Contiguous();
  }
};

// Elimination, some columns at a time: what they do to the columns after them are products.
struct Elimination {
  std::vector<Tensor> corners, across;  // of the upper triangle, and of what is to the right of it
  Tensor at_row;                        // [..., N]: which row is which of the upper triangle

  // Of [..., N, N + K], N > 0: the rest are right sides.
  explicit Elimination(const Tensor& matrix) {
    const int64_t n = matrix.size(-2), width = CeilDiv(n, CeilDiv(n, kMostSteps));
    std::vector<Tensor> rows;
    Tensor left = matrix, used = matrix.SliceAxis(-1, {0, 1}).ZerosLike();
    for (int64_t at = 0; at < n; at += width) {
      const int64_t w = std::min(width, n - at);
      const Panel panel(left.SliceAxis(-1, {0, w}), used);
      corners.push_back(panel.upper);
      rows.push_back(panel.at_row);
      used = panel.used;
      const Tensor rest = left.SliceAxis(-1, {w, {}});
      if (rest.shape()[rest.rank() - 1] == Extent(0)) break;  // no sides
      const auto of_pivots = [&](const Tensor& t) {
        Extents dims(t.shape().begin(), t.shape().end());
        dims[dims.size() - 2] = Extent(w);
        return t.Gather(-2, panel.at_row.Unsqueeze(-1).Expand(dims));
      };
      const Tensor lower = of_pivots(panel.shares) + Tensor::Eye(w, -1, matrix.dtype());
      across.push_back(SolvedLower(lower.Contiguous(), of_pivots(rest).Contiguous()));
      left = (rest - panel.shares.MatMul(across.back())).Contiguous();
    }
    at_row = Cat(rows, -1).Contiguous();
  }
  // The right sides when the matrix has become the identity.
  Tensor Solved() const {
    Tensor x;
    for (size_t i = corners.size(); i-- > 0;) {
      const int64_t known = x ? x.size(-2) : 0;
      Tensor sides = across[i].SliceAxis(-1, {known, {}});
      if (x) sides = sides - across[i].SliceAxis(-1, {0, known}).MatMul(x);
      const Tensor turned = SolvedLower(corners[i].Flip({-2, -1}), sides.Flip({-2}).Contiguous());
      const Tensor rows = turned.Flip({-2});
      x = (x ? Cat({rows, x}, -2) : rows).Contiguous();
    }
    return x;
  }
  // The pivots [..., N]; and 1, or -1 where the rows are in an order of odd exchanges.
  std::pair<Tensor, Tensor> Pivots() const {
    std::vector<Tensor> found;
    for (const Tensor& corner : corners) found.push_back(corner.Diagonal(0, -2, -1));
    const Tensor pivots = Cat(found, -1), before = at_row.Unsqueeze(-1),
                 after = at_row.Unsqueeze(-2);
    const Tensor exchanged = (before > after).Cast(kInt32).Triu(1).Sum({-2, -1});
    return {pivots, Where(exchanged % 2 == 0, 1, -1).Cast(pivots.dtype())};
  }
};

Tensor Solved(const Tensor& matrix, const Tensor& sides) {
  const int64_t n = matrix.size(-1);
  if (n == 0) return sides;
  return n > kMostSteps ? Elimination(Cat({matrix, sides}, -1).Contiguous()).Solved()
                        : SolvedByStep(matrix, sides);
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
  return s.Ended(Solved(s.matrix, s.sides));
}

Tensor Tensor::SolveTriangular(const Tensor& b, bool upper, CallSite at) const {
  Call call("SolveTriangular", at, *this, b);
  const System s(*this, b);
  const auto turned = [&](const Tensor& t, const Axes& axes) { return upper ? t.Flip(axes) : t; };
  const Tensor sides = turned(s.sides, {-2});
  if (size(-1) == 0) return s.Ended(sides);
  return s.Ended(turned(SolvedLower(turned(s.matrix, {-2, -1}), sides), {-2}));
}

Tensor Tensor::Inverse(CallSite at) const {
  Call call("Inverse", at, *this);
  if (SquareSize(*this) == 0) return Cast(FloatResult(dtype()));
  return Solve(Eye(SquareSize(*this), -1, FloatResult(dtype())));
}

Tensor Tensor::Cholesky(CallSite at) const {
  Call call("Cholesky", at, *this);
  const int64_t n = SquareSize(*this);
  const Tensor m = WideFloat(*this);
  return (n == 0 ? m : LowerFactor(m)).Cast(FloatResult(dtype()));
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
