// Routing as comparisons and sums: which row is whose is a count of those before it.
#include "examples/llm/mixture.h"

#include <algorithm>

#include "graph/index_math.h"

namespace tessera::llm {
namespace {

// Blocks of more rows read an expert's weights less often; of fewer they are less often in vain.
constexpr int64_t kLeastRows = 4, kMostRows = 64;

int64_t RowsOfBlock(int64_t shares, int64_t experts) {
  int64_t rows = kLeastRows;
  while (rows < kMostRows && rows * experts < shares) rows *= 2;
  return rows;
}

// Numbers below n that lie in memory, where nothing shows that they do: so that what they look up
// is not asked whether it is there.
Tensor Below(const Tensor& numbers, int64_t n) { return numbers.Contiguous().Clip(0, n - 1); }

}  // namespace

Routes Route(const Tensor& logits, int64_t used, bool renormed) {
  const auto [values, indices] = logits.TopK(used);
  const Tensor shares =
      renormed ? values.Softmax() : (values - logits.LogSumExp({-1}, /*keepdim=*/true)).Exp();
  return {indices.Cast(kInt32).Contiguous(), shares};
}

ExpertBlocks BlocksOf(const Routes& routes, int64_t experts) {
  const int64_t tokens = routes.experts.size(0), used = routes.experts.size(1);
  const int64_t shares = tokens * used;
  const Tensor own = routes.experts.Flatten();  // [shares]
  const Tensor share = Tensor::Arange(shares, kInt32);
  const Tensor token = share.FloorDiv(used);
  // Where most experts have no more than a row, a block is one.
  if (shares <= experts) {
    return {Below(own, experts), token.Unsqueeze(1), share.Reshape({tokens, used})};
  }
  const int64_t rows = RowsOfBlock(shares, experts);
  const int64_t blocks = CeilDiv(shares + experts * (rows - 1), rows);
  // Which shares each expert has, how many, and how many of them come before each.
  const Tensor expert = Tensor::Arange(experts, kInt32);
  const Tensor has = (own.Unsqueeze(1) == expert).Cast(kInt32).Contiguous();  // [shares, experts]
  const Tensor before = ((has.CumSum(0) - 1) * has).Sum({1});
  const Tensor filled = (has.Sum({0}) + (rows - 1)).FloorDiv(rows);  // blocks of each expert
  const Tensor ends = filled.CumSum(0).Contiguous();
  const Tensor row = ((ends - filled).Take(own) * rows + before).Contiguous();
  const Tensor of_block = (ends <= Tensor::Arange(blocks, kInt32).Unsqueeze(1)).Cast(kInt32);
  const Tensor of_rows = Tensor::Zeros({blocks * rows}, kInt32).Scatter(0, row, token);
  return {Below(of_block.Sum({1}), experts), Below(of_rows.Reshape({blocks, rows}), tokens),
          Below(row.Reshape({tokens, used}), blocks * rows)};
}

}  // namespace tessera::llm
