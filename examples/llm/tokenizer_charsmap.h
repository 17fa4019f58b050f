// The map of characters that SentencePiece models are trained with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::llm {

class Charsmap {
 public:
  // Of the bytes in base64: the size of a trie in bytes, the trie (a double array, as darts-clone
  // writes it), and texts that end in zero.
  static absl::StatusOr<Charsmap> Make(absl::string_view base64);

  // Each character with its marks is what the map has for its first bytes, or else each code point
  // is.
  std::string Mapped(absl::string_view text) const;
  size_t longest() const { return longest_; }  // text that it has

 private:
  // Whether the map has any beginning of the text, whose replacement is appended.
  bool Append(absl::string_view text, std::string* out) const;

  std::vector<uint32_t> trie_;
  std::string texts_;
  size_t longest_ = 0;
};

}  // namespace tessera::llm
