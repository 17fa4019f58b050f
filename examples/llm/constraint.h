// A text that keeps to a grammar: which of the tokens that a model finds likely may come next.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "examples/llm/grammar_matcher.h"
#include "examples/llm/sampler.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

// Of one text. Tokens are allowed by the bytes of their texts, those that end a text where the
// grammar does, and other control tokens never.
class Constraint {
 public:
  // The tokenizer must outlive it. `end`: a token that ends the text beside the tokenizer's; -1:
  // none.
  Constraint(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer, int32_t end);

  // As Sampler::Pick, among the tokens that are allowed; -1: the text is at its end. An error where
  // the vocabulary cannot write what the grammar wants.
  absl::StatusOr<int32_t> Pick(Sampler& sampler, const float* logits, const Past& past);
  // Goes on after a token that was picked.
  void Accept(int32_t token);
  // Whether the text is complete, and no longer one is allowed.
  bool AtEnd() const { return !matcher_.CanContinue(); }
  // Whether the text is one of the grammar's.
  bool IsComplete() const { return matcher_.CanEnd(); }

 private:
  bool Ends(int32_t token) const;
  bool Allows(int32_t token);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ends_;
  GrammarMatcher matcher_;
  std::vector<uint64_t> allowed_;
};

}  // namespace tessera::llm
