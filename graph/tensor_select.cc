// Elements of a given rank along an axis: the k-th smallest, medians and quantiles.
//
// Nothing is sorted. Elements are ordered by whole numbers (see OrderOf), and the one of rank k is
// the largest number that no more than k elements are below of: its bits are found from the highest
// down, two at a time, by counting what is below each of three numbers. Which of equal elements it
// is, is found the same way, by the bits of its position.
#include <bit>
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_along.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_order.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::AxisAlong;
using internal::Call;
using internal::CountAlong;
using internal::ExtentAlong;
using internal::Fail;
using internal::IsFewComparisons;
using internal::OfElement;
using internal::OrderOf;
using internal::PairAlong;
using internal::Show;
using internal::SortedIndex;

namespace {

// Axes up to this long are ordered whole, in two steps; and longer ones of few elements.
constexpr int64_t kCounted = 64;
constexpr int kBitsAtOnce = 2;
constexpr uint64_t kDigits = uint64_t{1} << kBitsAtOnce;

// The largest number of so many bits for which `below`, which never falls, gives at most `rank`.
using CountBelow = std::function<Tensor(const Tensor&)>;
Tensor LargestOf(int bits, DType type, const Tensor& rank, const CountBelow& below) {
  Tensor found = Tensor::Zeros({}, type);
  for (int bit = (bits - 1) / kBitsAtOnce * kBitsAtOnce; bit >= 0; bit -= kBitsAtOnce) {
    Tensor next = found;
    for (uint64_t digit = 1; digit < kDigits; ++digit) {
      if (bit + static_cast<int>(std::bit_width(digit)) > bits) break;
      const Tensor tried = found | Tensor::Full({}, digit << bit, type);
      next = Where(below(tried) <= rank, tried, next);
    }
    found = next.Contiguous();
  }
  return found;
}

// Where the element of a rank is in each row along a long axis, which is moved to the last one.
Tensor PositionOf(const Tensor& x, int a, int64_t rank) {
  const int64_t n = x.size(a);
  const DType type = internal::IndexType(n);
  const auto count = [type](const Tensor& is) {
    return is.Cast(type).Sum(-1, /*keepdim=*/true).Cast(type);
  };
  const Tensor order = OrderOf(x, false).Transpose(a, -1).Contiguous();
  const Tensor key = LargestOf(order.dtype().bits(), order.dtype(), Tensor::Full({}, rank, type),
                               [&](const Tensor& least) { return count(order < least); });
  // Of its equals it is the one with so many before it.
  const Tensor before = (rank - count(order < key)).Contiguous();
  const Tensor place = CountAlong(x.rank() - 1, x.rank(), n, type);
  return LargestOf(std::bit_width(static_cast<uint64_t>(n - 1)), type, before,
                   [&](const Tensor& end) { return count((order == key) & (place < end)); });
}

// The elements of a rank, and where they are.
std::vector<Tensor> At(const Tensor& x, int a, const Extent& rank, bool keepdim) {
  const Extent& n = x.shape()[a];
  const Tensor there =
      n.is_int() && n.value() > kCounted && !IsFewComparisons(x, a)
          ? PositionOf(x, a, rank.value())
          : internal::KnownPart(SortedIndex(x, a, false), x.rank() - 1, rank, rank + Extent(1));
  const Tensor one = there.Transpose(a, -1), value = x.Gather(a, one);
  if (keepdim) return {value, one};
  return {value.Squeeze(a), one.Squeeze(a)};
}

}  // namespace

ValuesAndIndices Tensor::KthValue(int64_t k, int axis, bool keepdim, CallSite at) const {
  Call call("KthValue", at, *this);
  const int a = AxisAlong(axis, rank());
  if (k < 1 || k > ExtentAlong(*this, a).min()) {
    Fail("there is no element ", k, " in axis ", a, " of ", Show(*this));
  }
  if (rank() == 0) return OfElement(*this, [&](const Tensor& x) { return x.KthValue(k, a); });
  return PairAlong(*this, a, [&](const Tensor& x) { return At(x, a, Extent(k - 1), keepdim); });
}

// NaNs are in order at the end: the last one stands for all.
ValuesAndIndices Tensor::Median(int axis, bool keepdim, CallSite at) const {
  Call call("Median", at, *this);
  const int a = AxisAlong(axis, rank());
  if (rank() == 0) return OfElement(*this, [a](const Tensor& x) { return x.Median(a); });
  const Extent& n = shape()[a];
  if (n.min() == 0) Fail("of nothing, axis ", a, " of ", Show(*this));
  const Extent middle = tessera::FloorDiv(n - Extent(1), 2);
  return PairAlong(*this, a, [&](const Tensor& x) -> std::vector<Tensor> {
    std::vector<Tensor> found = At(x, a, middle, keepdim);
    if (!dtype().IsFloat()) return found;
    const Tensor nan = x.IsNan().Any(a, keepdim);
    const Tensor first = x.IsNan().Cast(kUInt8).ArgMax(a, keepdim).Cast(found[1].dtype());
    return {Where(nan, std::nan(""), found[0]), Where(nan, first, found[1])};
  });
}

namespace {

// At a place among elements in order: after how many of them, and which share of the way to the
// next.
struct PointInOrder {
  double before, share;
};

PointInOrder PointOf(double place, QuantileMethod method) {
  const double below = std::floor(place), share = place - below;
  switch (method) {
    case QuantileMethod::kLinear:
      return {below, share};
    case QuantileMethod::kLower:
      return {below, 0};
    case QuantileMethod::kHigher:
      return {std::ceil(place), 0};
    case QuantileMethod::kNearest:
      return {std::nearbyint(place), 0};
    case QuantileMethod::kMidpoint:
      break;
  }
  return {below, share == 0 ? 0 : 0.5};
}

// The same of places that are numbers of a tensor.
std::pair<Tensor, Tensor> PointsOf(const Tensor& place, QuantileMethod method) {
  const Tensor below = place.Floor(), share = place - below, none = share.ZerosLike();
  switch (method) {
    case QuantileMethod::kLinear:
      return {below, share};
    case QuantileMethod::kLower:
      return {below, none};
    case QuantileMethod::kHigher:
      return {place.Ceil(), none};
    case QuantileMethod::kNearest:
      return {place.Round(), none};
    case QuantileMethod::kMidpoint:
      break;
  }
  return {below, (share > 0).Cast(share.dtype()) * 0.5};
}

// So far from one number to another, of which infinities are apart from all.
template <typename Share>
Tensor Between(const Tensor& low, const Tensor& high, const Share& share) {
  const Tensor finite = low.IsFinite() & high.IsFinite();
  return Where(finite, low + (high - low) * share, low * (1 - share) + high * share);
}

// The same by shares that are computed, of which 0 is the first number whatever the other is.
Tensor BetweenOrAt(const Tensor& low, const Tensor& high, const Tensor& share) {
  return Where(share == 0, low, Between(low, high, share));
}

// What there is at position q (n - 1) of n elements.
Tensor InterpolatedAt(const Tensor& x, int a, double q, QuantileMethod method, bool keepdim) {
  const PointInOrder place = PointOf(q * static_cast<double>(x.size(a) - 1), method);
  const auto below = static_cast<int64_t>(place.before);
  const Tensor low = At(x, a, Extent(below), keepdim)[0];
  if (place.share == 0) return low;
  return Between(low, At(x, a, Extent(below + 1), keepdim)[0], place.share);
}

// The same of an extent that varies: the position is computed from it.
Tensor InterpolatedAtVarying(const Tensor& x, int a, double q, QuantileMethod method,
                             bool keepdim) {
  const Tensor last = Tensor::FromExtent(x.shape()[a], kInt64) - 1;
  const auto [before, to_next] = PointsOf(last.Cast(kFloat64) * q, method);
  const Tensor share = to_next.Cast(x.dtype());
  const Tensor order = SortedIndex(x, a, false).Contiguous();
  const auto at = [&](const Tensor& rank) {
    const Tensor index = order.Take(rank.Unsqueeze(0), x.rank() - 1).Transpose(a, -1);
    const Tensor one = x.Gather(a, index);
    return keepdim ? one : one.Squeeze(a);
  };
  const Tensor first = before.Cast(kInt64), low = at(first);
  return BetweenOrAt(low, at((first + 1).Minimum(last)), share);
}

void CheckShare(double q) {
  if (!(q >= 0 && q <= 1)) Fail("takes a share from 0 to 1, not ", q);
}

// Of all elements, by a function of a vector of them.
template <typename F>
Tensor OfAll(const Tensor& x, bool keepdim, F f) {
  const Tensor flat = f(x.Flatten());
  return keepdim ? flat.Reshape(std::vector<int64_t>(x.rank(), 1)) : flat;
}

}  // namespace

Tensor Tensor::Quantile(double q, std::optional<int> axis, bool keepdim, QuantileMethod method,
                        CallSite at) const {
  Call call("Quantile", at, *this);
  CheckShare(q);
  if (!axis) {
    return OfAll(*this, keepdim, [&](const Tensor& x) { return x.Quantile(q, 0, false, method); });
  }
  const int a = AxisAlong(*axis, rank());
  if (rank() == 0) return OfElement(*this, [&](const Tensor& x) { return x.Quantile(q, a); });
  const Extent& n = shape()[a];
  if (n.min() == 0) Fail("of nothing, axis ", a, " of ", Show(*this));
  const auto of = [&](const std::vector<Tensor>& sources) -> std::vector<Tensor> {
    const Tensor x = internal::WideFloat(sources[0]);
    const Tensor value = n.is_int() ? InterpolatedAt(x, a, q, method, keepdim)
                                    : InterpolatedAtVarying(x, a, q, method, keepdim);
    const Tensor with_nan = Where(x.IsNan().Any(a, keepdim), std::nan(""), value);
    return {with_nan.Cast(internal::FloatResult(dtype()))};
  };
  return internal::AlongAxis({*this}, a, of)[0];
}

// NaNs are above all in order, so that places among the others follow from how many there are.
Tensor Tensor::NanQuantile(double q, std::optional<int> axis, bool keepdim, QuantileMethod method,
                           CallSite at) const {
  Call call("NanQuantile", at, *this);
  CheckShare(q);
  if (!dtype().IsFloat()) return Quantile(q, axis, keepdim, method);
  if (!axis) {
    return OfAll(*this, keepdim,
                 [&](const Tensor& x) { return x.NanQuantile(q, 0, false, method); });
  }
  const int a = AxisAlong(*axis, rank());
  if (rank() == 0) return *this;
  if (size(a) == 0) Fail("of nothing, axis ", a, " of ", Show(*this));
  const Tensor x = internal::WideFloat(*this), order = x.ArgSort(a);
  const Tensor last =
      (IsNan().LogicalNot().Cast(kInt32).Sum(a, /*keepdim=*/true) - 1).Maximum(0).Cast(kFloat64);
  const auto [before, share] = PointsOf(last * q, method);
  const auto at_place = [&](const Tensor& place) {
    return x.Gather(a, order.Gather(a, place.Cast(order.dtype())));
  };
  const Tensor value =
      BetweenOrAt(at_place(before), at_place((before + 1).Minimum(last)), share.Cast(x.dtype()));
  return (keepdim ? value : value.Squeeze(a)).Cast(dtype());
}

}  // namespace tessera
