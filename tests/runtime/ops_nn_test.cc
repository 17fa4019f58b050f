// Contractions, convolutions, pooling, indexing and random numbers.
#include <cmath>
#include <set>

#include "tests/support/check.h"

namespace tessera {
namespace {

Tensor Random(const std::vector<int64_t>& shape, DType dtype = kFloat32, uint64_t seed = 1) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-2, 2, shape).Realize().Cast(dtype);
}

Tensor Whole(const std::vector<int64_t>& shape, int64_t low, int64_t high, DType dtype) {
  Tensor::ManualSeed(7);
  return Tensor::RandInt(low, high, shape).Realize().Cast(dtype);
}

TEST(OpsNn, MatMulOfOddShapes) {
  for (auto [m, k, n] : {std::tuple{1, 1, 1},
                         {1, 7, 1},
                         {3, 1, 5},
                         {5, 3, 2},
                         {17, 33, 9},
                         {16, 16, 16},
                         {31, 64, 65},
                         {64, 5, 130},
                         {2, 300, 3}}) {
    const Tensor a = Random({m, k}), b = Random({k, n}, kFloat32, 2);
    Compared compared;
    EXPECT_EQ(
        Mismatch({a.MatMul(b), a.MatMul(b) + 1, b.T().MatMul(a.T()), a.T().T().MatMul(b).Relu()},
                 &compared),
        "");
    EXPECT_EQ(compared.unknown, 0);
  }
}

TEST(OpsNn, MatMulOfWholeNumbersIsExact) {
  const Tensor a = Whole({19, 37}, -8, 9, kFloat32), b = Whole({37, 23}, -8, 9, kFloat32);
  std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>(),
                     z = a.MatMul(b).ToVector<float>();
  for (int i = 0; i < 19; ++i) {
    for (int j = 0; j < 23; ++j) {
      float sum = 0;
      for (int k = 0; k < 37; ++k) sum += x[i * 37 + k] * y[k * 23 + j];
      ASSERT_EQ(z[i * 23 + j], sum) << i << ", " << j;
    }
  }
}

TEST(OpsNn, MatMulOfVectorsBatchesAndDtypes) {
  const Tensor v = Random({7}), m = Random({7, 5}), batch = Random({2, 3, 5, 7});
  EXPECT_REFERENCE(v.MatMul(m), v.MatMul(v), m.T().MatMul(v), batch.MatMul(m), batch.MatMul(v),
                   batch.MatMul(batch.Transpose()), m.T().MatMul(batch.Transpose()),
                   v.MatMul(batch.Transpose()));
  for (DType t : {kInt8, kInt32, kUInt16, kInt64}) {
    EXPECT_REFERENCE(Whole({5, 9}, 0, 100, t).MatMul(Whole({9, 4}, 0, 100, t)));
  }
  for (DType t : {kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat64}) {
    EXPECT_REFERENCE(Random({5, 9}, t).MatMul(Random({9, 4}, t)),
                     Random({5, 9}, t).Linear(Random({4, 9}, t), Random({4}, t)));
  }
  EXPECT_REFERENCE(Random({3, 4}, kFloat16).MatMul(Random({4, 5})));
}

TEST(OpsNn, ProloguesAndEpilogues) {
  const Tensor a = Random({9, 12}), b = Random({12, 10}), bias = Random({10});
  EXPECT_REFERENCE((a * 2).MatMul(b.Exp()), a.Softmax().MatMul(b), (a.MatMul(b) + bias).Relu(),
                   a.MatMul(b).Softmax(), a.MatMul(b).Sum(1),
                   a.Pad({{1, 1}, {2, 0}}).MatMul(b.Pad({{1, 1}, {0, 0}})),
                   a.MatMul(b).MatMul(b.T()), a.Flip(1).MatMul(b.Flip(0)),
                   a.MatMul(b) + a.MatMul(b * 2));
}

TEST(OpsNn, Convolutions) {
  const Tensor x = Random({2, 4, 7, 6}), w = Random({6, 4, 3, 2}), g = Random({6, 2, 3, 3});
  Conv2dOptions padded{
      .bias = Random({6}), .stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};
  Conv2dOptions grouped{.padding = {1, 1}, .groups = 2};
  EXPECT_REFERENCE(x.Conv2d(w), x.Conv2d(w, padded), x.Conv2d(g, grouped),
                   x.Conv2d(Random({5, 4, 1, 1})), x.Conv2d(w).Relu().Sum({2, 3}));
  Conv2dOptions depthwise{.groups = 4};
  EXPECT_REFERENCE(x.Conv2d(Random({8, 1, 2, 2}), depthwise),
                   x.Cast(kFloat16).Conv2d(w.Cast(kFloat16)));
}

TEST(OpsNn, Pooling) {
  const Tensor x = Random({2, 3, 7, 8});
  Pool2dOptions o{.size = {3, 2}, .stride = {2, 2}, .padding = {1, 1}};
  Pool2dOptions inside = o;
  inside.count_padding = false;
  EXPECT_REFERENCE(x.MaxPool2d({}), x.AvgPool2d({}), x.MaxPool2d(o), x.AvgPool2d(o),
                   x.AvgPool2d(inside), Whole({1, 1, 5, 5}, -100, 100, kInt8).MaxPool2d(o),
                   x.Cast(kBFloat16).AvgPool2d(o),
                   x.MaxPool2d({.size = {2, 2}, .dilation = {2, 3}}));
}

TEST(OpsNn, Attention) {
  const Tensor q = Random({2, 5, 8}), k = Random({2, 7, 8}), v = Random({2, 7, 6});
  EXPECT_REFERENCE(q.ScaledDotProductAttention(k, v),
                   q.ScaledDotProductAttention(k, v, {.causal = true}),
                   q.ScaledDotProductAttention(k, v, {.mask = Random({5, 7}) > -1}),
                   k.ScaledDotProductAttention(k, k, {.causal = true, .scale = 0.5}));
}

TEST(OpsNn, GatherTakeEmbedding) {
  const Tensor x = Random({5, 4, 3}), table = Random({9, 6});
  const Tensor index = Tensor::From({{0, 4, 2}, {-1, 5, 3}});
  EXPECT_REFERENCE(x.Take(index), x.Take(index, 1), x.Take(index, 2) + 1,
                   x.Take(index.Cast(kUInt8)), x.Take(index.Cast(kInt64)).Sum(0),
                   x.Take(index.Cast(kUInt64), 1));
  EXPECT_REFERENCE(table.Embedding(index), table.Embedding(index.Cast(kInt16) + 1).Sum(1),
                   table.Take(Tensor::Scalar(2)), table.Take(index[0][1]), index.OneHot(5),
                   index.OneHot(5, kInt8).Sum());
  const Tensor rows = Tensor::From({{{0, 1, 2}, {2, 1, 0}}});
  EXPECT_REFERENCE(x.Gather(0, rows), x.Gather(1, rows), x.Gather(2, rows.Reshape({2, 1, 3})));
  // Of what is computed, padded or moved; with indices that are computed.
  EXPECT_REFERENCE((x * 2).Flip(0).Take(index), x.Pad({{1, 1}, {0, 0}, {0, 0}}).Take(index),
                   x.Take((index + 1) * 2 - index), x.Sum(1).Take(index, 1),
                   x.Take(index.Take(index[1], 1)), Cat({x, x}).Take(index),
                   x.Take(index).Take(index, 3));
  EXPECT_REFERENCE(
      x.Take(Tensor::From(std::vector<int64_t>{INT64_MAX, INT64_MIN, 1, int64_t{1} << 32})));
  EXPECT_REFERENCE(Tensor::Zeros({0, 3}).Take(Tensor::From({0, 1})),
                   x.Take(Tensor::Zeros({0}, kInt32)));
}

TEST(OpsNn, RandomBitsAreTheReferences) {
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    Tensor::ManualSeed(11);
    EXPECT_REFERENCE(Tensor::Rand({3, 37}, t), Tensor::Uniform(-3, 2, {41}, t),
                     Tensor::RandN({50}, t));
  }
  for (DType t : {kInt8, kInt32, kInt64, kUInt64, kUInt16}) {
    EXPECT_REFERENCE(Tensor::RandInt(0, 100, {43}, t));
  }
  Tensor::ManualSeed(5);
  const std::vector<float> once = Tensor::Rand({9}).ToVector<float>();
  const std::vector<float> then = Tensor::Rand({9}).ToVector<float>();
  Tensor::ManualSeed(5);
  EXPECT_EQ(Tensor::Rand({9}).ToVector<float>(), once);
  EXPECT_EQ(Tensor::Rand({9}).ToVector<float>(), then);
  std::set<float> distinct(once.begin(), once.end());
  distinct.insert(then.begin(), then.end());
  EXPECT_EQ(distinct.size(), 18u);
  Tensor::ManualSeed(5);
  const Tensor x = Tensor::Rand({200000});
  const double mean = x.Mean().Item(), variance = x.Var().Item();
  EXPECT_NEAR(mean, 0.5, 0.005);
  EXPECT_NEAR(variance, 1.0 / 12, 0.002);
  const Tensor n = Tensor::RandN({200000});
  EXPECT_NEAR(n.Mean().Item(), 0, 0.01);
  EXPECT_NEAR(n.Var().Item(), 1, 0.02);
}

}  // namespace
}  // namespace tessera
