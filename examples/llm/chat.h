// Conversations as the text that models were trained on, and how they end.
//
// The template in a model file is a program (Jinja) by whoever made the file. The supported
// families use five forms in all, so a template is recognised by the marks it contains and our own
// code writes the text: nothing from the file runs, and what a user types can never become a
// control token, because names of tokens count only in the marks around it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "examples/llm/tokenizer.h"

namespace tessera::llm {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

enum class ChatForm {
  kLlama3,   // <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
  kChatMl,   // <|im_start|>user\n...<|im_end|>\n (Qwen)
  kLlama2,   // [INST] <<SYS>>\n...\n<</SYS>>\n\n... [/INST] ... </s>
  kMistral,  // [INST] ... [/INST] ...</s>
  kZephyr    // <|user|>\n...</s>\n (small Llamas)
};

// By the template's marks; an error names those that are known.
absl::StatusOr<ChatForm> RecogniseChat(const std::string& chat_template);

// The date as templates write it: 26 Jul 2024.
std::string Today();

// The conversation up to where the assistant is to speak. Templates that state the date state
// `today`.
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, ChatForm form,
                                absl::Span<const Message> messages,
                                const std::string& today = Today());

}  // namespace tessera::llm
