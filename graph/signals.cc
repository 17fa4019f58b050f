// Spectra of pieces, filters and other rates, made of the members of Tensor.
#include "graph/signals.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "graph/tensor_floats.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::FloatResult;
using internal::InFloats;
using internal::NormalAxis;
using internal::Show;
using internal::WideFloat;

namespace {

constexpr double kPi = std::numbers::pi;

// The options, checked, the window as long as a piece.
struct Pieces {
  int64_t size, hop;
  Tensor window;
  Pieces(const StftOptions& o, DType type)
      : size(o.size), hop(o.hop == 0 ? std::max<int64_t>(1, o.size / 4) : o.hop) {
    if (size < 1 || hop < 1)
      Fail("takes pieces of 1 or more, and as far apart, not ", size, " and ", hop);
    if (!o.window) {
      window = Tensor::Ones({size}, type);
      return;
    }
    if (o.window.rank() != 1 || o.window.size(0) < 1 || o.window.size(0) > size) {
      Fail("the window ", Show(o.window), " must be a vector of 1 to ", size, " elements");
    }
    const int64_t more = size - o.window.size(0), before = more / 2;
    window = o.window.Cast(type).Pad({{before, more - before}});
  }
};

Tensor PaddedAtEnds(const Tensor& x, int64_t n, PadMode mode) {
  Pairs pairs(x.rank(), {0, 0});
  pairs.back() = {n, n};
  return x.PadBy(mode, pairs);
}

}  // namespace

Tensor Stft(const Tensor& of_x, const StftOptions& o, CallSite at) {
  Call call("Stft", at, of_x, o.window);
  if (of_x.rank() < 1) Fail("takes signals [..., T], not ", Show(of_x));
  return InFloats(of_x, [&](const Tensor& t) {
    const Pieces p(o, t.dtype());
    const Tensor x = o.center ? PaddedAtEnds(t, p.size / 2, o.padding) : t;
    if (x.shape()[x.rank() - 1].min() < p.size) {
      Fail("a piece of ", p.size, " is longer than a signal of ", Show(of_x));
    }
    const Tensor pieces = x.Unfold(-1, p.size, p.hop) * p.window;
    return pieces.Rfft(-1, {}, o.normalized ? "ortho" : "backward").Transpose(-3, -2);
  });
}

Tensor Istft(const Tensor& of_z, const StftOptions& o, std::optional<int64_t> length, CallSite at) {
  Call call("Istft", at, of_z, o.window);
  const int rank = of_z.rank();
  if (rank < 3 || !of_z.shape()[rank - 1].is_int(2) ||
      !of_z.shape()[rank - 3].is_int(o.size / 2 + 1) || of_z.shape()[rank - 2].min() < 1) {
    Fail("takes spectra [..., ", o.size / 2 + 1, ", pieces, 2] of pieces of ", o.size, ", not ",
         Show(of_z));
  }
  if (length && *length < 0) Fail("takes a length from 0 on, not ", *length);
  return InFloats(of_z, [&](const Tensor& z) {
    const Pieces p(o, z.dtype());
    const Tensor pieces =
        z.Transpose(-3, -2).Irfft(-1, {p.size}, o.normalized ? "ortho" : "backward") * p.window;
    const int axis = pieces.rank() - 2;
    const Extent count = pieces.shape()[axis],
                 n = (count - Extent(1)) * Extent(p.hop) + Extent(p.size);
    const auto added = [&](const Tensor& t) {
      return internal::OverlapAdd(t, t.rank() - 2, n, p.hop, 1);
    };
    const Tensor weight = added(p.window.Square().Expand({count, p.size}));
    const Tensor sum = added(pieces), x = sum / Where(weight > 1e-11, weight, 1);
    const int64_t before = o.center ? p.size / 2 : 0;
    if (!length) return x.SliceAxis(-1, {before, n - Extent(before)});
    const Tensor from = x.SliceAxis(-1, {before, {}});
    Pairs pairs(from.rank(), {0, 0});
    pairs.back() = {0, *length};
    return from.Pad(pairs).SliceAxis(-1, {0, *length});
  });
}

Tensor Spectrogram(const Tensor& x, const StftOptions& o, double power, CallSite at) {
  Call call("Spectrogram", at, x, o.window);
  if (!(power > 0) || std::isinf(power)) {
    Fail("takes a power above 0 and finite, not ", power);
  }
  return InFloats(x, [&](const Tensor& t) {
    const Tensor squares = Stft(t, o).Square().Sum(-1);
    return power == 2 ? squares : internal::RootOf(squares, 2 / power);
  });
}

namespace {

constexpr double kBreak = 1000, kPerMel = 200.0 / 3;  // of Slaney's scale
const double kStep = std::log(6.4) / 27;

double ToMel(double f, MelScale scale) {
  if (scale == MelScale::kHtk) return 2595 * std::log10(1 + f / 700);
  return f < kBreak ? f / kPerMel : kBreak / kPerMel + std::log(f / kBreak) / kStep;
}
Tensor ToHertz(const Tensor& mel, MelScale scale) {
  if (scale == MelScale::kHtk) return ((mel * (std::log(10) / 2595)).Exp() - 1) * 700;
  const Tensor above = mel - kBreak / kPerMel;
  return Where(above < 0, mel * kPerMel, (above * kStep).Exp() * kBreak);
}

}  // namespace

Tensor MelFilters(int64_t frequencies, const MelOptions& o, DType dtype, CallSite at) {
  Call call("MelFilters", at);
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString());
  const double high = o.high.value_or(o.rate / 2);
  if (frequencies < 1 || o.mels < 1)
    Fail("takes frequencies and filters, not ", frequencies, " and ", o.mels);
  if (!(o.rate > 0 && o.low >= 0 && high > o.low) || std::isinf(high)) {
    Fail("takes a rate above 0 and frequencies that ascend from 0, not ", o.rate, ", ", o.low,
         " and ", high);
  }
  const Tensor points = ToHertz(
      Tensor::Linspace(ToMel(o.low, o.scale), ToMel(high, o.scale), o.mels + 2, kFloat64), o.scale);
  const auto from = [&](int64_t first) { return points.SliceAxis(0, {first, first + o.mels}); };
  const Tensor begin = from(0), top = from(1), end = from(2);
  const Tensor f = Tensor::Linspace(0, o.rate / 2, frequencies, kFloat64).Unsqueeze(1);
  const Tensor up = (f - begin) / (top - begin), down = (end - f) / (end - top);
  const Tensor filters = up.Minimum(down).Maximum(0);
  return (o.equal_areas ? filters * 2 / (end - begin) : filters).Cast(dtype);
}

Tensor MelSpectrogram(const Tensor& x, const StftOptions& o, const MelOptions& mel, double power,
                      CallSite at) {
  Call call("MelSpectrogram", at, x, o.window);
  return InFloats(x, [&](const Tensor& t) {
    const Tensor filters = MelFilters(o.size / 2 + 1, mel, t.dtype());
    return filters.Transpose().MatMul(Spectrogram(t, o, power));
  });
}

Tensor AmplitudeToDb(const Tensor& of_x, double factor, double ref, double least,
                     std::optional<double> range, CallSite at) {
  Call call("AmplitudeToDb", at, of_x);
  if (!(least > 0 && ref > 0)) Fail("takes numbers above 0, not ", least, " and ", ref);
  return InFloats(of_x, [&](const Tensor& x) {
    const Tensor db = (x.Maximum(least).Log10() - std::log10(std::max(ref, least))) * factor;
    if (!range) return db;
    Ints axes;
    for (int i = std::max(0, db.rank() - 3); i < db.rank(); ++i) axes.push_back(i);
    const Tensor most = axes.empty() ? db : db.Max(axes, /*keepdim=*/true);
    return db.Maximum(most - *range);
  });
}

namespace {

// cos(pi (2 i + 1) k / (2 n)) of row k and column i, the angle's remainder taken in integers.
Tensor Cosines(int64_t n, DType type) {
  const Tensor k = Tensor::Arange(n, kInt64).Unsqueeze(1), i = Tensor::Arange(n, kInt64);
  const Tensor turn = (k * (i * 2 + 1)).Mod(4 * n).Cast(kFloat64);
  return (turn * (kPi / (2 * static_cast<double>(n)))).Cos().Cast(type).Contiguous();
}

// The root of each element's share, by which the rows are orthonormal.
Tensor Shares(int64_t n, DType type) {
  const double root = std::sqrt(1.0 / static_cast<double>(n));
  return Where(Tensor::Arange(n) == 0, Tensor::Full({}, root, type), root * std::numbers::sqrt2);
}

template <typename F>
Tensor AlongLast(const Tensor& x, int axis, absl::string_view norm, F f) {
  const int a = NormalAxis(axis, x.rank());
  if (norm != "backward" && norm != "ortho") {
    Fail("the norm is '", norm, "'; it is backward or ortho");
  }
  if (x.size(a) == 0) Fail("of nothing, axis ", a, " of ", Show(x));
  return InFloats(
      x, [&](const Tensor& t) { return f(t.Transpose(a, -1), t.size(a)).Transpose(a, -1); });
}

}  // namespace

Tensor Dct(const Tensor& x, int axis, absl::string_view norm, CallSite at) {
  Call call("Dct", at, x);
  return AlongLast(x, axis, norm, [&](const Tensor& t, int64_t n) {
    const Tensor sums = t.AtLeast(2).MatMul(Cosines(n, t.dtype()).Transpose()).Reshape(t.shape());
    return norm == "ortho" ? sums * Shares(n, t.dtype()) : sums * 2;
  });
}

Tensor Idct(const Tensor& x, int axis, absl::string_view norm, CallSite at) {
  Call call("Idct", at, x);
  return AlongLast(x, axis, norm, [&](const Tensor& t, int64_t n) {
    const Tensor share = Shares(n, t.dtype());
    const Tensor weighted = norm == "ortho" ? t * share : t * share.Square() * 0.5;
    return weighted.AtLeast(2).MatMul(Cosines(n, t.dtype())).Reshape(t.shape());
  });
}

// Each of so many results in a row is a convolution of its own, which all go on by as many
// elements: rates are divided by what they have in common.
Tensor Resample(const Tensor& of_x, int64_t from, int64_t to, int64_t zeros, double share,
                CallSite at) {
  Call call("Resample", at, of_x);
  if (of_x.rank() < 1) Fail("takes signals [..., T], not ", Show(of_x));
  if (from < 1 || to < 1 || zeros < 1 || !(share > 0 && share <= 1)) {
    Fail("takes rates and zeros from 1 on and a share up to 1, not ", from, ", ", to, ", ", zeros,
         " and ", share);
  }
  const int64_t common = std::gcd(from, to), down = from / common, up = to / common;
  const int64_t t = of_x.size(-1), n = (t * up + down - 1) / down;
  if (up == down || t == 0) return of_x.Cast(FloatResult(of_x.dtype())) + 0;
  const double lower = static_cast<double>(std::min(up, down)) * share;
  const auto width = static_cast<int64_t>(std::ceil(static_cast<double>(zeros * down) / lower));
  return InFloats(of_x, [&](const Tensor& x) {
    const double step = 1.0 / static_cast<double>(down);
    const Tensor offset = (Tensor::Arange(2 * width + down, kFloat64) - width) * step;
    const Tensor phase = Tensor::Arange(up, kFloat64) * (-1.0 / static_cast<double>(up));
    const auto edge = static_cast<double>(zeros);
    const Tensor time = ((phase.Unsqueeze(1) + offset) * lower).Clip(-edge, edge);
    const Tensor window = (time * (kPi / edge / 2)).Cos().Square();
    const Tensor kernel = (time.Sinc() * window * (lower * step)).Cast(x.dtype()).Contiguous();
    Extents dims = x.shape().ToExtents();
    const Tensor rows = x.Reshape({-1, 1, t}).Pad({{0, 0}, {0, 0}, {width, width + down}});
    const Tensor out = rows.Conv1d(kernel.Unsqueeze(1), {.stride = {down}});
    dims.back() = n;
    return out.Transpose(1, 2).Flatten(1).SliceAxis(1, {0, n}).Reshape(Dims(dims));
  });
}

Tensor MuLawEncode(const Tensor& of_x, int64_t channels, CallSite at) {
  Call call("MuLawEncode", at, of_x);
  if (channels < 2) Fail("takes two channels or more, not ", channels);
  const auto mu = static_cast<double>(channels - 1);
  const Tensor x = WideFloat(of_x);
  const Tensor y = (x.Abs() * mu).Log1p().CopySign(x) * (1 / std::log1p(mu));
  return ((y + 1) * (mu / 2) + 0.5).Floor().Cast(kInt32);
}

Tensor MuLawDecode(const Tensor& of_x, int64_t channels, DType dtype, CallSite at) {
  Call call("MuLawDecode", at, of_x);
  if (channels < 2) Fail("takes two channels or more, not ", channels);
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString());
  const auto mu = static_cast<double>(channels - 1);
  const Tensor y = of_x.Cast(AccumulateType(dtype)) * (2 / mu) - 1;
  return ((y.Abs() * std::log1p(mu)).Expm1() * (1 / mu)).CopySign(y).Cast(dtype);
}

Tensor KaiserWindow(int64_t n, bool periodic, double beta, DType dtype, CallSite at) {
  Call call("KaiserWindow", at);
  if (n < 0) Fail("takes points from 0 on, not ", n);
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString());
  if (n < 2) return Tensor::Ones({n}, dtype);
  const double half = static_cast<double>(periodic ? n : n - 1) / 2;
  const Tensor t = Tensor::Arange(n, kFloat64) * (1 / half) - 1;
  const Tensor root = (1 - t.Square()).Maximum(0).Sqrt() * beta;
  // Relative to the largest, so that neither overflows.
  const Tensor most = Tensor::Full({}, beta, kFloat64);
  const Tensor ratio = root.BesselI0e() / most.BesselI0e();
  return (ratio * (root - beta).Exp()).Cast(dtype);
}

}  // namespace tessera
