// One text after another.
#include "examples/llm/engine.h"

#include "absl/cleanup/cleanup.h"
#include "graph/status.h"

namespace tessera::llm {

Engine::Engine(Session& session, const Model& model) : session_(session), model_(model) {}

Engine::~Engine() = default;

absl::StatusOr<Generated> Engine::Generate(std::vector<int32_t> prompt,
                                           const GenerateOptions& options,
                                           const std::function<bool(const std::string&)>& show) {
  ++asked_;
  const absl::Cleanup answered = [this] { --asked_; };
  const std::lock_guard lock(mutex_);
  size_t same = 0;
  while (same + 1 < prompt.size() && same < fed_.size() && prompt[same] == fed_[same]) ++same;
  session_.Rewind(static_cast<int64_t>(same));
  std::atomic<bool> gone = false;
  GenerateOptions own = options;
  own.before.assign(prompt.begin(), prompt.begin() + static_cast<int64_t>(same));
  own.interrupted = &gone;
  ASSIGN_OR_RETURN(const Generated g,
                   llm::Generate(session_, model_, absl::MakeConstSpan(prompt).subspan(same), own,
                                 [&](const std::string& text) { gone = gone || !show(text); }));
  fed_ = std::move(prompt);
  fed_.insert(fed_.end(), g.tokens.begin(), g.tokens.end());
  fed_.resize(static_cast<size_t>(session_.position()));
  return g;
}

Engine::Load Engine::load() const {
  const int64_t asked = asked_;
  return {std::min<int64_t>(asked, 1), std::max<int64_t>(asked - 1, 0)};
}

}  // namespace tessera::llm
