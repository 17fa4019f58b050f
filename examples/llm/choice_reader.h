// A model's text, read as what is told of a choice: what it thinks, says and calls, and how likely
// its tokens were.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "examples/llm/api.h"
#include "examples/llm/chat.h"
#include "examples/llm/likelihood.h"
#include "examples/llm/thoughts.h"
#include "examples/llm/tool_calls.h"

namespace tessera::llm {

class ChoiceReader {
 public:
  struct Options {
    std::optional<ChatForm> form;
    const ThoughtMarks* thoughts = nullptr;  // none are told apart
    bool open = false;                       // the text begins within a thought
    bool calls = false, one_call = false;
  };
  // The tokenizer must outlive it.
  ChoiceReader(const Tokenizer& tokenizer, const Options& options);

  // By who writes the text: what a token shows of it, and how likely it was, before that.
  std::string Show(int32_t token);
  void Weigh(TokenLikelihood likelihood);

  // By who is shown the text: adds to `news` what is certain to be told.
  void Push(const std::string& text, Choice* news);
  // The rest, after the last.
  void Finish(Choice* news);

 private:
  void Say(const std::string& said, bool ended, Choice* news);
  void TellTokens(Choice* news);
  TokenChance ChanceOf(const TokenLikelihood::One& one) const;

  const Tokenizer& tokenizer_;
  const Options options_;
  AnswerReader answer_;
  std::optional<ThoughtReader> thoughts_;
  ToolCallReader calls_;
  size_t shown_ = 0;
  size_t said_from_ = 0;  // a byte of what was shown
  std::string said_;      // from there on
  size_t counted_ = 0;    // bytes of it whose characters are
  int64_t characters_ = 0;

  std::mutex mutex_;
  std::deque<TokenLikelihood> weighed_;  // not told yet
};

}  // namespace tessera::llm
