// Opening a model: which kind of file or folder it is, and its parts.
#include <sys/stat.h>

#include "examples/llm/model.h"
#include "graph/status.h"
#include "runtime/safetensors.h"

namespace tessera::llm {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> GgufTokenizer(const Gguf& file) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromGguf(file.metadata));
  return Tokenizer::Make(std::move(spec));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> FolderTokenizer(const std::string& folder) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromHuggingFace(folder));
  return Tokenizer::Make(std::move(spec));
}

absl::StatusOr<Model> LoadGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const Gguf file, OpenGguf(path));
  ASSIGN_OR_RETURN(ModelConfig config, ConfigFromGguf(file.metadata));
  ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, GgufTokenizer(file));
  return MakeModel(std::move(config), std::move(tokenizer), file.weights, true, path);
}

absl::StatusOr<Model> LoadFolder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const Json json, Json::Parse(file->bytes(), path));
  ASSIGN_OR_RETURN(ModelConfig config, ConfigFromHuggingFace(json, path));
  ASSIGN_OR_RETURN(const WeightSet weights, OpenSafetensorsFolder(folder));
  ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, FolderTokenizer(folder));
  return MakeModel(std::move(config), std::move(tokenizer), weights, false, folder);
}

}  // namespace

absl::StatusOr<Model> LoadModel(const std::string& path) {
  return IsFolder(path) ? LoadFolder(path) : LoadGguf(path);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  if (IsFolder(path)) return FolderTokenizer(path);
  ASSIGN_OR_RETURN(const Gguf file, OpenGguf(path));
  return GgufTokenizer(file);
}

}  // namespace tessera::llm
