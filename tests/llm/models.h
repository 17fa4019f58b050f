// Models for tests: the story model of the repository, the optional data folder, and small models
// with random weights.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "examples/llm/model.h"
#include "examples/llm/tokenizer.h"
#include "tests/testing.h"

namespace tessera::llm {

inline const char kStory[] = "examples/llm/models/stories260K/stories260K.gguf";
inline const char kStoryText[] = "examples/llm/models/stories260K/expected_greedy_256.txt";
inline const char kData[] = "../shared/data/";  // optional

inline bool HasData() { return access(absl::StrCat(kData, "README.md").c_str(), F_OK) == 0; }
#define SKIP_WITHOUT_DATA() \
  if (!HasData()) GTEST_SKIP() << "no ../shared/data"

std::string ReadFile(const std::string& path);
// Of a text in which tokens may be written, by the text of a tokenizer.json.
std::vector<int32_t> IdsOf(const std::string& json, const std::string& text);
std::string DecodeAll(const Tokenizer& t, const std::vector<int32_t>& ids);

// How far some values are from the exact ones, as a share of these, by their squares.
double RelativeError(absl::Span<const float> exact, absl::Span<const float> other);

// Weights by name, with the memory that they lie in.
struct RandomWeights {
  WeightSet set;
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  // Adds [shape] of values in -scale..scale, plus `offset`.
  void Add(const std::string& name, const std::vector<int64_t>& shape, double scale,
           double offset = 0);
  const float* Of(const std::string& name) const;
  uint64_t state = 1;
};

// All weights that a model of this configuration has, by their names in GGUF files.
RandomWeights WeightsFor(const ModelConfig& config, bool tied);

}  // namespace tessera::llm
