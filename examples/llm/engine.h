// A model that several requests share: they come from any thread, and one thread of the engine runs
// the model for all of them.
//
// Each request has one of the session's texts. A round runs one step of a prompt, if one is yet to
// be read, and then one token of every text that is being written, together: so weights are read
// once for all of them, and a long prompt holds the others up for a step at a time. A text that is
// written alone may have guesses in its steps.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/generate.h"

namespace tessera::llm {

class Engine {
 public:
  // The session must outlive it, and is its own until then.
  Engine(Session& session, const Model& model);
  // Ends what is under way, as if interrupted, and refuses what waits. Nobody may ask any more.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Continues a prompt, from the text's beginning on, and waits for the end; any number of threads
  // may ask at once. `show` is called by the asking thread with what is new, and with nothing while
  // there is none; where it returns false nobody reads any more, and the text ends ("interrupt").
  // Of the options `before` and `draws` must be none. What a prompt has in common with an earlier
  // text need not be read again.
  absl::StatusOr<Generated> Generate(std::vector<int32_t> prompt, const GenerateOptions& options,
                                     const std::function<bool(const std::string&)>& show);

  // Requests that are being answered, and that wait for it.
  struct Load {
    int64_t running = 0, waiting = 0;
  };
  Load load() const;

 private:
  struct Request;
  // What the session has seen of a text, and whose it is, if anybody's.
  struct Text {
    std::vector<int32_t> fed;
    std::shared_ptr<Request> request;
    int64_t used = 0;  // in which round a request had it last
  };

  void Work();
  void Admit();
  void Round();
  void RunPrompt(size_t text);
  void RunTogether();
  void RunAlone(size_t text);
  void Pick(size_t text, size_t which);
  void GoOn(size_t text, std::optional<int32_t> next);
  void Abandon(size_t text);
  void End(size_t text, const absl::Status& status);

  Session& session_;
  const Model& model_;
  // Of the engine's thread alone.
  std::vector<Text> texts_;
  int64_t round_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<std::shared_ptr<Request>> waiting_;
  int64_t running_ = 0;
  bool ending_ = false;
  std::thread thread_;  // the last to begin
};

}  // namespace tessera::llm
