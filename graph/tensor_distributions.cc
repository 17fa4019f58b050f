// Random numbers of named distributions, made of uniform and normal ones.
//
// Those that no formula makes of a few uniform numbers are proposed as often as it takes for one to
// be accepted but for a share below 1e-7: proposals lie along an axis before the others, of which
// the first accepted counts. So each result depends on its index alone, wherever it is computed.
#include <cmath>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::AsNode;
using internal::Call;
using internal::CommonType;
using internal::Fail;
using internal::FloatResult;
using internal::kInfinity;
using internal::kNan;
using internal::WideFloat;

namespace {

void CheckFloat(DType dtype) {
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString());
}

void CheckScale(double scale) {
  if (!(scale > 0) || std::isinf(scale)) Fail("takes a finite scale above 0, not ", scale);
}

// Uniform between 0 and 1, neither of which it is.
Tensor Inside(const Dims& shape, DType dtype) {
  return Tensor::Rand(shape, dtype).Maximum(dtype == kFloat64 ? 0x1p-54 : 0x1p-25);
}

// location + scale x in the dtype, x of one that is at least as wide.
Tensor Located(const Tensor& x, double location, double scale, DType dtype, Device device) {
  return (x * scale + location).Cast(dtype).To(device);
}

}  // namespace

Tensor Tensor::LogNormal(double mean, double deviation, const Dims& shape, DType dtype,
                         Device device, CallSite at) {
  Call call("LogNormal", at);
  CheckFloat(dtype);
  return Normal(mean, deviation, shape, AccumulateType(dtype)).Exp().Cast(dtype).To(device);
}

Tensor Tensor::Laplace(double mean, double scale, const Dims& shape, DType dtype, Device device,
                       CallSite at) {
  Call call("Laplace", at);
  CheckFloat(dtype);
  CheckScale(scale);
  const Tensor u = Inside(shape, AccumulateType(dtype)), below = u < 0.5;
  const Tensor log = (Where(below, u, 1 - u) * 2).Log();
  return Located(Where(below, log, -log), mean, scale, dtype, device);
}

Tensor Tensor::Logistic(double mean, double scale, const Dims& shape, DType dtype, Device device,
                        CallSite at) {
  Call call("Logistic", at);
  CheckFloat(dtype);
  CheckScale(scale);
  return Located(Inside(shape, AccumulateType(dtype)).Logit(), mean, scale, dtype, device);
}

Tensor Tensor::Gumbel(double mode, double scale, const Dims& shape, DType dtype, Device device,
                      CallSite at) {
  Call call("Gumbel", at);
  CheckFloat(dtype);
  CheckScale(scale);
  const Tensor waiting = -Inside(shape, AccumulateType(dtype)).Log();
  return Located(-waiting.Log(), mode, scale, dtype, device);
}

Tensor Tensor::Cauchy(double median, double scale, const Dims& shape, DType dtype, Device device,
                      CallSite at) {
  Call call("Cauchy", at);
  CheckFloat(dtype);
  CheckScale(scale);
  const Tensor angle = (Inside(shape, AccumulateType(dtype)) - 0.5) * std::numbers::pi;
  return Located(angle.Tan(), median, scale, dtype, device);
}

// A share between those of the bounds, in the lower tail, where shares have all their digits.
Tensor Tensor::TruncatedNormal(double mean, double deviation, double low, double high,
                               const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("TruncatedNormal", at);
  CheckFloat(dtype);
  if (!(deviation > 0) || std::isinf(deviation)) {
    Fail("takes a finite deviation above 0, not ", deviation);
  }
  if (!(low < high)) Fail("takes bounds in order, not ", low, " to ", high);
  double from = (low - mean) / deviation, to = (high - mean) / deviation;
  const bool mirrored = from > 0;
  if (mirrored) {
    std::swap(from, to);
    from = -from;
    to = -to;
  }
  const auto share = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  const double least = share(from), range = share(to) - least;
  if (!(range > 0)) {
    Fail("finds nothing from ", low, " to ", high, ", too far from the mean ", mean,
         " for a deviation of ", deviation);
  }
  const Tensor x = (Inside(shape, kFloat64) * range + least).Ndtri();
  const Tensor moved = x * (mirrored ? -deviation : deviation) + mean;
  return moved.Clip(low, high).Cast(dtype).To(device);
}

Tensor Tensor::Geometric(double p, const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("Geometric", at);
  if (!(p > 0 && p <= 1)) Fail("takes a probability above 0 and up to 1, not ", p);
  const Tensor trials = (Inside(shape, kFloat64).Log() / std::log1p(-p)).Floor() + 1;
  return trials.Cast(dtype).To(device);
}

Tensor Tensor::Categorical(int axis, CallSite at) const {
  Call call("Categorical", at, *this);
  const Tensor x = WideFloat(*this);
  const int a = internal::AxisAlong(axis, rank());
  const Tensor waiting = -Inside(shape(), x.dtype()).Log();
  return Where(x.Max(a) > -kInfinity, (x - waiting.Log()).ArgMax(a), -1);
}

Tensor Tensor::Choice(int64_t n, bool replacement, const Tensor& weights, int axis,
                      CallSite at) const {
  Call call("Choice", at, *this, weights);
  const int a = internal::NormalAxis(axis, rank());
  const int64_t of = size(a);
  if (n < 0 || (n > 0 && of == 0) || (!replacement && n > of)) {
    Fail("cannot draw ", n, " positions", replacement ? "" : ", each once,", " of axis ", a, " of ",
         internal::Show(*this));
  }
  if (weights && (weights.rank() != 1 || !(weights.shape()[0] == shape()[a]))) {
    Fail("the weights ", internal::Show(weights), " must be a vector of as many as axis ", a,
         " has of ", internal::Show(*this));
  }
  if (n == 0) return SliceAxis(a, {0, 0});
  if (weights) return Take(weights.Multinomial(n, replacement), a);
  return Take(replacement ? RandInt(0, of, {n}) : Permutation(of).SliceAxis(0, {0, n}), a);
}

namespace {

Dims WithProposals(const Tensor& t, int64_t n) {
  Extents dims = t.shape().ToExtents();
  dims.insert(dims.begin(), n);
  return Dims(dims);
}

// Of proposals along axis 0 the first that is accepted; where none is, `otherwise`.
Tensor FirstAccepted(const Tensor& proposed, const Tensor& accepted, const Tensor& otherwise) {
  const int64_t n = accepted.size(0);
  const Tensor place = internal::CountAlong(0, accepted.rank(), n, kInt32);
  const Tensor first = Where(accepted, place, n).Min(0, /*keepdim=*/true);
  const Tensor value = Where(place == first, proposed, 0).Sum(0);
  return Where(first.Squeeze(0) == n, otherwise, value);
}

// The logarithms of gamma variates, which may be too small to be numbers themselves (Marsaglia and
// Tsang, 2000); of shapes below 1, by those of one more times a power of a uniform number.
Tensor LogGamma(const Tensor& of) {
  constexpr int64_t kTimes = 6;  // a proposal is refused with a probability of 0.05 at most
  const DType type = of.dtype();
  const Tensor valid = of > 0, given = Where(valid, of, 1), low = given < 1;
  const Tensor d = Where(low, given + 1, given) - 1.0 / 3, c = 1 / (d * 9).Sqrt();
  const Dims shape = WithProposals(of, kTimes);
  const Tensor x = Tensor::RandN(shape, type), u = Inside(shape, type);
  const Tensor root = c * x + 1, above = root > 0, log = Where(above, root, 1).Log() * 3;
  const Tensor accepted = above & (u.Log() < x * x * 0.5 + d - d * log.Exp() + d * log);
  const Tensor power = Inside(of.shape(), type).Log() / given;
  const Tensor value =
      d.Log() + FirstAccepted(log, accepted, Tensor::Zeros({}, type)) + Where(low, power, 0);
  return Where(valid, value, kNan).Detach();
}

}  // namespace

Tensor Tensor::RandGamma(CallSite at) const {
  Call call("RandGamma", at, *this);
  return LogGamma(WideFloat(*this)).Exp().Cast(FloatResult(dtype()));
}

Tensor Tensor::RandBeta(const Operand& of) const {
  Call call("RandBeta", of.site(), *this, of);
  return internal::InFloats(*this, of, [](const Tensor& a, const Tensor& b) {
    const std::vector<Tensor> both = BroadcastTensors({a, b});
    return (LogGamma(both[0]) - LogGamma(both[1])).Sigmoid();
  });
}

Tensor Tensor::RandDirichlet(CallSite at) const {
  Call call("RandDirichlet", at, *this);
  return LogGamma(WideFloat(*this)).Softmax(-1).Cast(FloatResult(dtype()));
}

namespace {

constexpr double kFew = 10;         // a mean up to which one number after another is tried
constexpr int kMost = 46;           // of which more than this come with a probability below 1e-14
constexpr int64_t kProposals = 14;  // each refused with a probability of 0.3 at most

// Hoermann's transformed rejection (1993): a proposal near the middle, and its distance from 0 or 1
// in the uniform number that made it.
struct Proposal {
  Tensor u, near, v, k, height;
  Proposal(const Tensor& like, const Tensor& a, const Tensor& b, const Tensor& middle) {
    const Dims shape = WithProposals(like, kProposals);
    u = Inside(shape, kFloat64) - 0.5;
    near = (0.5 - u.Abs()).Maximum(0x1p-54);
    v = Inside(shape, kFloat64);
    k = ((a * 2 / near + b) * u + middle).Floor();
    height = a / (near * near) + b;
  }
};

Tensor ManyPoisson(const Tensor& rate) {
  const Tensor b = rate.Sqrt() * 2.53 + 0.931, a = b * 0.02483 - 0.059;
  const Tensor scale = 1.1239 + 1.1328 / (b - 3.4), sure = 0.9277 - 3.6224 / (b - 2);
  const Proposal p(rate, a, b, rate + 0.43);
  const Tensor k = p.k.Maximum(0);
  const Tensor log = k * rate.Log() - rate - (k + 1).Lgamma();
  const Tensor below = (p.v * scale / p.height).Log() <= log;
  const Tensor at_once = (p.near >= 0.07) & (p.v <= sure);
  const Tensor never = (p.k < 0) | ((p.near < 0.013) & (p.v > p.near));
  return FirstAccepted(k, (at_once | below) & never.LogicalNot(), rate.Floor());
}

Tensor ManyBinomial(const Tensor& n, const Tensor& p) {
  const Tensor spread = (n * p * (1 - p)).Sqrt(), b = spread * 2.53 + 1.15;
  const Tensor a = b * 0.0248 + p * 0.01 - 0.0873, scale = (5.1 / b + 2.83) * spread;
  const Tensor sure = 0.92 - 4.2 / b, middle = ((n + 1) * p).Floor();
  const Proposal by(n, a, b, n * p + 0.5);
  const Tensor k = by.k.Maximum(0).Minimum(n);
  const Tensor log = (middle + 1).Lgamma() + (n - middle + 1).Lgamma() - (k + 1).Lgamma() -
                     (n - k + 1).Lgamma() + (k - middle) * (p.Log() - (-p).Log1p());
  const Tensor below = (by.v * scale / by.height).Log() <= log;
  const Tensor at_once = (by.near >= 0.07) & (by.v <= sure);
  return FirstAccepted(k, (at_once | below) & (k == by.k), middle);
}

// How many numbers from 0 on have running sums of probabilities below a uniform number: the first
// probability is given, and the ratio of each to the one before.
template <typename Ratio>
Tensor Few(const Tensor& first, Ratio ratio) {
  const Tensor u = Tensor::Rand(first.shape(), kFloat64);
  Tensor each = first, sum = first, count = first.ZerosLike();
  for (int k = 0; k < kMost; ++k) {
    count = count + (u >= sum).Cast(kFloat64);
    each = each * ratio(k);
    sum = sum + each;
  }
  return count;
}

}  // namespace

Tensor Tensor::RandPoisson(CallSite at) const {
  Call call("RandPoisson", at, *this);
  const Tensor given = Cast(kFloat64), valid = (given >= 0) & given.IsFinite();
  const Tensor rate = Where(valid, given, 1), few = rate < kFew, low = Where(few, rate, 1);
  const Tensor small = Few((-low).Exp(), [&](int k) { return low * (1.0 / (k + 1)); });
  const Tensor value = Where(few, small, ManyPoisson(Where(few, kFew, rate)));
  return Where(valid, value, kNan).Detach().Cast(FloatResult(dtype()));
}

Tensor Tensor::RandBinomial(const Operand& of) const {
  Call call("RandBinomial", of.site(), *this, of);
  const DType type = FloatResult(CommonType(*this, of));
  const std::vector<Tensor> both =
      BroadcastTensors({Cast(kFloat64), Tensor(AsNode(of, type)).Cast(kFloat64)});
  const Tensor valid = (both[0] >= 0) & both[0].IsFinite() & (both[0] == both[0].Floor()) &
                       (both[1] >= 0) & (both[1] <= 1);
  const Tensor n = Where(valid, both[0], 1), share = Where(valid, both[1], 0.5);
  const Tensor turned = share > 0.5, p = Where(turned, 1 - share, share), few = n * p < kFew;
  const Tensor low_n = Where(few, n, 1), low_p = Where(few, p, 0.5);
  const Tensor odds = low_p / (1 - low_p);
  const Tensor none = (low_n * (-low_p).Log1p()).Exp();
  const Tensor small =
      Few(none, [&](int k) { return (low_n - k).Maximum(0) * odds * (1.0 / (k + 1)); });
  const Tensor large = ManyBinomial(Where(few, 100, n), Where(few, 0.5, p));
  const Tensor count = Where(few, small.Minimum(n), large);
  return Where(valid, Where(turned, n - count, count), kNan).Detach().Cast(type);
}

}  // namespace tessera
