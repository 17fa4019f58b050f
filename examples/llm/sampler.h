// Which token comes next: greedy, or drawn by temperature from what top-k, typical-p, top-p and
// min-p leave; before that by biases and penalties.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::llm {

struct SamplerOptions {
  double temperature = 0;     // 0: the token with the greatest logit, the first of equal ones
  int64_t top_k = 0;          // 0: all
  double typical_p = 1;       // the same as top_p, of the tokens nearest to the usual surprise
  double top_p = 1;           // the fewest tokens whose probabilities reach it
  double min_p = 0;           // of the greatest probability
  double repeat_penalty = 1;  // divides positive and multiplies negative logits of recent tokens
  int64_t repeat_last = 64;   // what counts as recent; -1: all
  // Taken from a token's logit once, and for each time that it was written: OpenAI's.
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, double>> biases;  // added to logits of tokens
  uint64_t seed = 0;
};
// The first option out of its range, by its name on the command line, where tokens are below
// `vocabulary`.
absl::Status CheckSampler(const SamplerOptions& options,
                          int64_t vocabulary = std::numeric_limits<int32_t>::max());

// What a pick is where no logit is a number.
inline constexpr int32_t kNoNumbers = -2;

// The first token with the greatest logit; NaN is the least.
int32_t LikeliestOf(absl::Span<const float> logits);

// The tokens of a text so far, of which the last were written and not given.
struct Past {
  absl::Span<const int32_t> tokens;
  size_t written = 0;
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, int64_t vocabulary);
  // Whether each pick is the likeliest token.
  bool IsGreedy() const { return options_.temperature == 0 && !Changes(); }
  // Whether picks are left to chance.
  bool Draws() const { return options_.temperature != 0; }
  // Allocates nothing. Equal seeds, logits and pasts give equal picks.
  int32_t Pick(const float* logits, const Past& past);
  // The same among tokens whose bits are set, 64 to a word; -1: none is.
  int32_t Pick(const float* logits, const Past& past, absl::Span<const uint64_t> allowed);

 private:
  bool Changes() const;                                        // any logit
  bool FillCandidates(const float* logits, const Past& past);  // false: none is a number
  void Penalise(const Past& past);
  int32_t PickCandidate();
  void KeepTypical();
  void Keep(size_t count) {
    kept_ = std::min(kept_, count);
    sorted_ = std::min(sorted_, kept_);
  }
  void SortTo(size_t count);
  const std::pair<float, int32_t>& InOrder(size_t i);
  double WeightOf(float logit, double temperature) const;
  double SumOfWeights(double temperature) const;
  SamplerOptions options_;
  std::vector<std::pair<float, int32_t>> candidates_;  // logit and id
  std::vector<double> weights_;
  size_t count_ = 0, kept_ = 0, sorted_ = 0;  // of candidates: all, and of these the first so many
  std::mt19937_64 random_;
};

}  // namespace tessera::llm
