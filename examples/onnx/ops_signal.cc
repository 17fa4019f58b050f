// Fourier transforms, and mel filters.
#include <cmath>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// The last axis of x cut or padded with zeros to n.
Tensor OfLength(const Tensor& x, int64_t n) {
  const int last = x.rank() - 1;
  const int64_t had = x.size(last);
  if (had >= n) return x.SliceAxis(last, {0, n});
  Pairs pairs(x.rank());
  pairs[last].second = n - had;
  return x.Pad(pairs);
}

// Whether [..., 1 or 2] has imaginary parts.
bool IsComplex(Call& c, const Tensor& x) {
  const int last = x.rank() - 1;
  if (last < 0 || (x.size(last) != 1 && x.size(last) != 2)) {
    c.Fail("the last axis of ", x.shape().ToString(), " holds real and imaginary parts: 1 or 2");
  }
  return x.size(last) == 2;
}

Tensor WithImaginary(const Tensor& x) {
  if (x.size(-1) == 2) return x;
  return Cat(std::vector<Tensor>{x, x.ZerosLike()}, -1);
}

void Dft(Call& c) {
  const Tensor x = c.In(0);
  const int64_t given = c.opset() >= 20 ? c.HostIntOr(2, -2) : c.Int("axis", 1);
  const int axis = c.Axis(given, x.rank());
  if (axis == x.rank() - 1) c.Fail("axis ", given, " is that of real and imaginary parts");
  const bool inverse = c.Int("inverse", 0) != 0, onesided = c.Int("onesided", 0) != 0;
  const bool complex = IsComplex(c, x), half = inverse && onesided;
  // The other half mirrors this one, and the result is real.
  const int64_t n = c.HostIntOr(1, half ? 2 * (x.size(axis) - 1) : x.size(axis));
  if (n < 1) c.Fail("its length is ", n);
  if (half) return c.Out(WithImaginary(x).Irfft(axis, {n}).Unsqueeze(-1));
  if (inverse) return c.Out(WithImaginary(x).Ifft(axis, {n}));
  if (onesided && !complex) return c.Out(x.Squeeze(-1).Rfft(axis, {n}));
  const Tensor y = WithImaginary(x).Fft(axis, {n});
  c.Out(onesided ? y.SliceAxis(axis, {0, n / 2 + 1}) : y);
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
  const bool complex = IsComplex(c, x), onesided = c.Int("onesided", 1) != 0;
  if (onesided && complex) c.Fail("onesided is for real signals");
  Tensor frames = x.Window(1, {n}, {step});  // [batch, frames, 1 or 2, n]
  if (c.Has(2)) frames = frames * OfLength(c.In(2), n);
  c.Out(onesided ? frames.Squeeze(2).Rfft() : WithImaginary(frames.Transpose()).Fft());
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
