// What the API is asked, answered by an engine. Any number of threads may ask.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/api.h"
#include "examples/llm/chat_writer.h"
#include "examples/llm/engine.h"
#include "examples/llm/thoughts.h"

namespace tessera::llm {

class ApiService {
 public:
  struct Options {
    std::string name;     // of the model
    int64_t context = 0;  // tokens that a text has room for
    int64_t slots = 4;    // texts that are written at once
    ApiDefaults defaults = {};
    Guessing guessing = {};
  };
  static constexpr int64_t kMostWaiting = kMostTexts;  // texts beyond those; more are refused
  // The engine and the model must outlive it.
  ApiService(Engine& engine, const Model& model, Options options);

  // A request that can be answered, with its place among those that wait.
  struct Job {
    ApiRequest request;
    AnswerHead head;
    std::optional<ChatWriter> writer;           // of a chat
    const ThoughtMarks* thoughts = nullptr;     // of a model that thinks
    bool open = false;                          // its texts begin within a thought
    std::vector<std::vector<int32_t>> prompts;  // at least one; each is continued `copies` times
    std::shared_ptr<void> place;
  };
  absl::StatusOr<std::shared_ptr<const Job>> Take(absl::string_view body, bool chat);

  struct Report {
    Usage usage;
    double seconds = 0;
  };
  // Tells the answer, an object as JSON, or of one that is streamed part after part. `tell` returns
  // false where nobody listens any more, which ends it, and so does `there`, which is asked while
  // there is nothing to tell; both are called by one thread at a time.
  absl::StatusOr<Report> Answer(const Job& job, const std::function<bool(const std::string&)>& tell,
                                const std::function<bool()>& there);
  // Ends what is being written, and what would be.
  void End() { ending_ = true; }

  std::string Models() const;
  // {"content": ...} and {"tokens": [...]}, each from the other, as llama-server does.
  absl::StatusOr<std::string> Tokenize(absl::string_view body) const;
  absl::StatusOr<std::string> Detokenize(absl::string_view body) const;
  std::string Metrics() const;  // in the text form of Prometheus

 private:
  class Answering;
  absl::Status EncodeChat(Job* job) const;
  absl::Status EncodePrompts(Job* job) const;
  absl::Status CheckTokens(absl::Span<const int32_t> tokens, const std::string& field) const;

  Engine& engine_;
  const Model& model_;
  const Options options_;
  const absl::StatusOr<ChatWriter> writer_;
  const int64_t begun_;  // seconds since 1970
  std::atomic<bool> ending_ = false;
  std::atomic<int64_t> places_ = 0, requests_ = 0, prompt_tokens_ = 0, new_tokens_ = 0,
                       guessed_ = 0, kept_ = 0;
};

}  // namespace tessera::llm
