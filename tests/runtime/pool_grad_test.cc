// Gradients of pools: against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/realize.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

struct Case {
  int64_t height, width, size_y, size_x, stride, padding, dilation;
  bool ceil = false;
};

PoolOptions OptionsOf(const Case& c) {
  PoolOptions o;
  o.size = {c.size_y, c.size_x};
  o.stride = {c.stride, c.stride};
  o.padding = {c.padding, c.padding};
  o.dilation = {c.dilation, c.dilation};
  o.ceil_mode = c.ceil;
  return o;
}

// The gradient of the sum of the windows' greatest elements, each times a number: those that are
// equal share it.
std::vector<double> OfMaxima(const Case& c, int64_t images, int64_t rows, int64_t columns,
                             const std::vector<double>& x, const std::vector<double>& g) {
  std::vector<double> out(x.size());
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t p = 0; p < rows * columns; ++p) {
      std::vector<int64_t> places;
      double most = -kInf;
      for (int64_t k = 0; k < c.size_y * c.size_x; ++k) {
        const int64_t y = p / columns * c.stride + k / c.size_x * c.dilation - c.padding,
                      z = p % columns * c.stride + k % c.size_x * c.dilation - c.padding;
        if (y < 0 || y >= c.height || z < 0 || z >= c.width) continue;
        const int64_t at = (n * c.height + y) * c.width + z;
        if (x[at] > most) places.clear();
        most = std::max(most, x[at]);
        if (x[at] == most) places.push_back(at);
      }
      for (const int64_t at : places) {
        out[at] += g[n * rows * columns + p] / static_cast<double>(places.size());
      }
    }
  }
  return out;
}

TEST(PoolGrad, OfMaximaAgreesWithLoops) {
  std::mt19937 random(1);
  for (const Case& c :
       {Case{9, 14, 2, 2, 2, 0, 1}, Case{9, 14, 3, 3, 2, 1, 1}, Case{13, 35, 3, 3, 2, 1, 1},
        Case{12, 37, 3, 3, 3, 1, 1}, Case{12, 37, 3, 2, 1, 1, 1}, Case{17, 18, 5, 4, 2, 2, 1},
        Case{17, 18, 3, 3, 1, 1, 2}, Case{17, 18, 3, 3, 2, 1, 2}, Case{11, 40, 1, 3, 2, 0, 1},
        Case{14, 15, 2, 3, 3, 0, 1}, Case{10, 11, 3, 3, 2, 0, 1, true},
        Case{20, 20, 7, 6, 1, 2, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << c.height << "x" << c.width << " by " << c.size_y << "x" << c.size_x
                 << " stride " << c.stride << " dilation " << c.dilation);
    std::vector<double> x = Draw(6 * c.height * c.width, random());
    for (double& v : x) v = std::round(v * 8) / 8;  // many are equal
    x[5] = kInf;
    const Tensor image = Tensor::From(x, {2, 3, c.height, c.width}),
                 y = image.MaxPool(OptionsOf(c));
    const std::vector<double> g = Draw(y.elements(), random());
    const Tensor cotangent = Tensor::From(g, Dims(y.shape().ToExtents()));
    const auto expected = OfMaxima(c, 6, y.size(2), y.size(3), x, g);
    const Tensor of_x = Grad((y * cotangent).Sum(), {image})[0];
    ExpectNear(of_x.ToVector<double>(), expected, 1e-11);
    const Tensor narrow = image.Cast(kFloat32).Realize();
    const Tensor loss = (narrow.MaxPool(OptionsOf(c)) * cotangent.Cast(kFloat32)).Sum();
    ExpectNear(Grad(loss, {narrow})[0].Cast(kFloat64).ToVector<double>(), expected, 1e-5);
  }
}

// Of one axis and of three, and of averages, as the reference evaluates their windows one by one.
TEST(PoolGrad, OfOtherAxesAndAverages) {
  std::mt19937 random(2);
  for (const int64_t stride : {1, 2, 3}) {
    PoolOptions o;
    o.size = {3, 2, 3};
    o.stride = {stride, stride, stride};
    o.padding = {1, 0, 1};
    const Tensor x = Tensor::From(Draw(2 * 7 * 8 * 19, random()), {1, 2, 7, 8, 19});
    PoolOptions line = o;
    line.size = {3}, line.stride = {stride}, line.padding = {1};
    const Tensor row = Tensor::From(Draw(2 * 3 * 41, random()), {2, 3, 41});
    EXPECT_REFERENCE(Grad(x.MaxPool(o).Square().Sum(), {x})[0],
                     Grad(x.AvgPool(o).Square().Sum(), {x})[0],
                     Grad(row.MaxPool(line).Square().Sum(), {row})[0],
                     Grad(row.AvgPool(line).Square().Sum(), {row})[0]);
  }
}

// Between windows, and beyond the last one, nothing is divided by 0: derivatives of derivatives are
// those of windows that are looked up.
TEST(PoolGrad, SecondDerivativesBetweenWindows) {
  for (const auto& [size, stride] : {std::pair(2, 2), std::pair(2, 3), std::pair(3, 1)}) {
    const Tensor x = Tensor::From({1.0, 2.0, 700.0, 4.0, 5.0, 6.0, 0.5, 3.0}).Realize();
    const int64_t n = (8 - size) / stride + 1;
    const Tensor places = (Tensor::Arange(n) * stride).Unsqueeze(1) + Tensor::Arange(size);
    const auto twice = [&](const Tensor& w) {
      const Tensor f = (w / w.Sum({1}, true)).Square().Sum() + w.LogSumExp({1}).Square().Sum();
      return Grad(Grad(f, {x})[0].Square().Sum(), {x})[0].ToVector<double>();
    };
    const auto got = twice(x.Unfold(0, size, stride)), want = twice(x.Take(places));
    for (int i = 0; i < 8; ++i) EXPECT_NEAR(got[i], want[i], 1e-6 * (1 + std::abs(want[i]))) << i;
  }
}

// No window is held: what comes to an element is made of it and of the windows' maxima.
TEST(PoolGrad, NeverHoldsTheWindows) {
  PoolOptions o;
  o.size = {3, 3};
  o.stride = {2, 2};
  o.padding = {1, 1};
  const Tensor x = Tensor::Rand({4, 16, 32, 32}).Realize();
  Tensor of_x = Grad(x.MaxPool(o).Square().Sum(), {x})[0];
  const auto before = GetRuntimeStats();
  of_x.Realize();
  EXPECT_LE(GetRuntimeStats().kernels_run - before.kernels_run, 3);
}

}  // namespace
}  // namespace tessera
