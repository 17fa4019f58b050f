// Generation: a prompt goes in, text comes out piece by piece until something ends it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/constraint.h"
#include "examples/llm/guess.h"
#include "examples/llm/likelihood.h"
#include "examples/llm/sampler.h"
#include "examples/llm/session.h"

namespace tessera::llm {

struct GenerateOptions {
  int64_t max_tokens = 256;
  std::vector<std::string> stops;  // texts that end it and are not shown
  SamplerOptions sampler;
  // Of a conversation: the tokens before the prompt, which penalties see too, and what draws the
  // tokens, which goes on from answer to answer; none: one of its own.
  std::vector<int32_t> before;
  Sampler* draws = nullptr;
  std::shared_ptr<const Grammar> grammar;     // what the text keeps to; none: anything
  int32_t end = -1;                           // a token that ends it beside the tokenizer's
  std::function<std::string(int32_t)> piece;  // what a token shows; none: its text
  // Told of each token, but for one that ends the text, before anything is shown of it; with so
  // many of the likeliest.
  std::function<void(TokenLikelihood)> weighed;
  int64_t likeliest = 0;
  Guessing guessing;                               // only of how many steps it takes
  const std::atomic<bool>* interrupted = nullptr;  // Ctrl-C
};

struct Generated {
  std::string text;
  std::vector<int32_t> tokens;
  const char* reason = "";  // "end", "length", "stop", "context" or "interrupt"
  int64_t prompt_tokens = 0, reused_tokens = 0;  // of the former, what an earlier text had read
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;
  int64_t guessed = 0, kept = 0;  // tokens, and how many of them were steps saved
};

// Whether these can be continued where there is room for so many tokens of a context: a prompt of
// at least one token that fits, and a sampler's numbers.
absl::Status CheckPrompt(const Model& model, absl::Span<const int32_t> prompt,
                         const GenerateOptions& options, int64_t room, int64_t context);

// How many of a prompt's tokens need not be read again by a session that has read `fed`: what both
// begin with, but for the prompt's last token, which says what comes next.
size_t ReadBefore(absl::Span<const int32_t> fed, absl::Span<const int32_t> prompt);

// Text that is being written: which token comes next, what is shown of it, and when it ends.
class Writing {
 public:
  // The model must outlive it, and what the options point to. `show` gets whole characters as they
  // become certain.
  Writing(const Model& model, absl::Span<const int32_t> prompt, const GenerateOptions& options,
          std::function<void(const std::string&)> show);

  // The next token, by the logits that the session has of the last one (the `which`th of those that
  // went on together), which has room for so many more; or nothing: what was written has ended.
  std::optional<int32_t> Next(Session& session, size_t which, int64_t room);
  // The token that Next gave goes to one of the session's texts, in a step of its own, with guesses
  // of what follows it where these are worth it; then as Next. What the session has seen after that
  // is the text up to its position.
  std::optional<int32_t> Step(Session& session, int64_t text, int32_t token);
  // Whether it ended because nothing goes on as the grammar wants.
  const absl::Status& status() const { return status_; }
  // With the prompt, and what the options have before it.
  absl::Span<const int32_t> text() const { return past_; }
  // Shows what was held back. The seconds are left to the caller.
  Generated Finish();

 private:
  std::vector<int32_t> Guess(int64_t most) const;
  std::string Passed(const std::string& text);  // what is certain to come before a stop text
  void Emit(const std::string& text);

  const Model& model_;
  const GenerateOptions options_;
  const std::function<void(const std::string&)> show_;
  std::optional<Sampler> own_draws_;
  std::optional<Constraint> constraint_;
  absl::Status status_;
  std::vector<int32_t> past_;
  Pace pace_;
  Utf8Stream utf8_;
  std::string pending_;  // may be the beginning of a stop text
  bool stopped_ = false;
  Generated out_;
};

// Continues the session after `prompt`. `show` gets whole characters as they become certain. The
// last token is not fed to the session.
absl::StatusOr<Generated> Generate(Session& session, const Model& model,
                                   absl::Span<const int32_t> prompt, const GenerateOptions& options,
                                   const std::function<void(const std::string&)>& show);

}  // namespace tessera::llm
