// Random numbers: bits of a counter under a key, so that they depend on the global index alone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CastTo;
using internal::Fail;

namespace {

// The process's seed, and how many elements have been drawn under it.
struct Generator {
  std::mutex mutex;
  uint64_t seed = 0;
  uint64_t drawn = 0;
  static Generator& Get() {
    static Generator& g = *new Generator;
    return g;
  }
};

}  // namespace

internal::RandomState internal::DrawRandom(int64_t elements) {
  Generator& g = Generator::Get();
  std::lock_guard<std::mutex> lock(g.mutex);
  const RandomState state{g.drawn, g.seed};
  g.drawn += static_cast<uint64_t>(elements);
  return state;
}

namespace {

// 64 bits an element. The shape is given to the counter, so that what follows is elementwise.
Tensor RandomBits(const Shape& shape) {
  const int64_t elements = shape.MaxElements();
  UOp first, seed;
  if (internal::Trace* trace = internal::Trace::Current()) {
    first = trace->RandomCounter(elements);
    seed = trace->RandomSeed();
  } else {
    const internal::RandomState state = internal::DrawRandom(elements);
    first = UOp::Const(kUInt64, tessera::Scalar{state.first});
    seed = UOp::Const(kUInt64, tessera::Scalar{state.seed});
  }
  const UOp iota = Build(Op::kIota, kUInt64, {}, Extents{shape.Elements()});
  const UOp index = internal::ReshapeTo(iota, shape.ToExtents());
  return Tensor(Build(Op::kThreefry, {Build(Op::kAdd, {index, first}), seed}));
}

// The largest number of the dtype below a finite one.
double Below(double high, DType dtype) {
  const auto rounded = [&](double v) {
    return Convert(tessera::Scalar::Float(v), kFloat64, dtype).AsFloat();
  };
  double v = rounded(high);
  double step = std::max(std::ldexp(std::abs(v), -DigitsOf(dtype)), 0x1p-1074);
  for (; v >= high; step *= 2) v = rounded(high - step);
  return v;
}

// The top bits as a float in [0, 1): as many as the mantissa holds, so none is rounded up to 1.
Tensor UnitFloats(const Tensor& bits, DType dtype) {
  const int digits = DigitsOf(dtype);
  const Tensor top = bits.Shr(64 - digits).Cast(digits == 53 ? kInt64 : kInt32);
  return top.Cast(dtype) * std::ldexp(1.0, -digits);
}

void CheckFloat(DType dtype) {
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString(), "; use RandInt");
}

}  // namespace

void Tensor::ManualSeed(uint64_t seed) {
  Call call("ManualSeed", CallSite::Here());
  if (internal::Trace::Current() != nullptr) {
    Fail("a captured step cannot seed, since that would run once; call it before the step");
  }
  Generator& g = Generator::Get();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.seed = seed;
  g.drawn = 0;
}

Tensor Tensor::Rand(const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("Rand", at);
  CheckFloat(dtype);
  return UnitFloats(RandomBits(Shape(shape.extents())), dtype).To(device);
}

Tensor Tensor::Uniform(double low, double high, const Dims& shape, DType dtype, Device device,
                       CallSite at) {
  Call call("Uniform", at);
  CheckFloat(dtype);
  if (!(low <= high)) Fail("takes bounds in order, not ", low, " to ", high);
  const DType wide = AccumulateType(dtype);
  const Tensor unit = UnitFloats(RandomBits(Shape(shape.extents())), wide);
  const Tensor value = (unit * (high - low) + low).Cast(dtype);
  // Rounded, it may reach the bound that it is below.
  const bool bounded = low < high && std::isfinite(high - low);
  const double below = bounded ? Below(high, dtype) : high;
  return (bounded && below >= low ? value.Minimum(below) : value).To(device);
}

// Box and Muller, of the two halves of an element's bits.
Tensor Tensor::RandN(const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("RandN", at);
  CheckFloat(dtype);
  const Tensor bits = RandomBits(Shape(shape.extents()));
  const bool wide = dtype == kFloat64;
  const int digits = wide ? 32 : 24;
  const DType integer = wide ? kInt64 : kInt32, type = wide ? kFloat64 : kFloat32;
  const double unit = std::ldexp(1.0, -digits);
  const Tensor high = bits.Shr(64 - digits).Cast(integer).Cast(type);
  const Tensor low = bits.BitAnd((int64_t{1} << digits) - 1).Cast(integer).Cast(type);
  const Tensor radius = (((high + 1) * unit).Log() * -2.0).Sqrt();  // of (0, 1]
  return (radius * (low * (2 * std::numbers::pi * unit)).Cos()).Cast(dtype).To(device);
}

Tensor Tensor::RandInt(int64_t low, int64_t high, const Dims& shape, DType dtype, Device device,
                       CallSite at) {
  Call call("RandInt", at);
  if (low >= high) Fail("there is no integer from ", low, " below ", high);
  if (!dtype.IsInt()) Fail("gives integers, not ", dtype.ToString());
  if (low < MinInt(dtype) || high - 1 > MaxInt(dtype)) {
    Fail(low, " to ", high - 1, " does not fit ", dtype.ToString());
  }
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const Tensor bits = RandomBits(Shape(shape.extents()));
  // A fraction of 32 bits times the range; a remainder where the range is wider.
  const Tensor offset = range >> 32 == 0 ? bits.Shr(32).Mul(range).Shr(32) : bits.Fmod(range);
  const Tensor value = offset.Cast(kInt64) + low;
  return value.Cast(dtype).To(device);
}

Tensor Tensor::Normal(double mean, double deviation, const Dims& shape, DType dtype, Device device,
                      CallSite at) {
  Call call("Normal", at);
  CheckFloat(dtype);
  if (!(deviation >= 0)) Fail("takes a deviation from 0 on, not ", deviation);
  return (RandN(shape, AccumulateType(dtype)) * deviation + mean).Cast(dtype).To(device);
}

// The waiting time whose share of longer ones is drawn, from (0, 1].
Tensor Tensor::Exponential(double rate, const Dims& shape, DType dtype, Device device,
                           CallSite at) {
  Call call("Exponential", at);
  CheckFloat(dtype);
  if (!(rate > 0)) Fail("takes a rate above 0, not ", rate);
  const Tensor unit = 1 - Rand(shape, AccumulateType(dtype));
  return (unit.Log() / rate).Abs().Cast(dtype).To(device);  // no -0
}

namespace {

// How many inputs make one output of weights [out, in, ...].
double FanIn(const Dims& shape) {
  const Shape whole(shape.extents());
  if (whole.rank() < 1 || !whole.is_static()) {
    Fail("makes weights [out, in, ...] of known extents, not ", whole.ToString());
  }
  double n = 1;
  for (int i = 1; i < whole.rank(); ++i) n *= static_cast<double>(whole[i].value());
  return std::max(n, 1.0);
}

}  // namespace

Tensor Tensor::GlorotUniform(const Dims& shape, DType dtype, Device device, CallSite at) {
  Call call("GlorotUniform", at);
  const double fans = FanIn(shape) + static_cast<double>(shape.extents()[0].value());
  const double bound = std::sqrt(6 / fans);
  return Uniform(-bound, bound, shape, dtype, device);
}

Tensor Tensor::KaimingUniform(const Dims& shape, double a, DType dtype, Device device,
                              CallSite at) {
  Call call("KaimingUniform", at);
  const double bound = std::sqrt(6 / (1 + a * a) / FanIn(shape));
  return Uniform(-bound, bound, shape, dtype, device);
}

Tensor Tensor::KaimingNormal(const Dims& shape, double a, DType dtype, Device device, CallSite at) {
  Call call("KaimingNormal", at);
  return Normal(0, std::sqrt(2 / (1 + a * a) / FanIn(shape)), shape, dtype, device);
}

Tensor Tensor::RandLike(CallSite at) const {
  Call call("RandLike", at, *this);
  return Rand(shape(), dtype(), internal::DeviceLike(*this), at);
}

Tensor Tensor::RandNLike(CallSite at) const {
  Call call("RandNLike", at, *this);
  return RandN(shape(), dtype(), internal::DeviceLike(*this), at);
}

// By the order of random bits.
Tensor Tensor::Permutation(int64_t n, DType dtype, CallSite at) {
  Call call("Permutation", at);
  if (n < 0) Fail("cannot order ", n, " numbers");
  if (!dtype.IsInt()) Fail("gives integers, not ", dtype.ToString());
  return RandomBits(Shape({n})).Contiguous().ArgSort().Cast(dtype);
}

Tensor Tensor::Shuffle(int axis, CallSite at) const {
  Call call("Shuffle", at, *this);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() == 0) return *this;
  const Extent& n = shape()[a];
  return Take(RandomBits(Shape({n})).Contiguous().ArgSort(), a);
}

Tensor Tensor::Bernoulli(CallSite at) const {
  Call call("Bernoulli", at, *this);
  const DType type = internal::FloatResult(dtype());
  return (Rand(shape(), AccumulateType(type)) < *this).Cast(type);
}

Tensor Tensor::Dropout(double p, CallSite at) const {
  Call call("Dropout", at, *this);
  if (!(p >= 0 && p <= 1)) Fail("takes a probability from 0 to 1, not ", p);
  const DType type = internal::FloatResult(dtype());
  const Tensor keep = Rand(shape(), kFloat32) >= p;
  return Where(keep, Cast(type) * (p < 1 ? 1 / (1 - p) : 0), 0);
}

Tensor Tensor::DropoutChannels(double p, CallSite at) const {
  Call call("DropoutChannels", at, *this);
  if (!(p >= 0 && p <= 1)) Fail("takes a probability from 0 to 1, not ", p);
  if (rank() < 2) Fail("takes [N, C, ...], not ", internal::Show(*this));
  Extents dims(rank(), 1);
  dims[0] = shape()[0];
  dims[1] = shape()[1];
  const DType type = internal::FloatResult(dtype());
  return Where(Rand(dims, kFloat32) >= p, Cast(type) * (p < 1 ? 1 / (1 - p) : 0), 0);
}

Tensor Tensor::RRelu(double low, double high, CallSite at) const {
  Call call("RRelu", at, *this);
  if (!(low <= high)) Fail("takes slopes in order, not ", low, " to ", high);
  const DType type = internal::FloatResult(dtype());
  const Tensor x = Cast(type);
  return Where(x < 0, x * Uniform(low, high, shape(), type), x);
}

Tensor Tensor::GumbelSoftmax(double tau, bool hard, int axis, CallSite at) const {
  Call call("GumbelSoftmax", at, *this);
  if (!(tau > 0)) Fail("takes a temperature above 0, not ", tau);
  const Tensor x = internal::WideFloat(*this);
  const Tensor waiting = Exponential(1, shape(), x.dtype()).Maximum(0x1p-25);
  const Tensor soft = ((x - waiting.Log()) / tau).Softmax(axis);
  const Tensor y = hard ? soft.Hardmax(axis).WithDerivativeOf(soft) : soft;
  return y.Cast(internal::FloatResult(dtype()));
}

// With replacement: where a share of the sum falls among the running sums. Without: the first to
// come of events whose waiting times are exponential, with the weights for rates.
Tensor Tensor::Multinomial(int64_t n, bool replacement, CallSite at) const {
  Call call("Multinomial", at, *this);
  const int64_t fewest = rank() < 1 ? 0 : shape()[rank() - 1].min();
  if (n < 0 || fewest == 0 || (!replacement && n > fewest)) {
    Fail("cannot draw ", n, " positions", replacement ? "" : ", each once,",
         " of the last axis of ", internal::Show(*this));
  }
  const Tensor given = Cast(kFloat64);
  // Beside an infinite weight nothing else is drawn.
  const Tensor endless = given.IsInf() & (given > 0);
  const Tensor weights = Where(endless.Any({-1}, /*keepdim=*/true), endless.Cast(kFloat64),
                               Where(given > 0, given, 0));
  if (!replacement) {
    const Tensor waiting = (1 - Rand(shape(), kFloat32).Cast(kFloat64)).Log().Neg() / weights;
    // What has no weight never comes; nor does a place where too few are left.
    const Tensor comes = Where(weights > 0, waiting, std::numeric_limits<double>::infinity());
    const Tensor first = comes.Contiguous().TopK(n, -1, /*largest=*/false).indices.Cast(kInt32);
    return Where(weights.Gather(-1, first) > 0, first, -1);
  }
  const Tensor sums = weights.CumSum(-1).Contiguous();
  Extents dims(shape().begin(), shape().end());
  dims.back() = n;
  // A share of 24 bits times the sum is below the sum in f64.
  const Tensor sum = sums.SliceAxis(-1, {-1, {}});
  const Tensor share = Rand(dims, kFloat32).Cast(kFloat64) * sum;
  return Where(sum > 0, sums.SearchSorted(share, /*right=*/true), -1);
}

}  // namespace tessera
