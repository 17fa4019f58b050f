// Guesses of what a text goes on with. One step checks several, and where a step's time is that of
// reading weights it takes little longer than one of a single token: each that is right is a step
// saved.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"

namespace tessera::llm {

// At most so many tokens that may follow a text of at least one, or none. Wrong ones cost time and
// change nothing else.
using Guesser = std::function<std::vector<int32_t>(absl::Span<const int32_t> text, int64_t most)>;

// What followed where the text's last tokens were before: of the places that the most of them were
// at, the last one.
std::vector<int32_t> LookUp(absl::Span<const int32_t> text, int64_t most);

inline constexpr int64_t kMostGuesses = 15;
struct Guessing {
  int64_t most = 0;  // in a step, up to kMostGuesses; 0: none
  Guesser guesser = LookUp;
};

// How many to guess in a text's next step, by how many were right so far and nothing else, so that
// equal texts take equal steps. Texts of which all guesses are wrong lose two steps and one of
// fifty, or less where guesses cost less than is reckoned with.
class Pace {
 public:
  explicit Pace(int64_t most) : most_(most) {}
  int64_t Most() const;
  void Passed();  // a step without guesses
  void Checked(int64_t guessed, int64_t right);

 private:
  // Few guesses, and in parts of the time of a step: what it is worth, what few guesses cost, and
  // how much is kept of what was won.
  static constexpr int64_t kFew = 3, kStep = 48, kCost = kStep / 2, kMostCredit = 8 * kCost;
  int64_t most_, next_ = kFew;
  int64_t credit_ = 4 * kCost;  // what may be lost
};

}  // namespace tessera::llm
