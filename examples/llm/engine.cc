// Rounds over the texts, and how what they say gets to those who asked.
#include "examples/llm/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "absl/cleanup/cleanup.h"
#include "graph/error.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLongestSilence{200};

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct Engine::Request {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  std::atomic<bool> gone = false;  // nobody reads

  // Of the engine's thread, once it has a text.
  std::optional<Writing> writing;
  std::optional<int32_t> next;  // nothing while the prompt is being read
  Clock::time_point begin;
  double prefill_seconds = 0;
  int64_t reused = 0, steps = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::string unshown;
  std::optional<absl::StatusOr<Generated>> result;

  void Show(const std::string& text) {
    const std::lock_guard lock(mutex);
    unshown += text;
    changed.notify_one();
  }
  void Finish(absl::StatusOr<Generated> what) {
    const std::lock_guard lock(mutex);
    result = std::move(what);
    changed.notify_one();
  }
};

Engine::Engine(Session& session, const Model& model)
    : session_(session), model_(model), texts_(static_cast<size_t>(session.texts())) {
  thread_ = std::thread([this] { Work(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

absl::StatusOr<Generated> Engine::Generate(std::vector<int32_t> prompt,
                                           const GenerateOptions& options,
                                           const std::function<bool(const std::string&)>& show) {
  CHECK(options.before.empty() && options.draws == nullptr);
  const int64_t context = session_.context();
  RETURN_IF_ERROR(CheckPrompt(model_, prompt, options, context, context));
  const auto request = std::make_shared<Request>();
  request->prompt = std::move(prompt);
  request->options = options;
  request->options.interrupted = &request->gone;
  const absl::Cleanup leave = [&] { request->gone = true; };
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return absl::CancelledError("the engine is ending");
    waiting_.push_back(request);
  }
  asked_.notify_one();
  std::unique_lock lock(request->mutex);
  while (true) {
    request->changed.wait_for(lock, kLongestSilence,
                              [&] { return request->result || !request->unshown.empty(); });
    const std::string text = std::move(request->unshown);
    request->unshown.clear();
    const bool ended = request->result.has_value();
    lock.unlock();
    const bool stays = show(text) && (options.interrupted == nullptr || !*options.interrupted);
    if (ended) return *std::move(request->result);
    if (!stays) request->gone = true;
    lock.lock();
  }
}

Engine::Load Engine::load() const {
  const std::lock_guard lock(mutex_);
  return {running_, static_cast<int64_t>(waiting_.size())};
}

void Engine::Work() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [this] { return ending_ || running_ > 0 || !waiting_.empty(); });
      if (ending_) break;
    }
    try {
      Admit();
      Round();
    } catch (const Error& e) {
      for (size_t i = 0; i < texts_.size(); ++i) End(i, e.status());
    } catch (const std::exception& e) {  // as where memory ends
      for (size_t i = 0; i < texts_.size(); ++i) End(i, absl::InternalError(e.what()));
    }
  }
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i].request) Abandon(i);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& request : waiting_)
    request->Finish(absl::CancelledError("the engine is ending"));
  waiting_.clear();
}

// Gives texts to those who wait: of the free ones that which has most in common with the prompt, if
// that is most of either, or else the one that was used longest ago.
void Engine::Admit() {
  while (true) {
    std::shared_ptr<Request> request;
    {
      const std::lock_guard lock(mutex_);
      const int64_t free = static_cast<int64_t>(texts_.size()) - running_;
      if (waiting_.empty() || free == 0) return;
      request = std::move(waiting_.front());
      waiting_.pop_front();
      ++running_;
    }
    Text* best = nullptr;
    size_t same = 0, kept = 0;
    for (Text& text : texts_) {
      if (text.request) continue;
      const size_t n = ReadBefore(text.fed, request->prompt);
      const bool most = 2 * n > std::min(text.fed.size(), request->prompt.size());
      const size_t worth = most ? n : 0;
      if (best == nullptr || worth > kept || (worth == kept && text.used < best->used)) {
        best = &text;
        same = n;
        kept = worth;
      }
    }
    best->fed.resize(same);
    session_.Rewind(static_cast<int64_t>(same), best - texts_.data());
    best->request = request;
    request->reused = static_cast<int64_t>(same);
    request->begin = Clock::now();
    request->writing.emplace(model_, request->prompt, request->options,
                             [to = request.get()](const std::string& text) { to->Show(text); });
  }
}

void Engine::Round() {
  ++round_;
  size_t first = texts_.size();  // whose prompt came first
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Request* r = texts_[i].request.get();
    if (r == nullptr) continue;
    texts_[i].used = round_;
    if (r->next) continue;
    if (first == texts_.size() || r->begin < texts_[first].request->begin) first = i;
  }
  if (first < texts_.size()) RunPrompt(first);
  RunTogether();
}

void Engine::RunPrompt(size_t text) {
  Text& at = texts_[text];
  Request& r = *at.request;
  if (r.gone) return Abandon(text);
  const auto rest = absl::MakeConstSpan(r.prompt).subspan(at.fed.size());
  const size_t n = session_.AdvanceSome(rest, static_cast<int64_t>(text));
  at.fed.insert(at.fed.end(), rest.begin(), rest.begin() + static_cast<int64_t>(n));
  if (n < rest.size()) return;
  session_.Likeliest();  // waits for it
  r.prefill_seconds = Since(r.begin);
  Pick(text, 0);
}

void Engine::RunTogether() {
  std::vector<Session::Next> all;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Request* r = texts_[i].request.get();
    if (r != nullptr && r->next) all.push_back({static_cast<int64_t>(i), *r->next});
  }
  if (all.empty()) return;
  if (all.size() == 1) return RunAlone(static_cast<size_t>(all[0].text));
  session_.AdvanceTogether(all);
  for (size_t i = 0; i < all.size(); ++i) {
    Text& at = texts_[static_cast<size_t>(all[i].text)];
    at.fed.push_back(all[i].token);
    ++at.request->steps;
  }
  for (size_t i = 0; i < all.size(); ++i) Pick(static_cast<size_t>(all[i].text), i);
}

void Engine::RunAlone(size_t text) {
  Text& at = texts_[text];
  Request& r = *at.request;
  const int64_t index = static_cast<int64_t>(text);
  const std::optional<int32_t> next = r.writing->Step(session_, index, *r.next);
  ++r.steps;
  const auto seen = r.writing->text().subspan(0, static_cast<size_t>(session_.position(index)));
  at.fed.insert(at.fed.end(), seen.begin() + static_cast<int64_t>(at.fed.size()), seen.end());
  GoOn(text, next);
}

void Engine::Pick(size_t text, size_t which) {
  const int64_t room = session_.room(static_cast<int64_t>(text));
  GoOn(text, texts_[text].request->writing->Next(session_, which, room));
}

void Engine::GoOn(size_t text, std::optional<int32_t> next) {
  Request& r = *texts_[text].request;
  r.next = next;
  if (!r.next) End(text, r.writing->status());
}

void Engine::Abandon(size_t text) {
  Request& r = *texts_[text].request;
  r.gone = true;
  r.writing->Next(session_, 0, 0);  // says why
  End(text, absl::OkStatus());
}

// The end of the request that has the text, if one does.
void Engine::End(size_t text, const absl::Status& status) {
  Text& at = texts_[text];
  if (!at.request) return;
  const std::shared_ptr<Request> r = std::move(at.request);
  at.request = nullptr;
  // After an error nothing is known of what was being read.
  if (!status.ok()) {
    at.fed.clear();
    session_.Rewind(0, static_cast<int64_t>(text));
  }
  {
    const std::lock_guard lock(mutex_);
    --running_;
  }
  if (!status.ok()) return r->Finish(status);
  Generated out = r->writing->Finish();
  out.reused_tokens = r->reused;
  out.prefill_seconds = r->prefill_seconds;
  out.decode_seconds = Since(r->begin) - r->prefill_seconds;
  out.decode_steps = r->steps;
  r->Finish(std::move(out));
}

}  // namespace tessera::llm
