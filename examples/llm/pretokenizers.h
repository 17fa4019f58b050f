// How byte-level vocabularies cut a text into words before they merge bytes, by name.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

struct PreTokenizer {
  const char* names;                  // in GGUF files, separated by spaces
  std::vector<std::string> patterns;  // applied in turn; see pattern.h
  bool llama3 = false;                // texts begin with bos, words that are tokens are not merged
  bool composed = false;              // texts are, as in compose.h
};

// An error lists the known names.
absl::StatusOr<const PreTokenizer*> PreTokenizerNamed(absl::string_view name);

extern const char kGpt2Pattern[];

}  // namespace tessera::llm
