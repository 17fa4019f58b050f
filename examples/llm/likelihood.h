// How likely a model found the token that came next, and which it found likeliest: by its logits
// alone, whatever temperature and truncation made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::llm {

struct TokenLikelihood {
  struct One {
    int32_t token;
    double log_probability;  // at least kLeastLogProbability
  };
  One next;
  std::vector<One> likeliest;  // greatest first, of equal ones the lower id
  size_t begin = 0;            // of the text so far, the bytes that no earlier token shows
};
// What stands for less, and for no probability at all: OpenAI's.
inline constexpr double kLeastLogProbability = -9999;

// NaN is no probability.
TokenLikelihood LikelihoodOf(absl::Span<const float> logits, int32_t next, int64_t likeliest);

}  // namespace tessera::llm
