// Tokens by their texts.
#include "examples/llm/constraint.h"

#include <algorithm>

#include "graph/status.h"

namespace tessera::llm {

Constraint::Constraint(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer,
                       int32_t end)
    : tokenizer_(tokenizer), matcher_(std::move(grammar)) {
  const TokenizerSpec& spec = tokenizer.spec();
  ends_.assign(spec.ends.begin(), spec.ends.end());
  for (const int64_t id : {spec.eos, int64_t{end}}) {
    if (id >= 0 && id < tokenizer.size()) ends_.push_back(static_cast<int32_t>(id));
  }
}

bool Constraint::Ends(int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

bool Constraint::Allows(int32_t token) {
  if (Ends(token)) return matcher_.CanEnd();
  return tokenizer_.WritesText(token) && matcher_.Allows(tokenizer_.Piece(token));
}

absl::StatusOr<int32_t> Constraint::Pick(Sampler& sampler, const float* logits, const Past& past) {
  if (AtEnd() && IsComplete()) return -1;
  if (!sampler.Draws()) {  // the best of all is the best of those allowed, if it is one
    const int32_t best = sampler.Pick(logits, past);
    if (best == kNoNumbers || Allows(best)) return best;
  }
  ASSIGN_OR_RETURN(const absl::Span<const uint64_t> mask, matcher_.Mask(tokenizer_.Tree()));
  allowed_.assign(mask.begin(), mask.end());
  for (const int32_t token : ends_) {
    const auto id = static_cast<uint32_t>(token);
    const uint64_t bit = uint64_t{1} << id % 64;
    allowed_[id / 64] = matcher_.CanEnd() ? allowed_[id / 64] | bit : allowed_[id / 64] & ~bit;
  }
  const int32_t token = sampler.Pick(logits, past, allowed_);
  if (token >= 0 || token == kNoNumbers || IsComplete()) return token;
  return absl::InvalidArgumentError(
      matcher_.overflowed()
          ? "the grammar is too ambiguous: there are more ways to read the text than are followed"
          : "no token of the model's vocabulary goes on as the grammar wants");
}

void Constraint::Accept(int32_t token) {
  if (!Ends(token)) CHECK(matcher_.Push(tokenizer_.Piece(token)), "a token that was not picked");
}

}  // namespace tessera::llm
