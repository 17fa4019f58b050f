// Writing answers and errors.
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/llm/api.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/json_line.h"

namespace tessera::llm {
namespace {

constexpr char kField[] = "tessera.llm/field", kCode[] = "tessera.llm/code";

// What an error carries of this kind, as JSON.
std::string Carried(const absl::Status& error, const char* kind) {
  const auto value = error.GetPayload(kind);
  return value ? JsonString(std::string(*value)) : "null";
}

JsonLine Beginning(const AnswerHead& head, const char* chat_object) {
  JsonLine out;
  out.Text("id", head.id)
      .Text("object", head.chat ? chat_object : "text_completion")
      .Count("created", head.created)
      .Text("model", head.model);
  return out;
}

std::string CallsJson(absl::Span<const ToolCall> calls, bool of_parts) {
  std::vector<std::string> out;
  for (const ToolCall& call : calls) {
    JsonLine line;
    if (of_parts) line.Count("index", static_cast<int64_t>(out.size()));
    line.Text("id", call.id)
        .Text("type", "function")
        .Raw("function",
             JsonLine().Text("name", call.name).Text("arguments", call.arguments).str());
    out.push_back(line.str());
  }
  return JsonList(out);
}

std::string UsageJson(const Usage& usage) {
  return JsonLine()
      .Count("prompt_tokens", usage.prompt)
      .Count("completion_tokens", usage.completion)
      .Count("total_tokens", usage.prompt + usage.completion)
      .Raw("prompt_tokens_details", JsonLine().Count("cached_tokens", usage.cached).str())
      .str();
}

std::string MessageJson(const Choice& choice) {
  JsonLine message;
  message.Text("role", "assistant");
  if (choice.text.empty() && !choice.calls.empty()) {
    message.Raw("content", "null");
  } else {
    message.Text("content", choice.text);
  }
  if (!choice.thought.empty()) message.Text("reasoning_content", choice.thought);
  if (!choice.calls.empty()) message.Raw("tool_calls", CallsJson(choice.calls, false));
  return message.str();
}

// A choice, which ends with why it did.
std::string ChoiceJson(const AnswerHead& head, const Choice& choice, bool whole, JsonLine begun) {
  const bool weighed = head.weighed && (whole || !choice.tokens.empty());
  begun.Raw("logprobs", weighed ? LogprobsJson(head.chat, choice.tokens) : "null")
      .Raw("finish_reason", choice.finish.empty() ? "null" : JsonString(choice.finish));
  return begun.str();
}

}  // namespace

absl::Status WrongField(const std::string& field, absl::string_view what, const char* code) {
  absl::Status out = absl::InvalidArgumentError(absl::StrCat(field, " ", what));
  out.SetPayload(kField, absl::Cord(field));
  if (code[0] != '\0') out.SetPayload(kCode, absl::Cord(code));
  return out;
}

absl::Status WrongValue(const std::string& field, const Json& v, absl::string_view allowed) {
  constexpr size_t kShown = 40;
  std::string shown(v.text().substr(0, kShown));
  if (v.text().size() > kShown) shown += "...";  // a character that is cut is told as U+FFFD
  return WrongField(field, absl::StrCat("is ", shown, "; it is ", allowed));
}

int HttpStatusOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

std::string ErrorJson(const absl::Status& error, int http_status) {
  const char* type = http_status >= 500   ? "server_error"
                     : http_status == 401 ? "authentication_error"
                                          : "invalid_request_error";
  return JsonLine()
      .Raw("error", JsonLine()
                        .Text("message", std::string(error.message()))
                        .Text("type", type)
                        .Raw("param", Carried(error, kField))
                        .Raw("code", Carried(error, kCode))
                        .str())
      .str();
}

std::string AnswerJson(const AnswerHead& head, absl::Span<const Choice> choices,
                       const Usage& usage) {
  std::vector<std::string> written;
  for (const Choice& choice : choices) {
    JsonLine line;
    line.Count("index", choice.index);
    if (head.chat) {
      line.Raw("message", MessageJson(choice));
    } else {
      line.Text("text", choice.text);
    }
    written.push_back(ChoiceJson(head, choice, true, std::move(line)));
  }
  return Beginning(head, "chat.completion")
      .Raw("choices", JsonList(written))
      .Raw("usage", UsageJson(usage))
      .str();
}

std::string AnswerPartJson(const AnswerHead& head, const Choice& news, bool first) {
  JsonLine line;
  line.Count("index", news.index);
  if (head.chat) {
    JsonLine delta;
    if (first) delta.Text("role", "assistant");
    if (first || !news.text.empty()) delta.Text("content", news.text);
    if (!news.thought.empty()) delta.Text("reasoning_content", news.thought);
    if (!news.calls.empty()) delta.Raw("tool_calls", CallsJson(news.calls, true));
    line.Raw("delta", delta.str());
  } else {
    line.Text("text", news.text);
  }
  JsonLine out = Beginning(head, "chat.completion.chunk");
  out.Raw("choices", JsonList({ChoiceJson(head, news, false, std::move(line))}));
  if (head.include_usage) out.Raw("usage", "null");
  return out.str();
}

std::string UsagePartJson(const AnswerHead& head, const Usage& usage) {
  return Beginning(head, "chat.completion.chunk")
      .Raw("choices", "[]")
      .Raw("usage", UsageJson(usage))
      .str();
}

std::string NewId(absl::string_view prefix) {
  std::random_device device;
  return absl::StrCat(prefix, absl::StrFormat("%08x%08x", device(), device()));
}

}  // namespace tessera::llm
