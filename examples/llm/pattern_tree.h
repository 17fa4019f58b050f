// What a pattern says, as a tree: choices of sequences of sets, groups and looks around.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/pattern_classes.h"

namespace tessera::llm {

inline constexpr int kMany = 1 << 30;  // a repeat without end

struct PatternPiece;
using PatternSequence = std::vector<PatternPiece>;
using PatternChoice = std::vector<PatternSequence>;
struct PatternPiece {
  enum class Kind {
    kSet,
    kGroup,
    kOnce,      // a group that is matched in the first way alone
    kAhead,     // `choice` follows
    kNotAhead,  // it does not
    kBack       // goes `min` characters back, where there are so many
  } kind = Kind::kSet;
  CharSet set;
  PatternChoice choice;
  int min = 1, max = 1;
  bool lazy = false;  // as few as may be

  bool reads() const { return kind == Kind::kSet || kind == Kind::kGroup || kind == Kind::kOnce; }
};

// An error names the byte and what is wrong there. Groups nest at most 32 deep.
absl::StatusOr<PatternChoice> ParsePattern(absl::string_view text,
                                           PatternDialect dialect = PatternDialect::kOniguruma);

}  // namespace tessera::llm
