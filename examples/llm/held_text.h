// Text that comes in pieces, and is held back where a mark may begin.
#pragma once

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace tessera::llm {

// Where the longest end of a text begins that is the beginning of a mark; the text's size: nowhere.
inline size_t BeforeMark(absl::string_view text, absl::string_view mark) {
  size_t n = std::min(mark.size(), text.size());
  while (!absl::EndsWith(text, mark.substr(0, n))) --n;
  return text.size() - n;
}

}  // namespace tessera::llm
