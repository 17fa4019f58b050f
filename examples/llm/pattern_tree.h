// What a pattern says, as a tree: choices of sequences of sets, groups and lookaheads.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::llm {

inline constexpr int kMany = 1 << 30;  // a repeat without end

// Characters by ranges, categories and whitespace; `also` must hold too (a lookahead before it).
struct CharSet {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  uint32_t categories = 0;      // bits
  uint32_t not_categories = 0;  // \P{..}: characters outside these bits
  bool space = false, not_space = false;
  bool negated = false;
  std::shared_ptr<const CharSet> also;

  bool Has(uint32_t c) const;
};

struct PatternPiece;
using PatternSequence = std::vector<PatternPiece>;
using PatternChoice = std::vector<PatternSequence>;
struct PatternPiece {
  enum class Kind { kSet, kGroup, kAhead, kNotAhead } kind = Kind::kSet;
  CharSet set;
  PatternChoice choice;
  int min = 1, max = 1;
};

// An error names the byte and what is wrong there. Groups nest at most 32 deep.
absl::StatusOr<PatternChoice> ParsePattern(absl::string_view text);

}  // namespace tessera::llm
