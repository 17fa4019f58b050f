// Routing of tokens to experts, and products by the experts' weights.
#include "examples/llm/mixture.h"

#include <algorithm>
#include <numeric>

#include "examples/llm/quant.h"
#include "tests/llm/small_files.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

TEST(Mixture, RoutesToTheGreatest) {
  const std::vector<float> logits = {1, 3, -2, 2.5, 0, 0, 7, 1};
  const Tensor t = Tensor::From(logits, {2, 4});
  for (const bool renormed : {false, true}) {
    const Routes routes = Route(t, {.used = 2, .renormed = renormed});
    EXPECT_EQ(routes.experts.ToVector<int32_t>(), std::vector<int32_t>({1, 3, 2, 3}));
    const std::vector<float> shares = routes.shares.ToVector<float>();
    for (int token = 0; token < 2; ++token) {
      const std::vector<float> of(logits.begin() + 4 * token, logits.begin() + 4 * token + 4);
      const int chosen[2] = {token == 0 ? 1 : 2, 3};
      double all = 0;
      for (int e = 0; e < 4; ++e) {
        if (!renormed || e == chosen[0] || e == chosen[1]) all += std::exp(of[e]);
      }
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(shares[2 * token + i], std::exp(of[chosen[i]]) / all, 1e-6);
      }
    }
  }
}

// By sigmoids, with a bias of the choice and in groups, as loops do it.
TEST(Mixture, RoutesWithinTheBestGroups) {
  constexpr int64_t kTokens = 9, kAll = 12, kUsed = 3;
  const Tensor logits = Tensor::RandN({kTokens, kAll}).Realize();
  const Tensor bias = (Tensor::RandN({kAll}) * 0.3).Realize();
  const std::vector<float> x = logits.ToVector<float>(), b = bias.ToVector<float>();
  for (const bool sigmoid : {false, true}) {
    for (const bool biased : {false, true}) {
      for (const int64_t groups : {1, 2, 3, 4, 6, 12}) {
        SCOPED_TRACE(absl::StrCat(sigmoid, biased, " ", groups));
        const Router router{.used = kUsed,
                            .renormed = sigmoid,
                            .sigmoid = sigmoid,
                            .bias = biased ? bias : Tensor(),
                            .groups = groups,
                            .groups_used = (groups + 3) / 4,
                            .scale = 2.5};
        if (kAll / groups * router.groups_used < kUsed) continue;
        const Routes routes = Route(logits, router);
        const std::vector<int32_t> experts = routes.experts.ToVector<int32_t>();
        const std::vector<float> shares = routes.shares.ToVector<float>();
        for (int64_t t = 0; t < kTokens; ++t) {
          std::vector<double> share(kAll), choice(kAll), good(groups);
          double sum = 0;
          for (int64_t e = 0; e < kAll; ++e) sum += std::exp(x[t * kAll + e]);
          for (int64_t e = 0; e < kAll; ++e) {
            const double v = x[t * kAll + e];
            share[e] = sigmoid ? 1 / (1 + std::exp(-v)) : std::exp(v) / sum;
            choice[e] = share[e] + (biased ? b[e] : 0);
          }
          const int64_t size = kAll / groups;
          for (int64_t g = 0; g < groups; ++g) {
            std::vector<double> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
            std::sort(of.rbegin(), of.rend());
            good[g] = of[0] + (sigmoid && size > 1 ? of[1] : 0);
          }
          std::vector<int32_t> order;
          for (int32_t e = 0; e < kAll; ++e) {
            const double own = good[e / size];
            const auto better =
                std::count_if(good.begin(), good.end(), [&](double other) { return other > own; });
            if (better < router.groups_used) order.push_back(e);
          }
          std::sort(order.begin(), order.end(),
                    [&](int32_t a, int32_t c) { return choice[a] > choice[c]; });
          double all = 0;
          for (int64_t i = 0; i < kUsed; ++i) all += share[order[i]];
          for (int64_t i = 0; i < kUsed; ++i) {
            ASSERT_EQ(experts[t * kUsed + i], order[i]) << t;
            const double want = share[order[i]] / (sigmoid ? all : 1) * 2.5;
            ASSERT_NEAR(shares[t * kUsed + i], want, 1e-5) << t;
          }
        }
      }
    }
  }
}

// Each share has a row of its own, in a block of its expert, that holds its token.
TEST(Mixture, BlocksHoldEveryShare) {
  for (const auto& [tokens, used, experts] : std::vector<std::array<int64_t, 3>>{
           {1, 2, 8}, {3, 2, 8}, {37, 3, 5}, {64, 1, 1}, {50, 4, 4}, {300, 2, 3}, {9, 8, 64}}) {
    SCOPED_TRACE(absl::StrCat(tokens, " ", used, " ", experts));
    const Tensor logits = Tensor::Rand({tokens, experts}).Realize();
    const Routes routes = Route(logits, {.used = used, .renormed = true});
    const ExpertBlocks blocks = BlocksOf(routes, experts);
    const std::vector<int32_t> chosen = routes.experts.ToVector<int32_t>();
    const std::vector<int32_t> expert = blocks.expert.ToVector<int32_t>();
    const std::vector<int32_t> token = blocks.token.ToVector<int32_t>();
    const std::vector<int32_t> row = blocks.row.ToVector<int32_t>();
    const int64_t rows = blocks.token.size(1);
    ASSERT_EQ(row.size(), static_cast<size_t>(tokens * used));
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_GE(row[i], 0);
      ASSERT_LT(row[i], static_cast<int32_t>(token.size()));
      EXPECT_EQ(token[row[i]], static_cast<int32_t>(i) / used);
      EXPECT_EQ(expert[row[i] / rows], chosen[i]);
    }
    std::vector<int32_t> sorted = row;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const std::vector<int32_t>* v : {&expert, &token}) {
      EXPECT_GE(*std::min_element(v->begin(), v->end()), 0);
    }
    EXPECT_LT(*std::max_element(expert.begin(), expert.end()), experts);
    EXPECT_LT(*std::max_element(token.begin(), token.end()), tokens);
  }
}

// All tokens to one expert: its blocks must have room for them.
TEST(Mixture, OneExpertForAll) {
  std::vector<float> logits(40 * 6, 0);
  for (int t = 0; t < 40; ++t) logits[t * 6 + 4] = 1;
  const Routes routes = Route(Tensor::From(logits, {40, 6}), {.used = 1, .renormed = true});
  const ExpertBlocks blocks = BlocksOf(routes, 6);
  const std::vector<int32_t> row = blocks.row.ToVector<int32_t>();
  const std::vector<int32_t> expert = blocks.expert.ToVector<int32_t>();
  for (const int32_t r : row) EXPECT_EQ(expert[r / blocks.token.size(1)], 4);
}

constexpr int64_t kExperts = 5, kColumns = 24, kDim = 512;

Tensor ExpertsIn(WeightFormat format) {
  const WeightFormatInfo& info = InfoOf(format);
  const int64_t blocks = kDim / info.block_elements;
  std::string bytes(static_cast<size_t>(kExperts * kColumns * blocks * info.block_bytes), '\0');
  FillRandomly(format, bytes.data(), static_cast<int64_t>(bytes.size()));
  return Tensor::FromBytes(bytes.data(), {kExperts, kColumns, blocks, info.block_bytes}, kUInt8);
}

// A product by looked-up experts is those by each of them, and reads them where they lie.
TEST(Mixture, ProductsByExpertsInBlocksSlow) {
  const std::vector<int32_t> picks = {3, 0, 3, 4};
  const Tensor index = Tensor::From(picks, {4});
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_1,
                                    WeightFormat::kQ4K, WeightFormat::kQ6K, WeightFormat::kMXFP4}) {
    SCOPED_TRACE(InfoOf(format).name);
    const Tensor stored = ExpertsIn(format);
    for (const int64_t rows : {1, 3}) {
      const Tensor x = Tensor::RandN({4, rows, kDim}).Realize();
      const Tensor values = x.MatMul(Values(stored.Take(index), format).SwapAxes(-1, -2));
      const RoundedRows rounded = Quantise(x);
      const Tensor integers = Product(rounded, Integers(stored.Take(index), format));
      for (int64_t i = 0; i < 4; ++i) {
        const Tensor own = stored.Select(0, picks[i]);
        const RoundedRows own_rows = {rounded.integers.Select(0, i), rounded.scales.Select(0, i),
                                      rounded.sums.Select(0, i)};
        EXPECT_TRUE(values.Select(0, i)
                        .AllClose(x.Select(0, i).Linear(Values(own, format)), 1e-4, 1e-4)
                        .Item<bool>());
        EXPECT_TRUE(integers.Select(0, i)
                        .AllClose(Product(own_rows, Integers(own, format)), 1e-4, 1e-4)
                        .Item<bool>());
      }
    }
  }
}

}  // namespace
}  // namespace tessera::llm
