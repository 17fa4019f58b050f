// Vocabularies from GGUF metadata.
#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "examples/llm/pretokenizers.h"
#include "examples/llm/tokenizer.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm {

namespace {

bool Contains(absl::string_view list, absl::string_view name) {
  return !name.empty() &&
         absl::StrCat(" ", list, " ").find(absl::StrCat(" ", name, " ")) != std::string::npos;
}

absl::Status Bad(const GgufMetadata& m, const std::string& what) {
  return absl::DataLossError(absl::StrCat(m.file(), ": ", what));
}

absl::Status ReadTokens(const GgufMetadata& m, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const GgufArray* tokens, m.Strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr) return Bad(m, "the key 'tokenizer.ggml.tokens' is missing");
  if (tokens->count > INT32_MAX) return Bad(m, "too many tokens");
  ASSIGN_OR_RETURN(const GgufArray* scores, m.Numbers("tokenizer.ggml.scores"));
  ASSIGN_OR_RETURN(const GgufArray* kinds, m.Numbers("tokenizer.ggml.token_type"));
  const bool by_score = spec->model != TokenizerSpec::Model::kByteLevel;
  if (by_score && scores == nullptr) return Bad(m, "the key 'tokenizer.ggml.scores' is missing");
  for (const auto& [array, key] : {std::pair(scores, "tokenizer.ggml.scores"),
                                   std::pair(kinds, "tokenizer.ggml.token_type")}) {
    if (array != nullptr && array->count != tokens->count) {
      return Bad(m, absl::StrCat("key '", key, "' has ", array->count, " entries, and there are ",
                                 tokens->count, " tokens"));
    }
  }
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                  TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                  TokenKind::kByte};
  spec->tokens.resize(tokens->count);
  for (uint64_t i = 0; i < tokens->count; ++i) {
    TokenizerSpec::Token& t = spec->tokens[i];
    t.text = std::string(tokens->strings[i]);
    if (scores != nullptr) t.score = static_cast<float>(scores->Number(i));
    if (t.score != t.score) return Bad(m, absl::StrCat("the score of token ", i, " is NaN"));
    if (kinds == nullptr) continue;
    const int64_t kind = kinds->Int(i);
    if (kind < 0 || kind >= static_cast<int64_t>(std::size(kKinds))) {
      return Bad(m, absl::StrCat("token ", i, " has type ", kind, "; 0 to 6 are known"));
    }
    t.kind = kKinds[kind];
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const GgufMetadata& m, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const GgufArray* merges, m.Strings("tokenizer.ggml.merges"));
  if (merges == nullptr) return Bad(m, "the key 'tokenizer.ggml.merges' is missing");
  spec->merges.reserve(merges->count);
  for (uint64_t i = 0; i < merges->count; ++i) {
    const absl::string_view text = merges->strings[i];
    const size_t space = text.find(' ', 1);
    if (space == absl::string_view::npos || space + 1 == text.size()) {
      return Bad(m, absl::StrCat("merge ", i, ", ", ShowName(text), ", is not of the form 'a b'"));
    }
    spec->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return absl::OkStatus();
}

// What SentencePiece does to a text, which a space may be put before.
std::vector<TextStep> Spaced(bool prefix) {
  std::vector<TextStep> out;
  if (prefix) out.push_back(Prefix(" "));
  out.push_back(Replace(" ", kSpace));
  return out;
}

absl::Status ReadSpecial(const GgufMetadata& m, TokenizerSpec* spec) {
  const auto id = [&](const char* name, int64_t otherwise) -> absl::StatusOr<int64_t> {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, m.Int(key));
    const int64_t n = static_cast<int64_t>(spec->tokens.size());
    if (value && (*value < 0 || *value >= n)) {
      return Bad(m, absl::StrCat("key '", key, "' is ", *value, ", and there are ", n, " tokens"));
    }
    return value.value_or(otherwise);
  };
  ASSIGN_OR_RETURN(spec->bos, id("bos", -1));
  ASSIGN_OR_RETURN(spec->eos, id("eos", -1));
  ASSIGN_OR_RETURN(spec->unknown, id("unknown", -1));
  for (const char* name : {"eot", "eom"}) {
    ASSIGN_OR_RETURN(const int64_t end, id(name, -1));
    if (end >= 0) spec->ends.push_back(end);
  }
  AddEndsByName(spec);
  ASSIGN_OR_RETURN(const std::optional<bool> add_bos, m.Bool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(const std::optional<bool> add_eos, m.Bool("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(const std::optional<bool> prefix, m.Bool("tokenizer.ggml.add_space_prefix"));
  if (add_bos) spec->add_bos = *add_bos;
  spec->add_eos = add_eos.value_or(false);
  if (prefix && spec->model != TokenizerSpec::Model::kByteLevel) {
    spec->normalizer = Spaced(*prefix);
  }
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> chat,
                   m.String("tokenizer.chat_template"));
  if (chat) spec->chat_template = std::string(*chat);
  return absl::OkStatus();
}

// A file cannot say which tokens take the white space after them. Phi-3's do, but for three, and
// are known by the model's name.
absl::Status ReadWhatTakesSpace(const GgufMetadata& m, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> name, m.String("general.name"));
  const std::string lower = absl::AsciiStrToLower(name.value_or(""));
  if (!absl::StrContains(lower, "phi-3") && !absl::StrContains(lower, "phi3")) {
    return absl::OkStatus();
  }
  for (TokenizerSpec::Token& t : spec->tokens) {
    const bool special = t.kind == TokenKind::kControl || t.kind == TokenKind::kUserDefined;
    t.takes_right = special && !Contains("<s> <unk> <|endoftext|>", t.text);
  }
  return absl::OkStatus();
}

}  // namespace

const std::array<std::string, 256>& ByteCharacters() {
  static const auto* const table = [] {
    auto* out = new std::array<std::string, 256>;
    uint32_t next = 256;  // what is not printable takes the characters from here on
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      AppendUtf8(printable ? b : next++, &(*out)[b]);
    }
    return out;
  }();
  return *table;
}

void AddEndsByName(TokenizerSpec* spec) {
  constexpr absl::string_view kEnds =
      "<|eot_id|> <|eom_id|> <|im_end|> <|end|> <|endoftext|> <|end_of_text|> <end_of_turn> "
      "<|return|> <|call|>";
  int64_t end_of_message = -1;
  bool several = false;
  for (size_t i = 0; i < spec->tokens.size(); ++i) {
    const TokenizerSpec::Token& t = spec->tokens[i];
    if (t.kind != TokenKind::kControl && t.kind != TokenKind::kUserDefined) continue;
    if (!Contains(kEnds, t.text)) continue;
    spec->ends.push_back(static_cast<int64_t>(i));
    if (t.text == "<|end|>") end_of_message = static_cast<int64_t>(i);
    several = several || t.text == "<|return|>";
  }
  // Where <|return|> ends a turn, <|end|> ends each of its messages.
  if (several) {
    spec->ends.erase(std::remove(spec->ends.begin(), spec->ends.end(), end_of_message),
                     spec->ends.end());
  }
}

absl::StatusOr<TokenizerSpec> TokenizerFromGguf(const GgufMetadata& m) {
  TokenizerSpec spec;
  spec.file = m.file();
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> model, m.String("tokenizer.ggml.model"));
  if (!model) return Bad(m, "the key 'tokenizer.ggml.model' is missing");
  if (*model == "gpt2") {
    ASSIGN_OR_RETURN(const std::optional<absl::string_view> pre, m.String("tokenizer.ggml.pre"));
    if (!pre) return Bad(m, "the key 'tokenizer.ggml.pre' is missing; convert the file again");
    const absl::StatusOr<const PreTokenizer*> words = PreTokenizerNamed(*pre);
    if (!words.ok()) return Bad(m, std::string(words.status().message()));
    for (const std::string& pattern : (*words)->patterns) {
      spec.pre_tokenizer.push_back(CutBy(pattern));
    }
    if ((*words)->composed) spec.normalizer = {Change(TextStep::Kind::kCompose)};
    spec.add_bos = spec.whole_words = (*words)->llama3;
  } else if (*model == "llama") {
    spec.model = TokenizerSpec::Model::kScores;
    spec.normalizer = Spaced(true);
    spec.add_bos = true;
  } else if (*model == "t5") {
    spec.model = TokenizerSpec::Model::kUnigram;
    spec.normalizer = Spaced(true);
    spec.fuse_unknown = true;
  } else {
    return Bad(m, absl::StrCat("the tokenizer model ", ShowName(*model),
                               " is not known; gpt2, llama and t5 are"));
  }
  RETURN_IF_ERROR(ReadTokens(m, &spec));
  if (spec.model == TokenizerSpec::Model::kByteLevel) RETURN_IF_ERROR(ReadMerges(m, &spec));
  RETURN_IF_ERROR(ReadSpecial(m, &spec));
  RETURN_IF_ERROR(ReadWhatTakesSpace(m, &spec));
  return spec;
}

}  // namespace tessera::llm
