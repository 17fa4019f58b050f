// Answers that have to be calls of tools.
#include <algorithm>

#include "examples/llm/api_fields.h"
#include "examples/llm/grammar_matcher.h"
#include "tests/llm/api_fixture.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

constexpr char kTools[] = R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"x": {"$ref": "#/$defs/digit"}}, "required": ["x"],
        "$defs": {"digit": {"enum": [1, 2]}}}}},
    {"type": "function", "function": {"name": "g\"", "parameters": {"type": "object",
        "properties": {"y": {"type": "boolean"}}, "required": ["y"]}}},
    {"type": "function", "function": {"name": "any"}}])";

bool Fits(const ToolChoice& choice, const std::string& text, const ThoughtMarks* thoughts = nullptr,
          bool open = false) {
  const auto grammar = GrammarOfCalls(kTools, choice, thoughts, open);
  EXPECT_OK(grammar.status());
  if (!grammar.ok()) return false;
  GrammarMatcher matcher(*grammar);
  return matcher.Push(text) && matcher.CanEnd();
}

constexpr char kF[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 2}}\n</tool_call>",
               kG[] = R"(<tool_call>
{"name": "g\"", "arguments": {"y": true}}
</tool_call>)";

TEST(ApiTools, CallsFitTheirSchemas) {
  const ToolChoice any = {.required = true};
  EXPECT_TRUE(Fits(any, kF));
  EXPECT_TRUE(Fits(any, kG));
  EXPECT_TRUE(Fits(any, std::string(kF) + "\n" + kG));
  EXPECT_TRUE(
      Fits(any, "<tool_call>\n{\"name\": \"any\", \"arguments\": {\"z\": [1]}}\n</tool_call>"));
  for (const std::string wrong :
       {"", "Well. ", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 3}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"y\": true}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>"}) {
    EXPECT_FALSE(Fits(any, wrong)) << wrong;
  }
  const ToolChoice named = {.required = true, .name = "f"}, one = {.required = true, .one = true};
  EXPECT_TRUE(Fits(named, kF));
  EXPECT_FALSE(Fits(named, kG));
  EXPECT_FALSE(Fits(named, std::string(kF) + "\n" + kF));
  EXPECT_TRUE(Fits(one, kG));
  EXPECT_FALSE(Fits(one, std::string(kF) + "\n" + kG));
}

TEST(ApiTools, AThoughtMayComeFirst) {
  const ToolChoice any = {.required = true};
  for (const char* template_text : {"</think>", "[/THINK]", "</seed:think>"}) {
    const ThoughtMarks* marks = ThoughtMarksOf(template_text);
    const std::string end(marks->end), begin(marks->begin), part = end.substr(0, end.size() - 1);
    for (const std::string& thought :
         {std::string(), std::string("\nhm, "), part + part, "a" + end.substr(0, 2) + " b" + part,
          end.substr(0, 1) + end.substr(0, 1) + "x"}) {
      EXPECT_TRUE(Fits(any, begin + thought + end + "\n\n" + kF, marks)) << thought;
      EXPECT_TRUE(Fits(any, thought + end + kF, marks, true)) << thought;
      EXPECT_FALSE(Fits(any, thought + end + "a" + end + kF, marks, true)) << thought;
      EXPECT_FALSE(Fits(any, begin + thought + kF, marks)) << thought;
    }
    EXPECT_TRUE(Fits(any, kF, marks));
    EXPECT_FALSE(Fits(any, kF, marks, true));
  }
}

constexpr char kTemplate[] =
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}{{ m.content }}{% endfor %}";

TEST(ApiTools, AnswersAreCalls) {
  const auto f = Sayer("ab", kTemplate);
  const std::string begin = R"({"messages": [{"role": "user", "content": "a"}], "tools": )",
                    body = begin + kTools, few = begin + R"([{"type": "function", "function": {
                        "name": "g", "parameters": {"enum": [{"y": 1}]}}}])";
  const std::pair<std::string, const char*> rows[] = {
      {few + R"(, "tool_choice": "required", "parallel_tool_calls": false})", "g"},
      {body + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}}})", "f"}};
  for (const auto& [request, name] : rows) {
    ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(request, true));
    const json& told = whole["choices"][0];
    EXPECT_EQ(told["finish_reason"], "tool_calls");
    EXPECT_EQ(told["message"]["content"], json());
    ASSERT_EQ(told["message"]["tool_calls"].size(), 1u);
    const json function = told["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], name);
    EXPECT_TRUE(json::parse(std::string(function["arguments"])).is_object());
  }
  const auto why = [&](const std::string& fields) {
    const absl::Status status = f->service.Take(body + fields + "}", true).status();
    return json::parse(ErrorJson(status, 400))["error"];
  };
  EXPECT_EQ(why(R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})")["param"],
            "tool_choice");
  const json wrong = json::parse(ErrorJson(
      f->service
          .Take(R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required",
                    "tools": [{"type": "function", "function": {"name": "f", "parameters":
                        {"type": "what"}}}]})",
                true)
          .status(),
      400))["error"];
  EXPECT_EQ(wrong["param"], "tools[0].function.parameters");
}

TEST(ApiTools, NoMoreThanOneCall) {
  const auto f = Sayer(R"(<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)", kTemplate);
  const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2,
                               "tools": )" +
                           std::string(kTools);
  ASSERT_OK_AND_ASSIGN(const json two, f->AskWhole(body + "}", true));
  EXPECT_EQ(two["choices"][0]["message"]["tool_calls"].size(), 2u);
  ASSERT_OK_AND_ASSIGN(const json one,
                       f->AskWhole(body + R"(, "parallel_tool_calls": false})", true));
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
}

}  // namespace
}  // namespace tessera::llm
