// Opening a model: which kind of file or folder it is, and its parts.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "examples/llm/model.h"
#include "graph/status.h"
#include "runtime/safetensors.h"

namespace tessera::llm {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Brings weights into memory on a thread of its own, a part after the other.
class WeightReader {
 public:
  WeightReader(const WeightSet& weights, const LoadProgress& progress)
      : weights_(weights.all()), bytes_(weights.bytes()), progress_(progress) {
    const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (!progress_ || bytes_ > memory / 4 * 3) return;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {  // no thread: weights come into memory as they are used
    }
  }
  ~WeightReader() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  absl::Status Wait() {
    if (thread_.joinable()) thread_.join();
    return stop_ ? absl::CancelledError("interrupted while the weights were read")
                 : absl::OkStatus();
  }

 private:
  void Run() {
    constexpr uint64_t kPart = uint64_t{16} << 20;
    uint64_t done = 0;
    for (const Weight& w : weights_) {
      for (uint64_t at = 0; at < w.bytes.size(); at += kPart) {
        const uint64_t size = std::min<uint64_t>(kPart, w.bytes.size() - at);
        w.file->Populate(w.offset + at, size);
        done += size;
        if (stop_) return;
        if (!progress_(done, bytes_)) {
          stop_ = true;
          return;
        }
      }
    }
  }

  const std::vector<Weight> weights_;
  const uint64_t bytes_;
  const LoadProgress& progress_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> GgufTokenizer(const Gguf& file) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromGguf(file.metadata));
  return Tokenizer::Make(std::move(spec));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> FolderTokenizer(const std::string& folder) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromHuggingFace(folder));
  return Tokenizer::Make(std::move(spec));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> TextTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromHuggingFaceText(file->bytes(), path));
  return Tokenizer::Make(std::move(spec));
}

absl::StatusOr<Model> LoadGguf(const std::string& path, const LoadProgress& progress) {
  if (absl::EndsWith(path, ".safetensors") || absl::EndsWith(path, ".json")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is part of a model; give the folder that has config.json, tokenizer.json and ",
        "the safetensors files, or a GGUF file"));
  }
  ASSIGN_OR_RETURN(const Gguf file, OpenGguf(path));
  ASSIGN_OR_RETURN(ModelConfig config, ConfigFromGguf(file.metadata));
  WeightReader reader(file.weights, progress);
  ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, GgufTokenizer(file));
  ASSIGN_OR_RETURN(Model model,
                   MakeModel(std::move(config), std::move(tokenizer), file.weights, true, path));
  RETURN_IF_ERROR(reader.Wait());
  return model;
}

absl::StatusOr<Model> LoadFolder(const std::string& folder, const LoadProgress& progress) {
  const std::string path = folder + "/config.json";
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const Json json, Json::Parse(file->bytes(), path));
  ASSIGN_OR_RETURN(ModelConfig config, ConfigFromHuggingFace(json, path));
  ASSIGN_OR_RETURN(const WeightSet weights, OpenSafetensorsFolder(folder));
  WeightReader reader(weights, progress);
  ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, FolderTokenizer(folder));
  ASSIGN_OR_RETURN(Model model,
                   MakeModel(std::move(config), std::move(tokenizer), weights, false, folder));
  RETURN_IF_ERROR(reader.Wait());
  return model;
}

}  // namespace

absl::StatusOr<Model> LoadModel(const std::string& path, const LoadProgress& progress) {
  return IsFolder(path) ? LoadFolder(path, progress) : LoadGguf(path, progress);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  if (IsFolder(path)) return FolderTokenizer(path);
  if (absl::EndsWith(path, ".json")) return TextTokenizer(path);
  ASSIGN_OR_RETURN(const Gguf file, OpenGguf(path));
  return GgufTokenizer(file);
}

}  // namespace tessera::llm
