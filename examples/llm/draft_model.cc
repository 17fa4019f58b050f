// The small model's text follows the large one's: what they have in common is not read again.
#include "examples/llm/draft_model.h"

#include <algorithm>

#include "examples/llm/generate.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// Files of one vocabulary may end in other tokens without use, up to sizes that suit a device.
absl::Status CheckSameTokens(const Tokenizer& draft, const Tokenizer& large) {
  const int both = std::min(draft.size(), large.size());
  for (int i = 0; i < both; ++i) {
    const auto text = [i](const Tokenizer& t) {
      return ShowName(t.spec().tokens[static_cast<size_t>(i)].text);
    };
    if (text(draft) == text(large)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(draft.spec().file, " cannot guess for ", large.spec().file, ": token ", i,
                     " is ", text(draft), " there and ", text(large), " here"));
  }
  return absl::OkStatus();
}

class Drafter {
 public:
  Drafter(Model model, const SessionOptions& options)
      : model_(std::move(model)), session_(model_, options) {}

  std::vector<int32_t> Guess(absl::Span<const int32_t> text, int64_t most) {
    const auto is_known = [&](int32_t token) { return token < model_.config.vocabulary; };
    const int64_t count = static_cast<int64_t>(text.size());
    // The last guess is not read.
    most = std::min(most, session_.context() - count + 1);
    std::vector<int32_t> out;
    if (most <= 0 || !std::all_of(text.begin(), text.end(), is_known)) return out;
    const size_t same = ReadBefore(seen_, text);
    session_.Rewind(static_cast<int64_t>(same));
    seen_.resize(same);  // if reading ends in an error
    session_.Advance(text.subspan(same));
    seen_.assign(text.begin(), text.end());
    while (true) {
      out.push_back(session_.Likeliest());
      if (static_cast<int64_t>(out.size()) == most) return out;
      session_.Advance({&out.back(), 1});
      seen_.push_back(out.back());
    }
  }

 private:
  const Model model_;
  Session session_;
  std::vector<int32_t> seen_;
};

}  // namespace

absl::StatusOr<Guesser> GuesserByModel(Model draft, const SessionOptions& options,
                                       const Model& large) {
  RETURN_IF_ERROR(CheckSameTokens(*draft.tokenizer, *large.tokenizer));
  const auto drafter = std::make_shared<Drafter>(std::move(draft), options);
  return [drafter](absl::Span<const int32_t> text, int64_t most) {
    return drafter->Guess(text, most);
  };
}

}  // namespace tessera::llm
