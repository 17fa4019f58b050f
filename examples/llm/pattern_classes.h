// The parts of patterns that are sets of characters: escapes and classes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/pattern_set.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {

// In ECMAScript \d and \w are of ASCII, \s has the byte order mark, and a class has nothing within.
enum class PatternDialect { kOniguruma, kEcmaScript };

// Where in a pattern its parser is.
struct PatternCursor {
  std::vector<Character> text;
  PatternDialect dialect;
  size_t at = 0;
  bool ignore_case = false, dot_all = false;
  size_t ranges = 0;  // of all sets so far

  bool ecma() const { return dialect == PatternDialect::kEcmaScript; }
  size_t end() const { return text.size() - 1; }
  bool Is(char c) const { return at < end() && text[at].code == static_cast<uint32_t>(c); }
  bool Take(absl::string_view s);
  absl::Status Error(absl::string_view what) const;
  absl::Status Count(size_t more);  // ranges; patterns of too many are refused
  // In all cases where these are ignored. Counted.
  absl::StatusOr<CharSet> Cased(CharSet set);
};

// A character, or a set that an escape names.
struct PatternEscape {
  CharSet set;
  std::optional<uint32_t> code;
};
absl::StatusOr<PatternEscape> ParseEscape(PatternCursor* in);      // after the backslash
absl::StatusOr<CharSet> ParseClass(PatternCursor* in, int depth);  // after the bracket

}  // namespace tessera::llm
