// Unicode's canonical forms, which some vocabularies want their text in.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::llm {

// The text with every character composed as far as it goes (NFC), or taken apart (NFD). Bytes that
// are no UTF-8 stay as they are.
std::string Composed(absl::string_view text);
std::string Decomposed(absl::string_view text);

}  // namespace tessera::llm
