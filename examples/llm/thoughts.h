// What a model thinks before it speaks, between marks at the beginning of its text, such as
// <think>...</think>.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

struct ThoughtMarks {
  absl::string_view begin, end;
};
// Those that a chat template knows; none: its model does not think.
const ThoughtMarks* ThoughtMarksOf(absl::string_view chat_template);
// Whether a prompt ends with the first mark, so that the text begins within a thought.
bool OpensThought(const ThoughtMarks& marks, const Tokenizer& tokenizer,
                  absl::Span<const int32_t> prompt);
// What a token shows where the marks are to be seen, whatever tokens they are.
const std::string& PieceWithMarks(const ThoughtMarks& marks, const Tokenizer& tokenizer,
                                  int32_t token);

// A grammar's expression of what follows the first mark, with the last one.
std::string GrammarOfThought(const ThoughtMarks& marks);

class ThoughtReader {
 public:
  // `open`: the text begins within a thought.
  ThoughtReader(const ThoughtMarks& marks, bool open)
      : marks_(marks), at_(open ? At::kThought : At::kBegin) {}

  // Of text that comes, what is certain to be thought or said; without white space around a
  // thought.
  struct News {
    std::string thought, said;
  };
  News Push(absl::string_view text);
  News Finish();
  // Of all that came, the bytes before what is said.
  size_t said_from() const { return said_from_; }

 private:
  enum class At { kBegin, kThought, kAfter, kSaid };
  void Drop(size_t bytes);  // of what is held
  bool Step(News* out);

  const ThoughtMarks marks_;
  At at_;
  bool thought_ = false;  // something of it was told
  std::string held_;
  size_t said_from_ = 0;
};

}  // namespace tessera::llm
