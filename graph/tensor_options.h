// What the functions of graph/tensor.h take beside tensors: modes, and options by name.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "graph/uop.h"

namespace tessera {

// What a scatter makes of an element and the updates that name it. kMean of integers rounds down.
enum class ScatterMode : uint8_t { kSet, kAdd, kMul, kMax, kMin, kMean };

// What lies outside: a number; the elements mirrored, the edge not repeated; the edge; the elements
// of the other end; or the elements mirrored, the edge repeated.
enum class PadMode : uint8_t { kConstant, kReflect, kReplicate, kCircular, kSymmetric };

// What a loss gives: one number for each element, their mean, their sum, or that over the extent of
// the first axis.
enum class LossReduction : uint8_t { kNone, kMean, kSum, kBatchMean };

// What lies between two elements in order: a point of the line between them, the lower or the
// higher one, the nearer one (halfway, that at an even position), or their mean.
enum class QuantileMethod : uint8_t { kLinear, kLower, kHigher, kNearest, kMidpoint };

struct ScanOptions {
  bool exclusive = false;  // element i combines those before it
  bool reverse = false;    // from the end
};

// Windows over the axes after [N, C], in order. Lists may be empty, or one number for all axes.
// Padding may be wider than half a window, which PyTorch refuses: of a window that sees nothing
// else the largest element is the dtype's lowest number, the sum 0, and the mean, if it counts no
// padding, NaN.
struct PoolOptions {
  Ints size = {};      // empty: 2
  Ints stride = {};    // empty: the size
  Ints padding = {};   // an entry an axis, or twice as many: all befores, then all afters; empty: 0
  Ints dilation = {};  // empty: 1
  bool count_padding = true;  // averages divide by what lies in the padding as well
  bool ceil_mode = false;     // the last window may reach over the end, where nothing is counted
  std::optional<int64_t> divisor = {};  // averages divide by that, however many there are
};
using Pool2dOptions = PoolOptions;

// How a position of a resized axis names one of the source. With scale = out / in of the axis:
enum class ResizeCoordinates : uint8_t {
  kHalfPixel,           // (i + 0.5) / scale - 0.5
  kHalfPixelSymmetric,  // the same, centred where out is no whole in * scale
  kPytorchHalfPixel,    // the same as kHalfPixel, and 0 where there is one position
  kAlignCorners,        // i (in - 1) / (out - 1)
  kAsymmetric,          // i / scale
};
enum class ResizeMode : uint8_t { kNearest, kLinear, kCubic };
enum class ResizeRounding : uint8_t { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil };
struct ResizeOptions {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  ResizeRounding rounding = ResizeRounding::kRoundPreferFloor;  // of kNearest
  bool antialias = false;        // shrinks with a wider kernel; not for kNearest
  double cubic = -0.75;          // the coefficient of the cubic
  bool exclude_outside = false;  // no weight for what is outside; else the edge repeats
  absl::InlinedVector<double, 4> scale = {};  // of each axis; empty: out / in
  // (begin, end) of the source that is taken, as shares of it, for each axis; what is read outside
  // the source is `outside`. Empty: all of it.
  absl::InlinedVector<std::pair<double, double>, 4> region = {};
  double outside = 0;
};

struct GridSampleOptions {
  ResizeMode mode = ResizeMode::kLinear;
  PadMode padding = PadMode::kConstant;  // zeros, or kReplicate or kReflect
  bool align_corners = false;
};

}  // namespace tessera
