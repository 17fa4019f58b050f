// Requests and answers of the OpenAI API as JSON.
#include "examples/llm/api.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ApiRequest> Completion(const std::string& fields) {
  return ParseApiRequest(R"({"prompt": "a")" + fields + "}", false, {});
}
absl::StatusOr<ApiRequest> Chat(const std::string& messages, const std::string& fields = "") {
  return ParseApiRequest(R"({"messages": )" + messages + fields + "}", true, {});
}

TEST(Api, FieldsAreRead) {
  ASSERT_OK_AND_ASSIGN(
      const ApiRequest r,
      Completion(R"(, "model": "any", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25,
                    "top_k": 9, "min_p": 0.125, "repeat_penalty": 1.5, "seed": -3, "n": 3,
                    "stop": ["x", "y"], "stream": true, "stream_options": {"include_usage": true},
                    "user": "me", "logit_bias": {"7": -100, "9": 1.5}, "presence_penalty": 0.5,
                    "frequency_penalty": -2, "typical_p": 0.75, "repeat_last_n": -1,
                    "logprobs": null,
                    "response_format": {"type": "text"}, "what": [{"is": "new"}])"));
  ASSERT_EQ(r.prompts.size(), 1u);
  EXPECT_EQ(r.prompts[0].text, "a");
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.sampler.temperature, 0.5);
  EXPECT_EQ(r.sampler.top_p, 0.25);
  EXPECT_EQ(r.sampler.top_k, 9);
  EXPECT_EQ(r.sampler.min_p, 0.125);
  EXPECT_EQ(r.sampler.repeat_penalty, 1.5);
  EXPECT_EQ(r.sampler.presence_penalty, 0.5);
  EXPECT_EQ(r.sampler.frequency_penalty, -2);
  EXPECT_EQ(r.sampler.typical_p, 0.75);
  EXPECT_EQ(r.sampler.repeat_last, -1);
  EXPECT_THAT(r.sampler.biases, ElementsAre(std::pair(7, -100.0), std::pair(9, 1.5)));
  EXPECT_EQ(r.sampler.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(r.copies, 3);
  EXPECT_THAT(r.stops, ElementsAre("x", "y"));
  EXPECT_TRUE(r.stream);
  EXPECT_TRUE(r.include_usage);
}

TEST(Api, DefaultsAreOfTheCommandLine) {
  ApiDefaults defaults;
  defaults.sampler.temperature = 0.75;
  defaults.sampler.seed = 5;
  defaults.stops = {"end"};
  const std::string body = R"({"prompt": "a", "temperature": null})";
  ASSERT_OK_AND_ASSIGN(ApiRequest r, ParseApiRequest(body, false, defaults));
  EXPECT_EQ(r.sampler.temperature, 0.75);
  EXPECT_EQ(r.sampler.seed, 5u);
  EXPECT_THAT(r.stops, ElementsAre("end"));
  EXPECT_EQ(r.max_tokens, 16) << "OpenAI's";
  defaults.max_tokens = 99;
  ASSERT_OK_AND_ASSIGN(r, ParseApiRequest(body, false, defaults));
  EXPECT_EQ(r.max_tokens, 99);
  ASSERT_OK_AND_ASSIGN(r, Chat(R"([{"role": "user", "content": "a"}])"));
  EXPECT_EQ(r.max_tokens, -1);
  ASSERT_OK_AND_ASSIGN(r, Chat(R"([{"role": "user", "content": "a"}])",
                               R"(, "max_completion_tokens": 4, "max_tokens": 3)"));
  EXPECT_EQ(r.max_tokens, 4);
}

TEST(Api, TextsWithoutASeedDiffer) {
  ASSERT_OK_AND_ASSIGN(const ApiRequest a, Completion(""));
  ASSERT_OK_AND_ASSIGN(const ApiRequest b, Completion(""));
  ASSERT_OK_AND_ASSIGN(const ApiRequest zero, Completion(R"(, "seed": 0)"));
  EXPECT_NE(a.sampler.seed, b.sampler.seed);
  EXPECT_EQ(zero.sampler.seed, 0u);
}

TEST(Api, PromptsOfEachForm) {
  const auto prompts = [](const std::string& prompt) {
    const auto r = ParseApiRequest(R"({"prompt": )" + prompt + "}", false, {});
    EXPECT_OK(r.status());
    std::vector<std::string> out;
    for (const ApiRequest::Prompt& p : r->prompts) {
      out.push_back(p.tokens ? "#" + absl::StrJoin(*p.tokens, ",") : p.text);
    }
    return out;
  };
  EXPECT_THAT(prompts(R"("a")"), ElementsAre("a"));
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre("a", "b"));
  EXPECT_THAT(prompts("[3, 4]"), ElementsAre("#3,4"));
  EXPECT_THAT(prompts("[[3, 4], [5]]"), ElementsAre("#3,4", "#5"));
  EXPECT_THAT(prompts("[]"), ElementsAre("#"));
}

TEST(Api, WhatIsWrongIsNamed) {
  struct Row {
    const char *fields, *error, *param;
  };
  const Row rows[] = {
      {R"("temperature": -1)", "temperature is -1; it is a number from 0", "temperature"},
      {R"("temperature": "hot")", "temperature is \"hot\"; it is a number", "temperature"},
      {R"("temperature": 1e999)", "temperature is 1e999; it is a number", "temperature"},
      {R"("top_p": 0)", "top_p is 0; it is above 0", "top_p"},
      {R"("top_p": 1.5)", "top_p is 1.5; it is above 0", "top_p"},
      {R"("min_p": 2)", "min_p is 2", "min_p"},
      {R"("repeat_penalty": 0)", "repeat_penalty is 0", "repeat_penalty"},
      {R"("top_k": -2)", "top_k is -2; it is a whole number from -1", "top_k"},
      {R"("n": 0)", "n is 0; it is a whole number from 1 to 32", "n"},
      {R"("n": -1)", "n is -1", "n"},
      {R"("n": 1.5)", "n is 1.5", "n"},
      {R"("n": 100000000000000000000)", "n is 1000", "n"},
      {R"("max_tokens": 0)", "max_tokens is 0", "max_tokens"},
      {R"("max_tokens": "9")", "max_tokens is \"9\"", "max_tokens"},
      {R"("seed": 1.5)", "seed is 1.5; it is a whole number of 64 bits", "seed"},
      {R"("seed": 18446744073709551616)", "seed is 1844", "seed"},
      {R"("seed": "x")", "seed is \"x\"", "seed"},
      {R"("stop": "")", "stop is \"\"; it is a text", "stop"},
      {R"("stop": ["a", 1])", "stop is [\"a\", 1]; it is a text", "stop"},
      {R"("stream": 1)", "stream is 1; it is true or false", "stream"},
      {R"("stream_options": [])", "stream_options is []; it is an object", "stream_options"},
      {R"("stream_options": {"include_usage": 0})", "include_usage is 0",
       "stream_options.include_usage"},
      {R"("logit_bias": [])", "logit_bias is []; it is an object", "logit_bias"},
      {R"("logit_bias": {"a": 1})", "logit_bias[\"a\"] is no id", "logit_bias[\"a\"]"},
      {R"("logit_bias": {"-1": 1})", "logit_bias[\"-1\"] is no id", "logit_bias[\"-1\"]"},
      {R"("logit_bias": {"5": 101})", "is 101; it is a number from -100", "logit_bias[\"5\"]"},
      {R"("logit_bias": {"5": true})", "is true; it is a number", "logit_bias[\"5\"]"},
      {R"("presence_penalty": 2.5)", "is 2.5; it is from -2 to 2", "presence_penalty"},
      {R"("frequency_penalty": -3)", "frequency_penalty is -3", "frequency_penalty"},
      {R"("frequency_penalty": {})", "frequency_penalty is {}", "frequency_penalty"},
      {R"("typical_p": 0)", "typical_p is 0; it is above 0", "typical_p"},
      {R"("repeat_last_n": -2)", "repeat_last_n is -2", "repeat_last_n"},
      {R"("logprobs": 6)", "logprobs is 6; it is a whole number from 0 to 5", "logprobs"},
      {R"("logprobs": true)", "logprobs is true; it is a whole number", "logprobs"},
      {R"("top_logprobs": 21)", "top_logprobs is 21; it is", "top_logprobs"},
      {R"("echo": true)", "echo is not supported", "echo"},
      {R"("reasoning_effort": "low")", "reasoning_effort is not supported", "reasoning_effort"},
      {R"("guided_json": {"type": "object"})", "guided_json is not supported", "guided_json"},
      {R"("stop_token_ids": [1])", "stop_token_ids is not supported", "stop_token_ids"},
      {R"("add_generation_prompt": false)", "is not supported", "add_generation_prompt"},
      {R"("max_tokens": 8.5)", "max_tokens is 8.5; it is a whole number", "max_tokens"},
      {R"("best_of": 2)", "best_of is not supported", "best_of"},
      {R"("grammar": "root ::= x")", "grammar is wrong", "grammar"},
      {R"("grammar": 5)", "grammar is 5; it is a text", "grammar"},
      {R"("grammar": "root ::= \"x\"", "json_schema": {})", "another form", "json_schema"},
      {R"("response_format": {"type": "json_schema"})", "is missing",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}})",
       "is wrong", "response_format.json_schema.schema"},
      {R"("response_format": "text")", "response_format has", "response_format"},
      {R"("tool_choice": "maybe")", "tool_choice is \"maybe\"; it is \"none\"", "tool_choice"},
      {R"("tool_choice": {"type": "function"})", "it is \"none\"", "tool_choice"},
      {R"("parallel_tool_calls": 1)", "is 1; it is true or false", "parallel_tool_calls"},
      {R"("n": 1, "n": 1)", "the key 'n' is there twice", ""}};
  for (const auto& [fields, error, param] : rows) {
    const absl::Status status = Completion(std::string(", ") + fields).status();
    EXPECT_EQ(HttpStatusOf(status), 400) << fields;
    const json told = json::parse(ErrorJson(status, 400))["error"];
    EXPECT_THAT(std::string(told["message"]), HasSubstr(error)) << fields;
    EXPECT_EQ(told["param"], param[0] == '\0' ? json() : json(param)) << fields;
    EXPECT_EQ(told["type"], "invalid_request_error");
  }
}

TEST(Api, LikelihoodsAreAskedForInTwoForms) {
  const auto likeliest = [](const absl::StatusOr<ApiRequest>& r) {
    EXPECT_OK(r.status());
    return r.ok() ? r->likeliest : -2;
  };
  EXPECT_EQ(likeliest(Completion("")), -1);
  EXPECT_EQ(likeliest(Completion(R"(, "logprobs": 0)")), 0);
  EXPECT_EQ(likeliest(Completion(R"(, "logprobs": 5)")), 5);
  const std::string message = R"([{"role": "user", "content": "a"}])";
  EXPECT_EQ(likeliest(Chat(message, R"(, "logprobs": false)")), -1);
  EXPECT_EQ(likeliest(Chat(message, R"(, "logprobs": true)")), 0);
  EXPECT_EQ(likeliest(Chat(message, R"(, "top_logprobs": 20, "logprobs": true)")), 20);
  EXPECT_THAT(Chat(message, R"(, "top_logprobs": 2)"),
              StatusIs(absl::StatusCode::kInvalidArgument, "top_logprobs goes with logprobs"));
  EXPECT_THAT(Chat(message, R"(, "logprobs": 1)"),
              StatusIs(absl::StatusCode::kInvalidArgument, "logprobs is 1; it is true or false"));
}

TEST(Api, BodiesThatAreNone) {
  const std::pair<std::string, const char*> rows[] = {
      {"", "the body: byte 0"},
      {"{", "the body: byte 1"},
      {"[]", "no JSON object"},
      {"7", "no JSON object"},
      {R"({"prompt": NaN})", "the body: byte 11"},
      {"{\"prompt\": \"\xFF\"}", "not UTF-8"},
      {R"({"prompt": "\ud800"})", "half of a surrogate pair"},
      {R"({"prompt": )" + std::string(100000, '['), "nested deeper"},
      {"{}", "prompt is missing"},
      {R"({"prompt": null})", "prompt is missing"},
      {R"({"prompt": 3})", "prompt is 3"},
      {R"({"prompt": [1, "a"]})", "no list of tokens"},
      {R"({"prompt": ["a", 1]})", "no list of tokens"},
      {R"({"prompt": [-1]})", "no list of tokens"},
      {R"({"prompt": ["a", "b"], "n": 17})", "more than 32 texts"}};
  for (const auto& [body, error] : rows) {
    EXPECT_THAT(ParseApiRequest(body, false, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, error));
  }
}

TEST(Api, MessagesOfPartsAreTexts) {
  ASSERT_OK_AND_ASSIGN(const ApiRequest r, Chat(R"([
      {"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a\""}, {"type": "text", "text": "b"}]}])"));
  ASSERT_EQ(r.messages.size(), 2u);
  EXPECT_EQ(r.messages[0].content, "s");
  EXPECT_EQ(r.messages[1].content, "a\"\nb");
  EXPECT_EQ(r.messages[1].whole, "");
  EXPECT_TRUE(r.other_readings.empty());
}

TEST(Api, ArgumentsOfCallsAreObjects) {
  ASSERT_OK_AND_ASSIGN(const ApiRequest r, Chat(R"([
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
          "function": {"name": "f", "arguments": "{\"x\": [1]}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "2"}])"));
  const json whole = json::parse(r.messages[0].whole);
  ASSERT_EQ(r.other_readings.size(), 3u);
  const json told = json::parse(r.other_readings[0][0].whole);
  EXPECT_EQ(whole["tool_calls"][0]["function"]["arguments"], json::parse(R"({"x": [1]})"));
  EXPECT_EQ(whole["tool_calls"][0]["id"], "c");
  EXPECT_EQ(told["tool_calls"][0]["function"]["arguments"], "{\"x\": [1]}");
  EXPECT_EQ(json::parse(r.messages[1].whole)["tool_call_id"], "c");
  // A content that is null, and then as an empty text in either.
  EXPECT_TRUE(told["content"].is_null());
  json filled = whole;
  filled["content"] = "";
  EXPECT_EQ(json::parse(r.other_readings[1][0].whole), filled);
}

TEST(Api, MessagesThatAreNone) {
  const std::pair<const char*, const char*> rows[] = {
      {"null", "messages is missing"},
      {"[]", "messages has no message"},
      {"{}", "messages is {}; it is a list"},
      {R"("hi")", "messages is \"hi\""},
      {"[1]", "messages[0] is 1; it is an object"},
      {R"([{"content": "a"}])", "'role' of letters"},
      {R"([{"role": 1, "content": "a"}])", "'role' of letters"},
      {R"([{"role": "user"}])", "messages[0].content is missing"},
      {R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": null}])",
       "messages[1].content is missing"},
      {R"([{"role": "user", "content": 1}])", "messages[0].content is 1"},
      {R"([{"role": "user", "content": [1]}])", "messages[0].content[0] has a type"},
      {R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[0].content[0] has a type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "content[0] has no text"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "tool_calls is {}"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])", "tool_calls[0] has no"}};
  for (const auto& [messages, error] : rows) {
    EXPECT_THAT(Chat(messages), StatusIs(absl::StatusCode::kInvalidArgument, error)) << messages;
  }
}

TEST(Api, Tools) {
  const std::string message = R"([{"role": "user", "content": "a"}])";
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const auto read = [&](const std::string& fields) {
    const absl::StatusOr<ApiRequest> r = Chat(message, ", " + fields);
    return r.ok() ? r->tools : std::string(r.status().message());
  };
  EXPECT_EQ(read(R"("tools": )" + tools), tools);
  EXPECT_EQ(read(R"("tool_choice": "auto", "tools": )" + tools), tools);
  EXPECT_EQ(read(R"("tool_choice": "none", "tools": )" + tools), "");
  EXPECT_EQ(read(R"("tools": [])"), "");
  EXPECT_EQ(read(R"("tool_choice": "required", "tools": )" + tools), tools);
  EXPECT_THAT(read(R"("tool_choice": "required")"), HasSubstr("and there are no tools"));
  EXPECT_THAT(read(R"("tool_choice": "required", "json_schema": {}, "tools": )" + tools),
              HasSubstr("another field for another form"));
  EXPECT_THAT(read(R"("tools": [{"type": "function"}])"), HasSubstr("tools[0] is no {\"type\""));
  EXPECT_THAT(read(R"("tools": [{"type": "web", "function": {"name": "f"}}])"),
              HasSubstr("tools[0] is no"));
  EXPECT_THAT(read(R"("tools": {})"), HasSubstr("tools is {}"));
  EXPECT_THAT(read(R"("functions": [{"name": "f"}])"), HasSubstr("functions is not supported"));
}

// What is shown of a text that comes in such pieces, and the calls at its end.
std::pair<std::string, std::string> Calls(const std::string& text, size_t piece) {
  ToolCallReader reader;
  std::string shown;
  for (size_t i = 0; i < text.size(); i += piece) shown += reader.Push(text.substr(i, piece));
  const ToolCallReader::Rest rest = reader.Finish();
  std::string calls;
  for (const ToolCall& c : rest.calls) calls += c.name + c.arguments + ";";
  return {shown + rest.text, calls};
}

TEST(Api, CallsInATextAreRead) {
  const std::string call = R"(<tool_call>
{"name": "f", "arguments": {"x": "</b>"}}
</tool_call>)";
  const std::tuple<std::string, const char*, const char*> rows[] = {
      {call, "", R"(f{"x": "</b>"};)"},
      {"I call.\n\n" + call + "\n" + call + "\n", "I call.", R"(f{"x": "</b>"};f{"x": "</b>"};)"},
      {R"(<tool_call>{"name": "g"}</tool_call>)", "", "g{};"},
      {R"(<tool_call>{"name": "g", "arguments": "{}"}</tool_call>)", "", "g{};"},
      {R"(<tool_call>{"name": "g", "arguments": {"x": "</tool_call>"}}</tool_call>)", "",
       R"(g{"x": "</tool_call>"};)"},
      {R"(<tool_call>{"name": "g"}</tool_call> <tool_call>{"na)", R"(<tool_call>{"na)", "g{};"}};
  for (const auto& [text, shown, calls] : rows) {
    for (const size_t piece : {1, 3, 7, 1000}) {
      EXPECT_EQ(Calls(text, piece), std::pair(std::string(shown), std::string(calls)));
    }
  }
}

TEST(Api, WhatIsNoCallStaysText) {
  for (const char* text :
       {"a < b <tool", "a \n", "<tool_call>", "<tool_call>{\"name\": \"f\"}",
        "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"x\": 1}</tool_call>",
        "<tool_call>nothing</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call> and so on",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "</tool_call>"}) {
    for (const size_t piece : {1, 5, 1000}) {
      EXPECT_EQ(Calls(text, piece), std::pair(std::string(text), std::string()));
    }
  }
}

TEST(Api, AnswersAreJson) {
  const AnswerHead chat = {.chat = true, .id = "i", .model = "m\"", .created = 5};
  Choice choice;
  choice.index = 1;
  choice.text = "a\n";
  choice.finish = "stop";
  json j = json::parse(AnswerJson(chat, {choice}, {.prompt = 2, .completion = 3}));
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["model"], "m\"");
  EXPECT_EQ(j["created"], 5);
  EXPECT_EQ(j["choices"][0], json::parse(R"({"index": 1, "logprobs": null, "finish_reason": "stop",
      "message": {"role": "assistant", "content": "a\n"}})"));
  EXPECT_EQ(j["usage"]["total_tokens"], 5);
  choice.text.clear();
  choice.thought = "hm";
  choice.calls = {{"c", "f", "{\"x\":1}"}};
  j = json::parse(AnswerJson(chat, {choice}, {}));
  EXPECT_EQ(j["choices"][0]["message"], json::parse(R"({"role": "assistant", "content": null,
      "reasoning_content": "hm", "tool_calls": [{"id": "c", "type": "function",
      "function": {"name": "f", "arguments": "{\"x\":1}"}}]})"));
  j = json::parse(AnswerPartJson(chat, choice, false));
  EXPECT_EQ(j["object"], "chat.completion.chunk");
  EXPECT_EQ(j["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
  EXPECT_FALSE(j["choices"][0]["delta"].contains("content"));
  EXPECT_FALSE(j.contains("usage"));
  AnswerHead text = chat;
  text.chat = false;
  text.include_usage = true;
  j = json::parse(AnswerPartJson(text, {.index = 0, .text = "b"}, false));
  EXPECT_EQ(j["object"], "text_completion");
  EXPECT_EQ(j["choices"][0]["text"], "b");
  EXPECT_EQ(j["choices"][0]["finish_reason"], json());
  EXPECT_EQ(j["usage"], json());
  EXPECT_EQ(json::parse(UsagePartJson(text, {1, 2}))["choices"], json::array());
}

}  // namespace
}  // namespace tessera::llm
