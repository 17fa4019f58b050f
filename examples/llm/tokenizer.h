// Text to token ids and back: byte-level BPE, SentencePiece BPE by scores or by merges, unigram,
// WordPiece, words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/text_step.h"
#include "examples/llm/tokenizer_tree.h"
#include "runtime/gguf.h"

namespace tessera::llm {

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// A vocabulary and its rules as files give them.
struct TokenizerSpec {
  enum class Model {
    kByteLevel,  // merges over bytes, which the file writes as printable characters
    kScores,     // SentencePiece BPE: the pair whose token has the highest score is merged first
    kMerges,     // merges over characters, unknown ones as byte tokens
    kUnigram,    // the split with the greatest sum of scores
    kLongest,    // WordPiece: from left to right the longest token, or else the word is unknown
    kWords       // a word is a token, or unknown
  };
  struct Token {
    std::string text;  // as in the file
    double score = 0;
    TokenKind kind = TokenKind::kNormal;
    // Of tokens that are cut out of texts: it takes the white space on that side, and it is none
    // where a letter, digit or mark stands beside it.
    bool takes_left = false, takes_right = false, alone = false;
    bool added = false;       // it is none of the model's, which finds it in no word
    bool normalized = false;  // it is cut out where the steps of `normalizer` are done, on it, too
  };
  std::string file;  // for messages
  Model model = Model::kByteLevel;
  std::vector<Token> tokens;
  std::vector<std::pair<std::string, std::string>> merges;  // first is done first
  // Done in turn to what is no special token: changes of a text, then its cuts into words, and
  // changes that make a token text.
  std::vector<TextStep> normalizer, pre_tokenizer, decoder;
  std::string inner_mark,
      end_mark;                // before tokens that begin no word, and after those that end it
  bool whole_words = false;    // a word that is a token is not merged
  bool fuse_unknown = false;   // unknown characters side by side are one token
  bool drop_unknown = false;   // or they are left out, where there is no such token
  int64_t longest_word = 100;  // of kLongest: longer ones, in characters, are unknown
  bool add_bos = false, add_eos = false;
  int64_t bos = -1, eos = -1, unknown = -1;
  int64_t first = -1, last = -1;    // what is added in place of bos and eos, or -1
  std::vector<int64_t> before_bos;  // what goes ahead of that, if it is added
  std::vector<int64_t> ends;        // what ends a turn beside eos
  std::string chat_template;

  int64_t added_bos() const { return !add_bos ? -1 : first >= 0 ? first : bos; }
  int64_t added_eos() const { return !add_eos ? -1 : last >= 0 ? last : eos; }
};

// The errors name the file and the key, token or merge.
absl::StatusOr<TokenizerSpec> TokenizerFromGguf(const GgufMetadata& metadata);
absl::StatusOr<TokenizerSpec> TokenizerFromHuggingFace(const std::string& folder);
// From the text of a tokenizer.json alone.
absl::StatusOr<TokenizerSpec> TokenizerFromHuggingFaceText(absl::string_view text,
                                                           const std::string& file);

// What SentencePiece writes for a space, U+2581.
inline constexpr char kSpace[] = "\xE2\x96\x81";

// Adds the tokens that by their names end a turn: files often name only one of them.
void AddEndsByName(TokenizerSpec* spec);

class Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Make(TokenizerSpec spec);
  ~Tokenizer();

  // `special`: with the tokens that the model wants at the beginning and end. `markup`: the names
  // of control tokens in the text are those tokens. Where continues is set the text follows other.
  struct Options {
    bool special = true;
    bool markup = false;
    bool continues = false;
  };
  std::vector<int32_t> Encode(absl::string_view text, const Options& options) const;

  // Parts of one text: words and merges reach from one into the next, names of control tokens do
  // not, and count only in parts that are markup. Names of other tokens that stand in markup, or
  // may, count there and in the model's own words. Or a token itself, which texts end at.
  struct Part {
    std::string text;
    bool markup = false;
    int32_t token = -1;
    bool own = false;
  };
  std::vector<int32_t> Encode(absl::Span<const Part> parts, const Options& options) const;

  // The bytes of a token as it is generated: "" for control tokens; a character may be spread
  // over several.
  const std::string& Piece(int32_t id) const;
  // The id of a token by its text in the file, or -1.
  int32_t Find(absl::string_view text) const;
  bool EndsText(int32_t id) const;
  // Whether it is none of the control tokens or those without use.
  bool WritesText(int32_t id) const;
  // The pieces of those that do, made when first asked for, by any thread.
  const TokenTree& Tree() const;
  const TokenizerSpec& spec() const;
  int size() const;

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// The printable characters that stand for bytes in byte-level vocabularies, as UTF-8.
const std::array<std::string, 256>& ByteCharacters();

// Holds back the bytes of a character that is not yet complete.
class Utf8Stream {
 public:
  std::string Push(absl::string_view bytes);  // what is complete; bytes that are no UTF-8 as U+FFFD
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace tessera::llm
