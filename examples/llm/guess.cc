// Looking up what was written, and when guesses are worth their step.
#include "examples/llm/guess.h"

#include <algorithm>

namespace tessera::llm {

std::vector<int32_t> LookUp(absl::Span<const int32_t> text, int64_t most) {
  // What follows one token alone is chance; of more than a few it hardly matters how many they are.
  constexpr size_t kLeast = 2, kEnough = 8;
  size_t best = 0, from = 0;
  for (size_t end = text.size(); --end > 0 && best < kEnough;) {
    size_t same = 0;
    while (same < std::min(end, kEnough) && text[end - 1 - same] == text[text.size() - 1 - same]) {
      ++same;
    }
    if (same > best) {
      best = same;
      from = end;
    }
  }
  std::vector<int32_t> out;
  if (best < kLeast) return out;
  // Beyond the text's end it repeats itself.
  for (size_t at = from; static_cast<int64_t>(out.size()) < most; ++at) {
    out.push_back(at < text.size() ? text[at] : out[at - text.size()]);
  }
  return out;
}

int64_t Pace::Most() const { return credit_ < kCost ? 0 : std::min(next_, most_); }

void Pace::Passed() { credit_ = std::min(credit_ + 1, kMostCredit); }

// A step of four tokens takes up to about 1.5 times as long as one of a single token, and more
// tokens take longer in proportion: so a right guess pays for two such steps, and many are guessed
// where all of few were right.
void Pace::Checked(int64_t guessed, int64_t right) {
  const int64_t cost = (guessed + kFew) / (kFew + 1) * kCost;
  credit_ = std::min(credit_ + right * kStep - cost, kMostCredit);
  next_ = right == guessed ? std::min(2 * next_ + 1, most_) : kFew;
}

}  // namespace tessera::llm
