// Layers, pools and losses, made of the members of Tensor.
#include "graph/network_functions.h"

#include <cmath>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_windows.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::Show;

namespace {

// Rows of the last axis, those made shorter whose norm is above `most`.
Tensor Renormed(const Tensor& rows, double most, double p) {
  if (!(most >= 0) || !(p > 0)) {
    Fail("takes a p above 0 and a norm from 0 on, not ", p, " and ", most);
  }
  return InFloats(rows, [&](const Tensor& t) {
    const Tensor norm = t.Norm(p, -1, /*keepdim=*/true);
    return Where(norm > most, t * (most / (norm + 1e-7)), t);
  });
}

}  // namespace

Tensor Embedding(const Tensor& table, const Tensor& index, const EmbeddingOptions& o, CallSite at) {
  Call call("Embedding", at, table, index);
  Tensor rows = table.Embedding(index);
  const Tensor i = index.Cast(kInt64);
  if (o.most) rows = Renormed(rows, *o.most, o.p).WithDerivativeOf(rows);
  if (o.by_frequency) {
    const Tensor often = i.BinCount(table.size(0)).Take(i).Maximum(1).Cast(rows.dtype());
    rows = rows.WithDerivativeOf(rows / often.Unsqueeze(-1));
  }
  if (!o.padding) return rows;
  const int64_t padding = *o.padding < 0 ? *o.padding + table.size(0) : *o.padding;
  return Where((i == padding).Unsqueeze(-1), rows.Detach(), rows);
}

namespace {

// Which of an index name rows that count, as an axis before E.
Tensor Counting(const Tensor& table, const Tensor& i, std::optional<int64_t> padding) {
  Tensor counts = (i >= 0) & (i < Tensor::FromExtent(table.shape()[0], kInt64));
  if (padding) counts = counts & (i != *padding);
  return counts.Unsqueeze(-1);
}

void CheckWeights(const Tensor& weights, const Tensor& index, BagMode mode) {
  if (weights && (mode != BagMode::kSum || !(weights.shape() == index.shape()))) {
    Fail("takes weights of the shape of ", Show(index), " for sums alone, not ", Show(weights));
  }
}

// What counts of each row, by its weight; else 0.
Tensor Kept(const Tensor& each, const Tensor& counts, const Tensor& weights) {
  const Tensor kept = Where(counts, each, 0);
  if (!weights) return kept;
  return kept * Where(counts, weights.Cast(each.dtype()).Unsqueeze(-1), 0);
}

}  // namespace

Tensor EmbeddingBag(const Tensor& table, const Tensor& index, BagMode mode,
                    std::optional<int64_t> padding, const Tensor& weights, CallSite at) {
  Call call("EmbeddingBag", at, table, index, weights);
  internal::CheckIndex(index);
  if (table.rank() != 2 || index.rank() != 2) {
    Fail("takes a table [rows, E] and an index [N, L], not ", Show(table), " and ", Show(index));
  }
  CheckWeights(weights, index, mode);
  const Tensor i = index.Cast(kInt64), counts = Counting(table, i, padding);
  return InFloats(table, [&](const Tensor& t) {
    const Tensor each = t.Take(i, 0);
    if (mode == BagMode::kMax) {
      if (index.shape()[1].is_int(0)) return each.Sum(1);
      const Tensor low = Where(counts, each, LowestScalar(t.dtype()).AsFloat()).Max(1);
      return Where(counts.Any(1), low, 0);
    }
    const Tensor sum = Kept(each, counts, weights).Sum(1);
    if (mode == BagMode::kSum) return sum;
    return sum / counts.Cast(t.dtype()).Sum(1).Maximum(1);
  });
}

// What does not count goes to a bag that is none.
Tensor EmbeddingBag(const Tensor& table, const Tensor& index, const Tensor& offsets, BagMode mode,
                    std::optional<int64_t> padding, const Tensor& weights, CallSite at) {
  Call call("EmbeddingBag", at, table, index, offsets, weights);
  internal::CheckIndex(index);
  internal::CheckIndex(offsets);
  if (table.rank() != 2 || index.rank() != 1 || offsets.rank() != 1) {
    Fail("takes a table [rows, E], an index [L] and offsets [N], not ", Show(table), ", ",
         Show(index), " and ", Show(offsets));
  }
  CheckWeights(weights, index, mode);
  const Tensor i = index.Cast(kInt64), counts = Counting(table, i, padding);
  const Tensor position = Tensor::Arange(index.shape()[0], kInt64);
  const Tensor after = offsets.Cast(kInt64).SearchSorted(position, /*right=*/true);
  const Tensor bag = Where(counts.Squeeze(-1), after.Cast(kInt64) - 1, -1);
  return InFloats(table, [&](const Tensor& t) {
    const Tensor each = t.Take(i, 0);
    const Tensor none = Tensor::Zeros({offsets.shape()[0], table.shape()[1]}, t.dtype());
    if (mode == BagMode::kMax) {
      const Tensor wide = bag.Unsqueeze(-1).Expand(each.shape());
      return none.Scatter(0, wide, each, ScatterMode::kMax, /*include_self=*/false);
    }
    const Tensor sum = none.IndexAdd(0, bag, Kept(each, counts, weights));
    if (mode == BagMode::kSum) return sum;
    const Tensor one = counts.Cast(t.dtype());
    const Tensor many = Tensor::Zeros({offsets.shape()[0], 1}, t.dtype()).IndexAdd(0, bag, one);
    return sum / many.Maximum(1);
  });
}

namespace {

// Maxima along axes that were pooled one by one, the last first, of images [.., D1, ...]: where
// they are in those axes, flattened.
struct Pooled {
  Tensor values, positions;
  Extent step = 1;

  // `inside` says which elements of an axis are in which of the windows along a new axis before it.
  void Along(int axis, const Tensor& inside) {
    const Extent n = values.shape()[axis];
    const Tensor element = CountAlong(axis + 1, values.rank() + 1, n, kInt64);
    const Tensor lowest(UOp::Const(values.dtype(), LowestScalar(values.dtype())));
    const Tensor wide = Where(inside, values.Unsqueeze(axis), lowest);
    const Tensor most = wide.Max(axis + 1, /*keepdim=*/true);
    Tensor found = wide == most;
    if (wide.dtype().IsFloat()) found = found | wide.IsNan();
    const Tensor first = Where(found & inside, element, MaxInt(kInt64)).Min(axis + 1);
    const Tensor flat = first * Tensor::FromExtent(step, kInt64);
    positions = positions ? flat + positions.Gather(axis, first) : flat;
    values = most.Squeeze(axis + 1);
    step = step * n;
  }
  // Of x, by the positions alone.
  ValuesAndIndices Of(const Tensor& x, int axes) const {
    const int first = x.rank() - axes;
    const Tensor flat = x.Flatten(first).Gather(first, positions.Flatten(first));
    return {flat.Reshape(positions.shape()), positions};
  }
};

}  // namespace

ValuesAndIndices AdaptiveMaxPoolWithIndices(const Tensor& x, const Ints& extents, CallSite at) {
  Call call("AdaptiveMaxPoolWithIndices", at, x);
  internal::CheckExtents(x, extents);
  const int axes = static_cast<int>(extents.size()), first = x.rank() - axes;
  const Tensor values = x.AdaptiveMaxPool(extents);
  if (values.shape().MaxElements() == 0) return {values, Tensor::Zeros(values.shape(), kInt64)};
  Pooled pooled{x.Detach(), {}};
  for (int i = axes; i-- > 0;) {
    const internal::EvenWindows windows(pooled.values, first + i, extents[i]);
    pooled.Along(first + i, windows.inside);
  }
  return pooled.Of(x, axes);
}

ValuesAndIndices FractionalMaxPool(const Tensor& x, const Ints& size, const Ints& extents,
                                   const Tensor& samples, CallSite at) {
  Call call("FractionalMaxPool", at, x, samples);
  const int axes = x.rank() - 2;
  if (axes < 1 || static_cast<int>(size.size()) != axes || size.size() != extents.size()) {
    Fail("takes [N, C, D1, ...], and a size and an extent for each axis after C, not ", Show(x),
         ", ", size.size(), " and ", extents.size());
  }
  const Extents all = {x.shape()[0], x.shape()[1], Extent(axes)};
  if (samples && !(samples.shape() == Shape(all))) {
    Fail("the samples must have the shape ", Shape(all).ToString(), ", not ", Show(samples));
  }
  const Tensor u = samples ? samples.Cast(kFloat64) : Tensor::Rand(Dims(all), kFloat64);
  Pooled pooled{x.Detach(), {}};
  for (int i = axes; i-- > 0;) {
    const int64_t n = x.size(2 + i), m = extents[i], left = n - size[i];
    if (size[i] < 1 || m < 1 || left < 0 || size[i] + m - 1 > n) {
      Fail("cannot make ", m, " windows of ", size[i], " along axis ", 2 + i, " of ", Show(x));
    }
    const double step = m > 1 ? static_cast<double>(left) / static_cast<double>(m - 1) : 0;
    const Tensor window = Tensor::Arange(m, kInt64), own = u.SliceAxis(2, {i, i + 1});
    const Tensor begin = ((own + window) * step).Floor() - (own * step).Floor();
    Extents dims = {all[0], all[1]};
    dims.resize(x.rank() + 1, 1);
    dims[2 + i] = m;
    const Tensor starts = Where(window == m - 1, left, begin.Cast(kInt64)).Reshape(Dims(dims));
    const Tensor element = CountAlong(3 + i, x.rank() + 1, n, kInt64);
    pooled.Along(2 + i, (element >= starts) & (element < starts + size[i]));
  }
  return pooled.Of(x, axes);
}

Tensor Bilinear(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias,
                CallSite at) {
  Call call("Bilinear", at, x, y, weight, bias);
  if (weight.rank() != 3 || x.rank() < 1 || y.rank() < 1) {
    Fail("takes vectors [..., A], [..., B] and weights [out, A, B], not ", Show(x), ", ", Show(y),
         " and ", Show(weight));
  }
  const Tensor out = Einsum("...a,kab,...b->...k", {x, weight, y});
  return bias ? out + bias : out;
}

Tensor AlphaDropout(const Tensor& x, double p, CallSite at) {
  Call call("AlphaDropout", at, x);
  if (!(p >= 0 && p < 1)) Fail("takes a probability from 0 and below 1, not ", p);
  constexpr double kLeast = -1.6732632423543772 * 1.0507009873554805;
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * kLeast * kLeast)), by = -scale * kLeast * p;
  return InFloats(x, [&](const Tensor& t) {
    const Tensor kept = t.RandLike() >= p;
    return Where(kept, t, kLeast) * scale + by;
  });
}

Tensor Renorm(const Tensor& x, double p, int axis, double most, CallSite at) {
  Call call("Renorm", at, x);
  if (!(most >= 0) || !(p > 0))
    Fail("takes a p above 0 and a norm from 0 on, not ", p, " and ", most);
  const int a = internal::NormalAxis(axis, x.rank());
  return InFloats(x, [&](const Tensor& t) {
    Ints others;
    for (int i = 0; i < t.rank(); ++i) {
      if (i != a) others.push_back(i);
    }
    const Tensor norm = others.empty() ? t.Abs() : t.Norm(p, others, /*keepdim=*/true);
    return Where(norm > most, t * (most / (norm + 1e-7)), t);
  });
}

Tensor Squareplus(const Tensor& x, double b, CallSite at) {
  Call call("Squareplus", at, x);
  if (!(b >= 0)) Fail("takes a b from 0 on, not ", b);
  return InFloats(x, [&](const Tensor& t) { return (t + (t.Square() + b).Sqrt()) * 0.5; });
}

// What is subtracted is such that what is left above 0 adds up to 1: of the k largest, as many as
// are above that.
Tensor Sparsemax(const Tensor& x, int axis, CallSite at) {
  Call call("Sparsemax", at, x);
  const int a = internal::AxisAlong(axis, x.rank());
  if (x.rank() == 0) return x.Cast(FloatResult(x.dtype())) * 0 + 1;
  return InFloats(x, [&](const Tensor& t) {
    const Extent n = t.shape()[a];
    if (n.max() == 0) return t;
    const Tensor moved = t - t.Max(a, /*keepdim=*/true).Detach();
    const Tensor sorted = moved.Sort(a, /*descending=*/true).values;
    const Tensor k = CountAlong(a, t.rank(), n, t.dtype()) + 1;
    const Tensor within = (sorted * k + 1 > sorted.CumSum(a)).Detach();
    const Tensor count = within.Cast(t.dtype()).Sum(a, /*keepdim=*/true);
    const Tensor less = (Where(within, sorted, 0).Sum(a, /*keepdim=*/true) - 1) / count;
    return (moved - less).Relu();
  });
}

Tensor SigmoidFocalLoss(const Tensor& of_x, const Tensor& target, std::optional<double> alpha,
                        double gamma, LossReduction reduction, CallSite at) {
  Call call("SigmoidFocalLoss", at, of_x, target);
  if (alpha && !(*alpha >= 0 && *alpha <= 1)) Fail("takes an alpha from 0 to 1, not ", *alpha);
  if (!(gamma >= 0)) Fail("takes a gamma from 0 on, not ", gamma);
  const Tensor x = internal::WideFloat(of_x), y = target.Cast(x.dtype()), p = x.Sigmoid();
  const Tensor cross = x.BinaryCrossEntropyWithLogits(y, LossReduction::kNone);
  const Tensor left = p + y - p * y * 2;  // 1 less the probability of what is right
  Tensor each = gamma == 0 ? cross : cross * left.Pow(gamma);
  if (alpha) each = each * (y * (2 * *alpha - 1) + (1 - *alpha));
  return internal::Ended(each, reduction, of_x.dtype());
}

}  // namespace tessera
