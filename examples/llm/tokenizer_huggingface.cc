// Vocabularies from tokenizer.json, with what tokenizer_config.json and generation_config.json add.
#include <unistd.h>

#include <algorithm>

#include "examples/llm/pretokenizers.h"
#include "examples/llm/tokenizer.h"
#include "graph/status.h"
#include "runtime/json.h"

namespace tessera::llm {
namespace {

struct Reader {
  const std::string& file;
  TokenizerSpec* spec;

  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(file, ": ", parts...));
  }
  static std::string Text(const std::optional<Json>& v) {
    return v && v->String() ? *v->String() : "";
  }
  static bool True(const std::optional<Json>& v) { return v && v->Bool().value_or(false); }
  static std::optional<Json> Find(const Json& object, absl::string_view key) {
    const std::optional<Json> v = object.Find(key);
    return v && v->is(Json::Type::kNull) ? std::nullopt : v;
  }

  absl::Status Run(const Json& root) const {
    const std::optional<Json> model = Find(root, "model");
    if (!model || !model->is(Json::Type::kObject)) return Bad("the key 'model' is missing");
    RETURN_IF_ERROR(Model(*model));
    RETURN_IF_ERROR(AddedTokens(Find(root, "added_tokens")));
    for (size_t i = 0; i < spec->tokens.size(); ++i) {
      if (spec->tokens[i].kind == TokenKind::kUnused && spec->tokens[i].text.empty()) {
        spec->tokens[i].text = absl::StrCat("[unused ", i, "]");  // an id that no token has
      }
    }
    RETURN_IF_ERROR(Normalizer(Find(root, "normalizer")));
    RETURN_IF_ERROR(PreTokenizer(Find(root, "pre_tokenizer"), 0));
    return PostProcessor(Find(root, "post_processor"), 0);
  }

  // The id as an index, with room made for it. Ids far beyond the number of entries are refused.
  absl::StatusOr<TokenizerSpec::Token*> Place(const Json& value, absl::string_view text) const {
    const std::optional<int64_t> id = value.Int();
    const int64_t most = static_cast<int64_t>(2 * entries + 4096);
    if (!id || *id < 0 || *id > most) {
      return Bad("token ", ShowName(text), ": its id is ", ShowName(value.text()),
                 "; integers from 0 to ", most, " may be");
    }
    if (static_cast<size_t>(*id) >= spec->tokens.size()) {
      TokenizerSpec::Token unused;
      unused.kind = TokenKind::kUnused;
      spec->tokens.resize(static_cast<size_t>(*id) + 1, unused);
    }
    return &spec->tokens[static_cast<size_t>(*id)];
  }

  absl::Status Model(const Json& model) const {
    std::string type = Text(Find(model, "type"));
    const std::optional<Json> vocab = Find(model, "vocab");
    if (!vocab) return Bad("the key 'model.vocab' is missing");
    if (type.empty() && Find(model, "merges"))
      type = "BPE";  // files from before types were written
    if (type == "Unigram") return UnigramVocabulary(model, *vocab);
    if (type != "BPE") {
      return Bad("the tokenizer model ", ShowName(type), " is not known; BPE and Unigram are");
    }
    if (!vocab->is(Json::Type::kObject)) return Bad("'model.vocab' is no object");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const std::string mark = Text(Find(model, key));
      if (mark.empty()) continue;
      return Bad("'model.", key, "' is ", ShowName(mark),
                 "; words whose parts are marked are not known");
    }
    const bool fallback = True(Find(model, "byte_fallback"));
    spec->model = fallback ? TokenizerSpec::Model::kMerges : TokenizerSpec::Model::kByteLevel;
    spec->whole_words = True(Find(model, "ignore_merges"));
    spec->fuse_unknown = True(Find(model, "fuse_unk"));
    for (const JsonItem item : vocab->Items()) entries += item.key().empty() ? 0 : 1;
    for (const JsonItem item : vocab->Items()) {
      std::string text = item.key();
      ASSIGN_OR_RETURN(TokenizerSpec::Token * token, Place(item.value(), text));
      if (!token->text.empty()) {
        return Bad("the tokens ", ShowName(token->text), " and ", ShowName(text), " have one id");
      }
      const bool byte =
          fallback && text.size() == 6 && text.substr(0, 3) == "<0x" && text[5] == '>';
      token->kind = byte ? TokenKind::kByte : TokenKind::kNormal;
      token->text = std::move(text);
    }
    RETURN_IF_ERROR(Merges(Find(model, "merges")));
    const std::string unknown = Text(Find(model, "unk_token"));
    return unknown.empty() ? absl::OkStatus() : Unknown(unknown);
  }

  absl::Status Unknown(const std::string& text) const {
    for (size_t i = 0; i < spec->tokens.size(); ++i) {
      if (spec->tokens[i].text == text) {
        spec->unknown = static_cast<int64_t>(i);
        return absl::OkStatus();
      }
    }
    return Bad("'model.unk_token' is ", ShowName(text), ", which is no token");
  }

  absl::Status Merges(const std::optional<Json>& merges) const {
    if (!merges || !merges->is(Json::Type::kArray)) return Bad("'model.merges' is missing");
    size_t number = 0;
    for (const JsonItem item : merges->Items()) {
      std::string left, right;
      if (const std::optional<std::string> text = item.value().String()) {
        const size_t space = text->find(' ', 1);
        if (space != std::string::npos) {
          left = text->substr(0, space);
          right = text->substr(space + 1);
        }
      } else if (item.value().is(Json::Type::kArray)) {
        int n = 0;
        for (const JsonItem part : item.value().Items()) {
          if (n < 2) (n == 0 ? left : right) = Text(part.value());
          ++n;
        }
        if (n != 2) left.clear();
      }
      if (left.empty() || right.empty()) {
        return Bad("merge ", number, ", ", ShowName(item.value().text()),
                   ", is neither \"a b\" nor [\"a\", \"b\"]");
      }
      spec->merges.emplace_back(std::move(left), std::move(right));
      ++number;
    }
    return absl::OkStatus();
  }

  absl::Status UnigramVocabulary(const Json& model, const Json& vocab) const {
    spec->model = TokenizerSpec::Model::kUnigram;
    spec->fuse_unknown = true;
    if (!vocab.is(Json::Type::kArray)) return Bad("'model.vocab' is no array");
    for (const JsonItem item : vocab.Items()) {
      TokenizerSpec::Token token;
      int n = 0;
      bool right = item.value().is(Json::Type::kArray);
      for (const JsonItem part : item.value().Items()) {
        if (n == 0) {
          right = right && part.value().is(Json::Type::kString);
          token.text = Text(part.value());
        } else {
          right = right && part.value().Number().has_value();
          token.score = static_cast<float>(part.value().Number().value_or(0));
        }
        ++n;
      }
      if (!right || n != 2) {
        return Bad("token ", spec->tokens.size(), " is not [text, score]");
      }
      if (token.text.size() == 6 && token.text.substr(0, 3) == "<0x") token.kind = TokenKind::kByte;
      spec->tokens.push_back(std::move(token));
    }
    entries = spec->tokens.size();
    const std::optional<Json> unknown = Find(model, "unk_id");
    if (unknown) spec->unknown = unknown->Int().value_or(-2);
    return absl::OkStatus();
  }

  absl::Status AddedTokens(const std::optional<Json>& added) const {
    if (!added) return absl::OkStatus();
    for (const JsonItem item : added->Items()) {
      const std::optional<Json> id = Find(item.value(), "id");
      const std::string text = Text(Find(item.value(), "content"));
      if (!id || text.empty()) return Bad("'added_tokens': an entry without id or content");
      ++entries;
      ASSIGN_OR_RETURN(TokenizerSpec::Token * token, Place(*id, text));
      token->text = text;
      token->takes_left = True(Find(item.value(), "lstrip"));
      token->takes_right = True(Find(item.value(), "rstrip"));
      token->alone = True(Find(item.value(), "single_word"));
      if (token->kind == TokenKind::kByte) continue;  // what bytes fall back on, all the same
      token->kind =
          True(Find(item.value(), "special")) ? TokenKind::kControl : TokenKind::kUserDefined;
    }
    AddEndsByName(spec);
    return absl::OkStatus();
  }

  absl::Status Normalizer(const std::optional<Json>& normalizer) const {
    if (!normalizer) return absl::OkStatus();
    const std::string type = Text(Find(*normalizer, "type"));
    if (type == "Sequence") {
      const std::optional<Json> all = Find(*normalizer, "normalizers");
      if (!all) return Bad("'normalizer.normalizers' is missing");
      for (const JsonItem item : all->Items()) {
        if (Text(Find(item.value(), "type")) == "Sequence") return Bad("'normalizer': too deep");
        RETURN_IF_ERROR(Normalizer(item.value()));
      }
      return absl::OkStatus();
    }
    if (type == "Prepend" && Text(Find(*normalizer, "prepend")) == "\xE2\x96\x81") {
      spec->prefix = TokenizerSpec::Prefix::kEach;
      return absl::OkStatus();
    }
    if (type == "Replace") {  // of spaces, as every SentencePiece does
      const std::optional<Json> pattern = Find(*normalizer, "pattern");
      const std::string from = pattern ? Text(Find(*pattern, "String")) : "";
      if (from == " " && Text(Find(*normalizer, "content")) == "\xE2\x96\x81") {
        no_spaces = true;
        return absl::OkStatus();
      }
      return Bad("'normalizer': a Replace of other than \" \" by U+2581 is not known");
    }
    if (type == "NFC" || type == "NFD") {
      spec->form =
          type == "NFC" ? TokenizerSpec::Form::kComposed : TokenizerSpec::Form::kDecomposed;
      return absl::OkStatus();
    }
    return Bad("the normalizer ", ShowName(type),
               " is not known; Prepend, Replace, NFC and NFD are");
  }

  // What the pattern matches are words, each or as many as stand side by side.
  absl::Status Cut(const std::string& pattern, const Json& pre) const {
    const std::string behavior = Text(Find(pre, "behavior"));
    if (behavior == "Isolated") {
      spec->patterns.push_back(pattern);
    } else if (behavior == "Contiguous") {
      spec->patterns.push_back(absl::StrCat("(?:", pattern, ")+"));
    } else {
      return Bad("'pre_tokenizer': the behavior ", ShowName(behavior),
                 " is not known; Isolated and Contiguous are");
    }
    return absl::OkStatus();
  }

  absl::Status Split(const Json& pre) const {
    const std::optional<Json> pattern = Find(pre, "pattern");
    const std::string text = pattern ? Text(Find(*pattern, "String")) : "";
    if (text == " " && no_spaces) return absl::OkStatus();  // of which none is left: Gemma's
    const std::string regex = pattern ? Text(Find(*pattern, "Regex")) : "";
    if (regex.empty()) return Bad("'pre_tokenizer': a Split that has no Regex is not known");
    if (!True(Find(pre, "invert"))) return Cut(regex, pre);
    // What matches is kept and all else is removed: patterns of words leave nothing else.
    if (Text(Find(pre, "behavior")) != "Removed") {
      return Bad("'pre_tokenizer': an inverted Split is known where it removes what is no match");
    }
    spec->patterns.push_back(regex);
    return absl::OkStatus();
  }

  void PrefixOnce(absl::string_view scheme) const {
    spec->prefix = scheme == "never"   ? TokenizerSpec::Prefix::kNone
                   : scheme == "first" ? TokenizerSpec::Prefix::kBegin
                                       : TokenizerSpec::Prefix::kEach;
    spec->prefix_once = true;
    spec->prefix_after = spec->patterns.size();
  }

  absl::Status PreTokenizer(const std::optional<Json>& pre, int depth) const {
    if (!pre) return absl::OkStatus();
    const std::string type = Text(Find(*pre, "type"));
    if (type == "Sequence" && depth == 0) {
      const std::optional<Json> all = Find(*pre, "pretokenizers");
      if (!all) return Bad("'pre_tokenizer.pretokenizers' is missing");
      for (const JsonItem item : all->Items()) RETURN_IF_ERROR(PreTokenizer(item.value(), 1));
      return absl::OkStatus();
    }
    if (type == "ByteLevel") {
      if (spec->model == TokenizerSpec::Model::kUnigram) {
        return Bad("'pre_tokenizer': ByteLevel before a Unigram model is not known");
      }
      spec->model = TokenizerSpec::Model::kByteLevel;  // no byte is left that falls back
      if (True(Find(*pre, "add_prefix_space"))) PrefixOnce("always");
      const std::optional<Json> regex = Find(*pre, "use_regex");
      if (!regex || True(regex)) spec->patterns.push_back(kGpt2Pattern);
      return absl::OkStatus();
    }
    if (type == "Split") return Split(*pre);
    if (type == "Digits") {
      spec->patterns.push_back(True(Find(*pre, "individual_digits")) ? R"(\p{N})" : R"(\p{N}+)");
      return absl::OkStatus();
    }
    if (type == "Punctuation") {
      return Cut(R"([\p{P}\$\+<=>\^~\|`])", *pre);
    }
    if (type == "Metaspace") {
      // Older files have a flag in place of a scheme.
      const std::optional<Json> flag = Find(*pre, "add_prefix_space");
      const std::string scheme = Text(Find(*pre, "prepend_scheme"));
      PrefixOnce(!scheme.empty() ? scheme : flag && !True(flag) ? "never" : "always");
      const std::optional<Json> split = Find(*pre, "split");
      if (!split || True(split)) spec->patterns.push_back("\xE2\x96\x81[^\xE2\x96\x81]*");
      return absl::OkStatus();
    }
    return Bad("the pre_tokenizer ", ShowName(type),
               " is not known; ByteLevel, Split, Digits, Punctuation and Metaspace are");
  }

  // Which token, if any, goes before and after a text.
  absl::Status PostProcessor(const std::optional<Json>& post, int depth) const {
    if (!post) return absl::OkStatus();
    const std::string type = Text(Find(*post, "type"));
    if (type == "Sequence" && depth == 0) {
      const std::optional<Json> all = Find(*post, "processors");
      if (!all) return absl::OkStatus();
      for (const JsonItem item : all->Items()) RETURN_IF_ERROR(PostProcessor(item.value(), 1));
      return absl::OkStatus();
    }
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      for (const char* key : {"cls", "sep"}) {
        const std::optional<Json> pair = Find(*post, key);
        std::vector<Json> parts;
        if (pair && pair->is(Json::Type::kArray)) {
          for (const JsonItem item : pair->Items()) parts.push_back(item.value());
        }
        if (parts.size() != 2) {
          return Bad("'post_processor.", key, "' is no pair of a token and its id");
        }
        RETURN_IF_ERROR(Surround(Text(parts[0]), /*before=*/key == absl::string_view("cls")));
      }
      return absl::OkStatus();
    }
    if (type != "TemplateProcessing") return absl::OkStatus();
    const std::optional<Json> single = Find(*post, "single");
    if (!single) return absl::OkStatus();
    bool before = true;
    for (const JsonItem item : single->Items()) {
      if (item.value().Find("Sequence")) before = false;
      const std::optional<Json> special = item.value().Find("SpecialToken");
      if (special) RETURN_IF_ERROR(Surround(Text(Find(*special, "id")), before));
    }
    return absl::OkStatus();
  }

  // One more token before, or one after, a text.
  absl::Status Surround(const std::string& text, bool before) const {
    for (size_t i = 0; i < spec->tokens.size(); ++i) {
      if (spec->tokens[i].text != text) continue;
      const auto id = static_cast<int64_t>(i);
      if (before) {
        if (spec->add_bos) spec->before_bos.push_back(spec->bos);
        spec->add_bos = true;
        spec->bos = id;
      } else {
        spec->add_eos = true;
        spec->eos = id;
      }
      return absl::OkStatus();
    }
    return Bad("'post_processor' has ", ShowName(text), ", which is no token");
  }

  mutable size_t entries = 0;
  mutable bool no_spaces = false;  // after normalising
};

absl::StatusOr<std::shared_ptr<const MappedFile>> OpenIfThere(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return std::shared_ptr<const MappedFile>();
  return MappedFile::Open(path);
}

// "<s>", or {"content": "<s>", ...}, as an id.
int64_t TokenOf(const Json& config, const char* key, const TokenizerSpec& spec) {
  std::optional<Json> v = config.Find(key);
  if (v && v->is(Json::Type::kObject)) v = v->Find("content");
  if (!v || !v->String()) return -1;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].text == *v->String()) return static_cast<int64_t>(i);
  }
  return -1;
}

absl::Status ReadTokenizerConfig(const std::string& path, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, OpenIfThere(path));
  if (file == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json json, Json::Parse(file->bytes(), path));
  if (const int64_t id = TokenOf(json, "bos_token", *spec); id >= 0) spec->bos = id;
  if (const int64_t id = TokenOf(json, "eos_token", *spec); id >= 0) spec->eos = id;
  if (const std::optional<Json> add = json.Find("add_bos_token"); add && add->Bool()) {
    spec->add_bos = *add->Bool() && spec->bos >= 0;
  }
  if (const std::optional<Json> add = json.Find("add_eos_token"); add && add->Bool()) {
    spec->add_eos = *add->Bool() && spec->eos >= 0;
  }
  const std::optional<Json> chat = json.Find("chat_template");
  if (!chat) return absl::OkStatus();
  if (chat->String()) spec->chat_template = *chat->String();
  for (const JsonItem item : chat->Items()) {  // several, each with its name
    const std::optional<Json> name = item.value().Find("name"),
                              text = item.value().Find("template");
    if (!name || name->String() != "default" || !text || !text->String()) continue;
    spec->chat_template = *text->String();
  }
  return absl::OkStatus();
}

// A file of its own, as newer folders have it, wins.
absl::Status ReadChatTemplate(const std::string& path, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, OpenIfThere(path));
  if (file != nullptr) spec->chat_template = std::string(file->bytes());
  return absl::OkStatus();
}

// What ends a text by the 'eos_token_id' of a file, if it is there: an id, or several. False where
// it says nothing of that.
absl::StatusOr<bool> ReadEnds(const std::string& path, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, OpenIfThere(path));
  if (file == nullptr) return false;
  ASSIGN_OR_RETURN(const Json json, Json::Parse(file->bytes(), path));
  std::optional<Json> eos = json.Find("eos_token_id");
  // Of models of more than texts, beside what those are made of.
  if (const std::optional<Json> text = json.Find("text_config"); !eos && text) {
    eos = text->Find("eos_token_id");
  }
  if (!eos || eos->is(Json::Type::kNull)) return false;
  const auto add = [&](const Json& id) {
    const std::optional<int64_t> at = id.Int();
    if (!at || *at < 0 || *at >= static_cast<int64_t>(spec->tokens.size())) {
      return absl::DataLossError(absl::StrCat(path, ": 'eos_token_id' has ", ShowName(id.text()),
                                              ", and there are ", spec->tokens.size(), " tokens"));
    }
    spec->ends.push_back(*at);
    return absl::OkStatus();
  };
  if (!eos->is(Json::Type::kArray)) {
    RETURN_IF_ERROR(add(*eos));
    return true;
  }
  for (const JsonItem item : eos->Items()) RETURN_IF_ERROR(add(item.value()));
  return true;
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerFromHuggingFaceText(absl::string_view text,
                                                           const std::string& file) {
  ASSIGN_OR_RETURN(const Json json, Json::Parse(text, file));
  TokenizerSpec spec;
  spec.file = file;
  RETURN_IF_ERROR((Reader{file, &spec}.Run(json)));
  return spec;
}

absl::StatusOr<TokenizerSpec> TokenizerFromHuggingFace(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromHuggingFaceText(file->bytes(), path));
  RETURN_IF_ERROR(ReadTokenizerConfig(folder + "/tokenizer_config.json", &spec));
  RETURN_IF_ERROR(ReadChatTemplate(folder + "/chat_template.jinja", &spec));
  ASSIGN_OR_RETURN(const bool told, ReadEnds(folder + "/generation_config.json", &spec));
  if (!told) RETURN_IF_ERROR(ReadEnds(folder + "/config.json", &spec).status());
  return spec;
}

}  // namespace tessera::llm
