// Unicode's normal forms, which some vocabularies want their text in.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera::llm {

// The text with every character composed as far as it goes (NFC), or taken apart (NFD); with
// `alike` what differs in its looks alone is one as well (NFKC, NFKD). Bytes that are no UTF-8 stay
// as they are.
std::string Composed(absl::string_view text, bool alike = false);
std::string Decomposed(absl::string_view text, bool alike = false);

}  // namespace tessera::llm
