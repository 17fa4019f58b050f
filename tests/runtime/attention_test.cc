// Chained products, compiled: attention over many shapes, values and extents, against plain loops.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/realize.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

struct Case {
  int64_t heads, queries, keys, width;
  bool causal = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.heads << "x" << c.queries << "x" << c.keys << "x" << c.width
       << (c.causal ? " causal" : "");
}

std::vector<double> Expected(const std::vector<double>& q, const std::vector<double>& k,
                             const std::vector<double>& v, const Case& c) {
  std::vector<double> out(c.heads * c.queries * c.width);
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t i = 0; i < c.queries; ++i) {
      std::vector<double> scores(c.keys);
      double most = -kInf, sum = 0;
      for (int64_t j = 0; j < c.keys; ++j) {
        double s = 0;
        for (int64_t e = 0; e < c.width; ++e) {
          s += q[(h * c.queries + i) * c.width + e] * k[(h * c.keys + j) * c.width + e];
        }
        const bool seen = !c.causal || j <= i + c.keys - c.queries;
        scores[j] = seen ? s / std::sqrt(static_cast<double>(c.width)) : -kInf;
        most = std::isnan(scores[j]) || std::isnan(most) ? kNan : std::max(most, scores[j]);
      }
      for (double& s : scores) sum += s = std::exp(s - most);
      for (int64_t e = 0; e < c.width; ++e) {
        double& o = out[(h * c.queries + i) * c.width + e];
        for (int64_t j = 0; j < c.keys; ++j) {
          o += scores[j] / sum * v[(h * c.keys + j) * c.width + e];
        }
      }
    }
  }
  return out;
}

Tensor Heads(const std::vector<double>& values, int64_t heads, int64_t rows, int64_t width) {
  return Tensor::From(values, {heads, rows, width}).Cast(kFloat32).Realize();
}

std::vector<double> Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, AgreesWithLoops) {
  const Case c = GetParam();
  const auto q = Draw(c.heads * c.queries * c.width, 1, -2, 2),
             k = Draw(c.heads * c.keys * c.width, 2, -2, 2),
             v = Draw(c.heads * c.keys * c.width, 3, -2, 2);
  AttentionOptions options;
  options.causal = c.causal;
  const Tensor queries = Heads(q, c.heads, c.queries, c.width),
               keys = Heads(k, c.heads, c.keys, c.width),
               values = Heads(v, c.heads, c.keys, c.width);
  const Tensor y = queries.ScaledDotProductAttention(keys, values, options);
  ExpectNear(Computed(y), Expected(q, k, v, c), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Case{1, 4, 1, 1}, Case{1, 4, 9, 3}, Case{3, 7, 33, 5},
                                         Case{2, 100, 300, 40}, Case{4, 333, 517, 24},
                                         Case{1, 1009, 61, 16}, Case{8, 4, 700, 64},
                                         Case{3, 257, 2, 7}, Case{1, 64, 64, 64, true},
                                         Case{5, 31, 31, 8, true}, Case{2, 20, 120, 17, true},
                                         Case{3, 500, 1500, 24}, Case{2, 299, 3000, 33, true}));

// With more queries than keys the first queries come before any key.
TEST(AttentionValues, QueriesBeforeAllKeysGiveZerosAndNoGradients) {
  const Tensor q = Tensor::From(Draw(2 * 6 * 3, 1), {2, 6, 3}),
               k = Tensor::From(Draw(2 * 4 * 3, 2), {2, 4, 3}),
               v = Tensor::From(Draw(2 * 4 * 3, 3), {2, 4, 3});
  AttentionOptions options;
  options.causal = true;
  const Tensor y = q.ScaledDotProductAttention(k, v, options);
  const std::vector<double> values = Computed(y), grads = Computed(Grad(y.Sum(), {q})[0]);
  for (int i = 0; i < 2 * 6 * 3; ++i) {
    const int row = i / 3 % 6;
    // The third query sees one key: its share is 1 whatever the query is.
    EXPECT_EQ(values[i] != 0, row >= 2) << i;
    EXPECT_EQ(std::abs(grads[i]) > 1e-9, row >= 3) << i << ": " << grads[i];
  }
}

// A row that may see no key gives zeros; keys at infinity, and NaN each where they belong and
// nowhere else.
TEST(AttentionValues, SpecialOnes) {
  const Case c{2, 40, 50, 8};
  auto q = Draw(c.heads * c.queries * c.width, 1), k = Draw(c.heads * c.keys * c.width, 2),
       v = Draw(c.heads * c.keys * c.width, 3);
  q[3 * c.width] = kInf;
  q[5 * c.width + 1] = kNan;
  v[7 * c.width + 2] = kInf;
  k[(c.keys + 11) * c.width] = 1e30;
  const auto heads = [&](const std::vector<double>& x, int64_t rows) {
    return Heads(x, c.heads, rows, c.width);
  };
  const Tensor y =
      heads(q, c.queries).ScaledDotProductAttention(heads(k, c.keys), heads(v, c.keys));
  ExpectNear(Computed(y), Expected(q, k, v, c), 2e-5);

  AttentionOptions none;
  none.mask = Tensor::Arange(c.queries).Unsqueeze(1) + 0 * Tensor::Arange(c.keys) > 0;
  const auto plain = Draw(c.heads * c.queries * c.width, 4), values = Draw(v.size(), 5);
  const std::vector<double> got = Computed(
      heads(plain, c.queries)
          .ScaledDotProductAttention(
              heads(plain, c.queries).SliceAxis(1, {0, 1}).Expand({c.heads, c.keys, c.width}),
              heads(values, c.keys), none));
  for (int64_t i = 0; i < c.heads * c.queries * c.width; ++i) {
    const bool seen = i / c.width % c.queries > 0;
    EXPECT_EQ(got[i] != 0, seen) << i;
    EXPECT_FALSE(std::isnan(got[i])) << i;
  }
}

// Matrix units take these, where rows, keys and columns fill their tiles and where they do not.
class AttentionOfHalves : public testing::TestWithParam<Case> {};

TEST_P(AttentionOfHalves, AgreesWithLoops) {
  const Case c = GetParam();
  const auto round = [](std::vector<double> x) {
    for (double& e : x) e = std::round(e * 64) / 64;
    return x;
  };
  const auto q = round(Draw(c.heads * c.queries * c.width, 1)),
             k = round(Draw(c.heads * c.keys * c.width, 2)),
             v = round(Draw(c.heads * c.keys * c.width, 3));
  AttentionOptions options;
  options.causal = c.causal;
  for (DType dtype : {kFloat16, kBFloat16}) {
    const auto heads = [&](const std::vector<double>& x, int64_t rows) {
      return Heads(x, c.heads, rows, c.width).Cast(dtype).Realize();
    };
    const Tensor y =
        heads(q, c.queries).ScaledDotProductAttention(heads(k, c.keys), heads(v, c.keys), options);
    EXPECT_EQ(y.dtype(), dtype);
    ExpectNear(Computed(y), Expected(q, k, v, c), dtype == kFloat16 ? 2e-3 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOfHalves,
                         testing::Values(Case{2, 33, 70, 16}, Case{2, 64, 96, 32},
                                         Case{3, 80, 128, 64}, Case{2, 48, 64, 48},
                                         Case{1, 100, 65, 33}, Case{2, 17, 300, 32},
                                         Case{2, 96, 96, 32, true}, Case{3, 40, 160, 64, true},
                                         Case{4, 256, 1024, 64}));

// Shares below 2^-126 and those of infinities, in tiles that the rows fill.
TEST(AttentionValues, SpecialOnesOfHalfPrecision) {
  const Case c{2, 64, 64, 32};
  auto q = Draw(c.heads * c.queries * c.width, 1), k = Draw(c.heads * c.keys * c.width, 2),
       v = Draw(c.heads * c.keys * c.width, 3);
  const auto rounded = [&](std::vector<double>& x) {
    const std::vector<double> bits =
        Computed(Tensor::From(x, {static_cast<int64_t>(x.size())}).Cast(kBFloat16));
    x = bits;
  };
  for (auto* x : {&q, &k, &v}) rounded(*x);
  for (int64_t e = 0; e < c.width; ++e) q[9 * c.width + e] *= 128;  // one key has all of it
  q[5 * c.width + 1] = kNan;
  v[7 * c.width + 2] = kInf;
  const auto heads = [&](const std::vector<double>& x, int64_t rows) {
    return Heads(x, c.heads, rows, c.width).Cast(kBFloat16).Realize();
  };
  const std::vector<double> got =
      Computed(heads(q, c.queries).ScaledDotProductAttention(heads(k, c.keys), heads(v, c.keys)));
  const std::vector<double> want = Expected(q, k, v, c);
  for (int64_t i = 0; i < c.heads * c.queries * c.width; ++i) {
    SCOPED_TRACE(i);
    if (i < c.queries * c.width && i / c.width == 5) {
      EXPECT_TRUE(std::isnan(got[i]));
    } else if (i < c.queries * c.width && i % c.width == 2) {
      // A share that is zero as bf16 makes NaN of what is infinite.
      EXPECT_TRUE(std::isinf(got[i]) || std::isnan(got[i]));
    } else {
      EXPECT_NEAR(got[i], want[i], 2e-2);
    }
  }
}

// One compile serves every number of keys, none of which lies on the edge of a tile.
TEST(AttentionValues, OverKeysSeenSoFar) {
  const int64_t heads = 2, queries = 12, most = 90, width = 16;
  const auto q = Draw(heads * queries * width, 1), k = Draw(heads * most * width, 2),
             v = Draw(heads * most * width, 3);
  const Tensor keys = Heads(k, heads, most, width).Realize(), values = Heads(v, heads, most, width);
  const Variable seen("seen", 1, most);
  Jit step([&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Slice part{0, seen};
    return {in[0].ScaledDotProductAttention(keys.SliceAxis(1, part), values.SliceAxis(1, part))};
  });
  const Tensor input = Heads(q, heads, queries, width);
  for (int64_t n : {1, 2, 15, 16, 17, 31, 64, 89, 90}) {
    std::vector<double> kn, vn;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < n * width; ++i) {
        kn.push_back(k[h * most * width + i]);
        vn.push_back(v[h * most * width + i]);
      }
    }
    ExpectNear(Computed(step.One({input}, {{"seen", n}})),
               Expected(q, kn, vn, {heads, queries, n, width}), 2e-5);
  }
}

// Heads of few elements, side by side in the rows of one matrix: lanes would lie along them, if
// they were not the loop around it all.
TEST(AttentionValues, OfHeadsSideBySide) {
  for (const Case& c : {Case{4, 6, 6, 2}, Case{8, 4, 5, 2}, Case{9, 3, 7, 1}}) {
    const auto data = [&](int64_t rows, int seed) {
      std::vector<double> v(c.heads * rows * c.width);
      for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((i * 7 + seed) % 13) / 8 - 1;
      return v;
    };
    const auto beside = [&](const std::vector<double>& v, int64_t rows) {
      const Tensor all = Heads(v, c.heads, rows, c.width).Permute({1, 0, 2});
      return all.Reshape({rows, -1}).Contiguous().Realize().Reshape({rows, c.heads, c.width});
    };
    const auto q = data(c.queries, 1), k = data(c.keys, 2), v = data(c.keys, 3);
    const auto head = [&](const std::vector<double>& x, int64_t rows) {
      return beside(x, rows).Permute({1, 0, 2});
    };
    const Tensor scores = head(q, c.queries).MatMul(head(k, c.keys).Transpose());
    const std::vector<double> got = Computed(
        (scores / std::sqrt(c.width)).Softmax().MatMul(head(v, c.keys)).Permute({1, 0, 2}));
    const std::vector<double> expected = Expected(q, k, v, c);
    for (int64_t i = 0; i < c.queries; ++i) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t e = 0; e < c.width; ++e) {
          EXPECT_NEAR(got[(i * c.heads + h) * c.width + e],
                      expected[(h * c.queries + i) * c.width + e], 1e-5);
        }
      }
    }
  }
}

// What is written lies where it is read: the sum is taken before, and once.
// Neighbouring heads of queries share keys and values, as if these were repeated.
TEST(AttentionValues, OfHeadsThatShareKeys) {
  const Tensor q = Tensor::RandN({2, 6, 5, 8}).Realize(), k = Tensor::RandN({2, 2, 7, 8}).Realize(),
               v = Tensor::RandN({2, 2, 7, 4}).Realize();
  const Tensor k_all = k.RepeatInterleave(3, 1), v_all = v.RepeatInterleave(3, 1);
  std::vector<AttentionOptions> all(6);
  all[1].causal = true;
  const std::vector<Dims> masks = {{5, 7}, {6, 5, 7}, {1, 5, 7}, {2, 6, 1, 7}};
  for (size_t i = 0; i < masks.size(); ++i) all[i + 2].mask = Tensor::RandN(masks[i]).Realize();
  for (const AttentionOptions& o : all) {
    const Tensor got = q.ScaledDotProductAttention(k, v, o);
    const Tensor want = q.ScaledDotProductAttention(k_all, v_all, o);
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_TRUE(got.AllClose(want, 1e-5, 1e-5).Item<bool>());
  }
  // Queries of fewer axes than the mask.
  AttentionOptions o;
  o.mask = Tensor::RandN({3, 6, 5, 7}).Realize();
  const Tensor one = q.Select(0, 0);
  EXPECT_TRUE(
      one.ScaledDotProductAttention(k.Select(0, 0), v.Select(0, 0), o)
          .AllClose(one.ScaledDotProductAttention(k_all.Select(0, 0), v_all.Select(0, 0), o), 1e-5,
                    1e-5)
          .Item<bool>());
  o.mask = Tensor::RandN({2, 5, 7});
  EXPECT_THROW(q.ScaledDotProductAttention(k, v, o), Error);
  EXPECT_THROW(q.SliceAxis(1, {0, 5}).ScaledDotProductAttention(k, v), Error);
}

TEST(AttentionValues, AddedInPlace) {
  const Case c{1, 101, 40, 8};
  const auto q = Draw(c.queries * c.width, 1), k = Draw(c.keys * c.width, 2),
             v = Draw(c.keys * c.width, 3);
  Tensor x = Heads(q, 1, c.queries, c.width);
  x.Assign(x + Heads(q, 1, c.queries, c.width)
                   .ScaledDotProductAttention(Heads(k, 1, c.keys, c.width),
                                              Heads(v, 1, c.keys, c.width)));
  std::vector<double> want = Expected(q, k, v, c);
  for (size_t i = 0; i < want.size(); ++i) want[i] += q[i];
  ExpectNear(Computed(x), want, 2e-5);
}

// Two layers with a norm between, over a batch: panels of the second that no batch changes are
// filled before the loop over batches, and what the first fills in it must leave them alone.
TEST(ChainedLayers, PanelsFilledBeforeALoopLastThroughIt) {
  constexpr int64_t kBatch = 4, kRows = 16, kWide = 256, kNarrow = 128;
  const auto random = [](const Dims& dims) { return Tensor::Uniform(-1, 1, dims).Realize(); };
  const Tensor x = random({kBatch, kRows, kWide}), skip = random({kBatch, kRows, kNarrow}),
               w = random({kNarrow, kWide});
  for (int64_t columns : {40, 72}) {
    const Tensor out = random({columns, kNarrow});
    const Tensor y = (skip + x.Linear(w)).LayerNorm().Linear(out);
    Tensor first = skip + x.Linear(w);
    first.Realize();
    Tensor norm = first.LayerNorm();
    norm.Realize();
    const std::vector<double> want = Computed(norm.Linear(out)), got = Computed(y);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << columns;
  }
}

// Both products in tiles, in pairs of steps, or one in each: the second one's operand lies in
// scratch that the first one's loops fill.
TEST(ChainedLayers, OfHalfPrecision) {
  for (const auto& [rows, keys, width, columns] : {std::array<int64_t, 4>{512, 250, 32, 64},
                                                   {96, 96, 48, 32},
                                                   {512, 16, 64, 48},
                                                   {64, 64, 32, 32},
                                                   {17, 300, 33, 16},
                                                   {256, 128, 128, 128},
                                                   {48, 32, 48, 16},
                                                   {512, 250, 32, 128}}) {
    SCOPED_TRACE(testing::Message() << rows << " " << keys << " " << width << " " << columns);
    const auto random = [](const Dims& dims) {
      return Tensor::Uniform(-1, 1, dims).Cast(kBFloat16).Realize();
    };
    const Tensor a = random({rows, width}), b = random({width, keys}), c = random({keys, columns});
    const auto wide = [](const Tensor& t) { return t.Cast(kFloat64).Realize(); };
    const std::vector<double> want =
        Computed(wide(a).MatMul(wide(b)).Softmax().Realize().MatMul(wide(c)));
    ExpectNear(Computed(a.MatMul(b).Softmax().MatMul(c)), want, 3e-2);
  }
}

}  // namespace
}  // namespace tessera
