// Sampling in llama.cpp's order: biases, penalties, top-k, typical-p, top-p, min-p, temperature.
#include "examples/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/status.h"

namespace tessera::llm {
namespace {

// Greatest logit first, of equal ones the lower id.
constexpr auto kComesBefore = [](const std::pair<float, int32_t>& a,
                                 const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
};

}  // namespace

absl::Status CheckSampler(const SamplerOptions& o, int64_t vocabulary) {
  constexpr double kMost = 1e6;
  const auto bad = [](const char* name, double value, const char* allowed) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; ", allowed));
  };
  if (!(o.temperature >= 0) || o.temperature > kMost) {
    return bad("--temperature", o.temperature, "it is a number from 0 to 1e6");
  }
  if (o.top_k < 0) return bad("--top-k", static_cast<double>(o.top_k), "it is from 0 (all) on");
  if (!(o.typical_p > 0) || o.typical_p > 1) {
    return bad("--typical-p", o.typical_p, "it is above 0 and at most 1");
  }
  if (!(o.top_p > 0) || o.top_p > 1) return bad("--top-p", o.top_p, "it is above 0 and at most 1");
  if (!(o.min_p >= 0) || o.min_p > 1) return bad("--min-p", o.min_p, "it is from 0 to 1");
  if (!(o.repeat_penalty >= 1 / kMost) || o.repeat_penalty > kMost) {
    return bad("--repeat-penalty", o.repeat_penalty, "it is from 1e-6 to 1e6");
  }
  if (o.repeat_last < -1) {
    return bad("--repeat-last-n", static_cast<double>(o.repeat_last), "it is from -1 (all) on");
  }
  for (const auto& [name, penalty] : {std::pair("--presence-penalty", o.presence_penalty),
                                      std::pair("--frequency-penalty", o.frequency_penalty)}) {
    if (!(penalty >= -2) || penalty > 2) return bad(name, penalty, "it is from -2 to 2");
  }
  for (const auto& [token, bias] : o.biases) {
    if (!(bias >= -100) || bias > 100) {
      return bad("--logit-bias", bias, "a bias is from -100 to 100");
    }
    if (token < 0 || token >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias has token ", token, ", and the model has ", vocabulary));
    }
  }
  return absl::OkStatus();
}

int32_t LikeliestOf(absl::Span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return std::isnan(logits[best]) ? kNoNumbers : static_cast<int32_t>(best);
}

Sampler::Sampler(const SamplerOptions& options, int64_t vocabulary)
    : options_(options),
      candidates_(static_cast<size_t>(vocabulary)),
      weights_(static_cast<size_t>(vocabulary)),
      random_(options.seed) {}

bool Sampler::Changes() const {
  return options_.repeat_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0 || !options_.biases.empty();
}

int32_t Sampler::Pick(const float* logits, const Past& past) {
  if (IsGreedy()) return LikeliestOf({logits, candidates_.size()});
  return FillCandidates(logits, past) ? PickCandidate() : kNoNumbers;
}

int32_t Sampler::Pick(const float* logits, const Past& past, absl::Span<const uint64_t> allowed) {
  if (!FillCandidates(logits, past)) return kNoNumbers;
  count_ = 0;
  for (const auto& candidate : candidates_) {
    const auto id = static_cast<uint32_t>(candidate.second);
    const bool is = id / 64 < allowed.size() && (allowed[id / 64] >> id % 64 & 1) != 0;
    if (is) candidates_[count_++] = candidate;
  }
  return count_ == 0 ? -1 : PickCandidate();
}

bool Sampler::FillCandidates(const float* logits, const Past& past) {
  const size_t n = count_ = candidates_.size();
  for (size_t i = 0; i < n; ++i) {
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates_[i] = {logit, static_cast<int32_t>(i)};
  }
  if (std::all_of(logits, logits + n, [](float logit) { return std::isnan(logit); })) return false;
  if (!Changes()) return true;
  for (const auto& [token, bias] : options_.biases) {
    candidates_[static_cast<size_t>(token)].first += static_cast<float>(bias);
  }
  Penalise(past);
  return true;
}

void Sampler::Penalise(const Past& past) {
  std::vector<double>& seen = weights_;  // how often, of tokens that were; until they are weighed
  const auto each = [&](absl::Span<const int32_t> tokens, const auto& change) {
    for (const int32_t id : tokens) seen[static_cast<size_t>(id)] = 0;
    for (const int32_t id : tokens) {
      const auto i = static_cast<size_t>(id);
      change(candidates_[i].first, seen[i]++ == 0);
    }
  };
  const size_t all = past.tokens.size();
  if (options_.repeat_penalty != 1) {
    const size_t last =
        options_.repeat_last < 0 ? all : std::min(all, static_cast<size_t>(options_.repeat_last));
    const float penalty = static_cast<float>(options_.repeat_penalty);
    each(past.tokens.subspan(all - last), [&](float& logit, bool first) {
      if (first) logit = logit > 0 ? logit / penalty : logit * penalty;
    });
  }
  if (options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  const auto once = static_cast<float>(options_.presence_penalty),
             each_time = static_cast<float>(options_.frequency_penalty);
  each(past.tokens.subspan(all - past.written),
       [&](float& logit, bool first) { logit -= each_time + (first ? once : 0); });
}

// How surprising a token is, is minus its log-probability, and usual is the mean of that. As the
// candidates are sorted, those nearest to it stand side by side.
void Sampler::KeepTypical() {
  double sum = 0;
  for (size_t i = 0; i < kept_; ++i) sum += weights_[i] = WeightOf(candidates_[i].first, 1);
  const auto surprise = [&](size_t i) { return -std::log(weights_[i] / sum); };
  double usual = 0;
  for (size_t i = 0; i < kept_; ++i) {
    if (weights_[i] > 0) usual += weights_[i] / sum * surprise(i);
  }
  size_t begin = 0;
  while (begin + 1 < kept_ && surprise(begin) < usual) ++begin;
  size_t end = begin;
  for (double reached = 0; reached < options_.typical_p && end - begin < kept_;) {
    const bool below = begin > 0 && (end == kept_ ||
                                     usual - surprise(begin - 1) < std::abs(surprise(end) - usual));
    reached += weights_[below ? --begin : end++] / sum;
  }
  std::copy(candidates_.begin() + static_cast<int64_t>(begin),
            candidates_.begin() + static_cast<int64_t>(end), candidates_.begin());
  Keep(end - begin);
}

// Of candidates that are kept the first ones are put in order as far as they are looked at: of a
// large vocabulary hardly any are, and to sort all takes longer than many a model's step.
void Sampler::SortTo(size_t count) {
  count = std::min(count, kept_);
  if (count <= sorted_) return;
  const auto at = [&](size_t i) { return candidates_.begin() + static_cast<int64_t>(i); };
  std::partial_sort(at(sorted_), at(count), at(kept_), kComesBefore);
  sorted_ = count;
}
const std::pair<float, int32_t>& Sampler::InOrder(size_t i) {
  constexpr size_t kFirst = 64;
  if (i >= sorted_) SortTo(std::max({i + 1, kFirst, 4 * sorted_}));
  return candidates_[i];
}

// A candidate's weight, beside 1 for the first of all.
double Sampler::WeightOf(float logit, double temperature) const {
  return std::exp((static_cast<double>(logit) - candidates_[0].first) / temperature);
}
double Sampler::SumOfWeights(double temperature) const {
  double sum = 0;
  for (size_t i = 0; i < kept_; ++i) sum += WeightOf(candidates_[i].first, temperature);
  return sum;
}

int32_t Sampler::PickCandidate() {
  const auto begin = candidates_.begin(), last = begin + static_cast<int64_t>(count_);
  if (options_.temperature == 0) return std::min_element(begin, last, kComesBefore)->second;
  kept_ = count_;
  sorted_ = 0;
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < count_) {
    SortTo(static_cast<size_t>(options_.top_k));
    Keep(static_cast<size_t>(options_.top_k));
  }
  if (options_.typical_p < 1) {
    SortTo(kept_);
    KeepTypical();
    sorted_ = kept_;
  }
  SortTo(1);
  if (options_.top_p < 1) {
    const double sum = SumOfWeights(1);
    double reached = 0;
    for (size_t i = 0; i < kept_; ++i) {
      reached += WeightOf(InOrder(i).first, 1) / sum;
      if (reached >= options_.top_p) Keep(i + 1);
    }
  }
  if (options_.min_p > 0) {
    const auto stays = [&](const auto& c) { return WeightOf(c.first, 1) >= options_.min_p; };
    const auto end = std::partition(begin + 1, begin + static_cast<int64_t>(kept_), stays);
    Keep(static_cast<size_t>(end - begin));
  }
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * SumOfWeights(options_.temperature);
  for (size_t i = 0; i < kept_; ++i) {
    left -= WeightOf(InOrder(i).first, options_.temperature);
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[0].second;
}

}  // namespace tessera::llm
