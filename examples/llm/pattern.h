// The regular expressions that pre-tokenisers are written in, over Unicode characters.
//
// As Oniguruma has them, which Hugging Face's tokenizers use. Known: literals, escapes (\r \n \t \f
// \v \a \e, \s \d \w \h and their negations, \p{L} \p{Han} \p{Alpha} \p{^Lu} \P{..}, \xNN \x{N..}
// \uNNNN, \R), [classes] with ranges, [:names:], classes within and &&, groups (...), (?:...),
// (?<name>...), (?i:...) (?m:...) (?i), (?>...), alternation, ? * + {n} {n,} {n,m} {,m}, greedy,
// lazy or possessive, lookahead (?=...) (?!...), lookbehind of a fixed length (?<=...) (?<!...),
// and ^ $ \A \z \Z \b \B. All else is an error that names its place, and so is a pattern that
// counts to thousands.
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

// Characters [begin, end) of a text.
struct Word {
  size_t begin, end;
};

class Pattern {
 public:
  static absl::StatusOr<Pattern> Compile(absl::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // The words of a part of a text: what matches, from left to right, and what lies between; a match
  // looks no further than the part's end. Whatever the pattern, time and memory are at most its
  // size by the text's. A repeat goes on past what matches nothing: (?:|a)+ is a*, to the last a.
  // A match of nothing cuts, too.
  std::vector<Word> Split(absl::Span<const Character> text, const Word& of) const;
  // What matches alone.
  std::vector<Word> Matches(absl::Span<const Character> text, const Word& of) const;

 private:
  struct Program;
  explicit Pattern(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace tessera::llm
