// A model that several texts share: requests come from any thread, and one thread of the engine
// runs the model for them.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/generate.h"

namespace tessera::llm {

class Engine {
 public:
  // The session must outlive it, and is its own until then.
  Engine(Session& session, const Model& model);
  // Ends what is under way, as if interrupted.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Continues a prompt, from the text's beginning on, and waits for the end; any number of threads
  // may ask at once. `show` is called by the asking thread, and ends the text by false ("gone").
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
  Session& session_;
  const Model& model_;
  std::mutex mutex_;
  std::vector<int32_t> fed_;  // what the session has seen
  std::atomic<int64_t> asked_ = 0;
};

}  // namespace tessera::llm
