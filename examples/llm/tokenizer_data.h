// What a tokenizer keeps of its vocabulary: made in tokenizer.cc, read in tokenizer_encode.cc.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/tokenizer.h"
#include "examples/llm/tokenizer_steps.h"

namespace tessera::llm {

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
  TextSteps normalizer, pre_tokenizer;
  std::vector<std::string> pieces;
  std::array<int32_t, 256> bytes;  // the token of each byte, or -1
  // Tokens cut out of texts, longest first: of all, and those of what the normalizer makes.
  struct Special {
    std::string text;
    int32_t id;
  };
  struct SpecialTokens {
    std::vector<Special> tokens;
    std::array<bool, 256> starts = {};
    void Sort();
  };
  SpecialTokens special, normalized;
  size_t longest = 0;  // token
  size_t budget = 0;   // of bytes that tokens may yet become as they are written and normalized
  double least_score = 0;
  std::once_flag tree_once;
  std::optional<TokenTree> tree;

  absl::Status Error(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(spec.file, ": tokenizer: ", what));
  }
  absl::Status Fill();
  absl::Status FillTokens();
  absl::Status FillMerges();

  // Some of a text, from between what is cut out of it as it is written: where that is, and whether
  // it is all the template's, or the model's and the template's.
  struct Span {
    absl::string_view text;
    TextSteps::Place place;
    bool markup = false, own = false;
  };
  using Marks = absl::flat_hash_set<int32_t>;  // what is no token in the words of others
  Marks MarksOf(absl::Span<const Part> parts) const;
  void EncodeParts(absl::Span<const Part> parts, TextSteps::Place place,
                   std::vector<int32_t>* out) const;
  void EncodeSpan(const Span& span, const Marks& marks, std::vector<int32_t>* out) const;
  void EncodeText(absl::string_view text, TextSteps::Place place, std::vector<int32_t>* out) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>* out) const;
  void Bytewise(absl::string_view word, std::vector<int32_t>* out) const;
  void Join(absl::string_view text, std::vector<Symbol> symbols, std::vector<int32_t>* out) const;
  void Unigram(absl::string_view text, std::vector<int32_t>* out) const;
  void Characterwise(absl::string_view text, std::vector<int32_t>* out) const;
  void Longest(absl::string_view word, std::vector<int32_t>* out) const;
  // The model's token of a text, or -1. Those of control are none: what a user writes is text.
  int32_t InModel(absl::string_view text) const;
  // Some of a word as its tokens have it.
  std::string Marked(absl::string_view word, size_t begin, size_t size) const;
  bool AllBytes(absl::string_view text) const;  // are tokens
  void AppendBytes(absl::string_view text, std::vector<int32_t>* out) const;
  // The first of the tokens that stands there and that `may` allows, or -1.
  template <typename May>
  int32_t SpecialAt(const SpecialTokens& tokens, absl::string_view text, size_t at,
                    const May& may) const {
    if (!tokens.starts[static_cast<uint8_t>(text[at])]) return -1;
    for (const Special& token : tokens.tokens) {
      if (text.substr(at, token.text.size()) == token.text && may(token)) return token.id;
    }
    return -1;
  }
  // What is left of a text before a token there, if the token may stand there, and where what
  // follows begins.
  struct Around {
    absl::string_view before;
    size_t end;
  };
  std::optional<Around> AroundOf(int32_t id, size_t size, absl::string_view text, size_t begin,
                                 size_t at) const;
};

}  // namespace tessera::llm
