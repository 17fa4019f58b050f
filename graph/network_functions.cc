// Layers and losses, made of the members of Tensor.
#include "graph/network_functions.h"

#include <cmath>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::Show;

Tensor EmbeddingBag(const Tensor& table, const Tensor& index, BagMode mode,
                    std::optional<int64_t> padding, const Tensor& weights, CallSite at) {
  Call call("EmbeddingBag", at, table, index, weights);
  internal::CheckIndex(index);
  if (table.rank() != 2 || index.rank() != 2) {
    Fail("takes a table [rows, E] and an index [N, L], not ", Show(table), " and ", Show(index));
  }
  if (weights && (mode != BagMode::kSum || !(weights.shape() == index.shape()))) {
    Fail("takes weights of the shape of ", Show(index), " for sums alone, not ", Show(weights));
  }
  const Extent rows = table.shape()[0];
  const Tensor i = index.Cast(kInt64);
  Tensor counts = (i >= 0) & (i < Tensor::FromExtent(rows, kInt64));
  if (padding) counts = counts & (i != *padding);
  counts = counts.Unsqueeze(-1);
  return InFloats(table, [&](const Tensor& t) {
    const Tensor each = t.Take(i, 0);
    if (mode == BagMode::kMax) {
      if (index.shape()[1].is_int(0)) return each.Sum(1);
      const Tensor low = Where(counts, each, LowestScalar(t.dtype()).AsFloat()).Max(1);
      return Where(counts.Any(1), low, 0);
    }
    Tensor kept = Where(counts, each, 0);
    if (weights) kept = kept * Where(counts, weights.Cast(t.dtype()).Unsqueeze(-1), 0);
    const Tensor sum = kept.Sum(1);
    if (mode == BagMode::kSum) return sum;
    return sum / counts.Cast(t.dtype()).Sum(1).Maximum(1);
  });
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
