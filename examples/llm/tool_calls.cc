// Holding text back from where calls may begin, and reading them at its end.
#include "examples/llm/tool_calls.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "examples/llm/api.h"
#include "examples/llm/held_text.h"
#include "runtime/json.h"

namespace tessera::llm {
namespace {

constexpr absl::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";

std::optional<ToolCall> CallOf(absl::string_view text) {
  const absl::StatusOr<Json> json = Json::Parse(text, "");
  if (!json.ok() || !json->is(Json::Type::kObject)) return std::nullopt;
  const std::optional<Json> name = json->Find("name"), arguments = json->Find("arguments");
  ToolCall call;
  call.name = name ? name->String().value_or("") : "";
  if (call.name.empty()) return std::nullopt;
  if (!arguments || arguments->is(Json::Type::kNull)) {
    call.arguments = "{}";
  } else if (arguments->is(Json::Type::kString)) {
    call.arguments = *arguments->String();
  } else if (arguments->is(Json::Type::kObject)) {
    call.arguments = std::string(arguments->text());
  } else {
    return std::nullopt;
  }
  call.id = NewId("call_");
  return call;
}

// None where anything in the text is no call.
std::vector<ToolCall> CallsOf(absl::string_view text) {
  std::vector<ToolCall> out;
  text = absl::StripAsciiWhitespace(text);
  while (absl::ConsumePrefix(&text, kBegin)) {
    const size_t end = text.find(kEnd);
    if (end == text.npos) return {};
    std::optional<ToolCall> call = CallOf(text.substr(0, end));
    if (!call) return {};
    out.push_back(*std::move(call));
    text = absl::StripLeadingAsciiWhitespace(text.substr(end + kEnd.size()));
  }
  return text.empty() ? out : std::vector<ToolCall>();
}

}  // namespace

std::string ToolCallReader::Push(absl::string_view text) {
  held_.append(text.data(), text.size());
  size_t end = absl::string_view(held_).find(kBegin);
  if (end == held_.npos) end = BeforeMark(held_, kBegin);
  while (end > 0 && absl::ascii_isspace(held_[end - 1])) --end;
  std::string out = held_.substr(0, end);
  held_.erase(0, end);
  return out;
}

ToolCallReader::Rest ToolCallReader::Finish() {
  Rest out;
  out.calls = CallsOf(held_);
  if (out.calls.empty()) out.text = std::move(held_);
  return out;
}

}  // namespace tessera::llm
