// The text of a chat template as tokens, with the white space that Jinja takes away taken away.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::llm::jinja {

struct Token {
  enum class Kind {
    kText,         // outside of all marks
    kBeginOutput,  // {{
    kEndOutput,    // }}
    kBeginBlock,   // {%
    kEndBlock,     // %}
    kName,
    kInt,
    kFloat,
    kString,  // without quotes, unescaped
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;

  bool is(Kind k) const { return kind == k; }
  bool is(Kind k, absl::string_view t) const { return kind == k && text == t; }
};

// Blocks take the line's end after them, and the space of their line before them, as transformers
// has it. The last token is kEnd. An error names the line.
absl::StatusOr<std::vector<Token>> Lex(absl::string_view text);

}  // namespace tessera::llm::jinja
