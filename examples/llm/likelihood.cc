// The logarithm of softmax.
#include "examples/llm/likelihood.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::llm {

TokenLikelihood LikelihoodOf(absl::Span<const float> logits, int32_t next, int64_t likeliest) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto logit = [&](int32_t i) {
    const float v = logits[static_cast<size_t>(i)];
    return std::isnan(v) ? kNone : v;
  };
  const auto count = static_cast<int32_t>(logits.size());
  const auto before = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  std::vector<int32_t> best;  // at least the first
  const size_t most = static_cast<size_t>(std::clamp<int64_t>(likeliest, 1, count));
  for (int32_t i = 0; i < count; ++i) {
    if (best.size() == most && !before(i, best.back())) continue;
    if (best.size() == most) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), i, before), i);
  }
  const double top = logit(best[0]);
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (logit(i) > kNone) sum += std::exp(logit(i) - top);
  }
  const auto one = [&](int32_t i) {
    const double log = logit(i) > kNone ? logit(i) - top - std::log(sum) : kLeastLogProbability;
    return TokenLikelihood::One{i, std::max(log, kLeastLogProbability)};
  };
  TokenLikelihood out = {one(next), {}};
  best.resize(static_cast<size_t>(std::clamp<int64_t>(likeliest, 0, count)));
  for (const int32_t i : best) out.likeliest.push_back(one(i));
  return out;
}

}  // namespace tessera::llm
