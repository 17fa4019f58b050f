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

// "<s>", or {"content": "<s>", ...}, as an id; -1 where it is no token.
absl::StatusOr<int64_t> TokenOf(const JsonReader& config, const char* key,
                                const TokenizerSpec& spec) {
  const std::optional<Json> v = config.Find(key);
  if (!v) return -1;
  std::string text;
  if (v->is(Json::Type::kObject)) {
    ASSIGN_OR_RETURN(const JsonReader token, config.Object(key));
    ASSIGN_OR_RETURN(text, token.Text("content"));
  } else {
    ASSIGN_OR_RETURN(text, config.Text(key));
  }
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].text == text) return static_cast<int64_t>(i);
  }
  return -1;
}

absl::Status ReadTokenizerConfig(const std::string& path, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, OpenIfThere(path));
  if (file == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json json, Json::Parse(file->bytes(), path));
  const JsonReader config{json, path};
  ASSIGN_OR_RETURN(const int64_t bos, TokenOf(config, "bos_token", *spec));
  ASSIGN_OR_RETURN(const int64_t eos, TokenOf(config, "eos_token", *spec));
  // What they are called; around a text goes what the post-processor says.
  if (bos >= 0) spec->bos = bos;
  if (eos >= 0) spec->eos = eos;
  if (config.Find("add_bos_token")) {
    ASSIGN_OR_RETURN(const bool add, config.Bool("add_bos_token", false));
    spec->add_bos = add && spec->bos >= 0;
  }
  if (config.Find("add_eos_token")) {
    ASSIGN_OR_RETURN(const bool add, config.Bool("add_eos_token", false));
    spec->add_eos = add && spec->eos >= 0;
  }
  const std::optional<Json> chat = config.Find("chat_template");
  if (!chat) return absl::OkStatus();
  if (!chat->is(Json::Type::kArray)) {
    ASSIGN_OR_RETURN(spec->chat_template, config.Text("chat_template"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<JsonReader> several, config.Objects("chat_template"));
  for (const JsonReader& one : several) {
    ASSIGN_OR_RETURN(const std::string name, one.Text("name"));
    ASSIGN_OR_RETURN(std::string text, one.Text("template"));
    if (name == "default") spec->chat_template = std::move(text);
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
