// Resized axes and grids of points, against loops that read one point at a time.
#include <algorithm>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Coordinates = ResizeCoordinates;

double Cubic(double d, double a) {
  d = std::fabs(d);
  if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
  return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
}

// One axis, by all elements within reach of the point.
std::vector<double> Loops(const std::vector<double>& x, int64_t out, const ResizeOptions& o) {
  const auto in = static_cast<int64_t>(x.size());
  const double n = static_cast<double>(in), m = static_cast<double>(out);
  std::vector<double> result;
  for (int64_t i = 0; i < out; ++i) {
    const double scale = m / n, at = static_cast<double>(i);
    double p = (at + 0.5) * n / m - 0.5;
    if (o.coordinates == Coordinates::kAsymmetric) p = at * n / m;
    if (o.coordinates == Coordinates::kAlignCorners) p = out == 1 ? 0 : at * (n - 1) / (m - 1);
    if (o.coordinates == Coordinates::kPytorchHalfPixel && out == 1) p = 0;
    const auto element = [&](double k) {
      return x[static_cast<int64_t>(std::clamp(k, 0.0, n - 1))];
    };
    if (o.mode == ResizeMode::kNearest) {
      double k = std::floor(p);
      if (o.rounding == ResizeRounding::kCeil) k = std::ceil(p);
      if (o.rounding == ResizeRounding::kRoundPreferFloor) k = std::ceil(p - 0.5);
      if (o.rounding == ResizeRounding::kRoundPreferCeil) k = std::floor(p + 0.5);
      result.push_back(element(k));
      continue;
    }
    const double shrink = o.antialias ? std::min(1.0, scale) : 1;
    double sum = 0, weights = 0;
    for (double k = std::floor(p) - 20; k <= p + 20; ++k) {
      const double d = (k - p) * shrink;
      double w =
          o.mode == ResizeMode::kLinear ? std::max(0.0, 1 - std::fabs(d)) : Cubic(d, o.cubic);
      if (o.exclude_outside && (k < 0 || k >= n)) w = 0;
      weights += w;
      sum += w * element(k);
    }
    result.push_back(sum / weights);
  }
  return result;
}

TEST(TensorResize, AgreesWithLoops) {
  const auto x = Draw(7, 1);
  for (int64_t out : {1, 2, 3, 7, 10, 21}) {
    for (Coordinates c : {Coordinates::kHalfPixel, Coordinates::kPytorchHalfPixel,
                          Coordinates::kAlignCorners, Coordinates::kAsymmetric}) {
      for (ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
        for (bool antialias : {false, true}) {
          for (bool exclude : {false, true}) {
            ResizeOptions o{.mode = mode, .coordinates = c, .antialias = antialias};
            o.exclude_outside = exclude;
            o.rounding = antialias
                             ? exclude ? ResizeRounding::kFloor : ResizeRounding::kRoundPreferCeil
                         : exclude ? ResizeRounding::kCeil
                                   : ResizeRounding::kRoundPreferFloor;
            SCOPED_TRACE(testing::Message() << out << ", " << static_cast<int>(c) << ", "
                                            << static_cast<int>(mode) << antialias << exclude);
            ExpectNear(Values(Tensor::From(x).Resize({out}, o)), Loops(x, out, o), 1e-12);
          }
        }
      }
    }
  }
}

// Points that are whole numbers are those, though the scale is none that floats have: 9 * 56 / 72
// is the seventh element, and not the one before it.
TEST(TensorResize, WholePointsAreExact) {
  ResizeOptions o;
  o.coordinates = Coordinates::kAsymmetric;
  o.rounding = ResizeRounding::kFloor;
  for (const auto& [in, out] : {std::pair{56, 72}, {16001, 4800}, {49, 7}, {31, 62}, {101, 303}}) {
    std::vector<int64_t> want;
    for (int64_t i = 0; i < out; ++i) want.push_back(i * in / out);
    EXPECT_EQ(Tensor::Arange(in, kFloat64).Reshape({1, 1, in}).Resize({out}, o).ToVector<int64_t>(),
              want);
  }
}

TEST(TensorResize, SeveralAxesRegionsAndScales) {
  const Tensor x = Tensor::Arange(16, kFloat32).Reshape({1, 1, 4, 4});
  const ResizeOptions linear{.mode = ResizeMode::kLinear};
  const Tensor rows = x.Resize({6}, linear);
  EXPECT_EQ(Sizes(rows), (std::vector<int64_t>{1, 1, 4, 6}));
  ExpectNear(Values(x.Resize({3, 6}, linear)),
             Values(rows.Transpose(2, 3).Resize({3}, linear).Transpose(2, 3)), 1e-6);
  EXPECT_THAT(Values(Tensor::From({1, 2}).Resize({4})), ElementsAre(1, 1, 2, 2));
  EXPECT_EQ(Tensor::From({1, 2}).Resize({4}).dtype(), kInt32);
  // A scale of its own: 2.4 positions cut to 2.
  ResizeOptions scaled{.mode = ResizeMode::kLinear, .coordinates = Coordinates::kAlignCorners};
  scaled.scale = {0.6};
  ExpectNear(Values(Tensor::From({1, 2, 3, 4}).Resize({2}, scaled)), {1, 1 + 3 / 1.4}, 1e-6);
  ResizeOptions crop = linear;
  crop.region = {{0.5, 1.5}};
  crop.outside = 9;
  ExpectNear(Values(Tensor::From({0.0, 1.0, 2.0}, kFloat64).Resize({3}, crop)), {1, 2, 9});
  EXPECT_ERROR(x.Resize({1, 1, 1, 1, 1}), "Resize", "for each of the last axes");
  EXPECT_ERROR(Tensor::Zeros({0}).Resize({2}), "Resize", "cannot make 2 positions");
}

TEST(TensorResize, GridsAgreeWithLoops) {
  const int64_t h = 4, w = 5, m = 30;
  const auto x = Draw(2 * h * w, 2);
  auto g = Draw(m * 2, 3);
  for (double& v : g) v *= 1.6;  // some of them outside
  g[0] = g[1] = -1;
  g[2] = g[3] = 1;
  for (bool align : {false, true}) {
    for (PadMode pad : {PadMode::kConstant, PadMode::kReplicate, PadMode::kReflect}) {
      for (ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
        const auto settle = [&](double p, int64_t n) {
          const double last = static_cast<double>(n - 1);
          if (pad == PadMode::kReflect) {
            const double low = align ? 0 : -0.5, high = align ? last : last + 0.5;
            while (p < low || p > high) p = p < low ? 2 * low - p : 2 * high - p;
          }
          return pad == PadMode::kConstant ? p : std::clamp(p, 0.0, last);
        };
        const auto place = [&](double v, int64_t n) {
          const double p = align ? (v + 1) / 2 * static_cast<double>(n - 1)
                                 : ((v + 1) * static_cast<double>(n) - 1) / 2;
          return mode == ResizeMode::kCubic ? p : settle(p, n);
        };
        std::vector<double> expected;
        for (int64_t c = 0; c < 2; ++c) {
          const auto read = [&](double r, double k) {
            if (mode == ResizeMode::kCubic) r = settle(r, h), k = settle(k, w);
            if (r < 0 || r > h - 1 || k < 0 || k > w - 1) return 0.0;
            return x[(c * h + std::lround(r)) * w + std::lround(k)];
          };
          for (int64_t i = 0; i < m; ++i) {
            const double column = place(g[2 * i], w), row = place(g[2 * i + 1], h);
            if (mode == ResizeMode::kNearest) {
              expected.push_back(read(std::nearbyint(row), std::nearbyint(column)));
              continue;
            }
            double sum = 0;
            for (double r = std::floor(row) - 1; r <= std::floor(row) + 2; ++r) {
              for (double k = std::floor(column) - 1; k <= std::floor(column) + 2; ++k) {
                const auto weight = [&](double d) {
                  return mode == ResizeMode::kLinear ? std::max(0.0, 1 - std::fabs(d))
                                                     : Cubic(d, -0.75);
                };
                sum += weight(r - row) * weight(k - column) * read(r, k);
              }
            }
            expected.push_back(sum);
          }
        }
        GridSampleOptions o{mode, pad, align};
        SCOPED_TRACE(testing::Message()
                     << align << static_cast<int>(pad) << static_cast<int>(mode));
        ExpectNear(
            Values(Tensor::From(x, {1, 2, h, w}).GridSample(Tensor::From(g, {1, 5, 6, 2}), o)),
            expected, 1e-12);
      }
    }
  }
  EXPECT_ERROR(Tensor::Zeros({1, 2, 3, 3}).GridSample(Tensor::Zeros({1, 2, 2, 3})), "GridSample",
               "points [N, d1, ..., 2]");
}

TEST(TensorResize, AffineGrids) {
  const auto t = Draw(2 * 2 * 3, 4);
  const int64_t h = 3, w = 4;
  for (bool align : {false, true}) {
    std::vector<double> expected;
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t i = 0; i < h; ++i) {
        for (int64_t j = 0; j < w; ++j) {
          const double x = align ? 2.0 * j / (w - 1) - 1 : (2.0 * j + 1) / w - 1;
          const double y = align ? 2.0 * i / (h - 1) - 1 : (2.0 * i + 1) / h - 1;
          for (int64_t k = 0; k < 2; ++k) {
            const double* row = &t[(n * 2 + k) * 3];
            expected.push_back(row[0] * x + row[1] * y + row[2]);
          }
        }
      }
    }
    ExpectNear(Values(Tensor::From(t, {2, 2, 3}).AffineGrid({2, 1, h, w}, align)), expected, 1e-14);
  }
  EXPECT_EQ(Sizes(Tensor::Zeros({1, 3, 4}).AffineGrid({1, 1, 2, 3, 4})),
            (std::vector<int64_t>{1, 2, 3, 4, 3}));
  EXPECT_ERROR(Tensor::Zeros({1, 2, 2}).AffineGrid({1, 1, 2, 2}), "AffineGrid", "takes maps");
}

}  // namespace
}  // namespace tessera
