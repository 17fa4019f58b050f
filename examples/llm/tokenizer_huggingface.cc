// Vocabularies from tokenizer.json, with what tokenizer_config.json and generation_config.json add.
#include <unistd.h>

#include <algorithm>

#include "examples/llm/tokenizer_json.h"
#include "graph/status.h"
#include "runtime/json.h"

namespace tessera::llm {
namespace {

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
  const JsonReader root{json, file};
  RETURN_IF_ERROR(ReadVocabulary(root, &spec));
  RETURN_IF_ERROR(ReadNormalizer(root, &spec));
  RETURN_IF_ERROR(ReadPreTokenizer(root, &spec));
  RETURN_IF_ERROR(ReadDecoder(root, &spec));
  RETURN_IF_ERROR(ReadPostProcessor(root, &spec));
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
