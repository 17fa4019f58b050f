// Square matrices by elimination.
#include "graph/elimination.h"

#include <algorithm>
#include <cstdlib>

#include "graph/index_math.h"
#include "graph/repeat.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kMostSteps = 64;  // of rows one after another

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

// The rows of [..., N, K] that [..., W] names.
Tensor RowsAt(const Tensor& t, const Tensor& at_row) {
  Extents dims(t.shape().begin(), t.shape().end());
  dims[dims.size() - 2] = at_row.shape()[at_row.rank() - 1];
  return t.Gather(-2, at_row.Unsqueeze(-1).Expand(dims));
}

// What is left of right sides [..., N, K] when the matrices beside them have become the identity.
// Rows that have been used go to the end.
Tensor SolvedByStep(const Tensor& matrix, const Tensor& sides) {
  const int64_t n = matrix.size(-1);
  const Tensor row = Tensor::Arange(n);
  const Tensor all = Cat({matrix, sides}, -1);
  const Tensor none = matrix.Select(-1, 0).ZerosLike(kInt32).Contiguous();
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &m = in[0], &used = in[1];
    const Tensor one = used.SliceAxis(-1, {0, 1}).OnesLike();
    const Tensor column = m.Select(-1, 0).Abs();
    const Tensor at_row = Where(used == 0, column, -1).ArgMax(-1, /*keepdim=*/true);
    const Tensor chosen = (at_row == row).Unsqueeze(-1);
    const Tensor pivot_row = Where(chosen, m, 0).Sum(-2, /*keepdim=*/true);
    const Tensor scaled = pivot_row / pivot_row.SliceAxis(-1, {0, 1});
    const Tensor moved = Where(chosen, m.SliceAxis(-2, {0, 1}), m).SliceAxis(-2, {1, {}});
    const Tensor rest = moved - moved.SliceAxis(-1, {0, 1}) * scaled;
    return {MovedUp(Cat({rest, scaled}, -2), -1).Contiguous(),
            Cat({used.SliceAxis(-1, {1, {}}), one}, -1).Contiguous()};
  };
  return Repeat(n, {all, none}, {}, step)
      .carried[0]
      .SliceAxis(-1, {0, sides.shape()[sides.rank() - 1]});
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
    const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor& m = in[0];
      const Tensor first = m.Select(-1, 0), last = m.Select(-1, w);
      const Tensor at = Where(last == 0, first.Abs(), -1).ArgMax(-1, /*keepdim=*/true).Contiguous();
      const Tensor chosen = (at == row).Unsqueeze(-1);
      const Tensor pivot_row = Where(chosen, m, 0).Sum(-2, /*keepdim=*/true).Contiguous();
      const Tensor pivot = pivot_row.SliceAxis(-1, {0, 1});
      const Tensor now = Where(chosen, 1, m.SliceAxis(-1, {w, w + 1}));
      const Tensor share = m.SliceAxis(-1, {0, 1}) / Where(pivot == 0, 1, pivot);
      const Tensor of_rows = Where(now == 0, share, 0).Contiguous();
      const Tensor rest = m - of_rows * pivot_row;
      const Tensor zero = now.ZerosLike();
      return {Cat({rest.SliceAxis(-1, {1, w}), zero, now}, -1).Contiguous(), of_rows, pivot_row,
              at};
    };
    const Looped steps = Repeat(w, {Cat({columns, used_before}, -1).Contiguous()}, {}, step);
    shares = JoinedAlong(steps.stacked[0], -1).Contiguous();
    at_row = JoinedAlong(steps.stacked[2], -1).Contiguous();
    used = steps.carried[0].SliceAxis(-1, {w, w + 1});
    // Each row begins at its pivot: as rows of W + 1 elements, they are read one step further.
    const Tensor pivot_rows = JoinedAlong(steps.stacked[1], -2);
    const Tensor rows = pivot_rows.Flatten(-2).SliceAxis(-1, {0, w * w});
    upper = rows.Unflatten(-1, {w, w}).Triu().Contiguous();
  }
};

}  // namespace

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

Tensor MovedBy(const Tensor& t, int axis, int64_t by) {
  if (by == 0) return t;
  Pairs pairs(t.rank(), {0, 0});
  auto& [before, after] = pairs[NormalAxis(axis, t.rank())];
  (by > 0 ? before : after) = std::abs(by);
  return t.SliceAxis(axis, by > 0 ? Slice{{}, -by} : Slice{-by, {}}).Pad(pairs);
}

Tensor SolvedLower(const Tensor& lower, const Tensor& sides, Sides how) {
  const int64_t n = lower.size(-1), half = n / 2;
  if (n > kMostSteps) {
    const Tensor x =
        SolvedLower(Block(lower, {0, half}, {0, half}), sides.SliceAxis(-2, {0, half}), how);
    const Tensor from = Block(lower, {half, n}, {0, half}).MatMul(x);
    const Tensor rest = (sides.SliceAxis(-2, {half, n}) - from).Contiguous();
    return Cat({x, SolvedLower(Block(lower, {half, n}, {half, n}), rest, how)}, -2).Contiguous();
  }
  const Extent& count = sides.shape()[sides.rank() - 1];
  if (how == Sides::kByInverse && count.is_int() && count.value() > n) {
    const Tensor one = Tensor::Eye(n, -1, lower.dtype()).Expand(lower.shape());
    return SolvedLower(lower, one.Contiguous(), how).MatMul(sides).Contiguous();
  }
  const Tensor columns = FromPivots(lower);
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &left = in[0], column = in[1].Unsqueeze(-1);
    const Tensor row = (left.SliceAxis(-2, {0, 1}) / column.SliceAxis(-2, {0, 1})).Contiguous();
    return {MovedUp(left - column * row, -2).Contiguous(), row};
  };
  return JoinedAlong(Repeat(n, {sides}, {columns.MoveAxis(-2, 0)}, step).stacked[0], -2);
}

// Column by column; what each contributes is taken off the matrix that is left. A column begins at
// its pivot: as rows of n + 1 elements that are read as rows of n, each goes one step further.
Tensor LowerFactor(const Tensor& matrix) {
  const int64_t n = matrix.size(-1), half = n / 2;
  if (n > kMostSteps) {
    const Tensor a = LowerFactor(Block(matrix, {0, half}, {0, half}));
    const Tensor below = Block(matrix, {half, n}, {0, half}).Transpose().Contiguous();
    const Tensor b = SolvedLower(a, below, Sides::kByInverse).Transpose().Contiguous();
    const Tensor rest = Block(matrix, {half, n}, {half, n}) - b.MatMul(b.Transpose());
    Pairs right(matrix.rank(), {0, 0});
    right.back() = {0, n - half};
    return Cat({a.Pad(right), Cat({b, LowerFactor(rest.Contiguous())}, -1)}, -2).Contiguous();
  }
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor &m = in[0], column = m.Select(-1, 0);
    const Tensor c = (column / column.SliceAxis(-1, {0, 1}).Sqrt()).Contiguous();
    return {MovedUp(MovedUp(m - c.Unsqueeze(-1) * c.Unsqueeze(-2), -1), -2).Contiguous(), c};
  };
  const Tensor columns = Repeat(n, {matrix}, {}, step).stacked[0].MoveAxis(0, -2);
  Pairs pairs(matrix.rank(), {0, 0});
  pairs.back() = {0, 1};
  const Tensor apart = columns.Pad(pairs).Flatten(-2).SliceAxis(-1, {0, n * n});
  return apart.Unflatten(-1, {n, n}).Transpose().Tril();
}

namespace {

Tensor BySteps(const Tensor& matrix, const Tensor& sides) {
  return matrix.size(-1) > kMostSteps ? Elimination(Cat({matrix, sides}, -1).Contiguous()).Solved()
                                      : SolvedByStep(matrix, sides);
}

}  // namespace

// A change of the inverse is -inverse change inverse.
Tensor Inverted(const Tensor& matrix) {
  const int64_t n = matrix.size(-1);
  if (n == 0) return matrix;
  const Tensor one = Tensor::Eye(n, -1, matrix.dtype()).Expand(Dims(matrix.shape().ToExtents()));
  const Tensor inverse = BySteps(matrix, one);
  return DerivedBy(inverse, [&] {
    const Tensor at = inverse.Detach();
    return at * 2 - at.MatMul(matrix).MatMul(at);
  });
}

// What is left over of the sides, which is nothing, says how the result changes with it. (Gradient
// of 256 rows: 6.5 ms so, 10.6 by that of all steps; of 64 0.6 and 0.45.)
Tensor Solved(const Tensor& matrix, const Tensor& sides) {
  if (matrix.size(-1) == 0 || sides.shape()[sides.rank() - 1] == Extent(0)) return sides;
  const Tensor x = BySteps(matrix, sides);
  if (matrix.size(-1) <= kMostSteps) return x;
  return DerivedBy(x, [&] {
    const Tensor at = x.Detach();
    return at + Inverted(matrix).MatMul(sides - matrix.MatMul(at));
  });
}

Elimination::Elimination(const Tensor& matrix, std::optional<int64_t> pivots) {
  const int64_t n = pivots.value_or(matrix.size(-2)), width = CeilDiv(n, CeilDiv(n, kMostSteps));
  std::vector<Tensor> rows;
  Tensor left = matrix, used = matrix.SliceAxis(-1, {0, 1}).ZerosLike();
  for (int64_t at = 0; at < n; at += width) {
    const int64_t w = std::min(width, n - at);
    const Panel panel(left.SliceAxis(-1, {0, w}), used);
    shares_.push_back(panel.shares);
    corners_.push_back(panel.upper);
    rows.push_back(panel.at_row);
    used = panel.used;
    const Tensor rest = left.SliceAxis(-1, {w, {}});
    if (rest.shape()[rest.rank() - 1] == Extent(0)) break;  // no sides
    const Tensor lower = RowsAt(panel.shares, panel.at_row) + Tensor::Eye(w, -1, matrix.dtype());
    const Tensor of_pivots = RowsAt(rest, panel.at_row).Contiguous();
    across_.push_back(SolvedLower(lower.Contiguous(), of_pivots, Sides::kByInverse));
    left = (rest - panel.shares.MatMul(across_.back())).Contiguous();
  }
  const int64_t others = matrix.size(-2) - n;
  if (others > 0) rows.push_back(used.Squeeze(-1).ArgSort().SliceAxis(-1, {0, others}));
  at_row_ = Cat(rows, -1).Contiguous();
}

Tensor Elimination::Solved() const {
  Tensor x;
  for (size_t i = corners_.size(); i-- > 0;) {
    const int64_t known = x ? x.size(-2) : 0;
    Tensor sides = across_[i].SliceAxis(-1, {known, {}});
    if (x) sides = sides - across_[i].SliceAxis(-1, {0, known}).MatMul(x);
    const Tensor turned =
        SolvedLower(corners_[i].Flip({-2, -1}), sides.Flip({-2}).Contiguous(), Sides::kByInverse);
    const Tensor rows = turned.Flip({-2});
    x = (x ? Cat({rows, x}, -2) : rows).Contiguous();
  }
  return x;
}

std::pair<Tensor, Tensor> Elimination::Pivots() const {
  std::vector<Tensor> found;
  for (const Tensor& corner : corners_) found.push_back(corner.Diagonal(0, -2, -1));
  const Tensor pivots = Cat(found, -1), before = at_row_.Unsqueeze(-1),
               after = at_row_.Unsqueeze(-2);
  const Tensor exchanged = (before > after).Cast(kInt32).Triu(1).Sum({-2, -1});
  return {pivots, Where(exchanged % 2 == 0, 1, -1).Cast(pivots.dtype())};
}

Tensor Elimination::Lower() const {
  const Tensor shares = Cat(shares_, -1);
  return RowsAt(shares, at_row_) + Tensor::Eye(shares.size(-2), shares.size(-1), shares.dtype());
}

Tensor Elimination::Upper() const {
  std::vector<Tensor> rows;
  int64_t at = 0;
  for (size_t i = 0; i < corners_.size(); ++i) {
    Pairs pairs(corners_[i].rank(), {0, 0});
    pairs.back() = {at, 0};
    const Tensor row = i < across_.size() ? Cat({corners_[i], across_[i]}, -1) : corners_[i];
    rows.push_back(row.Pad(pairs));
    at += corners_[i].size(-1);
  }
  return Cat(rows, -2);
}

}  // namespace tessera::internal
