// Reading the messages of requests, as templates want them.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/chat_writer.h"
#include "examples/llm/json_line.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// An object again, with other values for some of its keys, and those that it lacks.
std::string Rewritten(const Json& object, std::map<std::string, std::string> others) {
  std::vector<std::string> members;
  for (const JsonItem item : object.Items()) {
    const std::string key = item.key();
    const auto other = others.find(key);
    members.push_back(absl::StrCat(JsonString(key), ":",
                                   other == others.end() ? item.value().text() : other->second));
    if (other != others.end()) others.erase(other);
  }
  for (const auto& [key, value] : others) {
    members.push_back(absl::StrCat(JsonString(key), ":", value));
  }
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

// A list of parts as one text, in lines, as other servers have them.
absl::StatusOr<std::string> TextOfParts(const Json& parts, const std::string& field) {
  std::string out;
  int i = 0;
  for (const JsonItem item : parts.Items()) {
    const std::string at = absl::StrCat(field, "[", i++, "]");
    const bool object = item.value().is(Json::Type::kObject);
    const std::optional<Json> type = object ? item.value().Find("type") : std::nullopt;
    const std::optional<Json> text = object ? item.value().Find("text") : std::nullopt;
    const std::string is = type ? type->String().value_or("") : "";
    if (is != "text") return WrongField(at, "has a type that is not read: parts are of type text");
    if (!text || !text->is(Json::Type::kString)) return WrongField(at, "has no text");
    absl::StrAppend(&out, i == 1 ? "" : "\n", *text->String());
  }
  return out;
}

// Calls with their arguments as objects; `changed` says whether any was a text.
absl::StatusOr<std::string> CallsWithObjects(const Json& calls, const std::string& field,
                                             bool* changed) {
  if (!calls.is(Json::Type::kArray)) return WrongValue(field, calls, "a list of calls");
  std::vector<std::string> out;
  for (const JsonItem item : calls.Items()) {
    const Json& call = item.value();
    const std::optional<Json> function =
        call.is(Json::Type::kObject) ? call.Find("function") : std::nullopt;
    const std::optional<Json> name =
        function && function->is(Json::Type::kObject) ? function->Find("name") : std::nullopt;
    if (!name || !name->is(Json::Type::kString)) {
      return WrongField(absl::StrCat(field, "[", out.size(), "]"), "has no function with a name");
    }
    const std::optional<Json> arguments = function->Find("arguments");
    const std::string text = arguments ? arguments->String().value_or("") : "";
    const absl::StatusOr<Json> object = Json::Parse(text, "");
    if (object.ok() && object->is(Json::Type::kObject)) {
      *changed = true;
      out.push_back(Rewritten(call, {{"function", Rewritten(*function, {{"arguments", text}})}}));
    } else {
      out.emplace_back(call.text());
    }
  }
  return JsonList(out);
}

// One way in which templates may want messages.
struct Reading {
  bool objects, filled;  // arguments of calls are objects; a content that is null is ""
};
constexpr Reading kReadings[] = {{true, false}, {false, false}, {true, true}, {false, true}};

absl::StatusOr<std::vector<Message>> MessagesOf(absl::Span<const std::string> objects) {
  const absl::StatusOr<std::vector<Message>> out = MessagesOfJson(JsonList(objects), "messages");
  if (!out.ok()) return WrongField("messages", absl::StrCat("is wrong: ", out.status().message()));
  return out;
}

}  // namespace

absl::Status ReadMessages(const Json& json, ApiRequest* request) {
  if (!json.is(Json::Type::kArray)) return WrongValue("messages", json, "a list of messages");
  std::vector<std::string> all[std::size(kReadings)];
  bool texts = false, nulls = false;
  for (const JsonItem item : json.Items()) {
    const Json& message = item.value();
    const std::string field = absl::StrCat("messages[", all[0].size(), "]");
    if (!message.is(Json::Type::kObject)) return WrongValue(field, message, "an object");
    std::map<std::string, std::string> others;
    std::string objects;
    const std::optional<Json> content = message.Find("content"), calls = message.Find("tool_calls");
    const bool called = calls && !calls->is(Json::Type::kNull);
    const bool null = !content || content->is(Json::Type::kNull);
    if (null) {
      if (!called) return WrongField(field + ".content", "is missing");
      nulls = true;
    } else if (content->is(Json::Type::kArray)) {
      ASSIGN_OR_RETURN(const std::string text, TextOfParts(*content, field + ".content"));
      others["content"] = JsonString(text);
    } else if (!content->is(Json::Type::kString)) {
      return WrongValue(field + ".content", *content, "a text, or a list of parts of type text");
    }
    if (called) {
      ASSIGN_OR_RETURN(objects, CallsWithObjects(*calls, field + ".tool_calls", &texts));
    }
    for (size_t i = 0; i < std::size(kReadings); ++i) {
      std::map<std::string, std::string> own = others;
      if (called && kReadings[i].objects) own["tool_calls"] = objects;
      if (null && kReadings[i].filled) own["content"] = "\"\"";
      all[i].push_back(Rewritten(message, own));
    }
  }
  if (all[0].empty()) return WrongField("messages", "has no message");
  ASSIGN_OR_RETURN(request->messages, MessagesOf(all[0]));
  for (size_t i = 1; i < std::size(kReadings); ++i) {
    if ((!kReadings[i].objects && !texts) || (kReadings[i].filled && !nulls)) continue;
    ASSIGN_OR_RETURN(request->other_readings.emplace_back(), MessagesOf(all[i]));
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
