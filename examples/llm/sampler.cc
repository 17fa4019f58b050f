// Sampling in the order of penalties, top-k, top-p, min-p, temperature.
#include "examples/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/status.h"

namespace tessera::llm {

absl::Status CheckSampler(const SamplerOptions& o) {
  constexpr double kMost = 1e6;
  const auto bad = [](const char* name, double value, const char* allowed) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; ", allowed));
  };
  if (!(o.temperature >= 0) || o.temperature > kMost) {
    return bad("--temperature", o.temperature, "it is a number from 0 to 1e6");
  }
  if (o.top_k < 0) return bad("--top-k", static_cast<double>(o.top_k), "it is from 0 (all) on");
  if (!(o.top_p > 0) || o.top_p > 1) return bad("--top-p", o.top_p, "it is above 0 and at most 1");
  if (!(o.min_p >= 0) || o.min_p > 1) return bad("--min-p", o.min_p, "it is from 0 to 1");
  if (!(o.repeat_penalty >= 1 / kMost) || o.repeat_penalty > kMost) {
    return bad("--repeat-penalty", o.repeat_penalty, "it is from 1e-6 to 1e6");
  }
  return absl::OkStatus();
}

int32_t LikeliestOf(absl::Span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return static_cast<int32_t>(best);
}

Sampler::Sampler(const SamplerOptions& options, int64_t vocabulary)
    : options_(options),
      candidates_(static_cast<size_t>(vocabulary)),
      weights_(static_cast<size_t>(vocabulary)),
      random_(options.seed) {}

int32_t Sampler::Pick(const float* logits, absl::Span<const int32_t> recent) {
  if (IsGreedy()) return LikeliestOf({logits, candidates_.size()});
  FillCandidates(logits, recent);
  return PickCandidate();
}

int32_t Sampler::Pick(const float* logits, absl::Span<const int32_t> recent,
                      absl::Span<const uint64_t> allowed) {
  FillCandidates(logits, recent);
  count_ = 0;
  for (const auto& candidate : candidates_) {
    const auto id = static_cast<uint32_t>(candidate.second);
    const bool is = id / 64 < allowed.size() && (allowed[id / 64] >> id % 64 & 1) != 0;
    if (is) candidates_[count_++] = candidate;
  }
  return count_ == 0 ? -1 : PickCandidate();
}

void Sampler::FillCandidates(const float* logits, absl::Span<const int32_t> recent) {
  const size_t n = count_ = candidates_.size();
  const auto logit = [&](size_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  for (size_t i = 0; i < n; ++i) candidates_[i] = {logit(i), static_cast<int32_t>(i)};
  if (options_.repeat_penalty != 1) {
    const size_t last = std::min<size_t>(recent.size(), static_cast<size_t>(options_.repeat_last));
    const float penalty = static_cast<float>(options_.repeat_penalty);
    for (int32_t id : recent.subspan(recent.size() - last)) {
      const auto i = static_cast<size_t>(id);
      const float v = logit(i);  // of the model, so that a token seen twice counts once
      candidates_[i].first = v > 0 ? v / penalty : v * penalty;
    }
  }
}

int32_t Sampler::PickCandidate() {
  const auto begin = candidates_.begin(), last = begin + static_cast<int64_t>(count_);
  // Greatest logit first, of equal ones the lower id.
  const auto before = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.temperature == 0) {
    return std::min_element(begin, last, before)->second;
  }
  kept_ = count_;
  if (options_.top_k > 0) Keep(static_cast<size_t>(options_.top_k));
  std::partial_sort(begin, begin + static_cast<int64_t>(kept_), last, before);
  const double top = candidates_[0].first;
  double sum = 0;
  for (size_t i = 0; i < kept_; ++i) {
    weights_[i] = std::exp(candidates_[i].first - top);
    sum += weights_[i];
  }
  if (options_.top_p < 1) {
    double reached = 0;
    for (size_t i = 0; i < kept_; ++i) {
      reached += weights_[i] / sum;
      if (reached >= options_.top_p) Keep(i + 1);
    }
  }
  while (kept_ > 1 && weights_[kept_ - 1] < options_.min_p) --kept_;
  sum = 0;
  for (size_t i = 0; i < kept_; ++i) {
    weights_[i] = std::exp((candidates_[i].first - top) / options_.temperature);
    sum += weights_[i];
  }
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  for (size_t i = 0; i < kept_; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[0].second;
}

}  // namespace tessera::llm
