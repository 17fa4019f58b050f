// One function a form: the marks, and between them what was said.
#include "examples/llm/chat.h"

#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "examples/llm/unicode.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// Marks and contents in turn, which make one text.
struct Writer {
  const Tokenizer& tokenizer;
  std::vector<Tokenizer::Part> out = {};

  void Mark(std::string text) {
    Tokenizer::Part& part = out.emplace_back();
    part.text = std::move(text);
    part.markup = true;
  }
  void Said(absl::string_view text) {
    Tokenizer::Part& part = out.emplace_back();
    part.text.assign(text.data(), text.size());
  }
  void Bos() { Token(tokenizer.spec().bos); }
  void Eos() { Token(tokenizer.spec().eos); }
  void Token(int64_t id) {
    if (id >= 0) out.emplace_back().token = static_cast<int32_t>(id);
  }
};

absl::string_view Trimmed(absl::string_view text) {
  return WithoutSpaceAtBegin(WithoutSpaceAtEnd(text));
}

// What Llama 3.1 and later say at the beginning of any system message, and of one of its own where
// there is none: up to when they were taught, as the template has it, and the date.
std::string Dates(absl::string_view chat_template, const std::string& today) {
  constexpr absl::string_view kTaught = "Cutting Knowledge Date: ", kToday = "Today Date: ";
  const size_t at = chat_template.find(kTaught);
  if (at == absl::string_view::npos || !absl::StrContains(chat_template, kToday)) return "";
  const absl::string_view taught = chat_template.substr(at + kTaught.size());
  return absl::StrCat(kTaught, taught.substr(0, taught.find_first_of("\\\n\"'{")), "\n", kToday,
                      today, "\n\n");
}

void Llama3(absl::Span<const Message> messages, const std::string& today, Writer* w) {
  w->Bos();
  const auto message = [&](const std::string& role, absl::string_view begin,
                           absl::string_view content) {
    w->Mark("<|start_header_id|>" + role + "<|end_header_id|>\n\n");
    w->Said(absl::StrCat(begin, Trimmed(content)));
    w->Mark("<|eot_id|>");
  };
  const std::string dates = Dates(w->tokenizer.spec().chat_template, today);
  const bool own = !messages.empty() && messages[0].role == "system";
  if (!dates.empty() && !own) message("system", dates, "");
  for (const Message& m : messages) message(m.role, m.role == "system" ? dates : "", m.content);
  w->Mark("<|start_header_id|>assistant<|end_header_id|>\n\n");
}

// What a template says where there is no system message: a text in it, between a system message's
// marks.
std::string UsualSystem(absl::string_view chat_template) {
  constexpr absl::string_view kBegin = "<|im_start|>system", kEnd = "<|im_end|>";
  for (size_t at = chat_template.find(kBegin); at != absl::string_view::npos;
       at = chat_template.find(kBegin, at + 1)) {
    absl::string_view rest = chat_template.substr(at + kBegin.size());
    // The line's end is written as in a string of the template, or as it is.
    if (!absl::ConsumePrefix(&rest, "\\n") && !absl::ConsumePrefix(&rest, "\n")) continue;
    const absl::string_view text = rest.substr(0, rest.find(kEnd));
    if (text.size() < rest.size() && text.find_first_of("'\"{}") == absl::string_view::npos) {
      return absl::StrReplaceAll(text, {{"\\n", "\n"}});
    }
  }
  return "";
}

void ChatMl(absl::Span<const Message> messages, Writer* w) {
  const std::string& form = w->tokenizer.spec().chat_template;
  const auto message = [&](const std::string& role, absl::string_view content) {
    w->Mark("<|im_start|>" + role + "\n");
    w->Said(content);
    w->Mark("<|im_end|>\n");
  };
  if (messages.empty() || messages[0].role != "system") {
    if (const std::string usual = UsualSystem(form); !usual.empty()) message("system", usual);
  }
  // Where models think first, what they thought is not told again.
  constexpr absl::string_view kThought = "</think>";
  const bool thinks = absl::StrContains(form, kThought);
  for (const Message& m : messages) {
    absl::string_view content = m.content;
    const size_t end = thinks && m.role == "assistant" ? content.rfind(kThought) : content.npos;
    if (end != content.npos) {
      content.remove_prefix(end + kThought.size());
      while (absl::ConsumePrefix(&content, "\n")) {
      }
    }
    message(m.role, content);
  }
  w->Mark("<|im_start|>assistant\n");
}

// The system message goes into the first user message.
void Instructions(absl::Span<const Message> messages, bool llama2, Writer* w) {
  std::string system;
  bool first = true;
  for (const Message& m : messages) {
    if (m.role == "system") {
      system = m.content;
    } else if (m.role == "user") {
      if (llama2 || first) w->Bos();
      w->Mark("[INST] ");
      absl::string_view content = m.content;
      if (llama2) content = system.empty() ? Trimmed(content) : WithoutSpaceAtEnd(content);
      if (!system.empty()) {
        if (llama2) w->Mark("<<SYS>>\n");
        w->Said(system);
        w->Mark(llama2 ? "\n<</SYS>>\n\n" : "\n\n");
        system.clear();
      }
      w->Said(content);
      w->Mark(" [/INST]");
      first = false;
    } else {
      w->Said(llama2 ? absl::StrCat(" ", Trimmed(m.content), " ") : m.content);
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

std::string Today() {
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t = {};
  localtime_r(&now, &t);
  return absl::StrFormat("%02d %s %d", t.tm_mday, kMonths[t.tm_mon], 1900 + t.tm_year);
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, ChatForm form,
                                absl::Span<const Message> messages, const std::string& today) {
  Writer w{tokenizer};
  switch (form) {
    case ChatForm::kLlama3:
      Llama3(messages, today, &w);
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
  Tokenizer::Options options;
  options.special = false;
  return tokenizer.Encode(w.out, options);
}

}  // namespace tessera::llm
