// Generation: a prompt goes in, text comes out piece by piece until something ends it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/sampler.h"
#include "examples/llm/session.h"

namespace tessera::llm {

struct GenerateOptions {
  int64_t max_tokens = 256;
  std::vector<std::string> stops;  // texts that end it and are not shown
  SamplerOptions sampler;
  // Of a conversation: the tokens before the prompt, which count as recent too, and what draws the
  // tokens, which goes on from answer to answer; none: one of its own.
  std::vector<int32_t> before;
  Sampler* draws = nullptr;
  int32_t end = -1;                                // a token that ends it beside the tokenizer's
  std::function<std::string(int32_t)> piece;       // what a token shows; none: its text
  const std::atomic<bool>* interrupted = nullptr;  // Ctrl-C
};

struct Generated {
  std::string text;
  std::vector<int32_t> tokens;
  const char* reason = "";  // "end", "length", "stop", "context" or "interrupt"
  int64_t prompt_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;
};

// Whether these can be continued: a prompt of at least one token that fits, and a sampler's
// numbers.
absl::Status CheckPrompt(const Session& session, absl::Span<const int32_t> prompt,
                         const GenerateOptions& options);

// Continues the session after `prompt`. `show` gets whole characters as they become certain. The
// last token is not fed to the session.
absl::StatusOr<Generated> Generate(Session& session, const Model& model,
                                   absl::Span<const int32_t> prompt, const GenerateOptions& options,
                                   const std::function<void(const std::string&)>& show);

}  // namespace tessera::llm
