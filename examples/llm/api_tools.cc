// Tools of requests: which may be called, and answers that have to be calls.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "examples/llm/api_fields.h"
#include "examples/llm/json_line.h"
#include "examples/llm/json_schema.h"
#include "examples/llm/json_schema_scalars.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// The name of {"type": "function", "function": {"name": ...}}.
std::optional<std::string> FunctionName(const Json& json) {
  if (!json.is(Json::Type::kObject)) return std::nullopt;
  const std::optional<Json> type = json.Find("type"), function = json.Find("function");
  if (!type || type->String() != "function" || !function) return std::nullopt;
  const std::optional<Json> name =
      function->is(Json::Type::kObject) ? function->Find("name") : std::nullopt;
  return name ? name->String() : std::nullopt;
}

}  // namespace

absl::Status ReadTools(const Json& json, std::string* to) {
  if (!json.is(Json::Type::kArray)) return WrongValue("tools", json, "a list of functions");
  int i = 0;
  for (const JsonItem item : json.Items()) {
    if (!FunctionName(item.value())) {
      return WrongField(absl::StrCat("tools[", i, "]"),
                        "is no {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    ++i;
  }
  if (i > 0) *to = std::string(json.text());
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const std::string& field, const Json& v, ToolChoice* to) {
  const std::string word = v.String().value_or("");
  const std::optional<std::string> name = FunctionName(v);
  to->none = word == "none";
  to->required = word == "required" || name;
  to->name = name.value_or("");
  if (to->none || to->required || word == "auto") return absl::OkStatus();
  return WrongValue(field, v,
                    "\"none\", \"auto\", \"required\", or {\"type\": \"function\", \"function\": "
                    "{\"name\": ...}}");
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarOfCalls(absl::string_view tools,
                                                              const ToolChoice& choice,
                                                              const ThoughtMarks* thoughts,
                                                              bool open) {
  std::string rules;
  std::vector<std::string> calls;
  int i = 0;
  ASSIGN_OR_RETURN(const Json list, Json::Parse(tools, "tools"));
  for (const JsonItem item : list.Items()) {
    const std::string at = absl::StrCat("tools[", i, "].function.parameters"),
                      rule = absl::StrCat("arguments", i);
    ++i;
    const std::string name = *FunctionName(item.value());
    if (!choice.name.empty() && name != choice.name) continue;
    const std::optional<Json> schema = item.value().Find("function")->Find("parameters");
    const bool any = !schema || schema->is(Json::Type::kNull);
    const absl::StatusOr<std::string> of =
        RulesOfJsonSchema(any ? "{}" : schema->text(), rule, "wrong");
    if (!of.ok()) return WrongField(at, absl::StrCat("is ", of.status().message()));
    rules += *of;
    calls.push_back(
        absl::StrCat(GrammarQuoted(JsonQuoted(name)), " \", \\\"arguments\\\": \" ", rule));
  }
  if (calls.empty()) {
    return WrongField("tool_choice", "names a function that tools do not have");
  }
  std::string before;
  if (thoughts != nullptr) {
    before = "thought \"\\n\"? \"\\n\"? ";
    if (!open) before = absl::StrCat("(", GrammarQuoted(thoughts->begin), " ", before, ")? ");
    absl::StrAppend(&rules, "thought ::= ", GrammarOfThought(*thoughts), "\n");
  }
  const bool one = choice.one || !choice.name.empty();
  return ParseGrammar(
      absl::StrCat("root ::= ", before, one ? "call\n" : "call (\"\\n\" call)*\n",
                   "call ::= \"<tool_call>\\n{\\\"name\\\": \" (", absl::StrJoin(calls, " | "),
                   ") \"}\\n</tool_call>\"\n", rules, kJsonRules),
      "tools");
}

}  // namespace tessera::llm
