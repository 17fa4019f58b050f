// Householder's reflections, and many of them as a few products.
#include "graph/reflections.h"

#include <cmath>

#include "graph/elimination.h"
#include "graph/index_math.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

Tensor Skewed(const Tensor& t, int64_t by) {
  const int64_t rows = t.size(-2), columns = t.size(-1);
  Pairs pairs(t.rank(), {0, 0});
  pairs.back() = {0, by};
  const Tensor apart = t.Pad(pairs).Flatten(-2).SliceAxis(-1, {0, rows * columns});
  return apart.Unflatten(-1, {rows, columns});
}

Reflection::Reflection(const Tensor& column) {
  const double least = std::pow(column.dtype() == kFloat64 ? 0x1p-52 : 0x1p-23, 4);
  const Tensor first = column.SliceAxis(-2, {0, 1});
  const Tensor is_first = Tensor::Arange(column.size(-2)).Unsqueeze(-1) == 0;
  const Tensor squares = Where(is_first, 0, column).Square().Sum(-2, /*keepdim=*/true);
  const Tensor none = squares <= least, norm = (first.Square() + squares).Sqrt();
  to = Where(none, first, Where(first < 0, norm, -norm)).Contiguous();
  v = Where(none, 0, Where(is_first, 1, column / Where(none, 1, first - to))).Contiguous();
  factor = Where(none, 1, 1 - first / Where(none, 1, to)).Contiguous();
}

Tensor Reflection::Of(const Tensor& m) const {
  return m - v * (factor * (v * m).Sum(-2, /*keepdim=*/true));
}

Reflections::Reflections(const Tensor& rows, const Tensor& factors) : rows_(rows) {
  const Tensor one = Tensor::Eye(rows.size(-2), -1, rows.dtype());
  const Tensor lower = rows.MatMul(rows.Transpose()).Tril(-1) + one / factors;
  t_ = SolvedLower(lower.Contiguous(), one.Expand(lower.shape()).Contiguous(), Sides::kStepByStep)
           .Transpose()
           .Contiguous();
}

std::vector<Reflections> Reflections::OfMany(const Tensor& rows, const Tensor& factors) {
  const int64_t n = rows.size(-2), parts = CeilDiv(n, kMostReflections), w = CeilDiv(n, parts);
  Pairs below(rows.rank(), {0, 0}), after(rows.rank(), {0, 0});
  below[rows.rank() - 2].second = after.back().second = parts * w - n;
  const Tensor v = rows.Pad(below).Unflatten(-2, {parts, w}).Contiguous();
  const Tensor f = factors.Pad(after, 1).Squeeze(-2).Unflatten(-1, {parts, w}).Unsqueeze(-2);
  const Reflections together(v, f.Contiguous());
  std::vector<Reflections> all;
  for (int64_t i = 0; i < parts; ++i) {
    Reflections part;
    part.rows_ = v.Select(-3, i);
    part.t_ = together.t_.Select(-3, i);
    all.push_back(part);
  }
  return all;
}

Tensor Reflections::Applied(const Tensor& middle, const Tensor& m) const {
  const Tensor shares = middle.MatMul(rows_.MatMul(m).Contiguous()).Contiguous();
  return m - rows_.Transpose().MatMul(shares);
}

}  // namespace tessera::internal
