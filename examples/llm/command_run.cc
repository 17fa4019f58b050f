// From a command to its mode: loads the model, and runs what needs no file of its own.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "absl/strings/str_join.h"
#include "examples/llm/command.h"
#include "examples/llm/draft_model.h"
#include "examples/llm/panels.h"
#include "examples/llm/parallel.h"
#include "graph/status.h"
#include "runtime/units.h"

namespace tessera::llm {

namespace {

// Shows on stderr how far the loading is, once it takes long: on a terminal in one line that
// changes, elsewhere in lines.
class ShowProgress {
 public:
  explicit ShowProgress(const char* what)
      : what_(what), terminal_(isatty(2) == 1), begin_(Clock::now()) {}
  ~ShowProgress() {
    if (open_) std::fprintf(stderr, "\n");
  }
  bool operator()(uint64_t done, uint64_t all) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (seconds >= next_) {
      next_ = seconds + (terminal_ ? 0.1 : 2);
      std::fprintf(stderr, "%sllm: %s of %s %s, %s/s   %s", terminal_ ? "\r" : "",
                   ShowBytes(static_cast<double>(done)).c_str(),
                   ShowBytes(static_cast<double>(all)).c_str(), what_,
                   ShowBytes(static_cast<double>(done) / seconds).c_str(), terminal_ ? "" : "\n");
      open_ = terminal_;
    }
    return !interrupted;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const char* what_;
  const bool terminal_;
  const Clock::time_point begin_;
  double next_ = 0.5;
  bool open_ = false;  // a line is not ended
};

constexpr int64_t kTextTokens = 256, kLeastNewTokens = 128;

double PerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double DecodeRate(const Generated& g) {
  return PerSecond(g.decode_steps + g.kept, g.decode_seconds);
}

}  // namespace

void ReportSpeed(const Generated& g) {
  const std::string guesses =
      g.guessed > 0 ? absl::StrCat(", ", g.kept, " of ", g.guessed, " guesses kept") : "";
  std::fprintf(stderr,
               "llm: %d tokens of prompt at %.1f tokens/s, %d more at %.1f tokens/s (%s)%s\n",
               static_cast<int>(g.prompt_tokens), PerSecond(g.prompt_tokens, g.prefill_seconds),
               static_cast<int>(g.tokens.size()), DecodeRate(g), g.reason, guesses.c_str());
}

void PrintJson(JsonLine line, const Generated& g) {
  line.Text("text", g.text)
      .Ids("tokens", g.tokens)
      .Text("reason", g.reason)
      .Count("prompt_tokens", g.prompt_tokens)
      .Number("prefill_tokens_per_second", PerSecond(g.prompt_tokens, g.prefill_seconds))
      .Number("decode_tokens_per_second", DecodeRate(g))
      .Count("guessed_tokens", g.guessed)
      .Count("kept_guesses", g.kept)
      .Print();
}

void Show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

namespace {

absl::StatusOr<int> RunGenerate(const Command& command, const Model& model, Session& session) {
  std::string prompt = command.prompt;
  if (!command.prompt_given) {
    ASSIGN_OR_RETURN(prompt, ReadText("-"));
  }
  Tokenizer::Options as_text;
  as_text.markup = true;
  const std::vector<int32_t> ids = model.tokenizer->Encode(prompt, as_text);
  GenerateOptions options;
  const int64_t given =
      static_cast<int64_t>(ids.size()) - (model.tokenizer->spec().add_bos ? 1 : 0);
  options.max_tokens =
      command.max_tokens >= 0 ? command.max_tokens : std::max(kTextTokens - given, kLeastNewTokens);
  options.stops = command.stops;
  options.sampler = command.sampler;
  options.interrupted = &interrupted;
  options.grammar = command.grammar;
  options.guessing = command.guessing;
  // Before anything is shown.
  RETURN_IF_ERROR(CheckPrompt(model, ids, options, session.room(), session.context()));
  if (!command.json) Show(prompt);
  ASSIGN_OR_RETURN(const Generated g,
                   Generate(session, model, ids, options, [&](const std::string& text) {
                     if (!command.json) Show(text);
                   }));
  if (command.json) {
    PrintJson(JsonLine().Text("prompt", prompt), g);
  } else {
    const std::string& last = g.text.empty() ? prompt : g.text;
    if (last.empty() || last.back() != '\n') Show("\n");
  }
  ReportSpeed(g);
  return interrupted ? 130 : 0;
}

absl::StatusOr<int> RunTokenize(const Command& command) {
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, LoadTokenizer(command.model));
  std::string text = command.prompt;
  if (text.empty()) {
    ASSIGN_OR_RETURN(text, ReadText("-"));
  }
  Tokenizer::Options options;
  options.special = command.bos;
  const std::vector<int32_t> ids = tokenizer->Encode(text, options);
  if (command.json) {
    JsonLine().Ids("tokens", ids).Print();
  } else {
    Show(absl::StrJoin(ids, " ") + "\n");
  }
  return 0;
}

// A model, on the command's devices; says on stderr how long that took.
absl::StatusOr<Model> LoadAndPlace(const Command& command, const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<Model> loaded = [&path] {
    ShowProgress progress("read");
    return LoadModel(path, std::ref(progress));
  }();
  RETURN_IF_ERROR(loaded.status());
  Model& model = *loaded;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const double bytes = static_cast<double>(model.bytes_stored);
  std::fprintf(stderr, "llm: %s: %s, %d layers of %d, %s in %s, loaded in %s, %s/s\n", path.c_str(),
               model.config.architecture.c_str(), static_cast<int>(model.config.layers),
               static_cast<int>(model.config.dim), ShowBytes(bytes).c_str(), model.format.c_str(),
               ShowSeconds(taken.count()).c_str(), ShowBytes(bytes / taken.count()).c_str());
  const absl::Status moved = [&] {
    ShowProgress progress("moved");
    return Distribute(&model, command.devices, std::ref(progress), command.copy_weights);
  }();
  if (!moved.ok()) {
    return absl::Status(moved.code(), absl::StrCat("--devices: ", moved.message()));
  }
  const bool by_integers = command.activations != Activations::kF32;
  if (command.panels.value_or(by_integers && LeavesRoomForPanels(model))) {
    ShowProgress progress("laid out");
    RETURN_IF_ERROR(CopyIntoPanels(&model, std::ref(progress)));
  }
  if (model.division.whole.is_sharding()) {
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "llm: in parts on %s after %s\n",
                 model.division.whole.sharding().mesh().ToString().c_str(),
                 ShowSeconds(all.count()).c_str());
  }
  return loaded;
}

// What guesses in a session of these options, or a word on why nothing does.
absl::Status SetGuesser(Command* command, SessionOptions options, const Model& model,
                        const Session& session) {
  if (command->guessing.most == 0) return absl::OkStatus();
  if (session.MostGuesses() == 0) {
    std::fprintf(stderr, "llm: %s writes without guesses: %s\n", command->model.c_str(),
                 model.config.AnyRemembers() ? "its memories know no way back"
                                             : "its context has no room for any");
    return absl::OkStatus();
  }
  if (command->draft_model.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Model draft, LoadAndPlace(*command, command->draft_model));
  options.context = std::min(session.context(), draft.config.context);
  options.texts = 1;
  options.guesses = 0;
  ASSIGN_OR_RETURN(command->guessing.guesser, GuesserByModel(std::move(draft), options, model));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunCommand(const Command& given, ServeMode serve) {
  Command command = given;
  if (command.help) {
    Show(CommandHelp());
    return 0;
  }
  if (command.mode == Command::Mode::kTokenize) return RunTokenize(command);
  ASSIGN_OR_RETURN(const Model model, LoadAndPlace(command, command.model));
  RETURN_IF_ERROR(CheckSampler(command.sampler, model.config.vocabulary));
  SessionOptions options;
  options.context = command.context;
  options.cache = command.cache;
  options.activations = command.activations;
  options.interrupted = &interrupted;
  options.guesses = command.guessing.most;
  if (command.mode == Command::Mode::kServe) options.texts = command.slots;
  Session session(model, options);
  using Mode = Command::Mode;
  if (command.mode == Mode::kGenerate || command.mode == Mode::kChat ||
      command.mode == Mode::kServe) {
    RETURN_IF_ERROR(SetGuesser(&command, options, model, session));
  }
  switch (command.mode) {
    case Command::Mode::kGenerate:
      return RunGenerate(command, model, session);
    case Command::Mode::kChat:
      return RunChat(command, model, session);
    case Command::Mode::kCheck:
      RETURN_IF_ERROR(RunCheck(command, model, session));
      return 0;
    case Command::Mode::kBench:
      RETURN_IF_ERROR(RunBench(command, model, session));
      return 0;
    case Command::Mode::kPerplexity:
      RETURN_IF_ERROR(RunPerplexity(command, model, session));
      return 0;
    case Command::Mode::kLogits:
      RETURN_IF_ERROR(RunLogits(command, model, session));
      return 0;
    case Command::Mode::kExplain:
      if (command.json) {
        JsonLine().Text("explanation", session.ExplainStep()).Print();
      } else {
        Show(session.ExplainStep());
      }
      return 0;
    case Command::Mode::kServe:
      return serve(command, model, session);
    case Command::Mode::kTokenize:
      break;
  }
  return 0;
}

}  // namespace tessera::llm
