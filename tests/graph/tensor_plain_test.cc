// Small functions against numbers worked out by hand.
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(TensorPlain, AddMatMul) {
  const Tensor x = Tensor::From({{1.0, 2.0}, {3.0, 4.0}}),
               a = Tensor::From({{1.0, -1.0}, {0.0, 2.0}});
  // a a is {{1, -3}, {0, 4}}.
  EXPECT_THAT(Values(x.AddMatMul(a, a, 2, 0.5)), ElementsAre(2.5, 2.5, 6, 10));
  EXPECT_ERROR(x.AddMatMul(a, Tensor::Ones({3, 2})), "AddMatMul", "[3, 2]");
}

TEST(TensorPlain, Shapes) {
  const Tensor v = Tensor::From({1, 2, 3}), m = Tensor::From({{1, 2, 3}, {4, 5, 6}});
  EXPECT_THAT(Sizes(v.AtLeast(3)), ElementsAre(1, 1, 3));
  EXPECT_THAT(Sizes(m.AtLeast(1)), ElementsAre(2, 3));
  EXPECT_THAT(Sizes(Tensor::Scalar(1).AtLeast(1)), ElementsAre(1));
  EXPECT_THAT(Values(m.FlipLr()), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(Values(m.FlipUd()), ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_ERROR(v.FlipLr(), "FlipLr", "there is no axis 1");
  const std::vector<Tensor> met = BroadcastTensors({v, Tensor::From({{10}, {20}})});
  EXPECT_THAT(Values(met[0]), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(Values(met[1]), ElementsAre(10, 10, 10, 20, 20, 20));
  EXPECT_ERROR(BroadcastTensors({v, Tensor::Ones({2})}), "BroadcastTensors", "do not broadcast");
  EXPECT_THAT(Values(CartesianProd({Tensor::From({1, 2}), Tensor::From({7, 8})})),
              ElementsAre(1, 7, 1, 8, 2, 7, 2, 8));
  EXPECT_THAT(Sizes(CartesianProd({v})), ElementsAre(3));
  EXPECT_EQ(Values(Tensor::FromExtent(Extent(5)))[0], 5);
  EXPECT_EQ(Tensor::FromExtent(Extent(5), kFloat64).dtype(), kFloat64);
}

TEST(TensorPlain, Distances) {
  const Tensor x = Tensor::From({1.0, 2.0, -3.0}), y = Tensor::From({0.0, 4.0, -3.0});
  EXPECT_THAT(Values(x.Dist(y, 1)), ElementsAre(3));
  ExpectNear(Values(x.Dist(y, 3)), {std::cbrt(9)});
  EXPECT_THAT(Values(x.Dist(y, kInf)), ElementsAre(2));
}

TEST(TensorPlain, LossesOfSigns) {
  const LossReduction none = LossReduction::kNone;
  const Tensor sign = Tensor::From({1.0, -1.0, -1.0});
  const Tensor x = Tensor::From({0.5, 0.25, 3.0}), y = Tensor::From({0.0, 1.0, 1.0});
  EXPECT_THAT(Values(x.HingeEmbeddingLoss(sign, 1, none)), ElementsAre(0.5, 0.75, 0));
  EXPECT_THAT(Values(x.MarginRankingLoss(y, sign, 0.25, none)), ElementsAre(0, 0, 2.25));
  const Tensor rows = Tensor::From({{1.0, 0.0}, {0.0, 2.0}, {1.0, 0.0}});
  const Tensor others = Tensor::From({{0.0, 1.0}, {1.0, 1.0}, {-1.0, 0.0}});
  ExpectNear(Values(rows.CosineEmbeddingLoss(others, sign, 0.25, none)),
             {1, std::sqrt(0.5) - 0.25, 0});
  ExpectNear(Values(rows.CosineEmbeddingLoss(others, sign, 0.25, LossReduction::kSum)),
             {0.75 + std::sqrt(0.5)});
}

TEST(TensorPlain, DrawnLike) {
  const Tensor like = Tensor::Zeros({40, 50}, kFloat16);
  for (const Tensor& t : {like.RandLike(), like.RandNLike()}) {
    EXPECT_EQ(t.shape(), like.shape());
    EXPECT_EQ(t.dtype(), kFloat16);
  }
  for (double v : Values(like.RandLike())) EXPECT_TRUE(v >= 0 && v < 1);
  double sum = 0, squares = 0;
  for (double v : Values(like.RandNLike())) sum += v, squares += v * v;
  EXPECT_NEAR(sum / 2000, 0, 0.1);
  EXPECT_NEAR(squares / 2000, 1, 0.15);
  EXPECT_ERROR(Tensor::Zeros({2}, kInt32).RandLike(), "RandLike", "gives floats");
}

// Functions of several ops are computed in f32 and rounded once.
TEST(TensorPlain, NarrowFloatsAreRoundedOnce) {
  // -3 (1 + erf(-3 / sqrt 2)) / 2: in f16 the sum would be 0.
  const Tensor x = Tensor::From({-3.0, 0.1}).Cast(kFloat16);
  const double tail = std::erfc(3 / std::sqrt(2.0)) / 2;
  EXPECT_NEAR(Values(x.Gelu())[0], -3 * tail, 1e-5);
  EXPECT_NEAR(Values((-x).Erfc())[0], std::erfc(3), 1e-6);
  EXPECT_NEAR(Values(x.Tanhshrink())[1], 0.1 - std::tanh(0.1), 2e-6);
  EXPECT_EQ(x.Gelu().dtype(), kFloat16);
}

}  // namespace
}  // namespace tessera
