// Contractions, convolutions, norms, attention and gathering, against plain loops.
#include <algorithm>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(TensorNN, MatMulShapes) {
  const auto shape = [](Dims a, Dims b) {
    return Sizes(Tensor::Zeros(a).MatMul(Tensor::Zeros(b)));
  };
  EXPECT_THAT(shape({2, 3}, {3, 4}), ElementsAre(2, 4));
  EXPECT_THAT(shape({3}, {3}), ElementsAre());
  EXPECT_THAT(shape({2, 3}, {3}), ElementsAre(2));
  EXPECT_THAT(shape({3}, {3, 4}), ElementsAre(4));
  EXPECT_THAT(shape({5, 2, 3}, {3, 4}), ElementsAre(5, 2, 4));
  EXPECT_THAT(shape({2, 3}, {5, 3, 4}), ElementsAre(5, 2, 4));
  EXPECT_THAT(shape({6, 1, 2, 3}, {5, 3, 4}), ElementsAre(6, 5, 2, 4));
  EXPECT_THAT(shape({5, 2, 3}, {3}), ElementsAre(5, 2));
  EXPECT_THAT(shape({3}, {5, 3, 4}), ElementsAre(5, 4));
  EXPECT_THAT(shape({0, 3}, {3, 0}), ElementsAre(0, 0));
  EXPECT_THAT(shape({1, 1}, {1, 1}), ElementsAre(1, 1));
  EXPECT_THAT(Values(Tensor::Zeros({2, 0}).MatMul(Tensor::Zeros({0, 2}))), ElementsAre(0, 0, 0, 0));
  const Tensor x = Tensor::Zeros({4, 5});
  EXPECT_ERROR(x.MatMul(Tensor::Zeros({4, 5})), "MatMul", "f32[4, 5] and axis 0 of f32[4, 5]");
  EXPECT_ERROR(x.MatMul(Tensor::Scalar(1)), "MatMul", "use *");
  EXPECT_ERROR(Tensor::Zeros({2, 4, 5}).MatMul(Tensor::Zeros({3, 5, 4})), "MatMul", "broadcast");
}

TEST(TensorNN, MatMulValues) {
  const int64_t b = 2, m = 3, k = 5, n = 4;
  const auto x = Draw(b * m * k), w = Draw(k * n, 2);
  std::vector<double> expected(b * m * n);
  for (int64_t i = 0; i < b * m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) expected[i * n + j] += x[i * k + l] * w[l * n + j];
    }
  }
  const Tensor tx = Tensor::From(x, {b, m, k}), tw = Tensor::From(w, {k, n});
  ExpectNear(Values(tx.MatMul(tw)), expected, 1e-14);
  ExpectNear(Values(tx.Linear(tw.T().Contiguous())), expected, 1e-14);
  ExpectNear(Values(tx.MatMul(tw.Expand({b, k, n}))), expected, 1e-14);
  const Tensor bias = Tensor::From({1, 2, 3, 4});
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += i % n + 1;
  ExpectNear(Values(tx.Linear(tw.T(), bias)), expected, 1e-14);
  EXPECT_THAT(Values(Tensor::From({1, 2}).Dot(Tensor::From({3, 4}))), ElementsAre(11));
  EXPECT_THAT(Values(Tensor::From({1, 2}).MatMul(Tensor::From({{1, 2}, {3, 4}}))),
              ElementsAre(7, 10));
  EXPECT_THAT(Values(Tensor::From({{1, 2}, {3, 4}}).MatMul(Tensor::From({1, 2}))),
              ElementsAre(5, 11));
  EXPECT_ERROR(tx.Linear(tw), "Linear", "[out, in]");
}

TEST(TensorNN, NarrowDtypesAreSummedWide) {
  const Tensor i = Tensor::Full({1, 200}, 127, kInt8);
  EXPECT_EQ(i.MatMul(i.T()).dtype(), kInt32);
  EXPECT_THAT(Values(i.MatMul(i.T())), ElementsAre(127 * 127 * 200));
  const Tensor h = Tensor::Ones({1, 4096}, kFloat16);
  EXPECT_EQ(h.MatMul(h.T()).dtype(), kFloat16);
  EXPECT_THAT(Values(h.MatMul(h.T())), ElementsAre(4096));
  EXPECT_EQ(h.MatMul(Tensor::Ones({4096, 1}, kBFloat16)).dtype(), kFloat32);
  EXPECT_EQ(Tensor::Ones({2, 2}, kBool).MatMul(Tensor::Ones({2}, kBool)).dtype(), kInt32);
}

TEST(TensorNN, MatMulNodes) {
  const Tensor x = Tensor::Empty({1, 8}), w = Tensor::Empty({8, 16});
  const int64_t before = LiveNodes();
  const Tensor y = x.MatMul(w);
  EXPECT_LE(LiveNodes() - before, 6);
}

struct ConvCase {
  int64_t n, c, h, w, out, kh, kw, stride, padding, dilation, groups;
};

TEST(TensorNN, Conv2d) {
  for (const ConvCase& t :
       {ConvCase{2, 3, 7, 6, 4, 3, 2, 1, 0, 1, 1}, ConvCase{1, 4, 8, 9, 6, 3, 3, 2, 1, 1, 2},
        ConvCase{1, 2, 9, 9, 2, 3, 3, 1, 2, 2, 2}, ConvCase{1, 1, 5, 5, 1, 1, 1, 3, 0, 1, 1}}) {
    const auto x = Draw(t.n * t.c * t.h * t.w), k = Draw(t.out * t.c / t.groups * t.kh * t.kw, 2);
    const int64_t oh = (t.h + 2 * t.padding - t.dilation * (t.kh - 1) - 1) / t.stride + 1;
    const int64_t ow = (t.w + 2 * t.padding - t.dilation * (t.kw - 1) - 1) / t.stride + 1;
    const int64_t in = t.c / t.groups, per = t.out / t.groups;
    std::vector<double> expected;
    for (int64_t n = 0; n < t.n; ++n) {
      for (int64_t o = 0; o < t.out; ++o) {
        for (int64_t y = 0; y < oh; ++y) {
          for (int64_t z = 0; z < ow; ++z) {
            double sum = 0.25 * static_cast<double>(o);
            for (int64_t i = 0; i < in; ++i) {
              for (int64_t a = 0; a < t.kh; ++a) {
                for (int64_t b = 0; b < t.kw; ++b) {
                  const int64_t row = y * t.stride + a * t.dilation - t.padding;
                  const int64_t column = z * t.stride + b * t.dilation - t.padding;
                  if (row < 0 || row >= t.h || column < 0 || column >= t.w) continue;
                  const int64_t channel = o / per * in + i;
                  sum += x[((n * t.c + channel) * t.h + row) * t.w + column] *
                         k[((o * in + i) * t.kh + a) * t.kw + b];
                }
              }
            }
            expected.push_back(sum);
          }
        }
      }
    }
    Conv2dOptions o;
    o.bias = Tensor::Arange(t.out).Cast(kFloat64) * 0.25;
    o.stride = {t.stride, t.stride};
    o.padding = {t.padding, t.padding};
    o.dilation = {t.dilation, t.dilation};
    o.groups = t.groups;
    const Tensor y =
        Tensor::From(x, {t.n, t.c, t.h, t.w}).Conv2d(Tensor::From(k, {t.out, in, t.kh, t.kw}), o);
    EXPECT_THAT(Sizes(y), ElementsAre(t.n, t.out, oh, ow));
    ExpectNear(Values(y), expected, 1e-13);
  }
  const Tensor x = Tensor::Zeros({1, 3, 4, 4});
  EXPECT_ERROR(x.Conv2d(Tensor::Zeros({2, 4, 3, 3})), "Conv2d", "[out, 3, ...]");
  EXPECT_ERROR(x.Conv2d(Tensor::Zeros({2, 3, 5, 3})), "Conv2d", "does not fit axis 2");
  EXPECT_ERROR(x[0].Conv2d(Tensor::Zeros({2, 3, 3, 3})), "Conv2d", "takes images");
}

TEST(TensorNN, Pooling) {
  const Tensor x = Tensor::Arange(16).Cast(kFloat32).Reshape({1, 1, 4, 4});
  EXPECT_THAT(Values(x.MaxPool2d({})), ElementsAre(5, 7, 13, 15));
  EXPECT_THAT(Values(x.AvgPool2d({})), ElementsAre(2.5, 4.5, 10.5, 12.5));
  Pool2dOptions o;
  o.padding = {1, 1};
  EXPECT_THAT(Values((-x - 1).MaxPool2d(o)), ElementsAre(-1, -2, -4, -5, -6, -8, -13, -14, -16));
  EXPECT_EQ(Values(x.AvgPool2d(o))[1], 0.75);
  o.count_padding = false;
  EXPECT_EQ(Values(x.AvgPool2d(o))[1], 1.5);
  EXPECT_THAT(Values(x.Cast(kInt8).MaxPool2d({})), ElementsAre(5, 7, 13, 15));
  // Windows that see padding alone.
  const Tensor line = Tensor::From({1.0, 2.0}).Reshape({1, 1, 2});
  PoolOptions wide{.size = {2}, .stride = {2}, .padding = {2}};
  EXPECT_THAT(Values(line.MaxPool(wide)), ElementsAre(-kInf, 2, -kInf));
  EXPECT_THAT(Values(line.Cast(kInt8).MaxPool(wide)), ElementsAre(-128, 2, -128));
  EXPECT_THAT(Values(line.AvgPool(wide)), ElementsAre(0, 1.5, 0));
  wide.count_padding = false;
  ExpectNear(Values(line.AvgPool(wide)), {kNan, 1.5, kNan});
  // One that reaches over the end from the begin on, and one that would begin a stride further.
  PoolOptions over{.size = {3}, .stride = {2}, .ceil_mode = true};
  EXPECT_THAT(Values(line.MaxPool(over)), ElementsAre(2));
  EXPECT_THAT(Values(line.AvgPool(over)), ElementsAre(1.5));
  over.size = {4};
  EXPECT_ERROR(line.AvgPool(over), "AvgPool", "a window of 4 elements does not fit axis 2");
  o.size = {2, 2, 2};
  EXPECT_ERROR(x.MaxPool2d(o), "MaxPool2d",
               "size must be one number, or one for each of the 2 axes");
}

TEST(TensorNN, Norms) {
  const auto v = Draw(12);
  const Tensor x = Tensor::From(v, {3, 4});
  const Tensor w = Tensor::From({1.0, 2.0, 3.0, 4.0}), b = Tensor::From({0.5, 0.0, -0.5, 1.0});
  std::vector<double> layer, rms;
  for (int r = 0; r < 3; ++r) {
    double mean = 0, variance = 0, square = 0;
    for (int c = 0; c < 4; ++c) mean += v[r * 4 + c] / 4, square += v[r * 4 + c] * v[r * 4 + c] / 4;
    for (int c = 0; c < 4; ++c) variance += (v[r * 4 + c] - mean) * (v[r * 4 + c] - mean) / 4;
    for (int c = 0; c < 4; ++c) {
      const double bias[4] = {0.5, 0, -0.5, 1};
      layer.push_back((v[r * 4 + c] - mean) / std::sqrt(variance + 1e-5) * (c + 1) + bias[c]);
      rms.push_back(v[r * 4 + c] / std::sqrt(square + 1e-6) * (c + 1));
    }
  }
  ExpectNear(Values(x.LayerNorm(w, b)), layer, 1e-13);
  ExpectNear(Values(x.RmsNorm(w)), rms, 1e-13);
  EXPECT_EQ(x.Cast(kFloat16).RmsNorm().dtype(), kFloat16);
  const Tensor halves = x.Reshape({3, 2, 2});
  ExpectNear(Values(halves.RmsNorm(w.Reshape({2, 2}), 1e-6, 2)), rms, 1e-13);
  EXPECT_ERROR(x.RmsNorm({}, 1e-6, 3), "RmsNorm", "last 3 axes");
  EXPECT_ERROR(x.LayerNorm({}, {}, 1e-5, 3), "LayerNorm", "last 3 axes");
  // f16 squares overflow; the norm is computed in f32.
  ExpectNear(Values(Tensor::Full({4}, 1000, kFloat16).RmsNorm()), {1, 1, 1, 1});
  const Tensor image = Tensor::From(v, {1, 3, 2, 2});
  const Tensor mean = Tensor::From({1, 2, 3}), variance = Tensor::From({4, 9, 16});
  std::vector<double> expected;
  for (int i = 0; i < 12; ++i) {
    const int c = i / 4;
    expected.push_back((v[i] - (c + 1)) / std::sqrt((c + 2) * (c + 2) + 1e-5) * 2 + 1);
  }
  ExpectNear(Values(image.BatchNorm(mean, variance, Tensor::From({2, 2, 2}), Tensor::Ones({3}))),
             expected, 1e-6);
  EXPECT_ERROR(image.BatchNorm(Tensor::Zeros({2}), variance), "BatchNorm", "each channel");
  // -inf in a normed row is NaN, no crash.
  EXPECT_TRUE(std::isnan(Values(Tensor::Zeros({4}).Log2().LayerNorm())[0]));
}

TEST(TensorNN, Attention) {
  const int64_t l = 3, s = 5, e = 4, f = 2;
  const auto q = Draw(l * e), k = Draw(s * e, 2), v = Draw(s * f, 3);
  const auto expected = [&](auto seen) {
    std::vector<double> out;
    for (int64_t i = 0; i < l; ++i) {
      std::vector<double> p(s);
      double total = 0;
      for (int64_t j = 0; j < s; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < e; ++d) dot += q[i * e + d] * k[j * e + d];
        p[j] = seen(i, j) ? std::exp(dot / 2) : 0;
        total += p[j];
      }
      for (int64_t c = 0; c < f; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < s; ++j) sum += p[j] / total * v[j * f + c];
        out.push_back(sum);
      }
    }
    return out;
  };
  const Tensor tq = Tensor::From(q, {l, e}), tk = Tensor::From(k, {s, e}),
               tv = Tensor::From(v, {s, f});
  const auto all = [](int64_t, int64_t) { return true; };
  ExpectNear(Values(tq.ScaledDotProductAttention(tk, tv)), expected(all), 1e-13);
  AttentionOptions causal;
  causal.causal = true;
  const auto below = [&](int64_t i, int64_t j) { return j <= i + s - l; };
  ExpectNear(Values(tq.ScaledDotProductAttention(tk, tv, causal)), expected(below), 1e-13);
  AttentionOptions masked;
  masked.mask = Tensor::Arange(s) % 2 == 0;
  const auto even = [](int64_t, int64_t j) { return j % 2 == 0; };
  ExpectNear(Values(tq.ScaledDotProductAttention(tk, tv, masked)), expected(even), 1e-13);
  masked.mask = Where(masked.mask, 0.0, -kInf);
  ExpectNear(Values(tq.ScaledDotProductAttention(tk, tv, masked)), expected(even), 1e-13);
  masked.mask = Tensor::Zeros({l, s}, kBool);  // nothing may be seen
  for (double v : Values(tq.ScaledDotProductAttention(tk, tv, masked))) EXPECT_EQ(v, 0);
  EXPECT_ERROR(tq.ScaledDotProductAttention(tv, tv), "ScaledDotProductAttention",
               "keys [..., S, E]");
}

TEST(TensorNN, Gathering) {
  const Tensor x = Tensor::Arange(12).Reshape({3, 4});
  const Tensor i = Tensor::From({2, -1, 0, 3});
  EXPECT_THAT(Values(x.Take(i, 1)), ElementsAre(2, 0, 0, 3, 6, 0, 4, 7, 10, 0, 8, 11));
  EXPECT_THAT(Sizes(x.Take(i.Reshape({2, 2}))), ElementsAre(2, 2, 4));
  EXPECT_THAT(Values(x.Embedding(Tensor::From({1}))), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Values(x.Take(Tensor::From({200}, kUInt8))), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Values(x.Gather(1, Tensor::From({{3, 0}, {1, 4}, {-1, 2}}))),
              ElementsAre(3, 0, 5, 0, 0, 10));
  EXPECT_THAT(Values(x.Gather(0, Tensor::From({{2, 1, 0, 3}}))), ElementsAre(8, 5, 2, 0));
  EXPECT_THAT(Values(x.Gather(1, Tensor::From({{3}}, kUInt64))), ElementsAre(3));
  EXPECT_THAT(Values(x.Gather(1, Tensor::Full({1, 1}, (int64_t{1} << 32) + 1))), ElementsAre(0));
  EXPECT_THAT(Sizes(x.Gather(0, Tensor::Zeros({0, 4}, kInt32))), ElementsAre(0, 4));
  EXPECT_ERROR(x.Take(Tensor::From({1.0})), "Take", "integer dtype");
  EXPECT_ERROR(x.Take(i, 2), "Take", "no axis 2");
  EXPECT_ERROR(x.Gather(1, i), "Gather", "rank");
  EXPECT_ERROR(x.Gather(1, Tensor::Zeros({4, 1}, kInt32)), "Gather", "lie within");
  EXPECT_ERROR(Tensor::Zeros({2}).Embedding(i), "Embedding", "two axes");
  EXPECT_THAT(Values(Tensor::From({1, 3, -1}).OneHot(3)), ElementsAre(0, 1, 0, 0, 0, 0, 0, 0, 0));
  // Classes beyond the index's own dtype are not confused with those below.
  EXPECT_EQ(Values(Tensor::From({1}, kUInt8).OneHot(300).Sum())[0], 1);
}

}  // namespace
}  // namespace tessera
