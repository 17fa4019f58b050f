// Limits to gradients: alone, spread and over devices, captured, of narrow floats.
#include "runtime/clip_gradients.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/capture.h"
#include "runtime/optimizer.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

const std::vector<double> kGradient = {3, -4, 0, 1, 2, -12};

Tensor Parameter(DType dtype = kFloat64) {
  Tensor w = Tensor::Zeros({6}, dtype).Realize();
  w.RequireGrad();
  return w;
}

void Backward(const Tensor& w) {
  (w.Cast(kFloat64) * Tensor::From(kGradient).To(w.device())).Sum().Backward();
}

std::vector<double> GradientOf(const Tensor& w) {
  return w.grad().Cast(kFloat64).ToVector<double>();
}

std::vector<double> Scaled(double by) {
  std::vector<double> out = kGradient;
  for (double& g : out) g *= by;
  return out;
}

TEST(ClipGradients, ByTheNormOfAll) {
  Tensor a = Parameter(), b = Parameter(), idle = Parameter();
  Backward(a);
  Backward(b);
  const double norm = std::sqrt(2.0 * (9 + 16 + 1 + 4 + 144));
  const Tensor before = ClipGradNorm({a, idle, b}, 2);
  ExpectNear(GradientOf(a), Scaled(2 / norm), 1e-6);
  ExpectNear(GradientOf(b), Scaled(2 / norm), 1e-6);
  EXPECT_NEAR(before.Item(), norm, 1e-12);
  EXPECT_FALSE(idle.grad());
  // Below the limit they stay as they are.
  const std::vector<double> now = GradientOf(a);
  EXPECT_NEAR(ClipGradNorm({a, b}, 100).Item(), 2, 1e-6);
  EXPECT_EQ(GradientOf(a), now);
  EXPECT_EQ(ClipGradNorm({idle}, 1).Item(), 0);
}

TEST(ClipGradients, ByOtherNorms) {
  Tensor a = Parameter();
  Backward(a);
  EXPECT_NEAR(ClipGradNorm({a}, 11, 1).Item(), 22, 1e-12);
  ExpectNear(GradientOf(a), Scaled(0.5), 1e-6);
  EXPECT_NEAR(ClipGradNorm({a}, 3, kInf).Item(), 6, 1e-6);
  ExpectNear(GradientOf(a), Scaled(0.25), 1e-6);
}

TEST(ClipGradients, ByValue) {
  Tensor a = Parameter(), idle = Parameter();
  Backward(a);
  ClipGradValue({a, idle}, 2.5);
  EXPECT_EQ(GradientOf(a), (std::vector<double>{2.5, -2.5, 0, 1, 2, -2.5}));
}

// One norm over what lies spread, elsewhere, and in narrow floats.
TEST(ClipGradients, OverDevices) {
  const PlaceList places(std::vector<Place>{Place("CPU", 0), Place("CPU", 1)});
  Tensor a = Tensor::Zeros({6}, kFloat64).Shard(places, 0).Realize();
  a.RequireGrad();
  Tensor b = Tensor::Zeros({6}, kBFloat16).To(Place("CPU", 1)).Realize();
  b.RequireGrad();
  for (const auto& order : {std::vector<Tensor>{a, b}, std::vector<Tensor>{b, a}}) {
    a.ClearGrad();
    b.ClearGrad();
    Backward(a);
    Backward(b);
    const double norm = std::sqrt(2.0 * (9 + 16 + 1 + 4 + 144));
    EXPECT_NEAR(ClipGradNorm(order, 2).Item(), norm, 1e-6);
    ExpectNear(GradientOf(a), Scaled(2 / norm), 1e-6);
    ExpectNear(GradientOf(b), Scaled(2 / norm), 1e-2);
    EXPECT_EQ(b.grad().dtype(), kBFloat16);
  }
}

TEST(ClipGradients, InSteps) {
  for (const bool captured : {false, true}) {
    for (const bool added : {false, true}) {  // to a gradient from outside
      SCOPED_TRACE(testing::Message() << captured << added);
      Tensor w = Parameter();
      Optimizer optimizer({w}, SgdOptions{.rate = 1});
      const auto once = [&] {
        Backward(w);
        ClipGradValue({w}, 10);
        const Tensor norm = ClipGradNorm({w}, 1);
        optimizer.Step();
        return norm;
      };
      Jit step([&](const std::vector<Tensor>&) { return once(); });
      std::vector<double> sum(6, 0.0);
      for (int i = 0; i < 3; ++i) {
        if (added) Backward(w);
        std::vector<double> g = Scaled(added ? 2 : 1);
        double square = 0;
        for (double& x : g) {
          x = std::max(-10.0, std::min(x, 10.0));
          square += x * x;
        }
        for (int e = 0; e < 6; ++e) sum[e] -= g[e] / std::sqrt(square);
        const Tensor norm = captured ? step.One({}) : once();
        EXPECT_NEAR(norm.Item(), std::sqrt(square), 1e-9);
        ExpectNear(w.ToVector<double>(), sum, 1e-6);
        EXPECT_FALSE(w.grad());
      }
    }
  }
}

TEST(ClipGradients, Refuses) {
  Tensor w = Parameter();
  EXPECT_ERROR(ClipGradNorm({w}, -1), "ClipGradNorm", "from 0 on");
  EXPECT_ERROR(ClipGradNorm({w}, 1, 0), "ClipGradNorm", "p above 0");
  EXPECT_ERROR(ClipGradNorm({Tensor()}, 1), "ClipGradNorm", "parameter 0 is empty");
  EXPECT_ERROR(ClipGradValue({w}, kNan), "ClipGradValue", "limit");
}

}  // namespace
}  // namespace tessera
