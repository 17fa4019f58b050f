// The command line of tools/llm: what was asked for, and the modes that do it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/generate.h"
#include "examples/llm/json_line.h"

namespace tessera::llm {

struct Command {
  enum class Mode {
    kGenerate,
    kChat,
    kTokenize,
    kCheck,
    kBench,
    kPerplexity,
    kLogits,
    kExplain,
    kServe
  };
  Mode mode = Mode::kGenerate;
  std::string model;
  std::string prompt;
  bool prompt_given = false;  // else stdin is read
  int64_t max_tokens = -1;    // -1: as Generate's mode decides
  int64_t context = 0, bench_prompt = 128;
  // What is guessed of texts. By another model once that is loaded, if one is named.
  Guessing guessing;
  bool guessing_given = false;
  std::string draft_model;
  std::optional<DType> cache;
  std::optional<Activations> activations;
  bool copy_weights = false;
  std::optional<bool> panels;
  std::vector<std::string> stops;
  SamplerOptions sampler;
  std::vector<Place> devices = {Place("CPU", 0)};
  std::string system;  // of a chat
  std::string tools_file, messages_file;
  std::string grammar_file, schema_file;
  std::shared_ptr<const Grammar> grammar;         // of either
  std::string file;                               // of --perplexity and --logits
  std::string host = "127.0.0.1", api_key, cors;  // of a server
  int64_t port = 0, slots = 4;
  bool json = false, bos = true, check_tensors = false, help = false;
};

// From the arguments after the program's name. An error names the argument.
absl::StatusOr<Command> ParseCommand(absl::Span<const std::string> arguments);
std::string CommandHelp();

// What may stop generation early.
extern std::atomic<bool> interrupted;

// Each mode prints its result on stdout and all else on stderr, and gives the exit status.
// `serve` is that of kServe (server.h), which links a library for HTTP.
using ServeMode = absl::StatusOr<int> (*)(const Command&, const Model&, Session&);
absl::StatusOr<int> RunCommand(const Command& command, ServeMode serve);
absl::Status RunBench(const Command& command, const Model& model, Session& session);
absl::Status RunPerplexity(const Command& command, const Model& model, Session& session);
absl::Status RunLogits(const Command& command, const Model& model, Session& session);
absl::Status RunCheck(const Command& command, const Model& model, Session& session);
absl::StatusOr<int> RunChat(const Command& command, const Model& model, Session& session);

// The mean of -log p of each token after the first, in one window that fits the context.
double MeanNegativeLogLikelihood(Session& session, int64_t vocabulary,
                                 absl::Span<const int32_t> ids);

// All of a file or of stdin ("-"), which must be UTF-8.
absl::StatusOr<std::string> ReadText(const std::string& path);
absl::Status CheckUtf8(const std::string& what, absl::string_view text);
// What was generated and how fast: on stderr, and as a line of JSON that begins as given.
void ReportSpeed(const Generated& g);
void PrintJson(JsonLine line, const Generated& g);
void Show(const std::string& text);  // on stdout

}  // namespace tessera::llm
