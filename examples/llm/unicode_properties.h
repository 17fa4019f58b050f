// What Unicode says of code points beside their category: cases, scripts, and where characters that
// are seen as one end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/unicode.h"

namespace tessera::llm {

struct CodeRange {
  uint32_t first, last;
};
// Every `step`th code point of a range, and what is added to it to get another.
struct CodeRun {
  uint32_t first, last, step;
  int32_t add;
};
// What a code point is by runs in their order; itself where none has it.
uint32_t Mapped(absl::Span<const CodeRun> runs, uint32_t code_point);

void AppendLower(uint32_t code_point, std::string* out);
void AppendUpper(uint32_t code_point, std::string* out);
void AppendTitle(uint32_t code_point, std::string* out);  // as the first letter of a word
uint32_t Folded(uint32_t code_point);                     // the same for all cases of a letter
// All cases of a letter; nothing where there is one.
absl::Span<const uint32_t> CasesOf(uint32_t code_point);

// Scripts have numbers; names may lack their capitals, spaces, '_' and '-'.
int ScriptOf(uint32_t code_point);
std::optional<int> ScriptNamed(absl::string_view name);
std::vector<CodeRange> CodesOfScript(int script);

// What has the property by no category of letters (Lu, Ll, Lt, Lm, Lo, Nl; Lu; Ll).
absl::Span<const CodeRange> OtherAlphabetic();
absl::Span<const CodeRange> OtherUppercase();
absl::Span<const CodeRange> OtherLowercase();

// Where the cluster that begins at a character ends. Emoji, flags and Hangul are not joined: each
// of their characters is one.
size_t ClusterEnd(absl::Span<const Character> text, size_t begin);

// A name in the form in which names of properties are compared.
std::string PlainName(absl::string_view name);

}  // namespace tessera::llm
