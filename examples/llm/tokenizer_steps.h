// Steps on texts, made ready and done.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/llm/pattern.h"
#include "examples/llm/text_step.h"
#include "examples/llm/tokenizer_charsmap.h"

namespace tessera::llm {

class TextSteps {
 public:
  // An error says what is wrong in a pattern or map.
  static absl::StatusOr<TextSteps> Make(std::vector<TextStep> steps);

  // Where a piece of a text is: at the text's begin, and whether that follows other text.
  struct Place {
    bool begins = true, follows = false;
  };
  // Gives the words in turn, none of them empty.
  using Taker = std::function<void(absl::string_view)>;
  void Do(absl::string_view text, const Place& place, const Taker& take) const;
  // The whole text, of steps that cut nothing.
  std::string Changed(absl::string_view text, const Place& place) const;
  // That, taking its greatest length on the way from `budget`; nothing where more might be wanted.
  std::optional<std::string> ChangedWithin(size_t* budget, absl::string_view text) const;

  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    TextStep step;
    std::optional<Pattern> pattern;
    std::optional<Charsmap> map;
    size_t growth = 1;  // at most how many times as long a text becomes
    bool cuts() const {
      return step.kind == TextStep::Kind::kCut || step.kind == TextStep::Kind::kScripts;
    }
  };
  static std::string Changed(const Step& step, absl::string_view text, const Place& place);
  static void Cut(const Step& step, absl::Span<const Character> text, const Word& of,
                  std::vector<Word>* out);
  void From(size_t step, absl::string_view text, const Place& place, const Taker& take) const;

  std::vector<Step> steps_;
};

}  // namespace tessera::llm
