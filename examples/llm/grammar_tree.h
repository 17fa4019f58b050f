// What a grammar's text says, as a tree: rules of choices of sequences of texts, classes, rules and
// groups.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::llm {

// A place in a grammar's text; both count from 1.
struct GrammarPlace {
  int line = 0, column = 0;
};

struct GrammarPiece;
using GrammarSequence = std::vector<GrammarPiece>;
using GrammarChoice = std::vector<GrammarSequence>;
struct GrammarPiece {
  enum class Kind { kText, kClass, kRule, kGroup } kind = Kind::kText;
  std::string text;                                   // UTF-8
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // of code points: sorted and apart
  int rule = -1;
  GrammarChoice choice;
  int min = 1, max = 1;  // max -1: without end
  GrammarPlace place;
};
struct GrammarRule {
  std::string name;
  GrammarChoice choice;
  GrammarPlace place;
};

// The error at a place of the grammar of this name.
absl::Status GrammarError(const std::string& name, const GrammarPlace& place,
                          absl::string_view what);

// The root rule is the first. Rules that are named are there.
absl::StatusOr<std::vector<GrammarRule>> ParseGrammarText(absl::string_view text,
                                                          const std::string& name);

}  // namespace tessera::llm
