// Fourier transforms as products with matrices of cosines and sines, and mel filters.
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The product k * t modulo n, for k of the result and t of the source, as an angle. Made of numbers
// alone it has no device. The remainder is taken in integers, so that angles stay exact.
Tensor Angles(int64_t results, int64_t terms, int64_t n) {
  const Tensor k = Tensor::Arange(results, kInt64), t = Tensor::Arange(terms, kInt64).Unsqueeze(1);
  return (t * k).Mod(n).Cast(kFloat64) * (2 * kPi / static_cast<double>(n));
}

// The last axis of x cut or padded with zeros to n.
Tensor OfLength(const Tensor& x, int64_t n) {
  const int last = x.rank() - 1;
  const int64_t had = x.size(last);
  if (had >= n) return x.SliceAxis(last, {0, n});
  Pairs pairs(x.rank());
  pairs[last].second = n - had;
  return x.Pad(pairs);
}

// The transform of signals along the last axis; no imaginary part: they are real.
struct Complex {
  Tensor real, imaginary;
};
Complex Transform(const Complex& x, int64_t n, int64_t results, bool inverse) {
  const DType dtype = x.real.dtype();
  const Tensor angle = Angles(results, n, n);
  const Tensor cosine = angle.Cos().Cast(dtype), sine = angle.Sin().Cast(dtype);
  // e^(-i a) forwards: (r + i m)(cos - i sin); backwards the sign of the sine turns.
  Complex y = {x.real.MatMul(cosine), x.real.MatMul(sine) * (inverse ? 1 : -1)};
  if (x.imaginary) {
    const Tensor cross = x.imaginary.MatMul(sine) * (inverse ? -1 : 1);
    y = {y.real + cross, y.imaginary + x.imaginary.MatMul(cosine)};
  }
  if (!inverse) return y;
  return {y.real / static_cast<double>(n), y.imaginary / static_cast<double>(n)};
}

// [..., 1 or 2] as real and imaginary parts.
Complex Parts(Call& c, const Tensor& x) {
  const int last = x.rank() - 1;
  if (last < 0 || (x.size(last) != 1 && x.size(last) != 2)) {
    c.Fail("the last axis of ", x.shape().ToString(), " holds real and imaginary parts: 1 or 2");
  }
  return {x.Select(last, 0), x.size(last) == 2 ? x.Select(last, 1) : Tensor()};
}

void Dft(Call& c) {
  const Tensor x = c.In(0);
  const int64_t given = c.opset() >= 20 ? c.HostIntOr(2, -2) : c.Int("axis", 1);
  const int axis = c.Axis(given, x.rank());
  if (axis == x.rank() - 1) c.Fail("axis ", given, " is that of real and imaginary parts");
  const bool inverse = c.Int("inverse", 0) != 0, onesided = c.Int("onesided", 0) != 0;
  const Complex parts = Parts(c, x);
  const int last = x.rank() - 2;
  const auto along = [&](const Tensor& t) { return t ? t.Transpose(axis, last) : t; };
  const bool half = inverse && onesided;  // the other half mirrors it, and the result is real
  const int64_t n = c.HostIntOr(1, half ? 2 * (x.size(axis) - 1) : x.size(axis));
  if (n < 1) c.Fail("its length is ", n);
  Complex in = {along(parts.real), along(parts.imaginary)};
  const int64_t terms = half ? n / 2 + 1 : n;
  in.real = OfLength(in.real, terms);
  if (in.imaginary) in.imaginary = OfLength(in.imaginary, terms);
  if (half) {
    // Element n - k is the conjugate of element k.
    const int64_t mirrored = n - terms;
    const auto mirror = [&](const Tensor& t) {
      return t.SliceAxis(last, {1, mirrored + 1}).Flip(last);
    };
    in.real = Cat(std::vector<Tensor>{in.real, mirror(in.real)}, last);
    if (in.imaginary) {
      in.imaginary = Cat(std::vector<Tensor>{in.imaginary, -mirror(in.imaginary)}, last);
    }
  }
  const int64_t results = onesided && !inverse ? n / 2 + 1 : n;
  Complex y = Transform(in, n, results, inverse);
  y = {along(y.real), along(y.imaginary)};
  c.Out(half ? y.real.Unsqueeze(-1) : Stack(std::vector<Tensor>{y.real, y.imaginary}, -1));
}

// Frames of a signal [batch, length, 1 or 2], weighted and transformed.
void Stft(Call& c) {
  const Tensor x = c.In(0);
  if (x.rank() != 3) c.Fail("the signal has shape ", x.shape().ToString(), "; its rank is 3");
  const int64_t step = c.HostInt(1);
  const int64_t window = c.Has(2) ? c.Input(2).tensor.size(0) : x.size(1);
  const int64_t n = c.HostIntOr(3, window);
  if (step < 1 || n < 1 || n > x.size(1) || (c.Has(2) && window > n)) {
    c.Fail("frames of ", n, " by steps of ", step, " and a window of ", window, " for ",
           x.shape().ToString());
  }
  const Complex parts = Parts(c, x);
  const auto frames = [&](const Tensor& t) {  // [batch, frames, n]
    if (!t) return t;
    const Tensor f = t.Window(1, {n}, {step});
    return c.Has(2) ? f * OfLength(c.In(2), n) : f;
  };
  const bool onesided = c.Int("onesided", 1) != 0;
  if (onesided && parts.imaginary) c.Fail("onesided is for real signals");
  const Complex y =
      Transform({frames(parts.real), frames(parts.imaginary)}, n, onesided ? n / 2 + 1 : n, false);
  c.Out(Stack(std::vector<Tensor>{y.real, y.imaginary}, -1));
}

// Triangles whose corners lie evenly on the mel scale, in bins of a spectrum. All inputs set the
// shape or are read as attributes are.
void MelWeightMatrix(Call& c) {
  const int64_t bands = c.HostInt(0), length = c.HostInt(1), rate = c.HostInt(2);
  const double low = c.HostFloat(3), high = c.HostFloat(4);
  if (bands < 0 || length < 0 || rate < 1 || bands > 1 << 16 || length > 1 << 24 ||
      bands * length > 1 << 28) {
    c.Fail(bands, " bands for a transform of ", length, " at ", rate, " Hz");
  }
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double first = mel(low), step = (mel(high) - first) / static_cast<double>(bands + 2);
  std::vector<int64_t> corner;
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double hertz = 700 * (std::pow(10.0, (first + static_cast<double>(i) * step) / 2595) - 1);
    corner.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  const int64_t bins = length / 2 + 1;
  std::vector<float> out(bins * bands, 0.0f);
  const auto set = [&](int64_t bin, int64_t band, double value) {
    if (bin < 0 || bin >= bins) c.Fail("a band reaches bin ", bin, " of ", bins);
    out[bin * bands + band] = static_cast<float>(value);
  };
  for (int64_t i = 0; i < bands; ++i) {
    const int64_t left = corner[i], centre = corner[i + 1], right = corner[i + 2];
    if (left == centre) set(centre, i, 1);
    for (int64_t j = left; left < centre && j <= centre; ++j) {
      set(j, i, static_cast<double>(j - left) / static_cast<double>(centre - left));
    }
    for (int64_t j = centre; j < right; ++j) {
      set(j, i, static_cast<double>(right - j) / static_cast<double>(right - centre));
    }
  }
  c.Out(Tensor::From(out, {bins, bands}, "CPU").Cast(c.Type("output_datatype", kFloat32)));
}

constexpr OpRow kRows[] = {
    {"DFT", Dft, HostInput({1, 2})},
    {"MelWeightMatrix", MelWeightMatrix, HostInput({0, 1, 2, 3, 4})},
    {"STFT", Stft, HostInput({1, 3})},
};

}  // namespace

absl::Span<const OpRow> SignalOps() { return kRows; }

}  // namespace tessera::onnx
