// The regular expressions that pre-tokenisers are written in, over Unicode characters.
//
// Known: literals, escapes (\r \n \t \s \S \d \w, \p{L} \p{Lu} \P{..}), [classes] with ranges and
// &&-free negation, groups (...), (?:...), (?i:...), alternation, ? * + {n} {n,} {n,m} (greedy),
// lookahead (?=...) (?!...). All else is an error that names its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {

class Pattern {
 public:
  static absl::StatusOr<Pattern> Compile(absl::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Where the match that starts at `begin` ends (exclusive), or -1. Matching ends at `end`. An
  // alternative whose groups would nest deeper than a few thousand, or that takes a million tries,
  // does not match.
  int64_t Match(absl::Span<const Character> text, size_t begin, size_t end) const;

 private:
  struct Tree;
  explicit Pattern(std::unique_ptr<Tree> tree);
  std::unique_ptr<Tree> tree_;
};

}  // namespace tessera::llm
