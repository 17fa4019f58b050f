// Attention of which rows see some of the keys alone: what is left out is what counts nothing.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/realize.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using Seen = std::function<bool(int64_t row, int64_t key)>;

struct Numbers {
  int64_t heads, queries, keys, width;
  std::vector<double> q = Draw(heads * queries * width, 1, -2, 2),
                      k = Draw(heads * keys * width, 2, -2, 2),
                      v = Draw(heads * keys * width, 3, -2, 2);
};

Tensor Heads(const std::vector<double>& values, int64_t heads, int64_t width,
             DType dtype = kFloat32) {
  const int64_t rows = static_cast<int64_t>(values.size()) / heads / width;
  return Tensor::From(values, {heads, rows, width}).Cast(dtype).Realize();
}

// A key that is not seen counts nothing but where 0 times its value is NaN.
std::vector<double> Expected(const Numbers& n, const Seen& seen) {
  std::vector<double> out;
  for (int64_t h = 0; h < n.heads; ++h) {
    for (int64_t i = 0; i < n.queries; ++i) {
      std::vector<double> scores;
      double most = -kInf, sum = 0;
      for (int64_t j = 0; j < n.keys; ++j) {
        double s = 0;
        for (int64_t e = 0; e < n.width; ++e) {
          s += n.q[(h * n.queries + i) * n.width + e] * n.k[(h * n.keys + j) * n.width + e];
        }
        scores.push_back(seen(i, j) ? s / std::sqrt(static_cast<double>(n.width)) : -kInf);
        most = std::max(most, scores[j]);
      }
      for (double& s : scores) sum += s = std::exp(s - most);
      for (int64_t e = 0; e < n.width; ++e) {
        double o = 0;
        for (int64_t j = 0; j < n.keys; ++j) {
          o += scores[j] / sum * n.v[(h * n.keys + j) * n.width + e];
        }
        out.push_back(o);
      }
    }
  }
  return out;
}

std::vector<double> Causal(const Numbers& n, DType dtype = kFloat32) {
  AttentionOptions o;
  o.causal = true;
  return Heads(n.q, n.heads, n.width, dtype)
      .ScaledDotProductAttention(Heads(n.k, n.heads, n.width, dtype),
                                 Heads(n.v, n.heads, n.width, dtype), o)
      .Cast(kFloat64)
      .ToVector<double>();
}

// Whole tiles and what is left of keys and of rows; panels that are kept, and that are not.
TEST(CausalAttention, AgreesWithLoops) {
  const std::vector<std::array<int64_t, 4>> shapes = {
      {1, 128, 128, 16}, {2, 256, 256, 24}, {3, 300, 300, 8},  {1, 517, 517, 32},
      {2, 129, 193, 5},  {1, 333, 999, 16}, {1, 130, 1000, 3}, {1, 1001, 1001, 4},
      {4, 160, 161, 17}, {1, 4, 9000, 8},   {1, 150, 9001, 8}};
  for (const auto& [heads, queries, keys, width] : shapes) {
    const Numbers n{heads, queries, keys, width};
    SCOPED_TRACE(testing::Message() << heads << " " << queries << " " << keys << " " << width);
    const int64_t ahead = keys - queries;
    ExpectNear(Causal(n), Expected(n, [&](int64_t i, int64_t j) { return j <= i + ahead; }), 2e-5);
  }
}

TEST(CausalAttention, OfHalves) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    Numbers n{2, 288, 288, 32};
    for (auto* values : {&n.q, &n.k, &n.v}) {
      for (double& x : *values) x = std::round(x * 16) / 16;
    }
    const double near = dtype == kFloat16 ? 4e-3 : 3e-2;
    ExpectNear(Causal(n, dtype), Expected(n, [](int64_t i, int64_t j) { return j <= i; }), near);
  }
}

// An infinite value is met by weights of 0 of all rows before it, and these are NaN then, however
// far before: what is computed does not depend on where tiles end.
TEST(CausalAttention, ValuesThatAreNotFinite) {
  for (const double special : {kInf, -kInf, kNan}) {
    Numbers n{2, 320, 320, 8};
    n.v[(n.keys - 1) * n.width + 3] = special;
    const std::vector<double> got = Causal(n);
    Numbers plain{2, 320, 320, 8};
    const std::vector<double> other = Causal(plain);
    for (size_t i = 0; i < got.size(); ++i) {
      const bool of_head = i < n.queries * static_cast<size_t>(n.width);
      if (of_head && i % n.width == 3) {
        const bool sees = i / n.width + 1 == static_cast<size_t>(n.queries);
        EXPECT_TRUE(sees && !std::isnan(special) ? got[i] == special : std::isnan(got[i])) << i;
      } else {
        EXPECT_NEAR(got[i], other[i], 1e-6) << i;
      }
    }
  }
}

// Keys that nobody sees may be anything, as they are masked.
TEST(CausalAttention, KeysThatAreNotFinite) {
  Numbers n{1, 256, 320, 8};
  const Seen seen = [](int64_t i, int64_t j) { return j <= i; };
  const auto want = Expected(n, seen);
  for (int64_t j = 256; j < 320; ++j) n.k[j * n.width + j % n.width] = j % 3 == 0 ? kNan : kInf;
  const Tensor row = Tensor::Arange(256).Unsqueeze(1), column = Tensor::Arange(320);
  AttentionOptions o;
  o.mask = column <= row;
  ExpectNear(Heads(n.q, 1, 8)
                 .ScaledDotProductAttention(Heads(n.k, 1, 8), Heads(n.v, 1, 8), o)
                 .Cast(kFloat64)
                 .ToVector<double>(),
             want, 2e-5);
}

// Some batches are shorter than others, and two are empty: their rows see nothing.
TEST(CausalAttention, LastKeysThatAreRead) {
  constexpr int64_t kBatch = 5, kRows = 160, kKeys = 400;
  const std::vector<int64_t> last = {INT64_MAX, 0, 129, -1, INT64_MIN};
  const Numbers n{kBatch, kRows, kKeys, 8};
  AttentionOptions o;
  o.mask = Tensor::Arange(kKeys) <= Tensor::From(last, {kBatch, 1, 1}).Realize();
  const std::vector<double> got =
      Heads(n.q, kBatch, 8)
          .ScaledDotProductAttention(Heads(n.k, kBatch, 8), Heads(n.v, kBatch, 8), o)
          .Cast(kFloat64)
          .ToVector<double>();
  const size_t each = kRows * 8;
  for (int64_t b = 0; b < kBatch; ++b) {
    const std::vector<double> want =
        Expected(n, [&](int64_t, int64_t j) { return j <= std::max<int64_t>(0, last[b]); });
    for (size_t i = b * each; i < (b + 1) * each; ++i) {
      EXPECT_NEAR(got[i], last[b] < 0 ? 0 : want[i], 2e-5) << b << " " << i;
    }
  }
}

// Tokens from a position on, in one plan: some keys of an extent that varies.
TEST(CausalAttention, FromAPosition) {
  constexpr int64_t kTokens = 192, kMost = 600, kWidth = 16, kHeads = 2;
  const Numbers all{kHeads, kTokens, kMost, kWidth};
  const Tensor keys = Heads(all.k, kHeads, kWidth), values = Heads(all.v, kHeads, kWidth);
  const Variable position("position", 0, kMost - kTokens);
  Jit step([&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Extent end = Extent(position) + kTokens;
    const Tensor scores = in[0].MatMul(keys.SliceAxis(1, {0, end}).Transpose()) / std::sqrt(kWidth);
    const Tensor query = (Tensor::Arange(kTokens) + Extent(position)).Unsqueeze(1);
    const Tensor seen = Tensor::Arange(end) <= query;
    return {Where(seen, scores, -kInf).Softmax().MatMul(values.SliceAxis(1, {0, end}))};
  });
  for (const int64_t at : {0, 1, 64, 65, 300, 408}) {
    Numbers n = all;
    n.keys = at + kTokens;
    n.k.clear();
    n.v.clear();
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t from = h * kMost * kWidth, to = from + n.keys * kWidth;
      n.k.insert(n.k.end(), all.k.begin() + from, all.k.begin() + to);
      n.v.insert(n.v.end(), all.v.begin() + from, all.v.begin() + to);
    }
    const Tensor y = step.One({Heads(all.q, kHeads, kWidth)}, {{"position", at}});
    ExpectNear(y.Cast(kFloat64).ToVector<double>(),
               Expected(n, [&](int64_t i, int64_t j) { return j <= i + at; }), 2e-5);
  }
}

// Masks of several forms over random shapes, some values of which are not finite, beside the
// evaluator.
TEST(CausalAttention, RandomMasksSlow) {
  std::mt19937 random(static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed()));
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < 10; ++i) {
    const int64_t heads = draw(1, 2), group = draw(1, 2), rows = draw(100, 300),
                  keys = draw(100, 500), width = draw(1, 8), columns = draw(1, 35);
    SCOPED_TRACE(testing::Message() << heads << " " << group << " " << rows << " " << keys << " "
                                    << width << " " << columns);
    const auto numbers = [&](const Dims& dims) { return Tensor::Uniform(-2, 2, dims).Realize(); };
    const Tensor q = numbers({heads, group * rows, width}), k = numbers({heads, keys, width});
    Tensor v = numbers({heads, keys, columns});
    if (draw(0, 2) == 0) v = Where(v > 1.999, kInf, v).Realize();
    const Tensor row = Tensor::Arange(rows).Unsqueeze(1), key = Tensor::Arange(keys);
    const int64_t ahead = draw(-50, keys);
    Tensor seen = key <= row + ahead;
    if (draw(0, 1) == 0) seen = seen & (key > row - draw(1, 300));
    if (draw(0, 2) == 0) seen = seen & (key < Tensor::RandInt(0, keys, {heads, 1, 1, 1}).Realize());
    const Tensor scores = q.MatMul(k.Transpose()).Reshape({heads, group, rows, keys});
    const Tensor masked =
        draw(0, 1) == 0 ? Where(seen, scores, -kInf) : Where(!seen, -kInf, scores);
    const Tensor flat = masked.Reshape({heads, group * rows, keys});
    EXPECT_REFERENCE(flat.Softmax().MatMul(v));
  }
}

}  // namespace
}  // namespace tessera
