// The loop of generation, and holding text back that may be the beginning of a stop text.
#include "examples/llm/generate.h"

#include <algorithm>
#include <chrono>

#include "examples/llm/held_text.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::Status CheckPrompt(const Model& model, absl::Span<const int32_t> prompt,
                         const GenerateOptions& options, int64_t room, int64_t context) {
  RETURN_IF_ERROR(CheckSampler(options.sampler, model.config.vocabulary));
  if (prompt.empty()) {
    return absl::InvalidArgumentError(
        "the prompt is empty, and this model has no token to begin with");
  }
  if (static_cast<int64_t>(prompt.size()) > room) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", prompt.size(),
                                                   " tokens, and the context has room for ", room,
                                                   " of ", context, "; see --context"));
  }
  return absl::OkStatus();
}

size_t ReadBefore(absl::Span<const int32_t> fed, absl::Span<const int32_t> prompt) {
  if (prompt.empty()) return 0;
  const auto [end, other] = std::mismatch(prompt.begin(), prompt.end() - 1, fed.begin(), fed.end());
  return static_cast<size_t>(end - prompt.begin());
}

Writing::Writing(const Model& model, absl::Span<const int32_t> prompt,
                 const GenerateOptions& options, std::function<void(const std::string&)> show)
    : model_(model),
      options_(options),
      show_(std::move(show)),
      past_(options.before),
      pace_(options.guessing.most) {
  if (options.draws == nullptr) own_draws_.emplace(options.sampler, model.config.vocabulary);
  if (options.grammar != nullptr) {
    constraint_.emplace(options.grammar, *model.tokenizer, options.end);
  }
  past_.insert(past_.end(), prompt.begin(), prompt.end());
  out_.prompt_tokens = static_cast<int64_t>(prompt.size());
}

std::optional<int32_t> Writing::Next(Session& session, size_t which, int64_t room) {
  const auto ended = [&](const char* reason) {
    out_.reason = reason;
    return std::nullopt;
  };
  const auto is_full = [&] {
    return static_cast<int64_t>(out_.tokens.size()) >= options_.max_tokens;
  };
  if (is_full()) return ended("length");
  if (options_.interrupted != nullptr && *options_.interrupted) return ended("interrupt");
  Sampler& sampler = options_.draws == nullptr ? *own_draws_ : *options_.draws;
  const Past past = {past_, out_.tokens.size()};
  int32_t token = -1;
  if (constraint_) {
    const absl::StatusOr<int32_t> picked = constraint_->Pick(sampler, session.Logits(which), past);
    status_ = picked.status();
    token = picked.value_or(-1);
  } else {
    token =
        sampler.IsGreedy() ? session.Likeliest(which) : sampler.Pick(session.Logits(which), past);
  }
  if (token == kNoNumbers) {
    status_ = absl::DataLossError(
        "the model's logits are no numbers (NaN): some weights are not finite, or numbers on the "
        "way from them overflow; tools/llm --check says where");
  }
  if (token < 0 || token == options_.end || model_.tokenizer->EndsText(token)) return ended("end");
  out_.tokens.push_back(token);
  past_.push_back(token);
  if (options_.weighed) {
    const auto vocabulary = static_cast<size_t>(model_.config.vocabulary);
    TokenLikelihood weighed =
        LikelihoodOf({session.Logits(which), vocabulary}, token, options_.likeliest);
    weighed.begin = out_.text.size() + pending_.size();
    options_.weighed(std::move(weighed));
  }
  Emit(utf8_.Push(options_.piece ? options_.piece(token) : model_.tokenizer->Piece(token)));
  if (stopped_) return ended("stop");
  if (constraint_) {
    constraint_->Accept(token);
    if (constraint_->AtEnd()) return ended("end");
  }
  if (is_full()) return ended("length");
  if (room == 0) return ended("context");
  return token;
}

std::vector<int32_t> Writing::Guess(int64_t most) const {
  // The step gives one token more than are guessed.
  const int64_t left = options_.max_tokens - static_cast<int64_t>(out_.tokens.size()) - 1;
  most = std::min({most, left, pace_.Most()});
  if (most <= 0) return {};
  std::vector<int32_t> out = options_.guessing.guesser(past_, most);
  const auto is_none = [&](int32_t token) {
    return token < 0 || token >= model_.config.vocabulary;
  };
  out.erase(std::find_if(out.begin(), out.end(), is_none), out.end());
  return out;
}

std::optional<int32_t> Writing::Step(Session& session, int64_t text, int32_t token) {
  std::vector<int32_t> tokens = Guess(session.MostGuesses(text));
  if (tokens.empty()) {
    session.Advance({&token, 1}, text);
    pace_.Passed();
    return Next(session, 0, session.room(text));
  }
  const int64_t guessed = static_cast<int64_t>(tokens.size()), begin = session.position(text);
  tokens.insert(tokens.begin(), token);
  session.AdvanceGuessing(tokens, text);
  // Each is drawn as if it came alone, so that only what is equal to it is kept.
  int64_t kept = 0;
  std::optional<int32_t> next;
  while (true) {
    next = Next(session, static_cast<size_t>(kept), session.context() - (begin + kept + 1));
    if (!next || kept == guessed || *next != tokens[static_cast<size_t>(kept) + 1]) break;
    ++kept;
  }
  session.Rewind(begin + kept + 1, text);
  pace_.Checked(guessed, kept);
  out_.guessed += guessed;
  out_.kept += kept;
  return next;
}

std::string Writing::Passed(const std::string& text) {
  pending_ += text;
  size_t stop = std::string::npos;
  for (const std::string& s : options_.stops) {
    if (!s.empty()) stop = std::min(stop, pending_.find(s));
  }
  if (stop != std::string::npos) {
    stopped_ = true;
    return pending_.substr(0, stop);
  }
  size_t certain = pending_.size();
  for (const std::string& s : options_.stops) certain = std::min(certain, BeforeMark(pending_, s));
  std::string out = pending_.substr(0, certain);
  pending_.erase(0, out.size());
  return out;
}

void Writing::Emit(const std::string& text) {
  const std::string passed = Passed(text);
  if (passed.empty()) return;
  out_.text += passed;
  show_(passed);
}

Generated Writing::Finish() {
  if (!stopped_) {
    Emit(utf8_.Finish());
    if (!pending_.empty() && !stopped_) {
      out_.text += pending_;
      show_(pending_);
    }
  }
  return std::move(out_);
}

absl::StatusOr<Generated> Generate(Session& session, const Model& model,
                                   absl::Span<const int32_t> prompt, const GenerateOptions& options,
                                   const std::function<void(const std::string&)>& show) {
  RETURN_IF_ERROR(CheckPrompt(model, prompt, options, session.room(), session.context()));
  Writing writing(model, prompt, options, show);
  const double begin = Seconds();
  session.Advance(prompt);
  session.Likeliest();  // waits for it
  const double prefilled = Seconds();
  int64_t steps = 0;
  std::optional<int32_t> token = writing.Next(session, 0, session.room());
  for (; token; ++steps) token = writing.Step(session, 0, *token);
  const double end = Seconds();
  RETURN_IF_ERROR(writing.status());
  Generated out = writing.Finish();
  out.prefill_seconds = prefilled - begin;
  out.decode_seconds = end - prefilled;
  out.decode_steps = steps;
  return out;
}

}  // namespace tessera::llm
