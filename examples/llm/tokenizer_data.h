// What a tokenizer keeps of its vocabulary: made in tokenizer.cc, read in tokenizer_encode.cc.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/pattern.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

inline constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, what SentencePiece writes for a space

struct Tokenizer::Data {
  struct Merge {
    int32_t rank, id;
  };
  struct Symbol {
    int32_t id;  // -1: no token
    uint32_t begin, size;
    int before, after;
  };
  // Of two neighbours.
  static uint64_t PairKey(int32_t a, int32_t b) {
    return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
  }
  TokenizerSpec spec;
  absl::flat_hash_map<absl::string_view, int32_t> by_text;
  absl::flat_hash_map<uint64_t, Merge> merges;
  std::vector<Pattern> patterns;
  std::vector<std::string> pieces;
  std::array<int32_t, 256> bytes;  // the token of each byte, or -1
  std::vector<int32_t> special;    // tokens cut out of texts, longest first
  std::array<bool, 256> special_starts = {};
  size_t longest = 0;  // token
  float least_score = 0;
  std::once_flag tree_once;
  std::optional<TokenTree> tree;

  absl::Status Error(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(spec.file, ": tokenizer: ", what));
  }
  absl::Status Fill();
  absl::Status FillTokens();
  absl::Status FillMerges();

  void EncodeParts(absl::Span<const Part> parts, bool prefixed, std::vector<int32_t>* out) const;
  void EncodeText(absl::string_view written, bool prefixed, std::vector<int32_t>* out) const;
  void EncodePiece(absl::string_view piece, bool prefixed, std::vector<int32_t>* out) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>* out) const;
  void Join(absl::string_view text, std::vector<Symbol> symbols, std::vector<int32_t>* out) const;
  void Unigram(absl::string_view text, std::vector<int32_t>* out) const;
  void Characterwise(absl::string_view text, std::vector<int32_t>* out) const;
  void AppendBytes(absl::string_view text, std::vector<int32_t>* out) const;
  // Control tokens by their names only before `markup_end`.
  int32_t SpecialAt(absl::string_view text, size_t at, size_t markup_end) const;
};

}  // namespace tessera::llm
