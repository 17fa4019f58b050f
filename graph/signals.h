// Signals over time: spectra of short pieces and back, mel filters, cosine transforms, other rates.
//
//   const StftOptions o{.size = 400, .hop = 160, .window = Tensor::HannWindow(400)};
//   Tensor loudness = AmplitudeToDb(MelSpectrogram(x, o, {.mels = 80, .rate = 16000}));
//
// Time is the last axis of real signals. Complex numbers are [..., 2], as graph/tensor.h has them.
#pragma once

#include <optional>

#include "graph/tensor.h"

namespace tessera {

struct StftOptions {
  int64_t size = 400;  // of a piece, in elements
  int64_t hop = 0;     // from one piece to the next; none: a quarter of the size, or 1
  Tensor window = {};  // weights of elements, a vector; of fewer than `size`, in the middle
  bool center = true;  // the middle of piece t is element t * hop, beyond both ends of the signal
  PadMode padding = PadMode::kReflect;  // what is there
  bool normalized = false;              // divided by the root of the size
};
// [..., T] as [..., size / 2 + 1 frequencies, pieces, 2]; and back, of pieces that overlap, to
// `length` elements if it is given: each element is the mean of what pieces have there, by the
// squares of the window.
Tensor Stft(const Tensor& x, const StftOptions& options, CallSite at = CallSite::Here());
Tensor Istft(const Tensor& z, const StftOptions& options, std::optional<int64_t> length = {},
             CallSite at = CallSite::Here());
// Magnitudes of Stft to that power: [..., frequencies, pieces].
Tensor Spectrogram(const Tensor& x, const StftOptions& options, double power = 2,
                   CallSite at = CallSite::Here());

enum class MelScale : uint8_t { kHtk, kSlaney };
struct MelOptions {
  int64_t mels = 128;
  double rate = 16000;              // of the signal, in elements a second
  double low = 0;                   // frequencies
  std::optional<double> high = {};  // half the rate
  MelScale scale = MelScale::kHtk;
  bool equal_areas = false;  // triangles of one area, not of one height
};
// Triangles over so many frequencies from 0 to half the rate, as columns.
Tensor MelFilters(int64_t frequencies, const MelOptions& options, DType dtype = kFloat32,
                  CallSite at = CallSite::Here());
// [..., mels, pieces].
Tensor MelSpectrogram(const Tensor& x, const StftOptions& options, const MelOptions& mel,
                      double power = 2, CallSite at = CallSite::Here());
// factor log10 of x, which is at least `least`, over ref; no more than `range` below the largest of
// the last three axes, or as many as there are. A factor of 20 is for magnitudes, 10 for powers.
Tensor AmplitudeToDb(const Tensor& x, double factor = 10, double ref = 1, double least = 1e-10,
                     std::optional<double> range = {}, CallSite at = CallSite::Here());

// Cosine transforms of type II along an axis, and back (type III): by a product with a matrix. The
// norm is Fft's "backward" or "ortho".
Tensor Dct(const Tensor& x, int axis = -1, absl::string_view norm = "backward",
           CallSite at = CallSite::Here());
Tensor Idct(const Tensor& x, int axis = -1, absl::string_view norm = "backward",
            CallSite at = CallSite::Here());

// From one rate to another: interpolated by sinc functions of that many zeros, under a Hann window,
// for frequencies up to that share of half the lower rate. T is known.
Tensor Resample(const Tensor& x, int64_t from, int64_t to, int64_t zeros = 6, double share = 0.99,
                CallSite at = CallSite::Here());

// From -1 to 1 as one of so many channels, as i32, by the logarithm; and back.
Tensor MuLawEncode(const Tensor& x, int64_t channels = 256, CallSite at = CallSite::Here());
Tensor MuLawDecode(const Tensor& x, int64_t channels = 256, DType dtype = kFloat32,
                   CallSite at = CallSite::Here());

// The weights of n points as Tensor::HannWindow gives them: I0(beta sqrt(1 - t^2)) / I0(beta).
Tensor KaiserWindow(int64_t n, bool periodic = true, double beta = 12, DType dtype = kFloat32,
                    CallSite at = CallSite::Here());

}  // namespace tessera
