// Conversations as the text that models of known families were trained on, and how they end.
//
// A template is recognised by the marks it contains and our own code writes the text: for templates
// that examples/llm/jinja.h cannot run, and conversations that they refuse. What a user types can
// never become a control token, because names of tokens count only in the marks around it. Texts of
// a template's own, such as its usual system message, are read from it.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

struct Message {
  std::string role;  // "system", "user", "assistant", or what else a template knows, as "tool"
  std::string content;
  // As a template sees it, where that is more than these two texts, as calls of tools are: a JSON
  // object with role and content among the rest.
  std::string whole = {};
};

enum class ChatForm {
  kLlama3,    // <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
  kChatMl,    // <|im_start|>user\n...<|im_end|>\n (Qwen)
  kLlama2,    // [INST] <<SYS>>\n...\n<</SYS>>\n\n... [/INST] ... </s>
  kMistral,   // [INST] ... [/INST] ...</s>
  kZephyr,    // <|user|>\n...</s>\n (small Llamas)
  kGemma,     // <start_of_turn>user\n...<end_of_turn>\n
  kPhi3,      // <|user|>\n...<|end|>\n
  kPhi4,      // <|im_start|>user<|im_sep|>...<|im_end|>
  kPhi4Mini,  // <|user|>...<|end|>
  kGranite,   // <|start_of_role|>user<|end_of_role|>...<|end_of_text|>\n
  kOlmo2,     // <|user|>\n...\n<|assistant|>\n...</s>\n (OLMo 2, Tulu 3, Falcon 3)
  kSmolLm3,   // as kChatMl, with what models are told of themselves in each system message
  kHarmony    // <|start|>user<|message|>...<|end|> (gpt-oss)
};

// By the template's marks; an error names those that are known.
absl::StatusOr<ChatForm> RecogniseChat(const std::string& chat_template);

struct Date {
  int year = 0, month = 0, day = 0;
};
Date Today();

// The conversation up to where the assistant is to speak. Templates that state the date state
// `today`.
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, ChatForm form,
                                absl::Span<const Message> messages, const Date& today = Today());

// Answers as their tokens come. gpt-oss writes several messages: what it thinks, then what it says,
// each after a header between marks.
class AnswerReader {
 public:
  AnswerReader(const Tokenizer& tokenizer, std::optional<ChatForm> form);
  // What the token shows: no header, and an empty line between messages.
  std::string Show(int32_t token);
  // Whether the next token is of a header, or ends one.
  bool in_header() const { return harmony_ && in_header_; }
  // What of the text that was shown is told again in later turns.
  std::string Told(const std::string& shown) const;
  // From which byte of what is shown on that is; beyond the end as long as it is none of it. Other
  // threads may ask.
  size_t said_from() const { return harmony_ ? said_from_.load() : 0; }

 private:
  const Tokenizer& tokenizer_;
  const bool harmony_;
  bool in_header_ = true;
  std::string header_;
  Utf8Stream utf8_;
  size_t shown_ = 0;
  std::atomic<size_t> said_from_ = std::string::npos;
};

}  // namespace tessera::llm
