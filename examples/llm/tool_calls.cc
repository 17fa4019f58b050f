// Holding text back from where calls may begin, and reading them at its end.
#include "examples/llm/tool_calls.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
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

// Those that a text begins with, taken from it. The mark of an end may stand in an argument, too.
std::vector<ToolCall> TakeCalls(absl::string_view* text) {
  constexpr int kMostEnds = 64;  // that are looked at
  std::vector<ToolCall> out;
  for (absl::string_view rest = absl::StripAsciiWhitespace(*text);
       absl::ConsumePrefix(&rest, kBegin);) {
    std::optional<ToolCall> call;
    size_t end = rest.find(kEnd);
    for (int i = 0; i < kMostEnds && end != rest.npos; ++i) {
      call = CallOf(rest.substr(0, end));
      if (call) break;
      end = rest.find(kEnd, end + 1);
    }
    if (!call) break;
    out.push_back(*std::move(call));
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(end + kEnd.size()));
    *text = rest;
  }
  return out;
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
  absl::string_view left = held_;
  out.calls = TakeCalls(&left);
  const bool cut = absl::StartsWith(left, kBegin) || absl::StartsWith(kBegin, left);
  if (!cut) {  // a text that goes on spoke of calls
    out.calls.clear();
    left = held_;
  }
  out.text = std::string(left);
  return out;
}

}  // namespace tessera::llm
