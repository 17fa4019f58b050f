// 'model' and 'added_tokens' of a tokenizer.json.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "examples/llm/tokenizer_json.h"

namespace tessera::llm {
namespace {

using Model = TokenizerSpec::Model;

bool LooksLikeByte(absl::string_view text) {
  return text.size() == 6 && absl::StartsWith(text, "<0x") && text[5] == '>';
}

struct VocabularyReader {
  const JsonReader& root;
  const JsonReader& model;
  TokenizerSpec* spec;
  size_t entries = 0;
  bool fallback = false;

  // The id as an index, with room made for it. Ids far beyond the number of entries are refused.
  absl::StatusOr<TokenizerSpec::Token*> Place(const Json& value, absl::string_view text) const {
    const std::optional<int64_t> id = value.Int();
    const int64_t most = static_cast<int64_t>(2 * entries + 4096);
    if (!id || *id < 0 || *id > most) {
      return root.Bad("token ", ShowName(text), ": its id is ", ShowName(value.text()),
                      "; integers from 0 to ", most, " may be");
    }
    if (static_cast<size_t>(*id) >= spec->tokens.size()) {
      TokenizerSpec::Token unused;
      unused.kind = TokenKind::kUnused;
      spec->tokens.resize(static_cast<size_t>(*id) + 1, unused);
    }
    return &spec->tokens[static_cast<size_t>(*id)];
  }

  absl::Status Read() {
    ASSIGN_OR_RETURN(std::string type, model.Text("type", ""));
    if (!model.Find("vocab")) return model.Bad("the key 'model.vocab' is missing");
    // Files from before types were written.
    if (type.empty() && model.Find("merges")) type = "BPE";
    if (type == "Unigram") return Unigram();
    if (type == "BPE") return Merges();
    if (type == "WordPiece" || type == "WordLevel") return Words(type == "WordPiece");
    return model.Bad("the tokenizer model ", ShowName(type),
                     " is not known; BPE, Unigram, WordPiece and WordLevel are");
  }

  absl::Status Ids() {
    ASSIGN_OR_RETURN(const JsonReader vocab, model.Object("vocab"));
    for (const JsonItem item : vocab.json.Items()) entries += item.key().empty() ? 0 : 1;
    for (const JsonItem item : vocab.json.Items()) {
      std::string text = item.key();
      ASSIGN_OR_RETURN(TokenizerSpec::Token * token, Place(item.value(), text));
      if (!token->text.empty()) {
        return model.Bad("the tokens ", ShowName(token->text), " and ", ShowName(text),
                         " have one id");
      }
      token->kind = fallback && LooksLikeByte(text) ? TokenKind::kByte : TokenKind::kNormal;
      token->text = std::move(text);
    }
    return absl::OkStatus();
  }

  absl::Status Unknown(bool wanted) {
    ASSIGN_OR_RETURN(const std::string text, model.Text("unk_token", ""));
    if (text.empty() && !wanted) return absl::OkStatus();
    for (size_t i = 0; i < spec->tokens.size(); ++i) {
      if (spec->tokens[i].text != text || text.empty()) continue;
      spec->unknown = static_cast<int64_t>(i);
      return absl::OkStatus();
    }
    return model.Bad("'model.unk_token' is ", ShowName(text), ", which is no token");
  }

  absl::Status Merges() {
    spec->model = Model::kMerges;
    spec->drop_unknown = true;
    ASSIGN_OR_RETURN(fallback, model.Bool("byte_fallback", false));
    ASSIGN_OR_RETURN(spec->whole_words, model.Bool("ignore_merges", false));
    ASSIGN_OR_RETURN(spec->fuse_unknown, model.Bool("fuse_unk", false));
    ASSIGN_OR_RETURN(spec->inner_mark, model.Text("continuing_subword_prefix", ""));
    ASSIGN_OR_RETURN(spec->end_mark, model.Text("end_of_word_suffix", ""));
    ASSIGN_OR_RETURN(const double dropout, model.Number("dropout", 0));
    if (dropout != 0) return model.Bad("'model.dropout' is ", dropout, "; none is known");
    RETURN_IF_ERROR(Ids());
    ASSIGN_OR_RETURN(const Json merges, model.Array("merges"));
    size_t number = 0;
    for (const JsonItem item : merges.Items()) RETURN_IF_ERROR(Merge(item.value(), number++));
    return Unknown(false);
  }

  absl::Status Merge(const Json& merge, size_t number) {
    std::string left, right;
    if (const std::optional<std::string> text = merge.String()) {
      const size_t space = text->find(' ', 1);
      if (space != std::string::npos) {
        left = text->substr(0, space);
        right = text->substr(space + 1);
      }
    } else if (merge.is(Json::Type::kArray)) {
      std::vector<std::string> parts;
      for (const JsonItem part : merge.Items()) parts.push_back(part.value().String().value_or(""));
      if (parts.size() == 2) {
        left = parts[0];
        right = parts[1];
      }
    }
    if (left.empty() || right.empty()) {
      return model.Bad("merge ", number, ", ", ShowName(merge.text()),
                       ", is neither \"a b\" nor [\"a\", \"b\"]");
    }
    spec->merges.emplace_back(std::move(left), std::move(right));
    return absl::OkStatus();
  }

  absl::Status Unigram() {
    spec->model = Model::kUnigram;
    spec->fuse_unknown = true;
    ASSIGN_OR_RETURN(fallback, model.Bool("byte_fallback", false));
    ASSIGN_OR_RETURN(const Json vocab, model.Array("vocab"));
    for (const JsonItem item : vocab.Items()) {
      std::vector<Json> parts;
      if (item.value().is(Json::Type::kArray)) {
        for (const JsonItem part : item.value().Items()) parts.push_back(part.value());
      }
      if (parts.size() != 2 || !parts[0].String() || !parts[1].Number()) {
        return model.Bad("token ", spec->tokens.size(), " is not [text, score]");
      }
      TokenizerSpec::Token token;
      token.text = *parts[0].String();
      token.score = *parts[1].Number();
      if (fallback && LooksLikeByte(token.text)) token.kind = TokenKind::kByte;
      spec->tokens.push_back(std::move(token));
    }
    entries = spec->tokens.size();
    ASSIGN_OR_RETURN(spec->unknown, model.Int("unk_id", -1));
    if (spec->unknown >= static_cast<int64_t>(entries) || spec->unknown < -1) {
      return model.Bad("'model.unk_id' is ", spec->unknown, ", and there are ", entries, " tokens");
    }
    return absl::OkStatus();
  }

  absl::Status Words(bool pieces) {
    spec->model = pieces ? Model::kLongest : Model::kWords;
    if (pieces) {
      ASSIGN_OR_RETURN(spec->inner_mark, model.Text("continuing_subword_prefix", "##"));
      ASSIGN_OR_RETURN(spec->longest_word, model.Int("max_input_chars_per_word", 100));
      if (spec->longest_word < 0) return model.Bad("'model.max_input_chars_per_word' is negative");
    }
    RETURN_IF_ERROR(Ids());
    return Unknown(true);
  }

  absl::Status AddedTokens() {
    if (!root.Find("added_tokens")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<JsonReader> added, root.Objects("added_tokens"));
    entries += added.size();
    for (const JsonReader& in : added) {
      const std::optional<Json> id = in.Find("id");
      ASSIGN_OR_RETURN(const std::string text, in.Text("content"));
      if (!id || text.empty()) return in.BadHere("an id and a content");
      ASSIGN_OR_RETURN(TokenizerSpec::Token * token, Place(*id, text));
      if (!token->text.empty() && token->text != text) {
        return in.Bad("the tokens ", ShowName(token->text), " and ", ShowName(text),
                      " have one id");
      }
      token->added = token->text != text;
      token->text = text;
      ASSIGN_OR_RETURN(token->takes_left, in.Bool("lstrip", false));
      ASSIGN_OR_RETURN(token->takes_right, in.Bool("rstrip", false));
      ASSIGN_OR_RETURN(token->alone, in.Bool("single_word", false));
      ASSIGN_OR_RETURN(const bool special, in.Bool("special", false));
      ASSIGN_OR_RETURN(token->normalized, in.Bool("normalized", !special));
      if (token->kind == TokenKind::kByte) continue;  // what bytes fall back on, all the same
      token->kind = special ? TokenKind::kControl : TokenKind::kUserDefined;
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status ReadVocabulary(const JsonReader& root, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const JsonReader model, root.Object("model"));
  VocabularyReader reader{root, model, spec};
  RETURN_IF_ERROR(reader.Read());
  RETURN_IF_ERROR(reader.AddedTokens());
  AddEndsByName(spec);
  for (size_t i = 0; i < spec->tokens.size(); ++i) {
    TokenizerSpec::Token& token = spec->tokens[i];
    if (token.kind == TokenKind::kUnused && token.text.empty()) {
      token.text = absl::StrCat("[unused ", i, "]");  // an id that no token has
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
