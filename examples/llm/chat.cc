// One function a form: the marks, and between them what was said.
#include "examples/llm/chat.h"

#include "graph/status.h"

namespace tessera::llm {
namespace {

// Tokens of marks and contents in turn.
struct Writer {
  const Tokenizer& tokenizer;
  std::vector<int32_t> out = {};

  void Add(absl::string_view text, bool markup) {
    Tokenizer::Options options;
    options.special = false;
    options.markup = markup;
    options.continues = !out.empty();
    for (int32_t id : tokenizer.Encode(text, options)) out.push_back(id);
  }
  void Mark(absl::string_view text) { Add(text, true); }
  void Said(absl::string_view text) { Add(text, false); }
  void Bos() {
    if (tokenizer.spec().bos >= 0) out.push_back(static_cast<int32_t>(tokenizer.spec().bos));
  }
  void Eos() {
    if (tokenizer.spec().eos >= 0) out.push_back(static_cast<int32_t>(tokenizer.spec().eos));
  }
};

void Llama3(absl::Span<const Message> messages, Writer* w) {
  w->Bos();
  const auto header = [&](const std::string& role) {
    w->Mark("<|start_header_id|>" + role + "<|end_header_id|>\n\n");
  };
  for (const Message& m : messages) {
    header(m.role);
    w->Said(m.content);
    w->Mark("<|eot_id|>");
  }
  header("assistant");
}

void ChatMl(absl::Span<const Message> messages, Writer* w) {
  for (const Message& m : messages) {
    w->Mark("<|im_start|>" + m.role + "\n");
    w->Said(m.content);
    w->Mark("<|im_end|>\n");
  }
  w->Mark("<|im_start|>assistant\n");
}

// The system message goes into the first user message.
void Instructions(absl::Span<const Message> messages, bool system_marks, Writer* w) {
  std::string system;
  bool first = true;
  for (const Message& m : messages) {
    if (m.role == "system") {
      system = m.content;
    } else if (m.role == "user") {
      if (system_marks || first) w->Bos();
      w->Mark("[INST] ");
      if (!system.empty()) {
        if (system_marks) w->Mark("<<SYS>>\n");
        w->Said(system);
        w->Mark(system_marks ? "\n<</SYS>>\n\n" : "\n\n");
        system.clear();
      }
      w->Said(m.content);
      w->Mark(" [/INST]");
      first = false;
    } else {
      w->Said((system_marks ? " " : "") + m.content + (system_marks ? " " : ""));
      w->Eos();
    }
  }
}

void Zephyr(absl::Span<const Message> messages, Writer* w) {
  for (const Message& m : messages) {
    w->Mark("<|" + m.role + "|>\n");
    w->Said(m.content);
    w->Eos();
    w->Mark("\n");
  }
  w->Mark("<|assistant|>\n");
}

}  // namespace

absl::StatusOr<ChatForm> RecogniseChat(const std::string& text) {
  const auto has = [&](const char* mark) { return text.find(mark) != std::string::npos; };
  if (has("<|start_header_id|>")) return ChatForm::kLlama3;
  if (has("<|im_start|>")) return ChatForm::kChatMl;
  if (has("[INST]")) return has("<<SYS>>") ? ChatForm::kLlama2 : ChatForm::kMistral;
  if (has("<|user|>") && has("eos_token")) return ChatForm::kZephyr;
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "the model has no chat template: it continues texts; use --prompt");
  }
  return absl::InvalidArgumentError(
      "the model's chat template is not known; known are those with <|start_header_id|> (Llama 3), "
      "<|im_start|> (Qwen), [INST] (Llama 2, Mistral) and <|user|> (Zephyr)");
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, ChatForm form,
                                absl::Span<const Message> messages) {
  Writer w{tokenizer};
  switch (form) {
    case ChatForm::kLlama3:
      Llama3(messages, &w);
      break;
    case ChatForm::kChatMl:
      ChatMl(messages, &w);
      break;
    case ChatForm::kLlama2:
      Instructions(messages, true, &w);
      break;
    case ChatForm::kMistral:
      Instructions(messages, false, &w);
      break;
    case ChatForm::kZephyr:
      Zephyr(messages, &w);
      break;
  }
  return std::move(w.out);
}

}  // namespace tessera::llm
