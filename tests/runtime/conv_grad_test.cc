// Gradients of convolutions: against plain loops, and how many products they take.
#include <gtest/gtest.h>

#include <vector>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/realize.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

struct Case {
  int64_t batch, in, out, groups, height, width, kernel_height, kernel_width, stride, padding,
      dilation;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.batch << "x" << c.in << "x" << c.height << "x" << c.width << " to " << c.out << " by "
       << c.kernel_height << "x" << c.kernel_width << " groups " << c.groups << " stride "
       << c.stride << " padding " << c.padding << " dilation " << c.dilation;
}

int64_t Positions(int64_t n, int64_t kernel, const Case& c) {
  return (n + 2 * c.padding - c.dilation * (kernel - 1) - 1) / c.stride + 1;
}

class ConvGrad : public testing::TestWithParam<Case> {};

TEST_P(ConvGrad, AgreesWithLoops) {
  const Case c = GetParam();
  const int64_t rows = Positions(c.height, c.kernel_height, c),
                columns = Positions(c.width, c.kernel_width, c);
  const int64_t in = c.in / c.groups, out = c.out / c.groups;
  const auto x = Draw(c.batch * c.in * c.height * c.width, 1),
             w = Draw(c.out * in * c.kernel_height * c.kernel_width, 2),
             g = Draw(c.batch * c.out * rows * columns, 3);
  std::vector<double> of_x(x.size()), of_w(w.size());
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.out; ++o) {
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t z = 0; z < columns; ++z) {
          const double by = g[((n * c.out + o) * rows + y) * columns + z];
          for (int64_t i = 0; i < in; ++i) {
            for (int64_t a = 0; a < c.kernel_height; ++a) {
              for (int64_t b = 0; b < c.kernel_width; ++b) {
                const int64_t h = y * c.stride + a * c.dilation - c.padding,
                              v = z * c.stride + b * c.dilation - c.padding;
                if (h < 0 || h >= c.height || v < 0 || v >= c.width) continue;
                const int64_t channel = o / out * in + i;
                const int64_t at_x = ((n * c.in + channel) * c.height + h) * c.width + v;
                const int64_t at_w = ((o * in + i) * c.kernel_height + a) * c.kernel_width + b;
                of_x[at_x] += by * w[at_w];
                of_w[at_w] += by * x[at_x];
              }
            }
          }
        }
      }
    }
  }
  const Tensor image = Tensor::From(x, {c.batch, c.in, c.height, c.width}),
               weight = Tensor::From(w, {c.out, in, c.kernel_height, c.kernel_width}),
               cotangent = Tensor::From(g, {c.batch, c.out, rows, columns});
  ConvOptions options;
  options.stride = {c.stride, c.stride};
  options.padding = {c.padding, c.padding};
  options.dilation = {c.dilation, c.dilation};
  options.groups = c.groups;
  const Tensor loss = (image.Conv2d(weight, options) * cotangent).Sum();
  const std::vector<Tensor> grads = Grad(loss, {image, weight});
  ExpectNear(grads[0].ToVector<double>(), of_x, 1e-11);
  ExpectNear(grads[1].ToVector<double>(), of_w, 1e-11);

  // In f32 the lanes are others.
  const Tensor a = image.Cast(kFloat32).Realize(), b = weight.Cast(kFloat32).Realize();
  const Tensor narrow = (a.Conv2d(b, options) * cotangent.Cast(kFloat32)).Sum();
  const std::vector<Tensor> narrow_grads = Grad(narrow, {a, b});
  ExpectNear(narrow_grads[0].Cast(kFloat64).ToVector<double>(), of_x, 2e-4);
  ExpectNear(narrow_grads[1].Cast(kFloat64).ToVector<double>(), of_w, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvGrad,
    testing::Values(
        Case{2, 3, 4, 1, 9, 8, 3, 3, 1, 0, 1}, Case{2, 3, 4, 1, 9, 8, 3, 3, 1, 1, 1},
        Case{1, 20, 17, 1, 30, 29, 3, 3, 1, 1, 1}, Case{2, 16, 32, 1, 14, 14, 3, 3, 2, 1, 1},
        Case{1, 4, 6, 1, 11, 13, 5, 2, 2, 2, 1}, Case{1, 4, 6, 1, 12, 9, 4, 3, 3, 1, 1},
        Case{2, 4, 6, 2, 9, 9, 3, 3, 1, 1, 1}, Case{2, 4, 8, 4, 9, 9, 3, 3, 2, 1, 1},
        Case{1, 3, 2, 1, 12, 12, 3, 3, 1, 2, 2}, Case{1, 2, 3, 1, 15, 15, 3, 2, 2, 1, 3},
        Case{2, 8, 8, 1, 7, 7, 1, 1, 2, 0, 1}, Case{2, 8, 8, 1, 7, 7, 1, 1, 1, 0, 1},
        Case{3, 1, 1, 1, 5, 5, 5, 5, 1, 0, 1}, Case{1, 1, 1, 1, 6, 1, 2, 1, 1, 0, 1},
        Case{1, 5, 40, 1, 24, 40, 3, 3, 1, 1, 1},
        // Borders wider than windows, and that strides do not divide.
        Case{1, 3, 4, 1, 5, 6, 3, 3, 1, 4, 1}, Case{2, 3, 4, 1, 7, 9, 3, 2, 2, 3, 1},
        Case{1, 2, 3, 1, 10, 11, 7, 5, 3, 4, 1}, Case{1, 3, 2, 1, 8, 9, 4, 3, 2, 1, 1},
        Case{1, 2, 3, 1, 6, 7, 5, 4, 4, 5, 1}, Case{1, 3, 4, 1, 9, 7, 2, 3, 1, 5, 2},
        // Images so small that all of them are one product.
        Case{5, 136, 130, 1, 4, 4, 3, 3, 1, 1, 1}, Case{4, 132, 260, 1, 7, 7, 3, 3, 2, 1, 1},
        Case{3, 300, 140, 1, 5, 5, 1, 1, 1, 0, 1},
        // Windows that do not overlap, groups, and rows of them laid out by columns.
        Case{3, 6, 5, 1, 12, 15, 3, 3, 3, 0, 1}, Case{2, 6, 9, 3, 28, 29, 3, 3, 3, 1, 1},
        Case{3, 12, 15, 3, 19, 31, 3, 3, 1, 1, 1}, Case{2, 6, 6, 6, 15, 31, 3, 3, 2, 1, 1},
        Case{2, 4, 16, 1, 24, 24, 4, 4, 4, 0, 1},
        // Few results, by long sums over windows that reach over borders.
        Case{2, 24, 2, 1, 19, 17, 5, 5, 1, 2, 1}, Case{1, 64, 8, 1, 9, 21, 3, 3, 1, 1, 1}));

// What was marked has a gradient at its borders as well.
TEST(ConvGrad, OfWhatWasPaddedBefore) {
  const Tensor x = Tensor::From(Draw(2 * 3 * 5 * 5, 1), {2, 3, 5, 5}),
               w = Tensor::From(Draw(4 * 3 * 3 * 3, 2), {4, 3, 3, 3});
  for (const int64_t stride : {1, 2}) {
    ConvOptions options;
    options.stride = {stride, stride};
    const Tensor padded = x.Pad({{0, 0}, {0, 0}, {1, 2}, {2, 1}});
    const std::vector<Tensor> grads = Grad(padded.Conv2d(w, options).Square().Sum(), {padded, x});
    const Tensor alone = Tensor::From(padded.ToVector<double>(), {2, 3, 8, 8});
    const Tensor whole = Grad(alone.Conv2d(w, options).Square().Sum(), {alone})[0];
    ExpectNear(grads[0].ToVector<double>(), whole.ToVector<double>(), 1e-11);
    const Tensor inside = whole.Slice({{}, {}, {1, 6}, {2, 7}});
    ExpectNear(grads[1].ToVector<double>(), inside.ToVector<double>(), 1e-11);
  }
}

// What comes to the image is one convolution, of a copy between zeros: the windows' cotangent, nine
// times as large, is not held.
TEST(ConvGradCost, NeverHoldsTheWindows) {
  ConvOptions options;
  options.padding = {1, 1};
  const Tensor x = Tensor::Rand({4, 16, 32, 32}).Realize(),
               w = Tensor::Rand({16, 16, 3, 3}).Realize(),
               g = Tensor::Rand({4, 16, 32, 32}).Realize();
  Tensor of_x = Grad((x.Conv2d(w, options) * g).Sum(), {x})[0];
  const auto before = GetRuntimeStats();
  of_x.Realize();
  EXPECT_LE(GetRuntimeStats().kernels_run - before.kernels_run, 2);
}

// A gradient of a gradient goes through the convolution that the first one is.
TEST(ConvGradCost, OfSecondOrder) {
  ConvOptions options;
  options.stride = {2, 2};
  const Tensor x = Tensor::From(Draw(2 * 3 * 9 * 9, 1), {2, 3, 9, 9}),
               w = Tensor::From(Draw(4 * 3 * 3 * 3, 2), {4, 3, 3, 3}),
               e = Tensor::From(Draw(2 * 3 * 9 * 9, 3), {2, 3, 9, 9});
  const auto of_x = [&](const Tensor& weight) {
    const Tensor y = x.Conv2d(weight, options);
    return Grad((y * y).Sum(), {x})[0];
  };
  const double by_graph = (Grad((of_x(w) * e).Sum(), {w})[0] * w).Sum().Item();
  // The gradient is homogeneous of degree 2 in the weight.
  EXPECT_NEAR(by_graph, 2 * (of_x(w) * e).Sum().Item(), 1e-9);
}

}  // namespace
}  // namespace tessera
