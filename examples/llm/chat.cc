// One function a form: the marks, and between them what was said.
#include "examples/llm/chat.h"

#include <ctime>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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
  void Turn(std::string begin, absl::string_view content, std::string end) {
    Mark(std::move(begin));
    Said(content);
    Mark(std::move(end));
  }
  void Bos() { Token(tokenizer.spec().bos); }
  void Eos() { Token(tokenizer.spec().eos); }
  void Token(int64_t id) {
    if (id >= 0) out.emplace_back().token = static_cast<int32_t>(id);
  }
};

// The date as strftime writes it.
std::string Written(const Date& date, const char* format) {
  std::tm t = {};
  t.tm_year = date.year - 1900;
  t.tm_mon = date.month - 1;
  t.tm_mday = date.day;
  char out[64];
  return std::string(out, std::strftime(out, sizeof(out), format, &t));
}

// A string of a template as it is written there.
std::string Unescaped(absl::string_view text) { return absl::StrReplaceAll(text, {{"\\n", "\n"}}); }

absl::string_view Trimmed(absl::string_view text) {
  return WithoutSpaceAtBegin(WithoutSpaceAtEnd(text));
}

// What Llama 3.1 and later say at the beginning of any system message, and of one of its own where
// there is none: up to when they were taught, as the template has it, and the date.
std::string Dates(absl::string_view chat_template, const Date& today) {
  constexpr absl::string_view kTaught = "Cutting Knowledge Date: ", kToday = "Today Date: ";
  const size_t at = chat_template.find(kTaught);
  if (at == absl::string_view::npos || !absl::StrContains(chat_template, kToday)) return "";
  const absl::string_view taught = chat_template.substr(at + kTaught.size());
  return absl::StrCat(kTaught, taught.substr(0, taught.find_first_of("\\\n\"'{")), "\n", kToday,
                      Written(today, "%d %b %Y"), "\n\n");
}

void Llama3(absl::Span<const Message> messages, const Date& today, Writer* w) {
  w->Bos();
  const auto message = [&](const std::string& role, absl::string_view begin,
                           absl::string_view content) {
    w->Turn("<|start_header_id|>" + role + "<|end_header_id|>\n\n",
            absl::StrCat(begin, Trimmed(content)), "<|eot_id|>");
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
      return Unescaped(text);
    }
  }
  return "";
}

void ChatMl(absl::Span<const Message> messages, Writer* w) {
  const std::string& form = w->tokenizer.spec().chat_template;
  const auto message = [&](const std::string& role, absl::string_view content) {
    w->Turn("<|im_start|>" + role + "\n", content, "<|im_end|>\n");
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

// Every message between the same marks, and the assistant's to be.
void Turns(absl::Span<const Message> messages, const std::string& begin, const std::string& middle,
           const std::string& end, Writer* w) {
  for (const Message& m : messages) w->Turn(begin + m.role + middle, m.content, end);
  w->Mark(begin + "assistant" + middle);
}

// What a template begins with: a token, or none.
void Begin(Writer* w) {
  const std::string& form = w->tokenizer.spec().chat_template;
  if (absl::StartsWith(form, "{{ eos_token }}")) {
    w->Eos();
  } else if (absl::StrContains(form, "bos_token")) {
    w->Bos();
  }
}

// The system message goes before what the user says first, in templates of Gemma 3. Earlier ones
// refuse it.
void Gemma(absl::Span<const Message> messages, Writer* w) {
  w->Bos();
  std::string before;
  for (const Message& m : messages) {
    if (m.role == "system") {
      before = absl::StrCat(m.content, "\n\n");
      continue;
    }
    w->Turn(absl::StrCat("<start_of_turn>", m.role == "assistant" ? "model" : m.role, "\n"),
            absl::StrCat(before, Trimmed(m.content)), "<end_of_turn>\n");
    before.clear();
  }
  w->Mark("<start_of_turn>model\n");
}

// What Granite 3.1 and later are told where there is no system message: two texts of the template
// with the date between them, and a third. None of it in Granite 3.0's.
std::optional<std::string> GraniteSystem(absl::string_view form, const Date& today) {
  constexpr absl::string_view kBegin = "system_message = \"Knowledge Cutoff Date",
                              kDate = "\" + strftime_now('%B %d, %Y') + \"",
                              kHelpful = " You are a helpful AI assistant.";
  if (!absl::StrContains(form, "system_message")) return "";
  const size_t begin = form.find(kBegin), date = form.find(kDate, begin);
  if (begin == form.npos || date == form.npos) return std::nullopt;
  if (!absl::StrContains(form, absl::StrCat("\"", kHelpful, "\""))) return std::nullopt;
  const size_t text = begin + kBegin.find('"') + 1, rest = date + kDate.size();
  return absl::StrCat(Unescaped(form.substr(text, date - text)), Written(today, "%B %d, %Y"),
                      Unescaped(form.substr(rest, form.find('"', rest) - rest)), kHelpful);
}

void Granite(absl::Span<const Message> messages, const Date& today, Writer* w) {
  const std::string begin = "<|start_of_role|>", middle = "<|end_of_role|>",
                    end = "<|end_of_text|>\n";
  if (messages.empty() || messages[0].role != "system") {
    const std::string usual = GraniteSystem(w->tokenizer.spec().chat_template, today).value_or("");
    if (!usual.empty()) w->Turn(begin + "system" + middle, usual, end);
  }
  Turns(messages, begin, middle, end, w);
}

void Olmo2(absl::Span<const Message> messages, Writer* w) {
  Begin(w);
  for (const Message& m : messages) {
    w->Mark("<|" + m.role + "|>\n");
    w->Said(m.content);
    if (m.role == "assistant") w->Eos();
    w->Mark("\n");
  }
  w->Mark("<|assistant|>\n");
}

// The first text that a template writes after `at`, which goes to the end of the text.
std::string TextAfter(absl::string_view form, size_t* at) {
  constexpr absl::string_view kBegin = "{{- \"";
  *at = form.find(kBegin, *at);
  if (*at == form.npos) return "";
  const size_t text = *at + kBegin.size();
  *at = form.find('"', text);
  return Unescaped(form.substr(text, *at - text));
}

// SmolLM3's system message. Templates that end it after a list of tools alone leave it open where
// there are none.
void SmolLm3System(absl::string_view form, const std::string& system, bool thinks,
                   const Date& today, Writer* w) {
  constexpr absl::string_view kOverride = "/system_override";
  const std::string said(WithoutSpaceAtEnd(
      absl::StrReplaceAll(absl::StrReplaceAll(system, {{"/no_think", ""}}), {{"/think", ""}})));
  w->Mark("<|im_start|>system\n");
  if (absl::StrContains(system, kOverride) && absl::StrContains(form, kOverride)) {
    w->Said(WithoutSpaceAtEnd(absl::StrReplaceAll(said, {{kOverride, ""}})));
    w->Mark("<|im_end|>\n");
    return;
  }
  size_t at = form.find("## Metadata");
  w->Mark(absl::StrCat("## Metadata\n\n", TextAfter(form, &at)));
  if (absl::StrContains(form, "Today Date: ")) {
    w->Mark(absl::StrCat("Today Date: ", Written(today, "%d %B %Y"), "\n"));
  }
  w->Mark(absl::StrCat("Reasoning Mode: ", thinks ? "/think" : "/no_think",
                       "\n\n## Custom Instructions\n\n"));
  at = form.find("elif reasoning_mode", at);
  const std::string thinking = TextAfter(form, &at), plain = TextAfter(form, &at);
  w->Said(!said.empty() ? said + "\n\n" : thinks ? thinking : plain);
  const absl::string_view before = form.substr(0, form.find("for message in messages"));
  const size_t end = before.rfind("<|im_end|>");
  const std::vector<absl::string_view> blocks =
      absl::StrSplit(before.substr(end == before.npos ? 0 : end), "endif");
  if (end == before.npos || blocks.size() <= 2) w->Mark("<|im_end|>\n");
}

void SmolLm3(absl::Span<const Message> messages, const Date& today, Writer* w) {
  const bool own = !messages.empty() && messages[0].role == "system";
  const std::string system = own ? messages[0].content : "";
  const bool thinks = !absl::StrContains(system, "/no_think");
  SmolLm3System(w->tokenizer.spec().chat_template, system, thinks, today, w);
  const std::string assistant =
      absl::StrCat("<|im_start|>assistant\n", thinks ? "" : "<think>\n\n</think>\n");
  for (const Message& m : messages.subspan(own ? 1 : 0)) {
    absl::string_view content = m.content;
    while (m.role == "assistant" && absl::ConsumePrefix(&content, "\n")) {
    }
    w->Turn(m.role == "assistant" ? assistant : "<|im_start|>" + m.role + "\n", content,
            "<|im_end|>\n");
  }
  w->Mark(assistant);
}

// The system message is the developer's here. What an assistant thought is not told again.
void Harmony(absl::Span<const Message> messages, const Date& today, Writer* w) {
  w->Mark(
      absl::StrCat("<|start|>system<|message|>You are ChatGPT, a large language model trained "
                   "by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ",
                   Written(today, "%Y-%m-%d"),
                   "\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
                   "Channel must be included for every message.<|end|>"));
  for (const Message& m : messages) {
    if (m.role == "system") {
      w->Turn("<|start|>developer<|message|># Instructions\n\n", m.content, "\n\n<|end|>");
    } else if (m.role == "user") {
      w->Turn("<|start|>user<|message|>", m.content, "<|end|>");
    } else {
      w->Turn("<|start|>assistant<|channel|>final<|message|>", m.content, "<|end|>");
    }
  }
  w->Mark("<|start|>assistant");
}

}  // namespace

absl::StatusOr<ChatForm> RecogniseChat(const std::string& chat_template) {
  const std::string text = Unescaped(chat_template);
  const auto has = [&](const char* mark) { return absl::StrContains(text, mark); };
  if (has("<|start_header_id|>")) return ChatForm::kLlama3;
  if (has("<|im_sep|>")) {
    if (has("'<|im_start|>system<|im_sep|>' + message['content']")) return ChatForm::kPhi4;
  } else if (has("<|im_start|>")) {
    return has("Reasoning Mode: ") ? ChatForm::kSmolLm3 : ChatForm::kChatMl;
  } else if (has("[INST]")) {
    return has("<<SYS>>") ? ChatForm::kLlama2 : ChatForm::kMistral;
  } else if (has("<start_of_turn>")) {
    if (has("'<start_of_turn>' + role") && !has("developer")) return ChatForm::kGemma;
  } else if (has("<|start_of_role|>")) {
    const bool known = has("message['content'] + '<|end_of_text|>\n'");
    if (known && GraniteSystem(chat_template, Date()).has_value()) return ChatForm::kGranite;
  } else if (has("<|channel|>final<|message|>")) {
    return ChatForm::kHarmony;
  } else if (has("<|end|>")) {
    const bool lines = has("'<|end|>\n'") || has("'<|end|>' + '\n'");
    if (has("message['content'] + '<|end|>")) return lines ? ChatForm::kPhi3 : ChatForm::kPhi4Mini;
  } else if (has("'<|user|>\n' + message['content'] + '\n'") ||
             has("'<|user|>\n' + message['content'] }}\n")) {
    return ChatForm::kOlmo2;
  } else if (has("<|user|>") && has("eos_token")) {
    return ChatForm::kZephyr;
  }
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "the model has no chat template: it continues texts; use --prompt");
  }
  return absl::InvalidArgumentError(
      "the model's chat template is not known; known are those of Llama 2 and 3, Mistral, Qwen, "
      "Zephyr, Gemma 1 to 3, Phi-3 and 4, Granite 3, OLMo 2, SmolLM3 and gpt-oss");
}

Date Today() {
  const std::time_t now = std::time(nullptr);
  std::tm t = {};
  localtime_r(&now, &t);
  return {.year = 1900 + t.tm_year, .month = 1 + t.tm_mon, .day = t.tm_mday};
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, ChatForm form,
                                absl::Span<const Message> messages, const Date& today) {
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
    case ChatForm::kGemma:
      Gemma(messages, &w);
      break;
    case ChatForm::kPhi3:
      Begin(&w);
      Turns(messages, "<|", "|>\n", "<|end|>\n", &w);
      break;
    case ChatForm::kPhi4:
      Turns(messages, "<|im_start|>", "<|im_sep|>", "<|im_end|>", &w);
      break;
    case ChatForm::kPhi4Mini:
      Turns(messages, "<|", "|>", "<|end|>", &w);
      break;
    case ChatForm::kGranite:
      Granite(messages, today, &w);
      break;
    case ChatForm::kOlmo2:
      Olmo2(messages, &w);
      break;
    case ChatForm::kSmolLm3:
      SmolLm3(messages, today, &w);
      break;
    case ChatForm::kHarmony:
      Harmony(messages, today, &w);
      break;
  }
  Tokenizer::Options options;
  options.special = false;
  return tokenizer.Encode(w.out, options);
}

AnswerReader::AnswerReader(const Tokenizer& tokenizer, std::optional<ChatForm> form)
    : tokenizer_(tokenizer), harmony_(form == ChatForm::kHarmony) {}

std::string AnswerReader::Show(int32_t token) {
  const std::string& piece = tokenizer_.Piece(token);
  if (!harmony_) return piece;
  std::string out;
  if (token == tokenizer_.Find("<|message|>")) {
    in_header_ = false;
    if (absl::StrContains(header_, "final")) said_from_ = shown_;
    header_.clear();
  } else if (token == tokenizer_.Find("<|end|>") && !in_header_) {
    in_header_ = true;
    out = utf8_.Finish() + "\n\n";
  } else if (in_header_) {
    header_ += piece;
  } else {
    out = utf8_.Push(piece);
  }
  shown_ += out.size();
  return out;
}

std::string AnswerReader::Told(const std::string& shown) const {
  if (!harmony_) return shown;
  return said_from_ < shown.size() ? shown.substr(said_from_) : "";
}

}  // namespace tessera::llm
