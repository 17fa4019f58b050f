// Sums of several products of matrices give what their elements, added up one by one, give.
#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/realize.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

Tensor Small(const Dims& shape, DType dtype) {
  return Tensor::RandInt(-4, 5, shape).Cast(dtype).Realize();
}

TEST(PartProducts, OfEverySignAndDtype) {
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kInt32, kUInt8}) {
    const Tensor a = Small({3, 17, 1, 20}, dtype), b = Small({3, 17, 1, 20}, dtype),
                 w = Small({3, 1, 19, 20}, dtype), u = Small({19, 20}, dtype);
    EXPECT_REFERENCE((a * w + b * u).Sum({3}), (a * w - b * u).Sum({3}),
                     (-(a * w) - b * u).Sum({3}), (a * w - (b * u - (a - b) * u)).Sum({3}),
                     (a * w + a * w).Sum({3}), (a * w + b * u).Sum({0, 3}),
                     (a * w + b * u + 1).Sum({3}));
  }
}

// Terms that cancel are finite, and nearly so.
TEST(PartProducts, WhatCancelsIsSubtractedFirst) {
  const auto of = [](const Dims& shape, double value) {
    return Tensor::Full(shape, value, kFloat32).Contiguous().Realize();
  };
  const Tensor a = of({8, 1, 64}, 3e30), b = of({8, 1, 64}, 3e30), w = of({8, 64}, 1e7),
               u = of({8, 64}, 1e7);
  const Tensor none = (a * w - b * u).Sum({2});
  EXPECT_EQ(none.ToVector<float>(), std::vector<float>(64, 0));
  const Tensor p = (Tensor::Rand({8, 1, 4096}) + 1000).Realize(), q = (p + 0.001).Realize(),
               v = Tensor::Rand({9, 4096}).Realize();
  EXPECT_REFERENCE((q * v - p * v).Sum({2}));
}

TEST(PartProducts, InfinitiesAndNoSteps) {
  const Tensor a = Tensor::From({{1.0, INFINITY}, {-INFINITY, 0.0}}).Reshape({2, 1, 2}).Realize(),
               b = Tensor::From({{0.0, -INFINITY}, {NAN, 2.0}}).Reshape({2, 1, 2}).Realize(),
               w = Tensor::From({{2.0, 1.0}, {1.0, 0.5}, {0.0, 1.0}}).Realize();
  EXPECT_REFERENCE((a * w + b * (w + 1)).Sum({2}), (a * w - b * (w + 1)).Sum({2}));
  const Tensor none = Tensor::Zeros({3, 1, 0}), other = Tensor::Zeros({4, 0});
  EXPECT_REFERENCE((none * other + none * (other + 1)).Sum({2}));
}

// What two layers read gets a gradient from both.
TEST(PartProducts, GradientsOfWhatIsReadTwice) {
  const Tensor x = Small({33, 24}, kFloat32), w = Small({24, 40}, kFloat32),
               u = Small({24, 40}, kFloat32);
  const Tensor up = Small({33, 40}, kFloat32);
  const Tensor loss = (x.MatMul(w) * x.MatMul(u) * up).Sum();
  const Tensor got = Grad(loss, {x})[0];
  const Tensor want = (x.MatMul(u) * up).MatMul(w.T()) + (x.MatMul(w) * up).MatMul(u.T());
  EXPECT_EQ(got.ToVector<float>(), want.ToVector<float>());
}

// What every step of a loop reads gets a gradient of few steps from each: one product of all of
// them, or of some. The first step multiplies nothing but zeros, which stay apart.
TEST(PartProducts, OfALoopAreOneProduct) {
  for (DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    for (int turns : {3, 40, 70}) {
      const Tensor w = Small({24, 40}, dtype);
      Tensor sum, want;
      for (int t = 0; t < turns; ++t) {
        const Tensor x = t == 0 ? Tensor::Zeros({3, 24}, dtype) : Small({3, 24}, dtype),
                     up = Small({3, 40}, dtype);
        const Tensor loss = (x.MatMul(w) * up).Sum(),
                     part = x.Cast(kFloat64).T().MatMul(up.Cast(kFloat64));
        sum = t == 0 ? loss : sum + loss;
        want = t == 0 ? part : want + part;
      }
      const Tensor got = Grad(sum, {w})[0];
      // Whole numbers, which bf16 rounds once.
      EXPECT_EQ(got.ToVector<double>(), want.Cast(dtype).ToVector<double>()) << turns;
    }
  }
}

// Factors whose extents are not known are not laid out side by side.
TEST(PartProducts, OfSymbolicExtents) {
  const Variable n("part_products_n", 1, 24);
  const Tensor a = Small({24, 17}, kFloat32), b = Small({24, 17}, kFloat32),
               w = Small({17, 19}, kFloat32), u = Small({17, 19}, kFloat32);
  const auto rows = [&](const Tensor& t) { return t.Shrink({{0, n}, {0, 17}}).Unsqueeze(2); };
  const Tensor sum = (rows(a) * w + rows(b) * u).Sum({1}),
               few = (rows(a) * w + rows(b) * u).Sum({0});
  for (int64_t bound : {1, 5, 24}) {
    const std::vector<Tensor> got = Realize({sum, few}, {{"part_products_n", bound}});
    const auto part = [&](const Tensor& t) { return t.Shrink({{0, bound}, {0, 17}}).Unsqueeze(2); };
    const Tensor terms = part(a) * w + part(b) * u;
    EXPECT_EQ(got[0].ToVector<float>(), terms.Sum({1}).ToVector<float>());
    EXPECT_EQ(got[1].ToVector<float>(), terms.Sum({0}).ToVector<float>());
  }
}

TEST(PartProducts, OfPartsOfUnequalSize) {
  const Tensor x = Small({5}, kFloat32), y = Small({5}, kFloat32);
  const Sharding two = Line(2);
  const Tensor p = x.To(two), q = y.To(two);
  EXPECT_EQ((p * q + q * q).Sum().Item<float>(), (x * y + y * y).Sum().Item<float>());
}

// What is added up before a sum of one step is added up as it is written.
TEST(PartProducts, OfOneStep) {
  Tensor sum;
  for (int t = 0; t < 20; ++t) {
    const Tensor term = Tensor::RandN({18, 1, 1}).Realize() * Tensor::RandN({1, 19, 1}).Realize();
    sum = t == 0 ? term : sum + term;
  }
  EXPECT_REFERENCE(sum.Sum({2}));
}

TEST(PartProducts, FactorsOfEitherOrderLineUp) {
  Tensor sum;
  for (int t = 0; t < 20; ++t) {
    const Tensor a = Small({18, 1, 2}, kFloat32), w = Small({1, 19, 2}, kFloat32);
    const Tensor term = t % 3 == 0 ? w * a : a * w;
    sum = t == 0 ? term : sum + term;
  }
  EXPECT_REFERENCE(sum.Sum({2}), (sum + sum).Sum({0, 2}),
                   (sum + Small({18, 19, 2}, kFloat32) * Small({2}, kFloat32)).Sum({2}));
}

}  // namespace
}  // namespace tessera
