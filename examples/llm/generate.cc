// The loop of generation, and holding text back that may be the beginning of a stop text.
#include "examples/llm/generate.h"

#include <chrono>
#include <optional>

#include "graph/status.h"

namespace tessera::llm {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Passes text on, up to a stop text.
struct StopFilter {
  const std::vector<std::string>& stops;
  std::string pending = {};
  bool stopped = false;

  std::string Push(const std::string& text) {
    pending += text;
    size_t stop = std::string::npos;
    for (const std::string& s : stops) {
      if (!s.empty()) stop = std::min(stop, pending.find(s));
    }
    if (stop != std::string::npos) {
      stopped = true;
      return pending.substr(0, stop);
    }
    size_t hold = 0;  // the longest end that a stop text begins with
    for (const std::string& s : stops) {
      for (size_t n = std::min(s.size(), pending.size()); n > hold; --n) {
        if (pending.compare(pending.size() - n, n, s, 0, n) == 0) hold = n;
      }
    }
    std::string out = pending.substr(0, pending.size() - hold);
    pending.erase(0, out.size());
    return out;
  }
};

}  // namespace

absl::Status CheckPrompt(const Session& session, absl::Span<const int32_t> prompt,
                         const GenerateOptions& options) {
  RETURN_IF_ERROR(CheckSampler(options.sampler));
  if (prompt.empty()) {
    return absl::InvalidArgumentError(
        "the prompt is empty, and this model has no token to begin with");
  }
  if (static_cast<int64_t>(prompt.size()) > session.room()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", prompt.size(), " tokens, and the context has room for ",
                     session.room(), " of ", session.context(), "; see --context"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Generated> Generate(Session& session, const Model& model,
                                   absl::Span<const int32_t> prompt, const GenerateOptions& options,
                                   const std::function<void(const std::string&)>& show) {
  RETURN_IF_ERROR(CheckPrompt(session, prompt, options));
  Generated out;
  out.prompt_tokens = static_cast<int64_t>(prompt.size());
  std::vector<int32_t> recent = options.before;
  recent.insert(recent.end(), prompt.begin(), prompt.end());
  recent.reserve(recent.size() + static_cast<size_t>(std::min(options.max_tokens, session.room())));
  std::optional<Sampler> own;
  if (options.draws == nullptr) own.emplace(options.sampler, model.config.vocabulary);
  Sampler& sampler = options.draws == nullptr ? *own : *options.draws;
  Utf8Stream utf8;
  StopFilter filter{options.stops};
  const auto emit = [&](const std::string& text) {
    const std::string passed = filter.Push(text);
    if (passed.empty()) return;
    out.text += passed;
    show(passed);
  };
  const double begin = Seconds();
  const auto pick = [&] {
    return sampler.IsGreedy() ? session.Likeliest() : sampler.Pick(session.Logits(), recent);
  };
  session.Advance(prompt);
  session.Likeliest();  // waits for it
  const double prefilled = Seconds();
  out.prefill_seconds = prefilled - begin;
  while (true) {
    if (static_cast<int64_t>(out.tokens.size()) >= options.max_tokens) {
      out.reason = "length";
      break;
    }
    if (options.interrupted != nullptr && *options.interrupted) {
      out.reason = "interrupt";
      break;
    }
    const int32_t token = pick();
    if (token == options.end || model.tokenizer->EndsText(token)) {
      out.reason = "end";
      break;
    }
    out.tokens.push_back(token);
    recent.push_back(token);
    emit(utf8.Push(options.piece ? options.piece(token) : model.tokenizer->Piece(token)));
    if (filter.stopped) {
      out.reason = "stop";
      break;
    }
    if (static_cast<int64_t>(out.tokens.size()) >= options.max_tokens) continue;
    if (session.room() == 0) {
      out.reason = "context";
      break;
    }
    session.Advance({&token, 1});
    ++out.decode_steps;
  }
  out.decode_seconds = Seconds() - prefilled;
  if (!filter.stopped) {
    emit(utf8.Finish());
    if (!filter.pending.empty() && !filter.stopped) {
      out.text += filter.pending;
      show(filter.pending);
    }
  }
  return out;
}

}  // namespace tessera::llm
