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
    const Routes routes = Route(t, 2, renormed);
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

// Each share has a row of its own, in a block of its expert, that holds its token.
TEST(Mixture, BlocksHoldEveryShare) {
  for (const auto& [tokens, used, experts] : std::vector<std::array<int64_t, 3>>{
           {1, 2, 8}, {3, 2, 8}, {37, 3, 5}, {64, 1, 1}, {50, 4, 4}, {300, 2, 3}, {9, 8, 64}}) {
    SCOPED_TRACE(absl::StrCat(tokens, " ", used, " ", experts));
    const Tensor logits = Tensor::Rand({tokens, experts}).Realize();
    const Routes routes = Route(logits, used, true);
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
  const Routes routes = Route(Tensor::From(logits, {40, 6}), 1, true);
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
TEST(Mixture, ProductsByExpertsInBlocks) {
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
