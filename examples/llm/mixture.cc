// Routing as comparisons and sums: which row is whose is a count of those before it.
#include "examples/llm/mixture.h"

#include <algorithm>
#include <limits>

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

// What experts are chosen by, -inf where their group is none of the best.
Tensor InBestGroups(const Tensor& choice, const Router& router) {
  if (router.groups_used >= router.groups) return choice;
  const int64_t tokens = choice.size(0), experts = choice.size(1), groups = router.groups;
  const int64_t size = experts / groups, best = router.sigmoid ? std::min<int64_t>(2, size) : 1;
  const Tensor in_groups = choice.Reshape({tokens, groups, size});
  const Tensor good = in_groups.TopK(best).values.Sum({-1});
  const Tensor chosen = good.TopK(router.groups_used).indices;  // [tokens, groups_used]
  const Tensor among =
      (chosen.Unsqueeze(-1) == Tensor::Arange(groups, kInt32)).Any({1});  // [tokens, groups]
  return Where(among.Unsqueeze(-1), in_groups, -std::numeric_limits<float>::infinity())
      .Reshape({tokens, experts});
}

}  // namespace

Routes Route(const Tensor& logits, const Router& router) {
  const auto scaled = [&](const Tensor& shares) {
    return router.scale == 1 ? shares : shares * router.scale;
  };
  if (!router.sigmoid && !router.bias) {  // a greater logit is a greater share
    const auto [values, indices] = InBestGroups(logits, router).TopK(router.used);
    const Tensor shares = router.renormed
                              ? values.Softmax()
                              : (values - logits.LogSumExp({-1}, /*keepdim=*/true)).Exp();
    return {indices.Cast(kInt32).Contiguous(), scaled(shares)};
  }
  const Tensor all = (router.sigmoid ? logits.Sigmoid() : logits.Softmax()).Contiguous();
  const Tensor choice = router.bias ? all + router.bias : all;
  const Tensor experts =
      InBestGroups(choice, router).TopK(router.used).indices.Cast(kInt32).Contiguous();
  Tensor shares = all.Gather(-1, experts);
  constexpr double kLeast = 1e-20;  // so that shares that are all 0 stay so
  if (router.renormed) shares = shares / (shares.Sum({-1}, /*keepdim=*/true) + kLeast);
  return {experts, scaled(shares)};
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
