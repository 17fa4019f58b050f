// The API answered by small models, without HTTP.
#include <thread>

#include "tests/llm/api_fixture.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}"
    "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
    "({{ c.function.arguments.x }}){% endfor %}\n{% endfor %}";

TEST(ApiService, TellsTheStory) {
  const auto f = Story();
  const std::string prompt = R"({"prompt": "Once upon a time", "max_tokens": 100)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(prompt + "}"));
  const std::string text = whole["choices"][0]["text"];
  EXPECT_EQ(ReadFile(kStoryText).find("Once upon a time" + text), 0u) << text;
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["model"], "story");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 100);
  EXPECT_EQ(whole["usage"]["total_tokens"], 105);
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);

  ASSERT_OK_AND_ASSIGN(
      const std::vector<json> parts,
      f->Ask(prompt + R"(, "stream": true, "stream_options": {"include_usage": true}})"));
  std::string joined;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    joined += parts[i]["choices"][0]["text"];
    EXPECT_EQ(parts[i]["choices"][0]["finish_reason"].is_null(), i + 2 < parts.size());
    EXPECT_EQ(parts[i]["id"], parts[0]["id"]);
  }
  EXPECT_EQ(joined, text);
  EXPECT_GE(parts.size(), 3u);
  EXPECT_EQ(parts.back()["usage"]["total_tokens"], 105);
  EXPECT_EQ(parts.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 4)
      << "all but what says the first token";
}

TEST(ApiService, TextsKeepToWhatIsAskedOfThem) {
  const auto f = Story();
  const std::string begin =
      R"({"prompt": "Once upon a time", "max_tokens": 200, "temperature": 1, )";
  const auto said = [&](const std::string& fields) -> std::string {
    const absl::StatusOr<json> whole = f->AskWhole(begin + fields + "}");
    EXPECT_OK(whole.status());
    if (!whole.ok()) return "";
    EXPECT_EQ((*whole)["choices"][0]["finish_reason"], "stop");
    return (*whole)["choices"][0]["text"];
  };
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]})";
  for (const std::string& fields :
       {R"("response_format": {"type": "json_schema", "json_schema": {"schema": )" + schema + "}}",
        R"("json_schema": )" + schema}) {
    const json value = json::parse(said(fields), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(value.is_object() && (value["a"] == 1 || value["a"] == 2)) << value;
  }
  EXPECT_EQ(said(R"("grammar": "root ::= \"xyz\"")"), "xyz");
}

TEST(ApiService, BiasesAndPenaltiesChangeTheText) {
  const auto f = Story();
  const auto said = [&](const std::string& fields) -> std::string {
    const auto whole = f->AskWhole(R"({"prompt": "Once upon a time", "max_tokens": 60)" + fields);
    EXPECT_OK(whole.status());
    return whole.ok() ? (*whole)["choices"][0]["text"] : json();
  };
  const std::string plain = said("}");
  EXPECT_THAT(plain, HasSubstr("Lily"));
  EXPECT_EQ(said(R"(, "logit_bias": {"403": 100}})"), [] {
    std::string once;
    for (int i = 0; i < 60; ++i) once += " Once";
    return once;
  }());
  EXPECT_NE(said(R"(, "frequency_penalty": 2})"), plain);
  EXPECT_NE(said(R"(, "presence_penalty": 2})"), plain);
}

TEST(ApiService, StopTextsEndIt) {
  const auto f = Story();
  ASSERT_OK_AND_ASSIGN(const json whole,
                       f->AskWhole(R"({"prompt": "Once upon a time", "stop": " She loved",
                                       "max_tokens": 100})"));
  EXPECT_EQ(whole["choices"][0]["text"], ", there was a little girl named Lily.");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
}

TEST(ApiService, SeveralTextsOfSeveralPrompts) {
  const auto f = Story();
  const std::string body =
      R"({"prompt": ["Once upon a time", [1, 403]], "n": 2, "max_tokens": 20, "temperature": 1,
          "seed": 3)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}"));
  ASSERT_EQ(whole["choices"].size(), 4u);
  EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]) << "each draws its own";
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 7);
  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts, f->Ask(body + R"(, "stream": true})"));
  std::vector<std::string> texts(4);
  int finished = 0;
  for (const json& part : parts) {
    const json& choice = part["choices"][0];
    texts.at(choice["index"]) += choice["text"];
    finished += !choice["finish_reason"].is_null();
  }
  EXPECT_EQ(finished, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(json(texts[i]), whole["choices"][i]["text"]);
}

TEST(ApiService, AnswersAChat) {
  const auto f = Sayer("ab", kTemplate);
  const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}", true));
  EXPECT_EQ(whole["choices"][0]["message"],
            json::parse(R"({"role": "assistant", "content": "ababab"})"));
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 7);  // a space, and "user:a"
  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts, f->Ask(body + R"(, "stream": true})", true));
  std::string text;
  for (const json& part : parts) text += part["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, "ababab");
  EXPECT_EQ(parts.front()["choices"][0]["delta"],
            json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(parts.back()["choices"][0]["delta"], json::object());
}

TEST(ApiService, CallsOfToolsAreTold) {
  const auto f = Sayer(R"(<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)", kTemplate);
  const std::string
      body =
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls":
          [{"function": {"name": "f", "arguments": "{\"x\": 7}"}}]}], "max_tokens": 2)",
      tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + tools + "}", true));
  const json& choice = whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], json());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(choice["message"]["tool_calls"][1]["function"],
            json::parse(R"({"name": "f", "arguments": "{\"x\":1}"})"));
  EXPECT_NE(choice["message"]["tool_calls"][0]["id"], choice["message"]["tool_calls"][1]["id"]);
  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts,
                       f->Ask(body + tools + R"(, "stream": true})", true));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1]["choices"][0]["delta"]["tool_calls"].size(), 2u);
  EXPECT_EQ(parts[1]["choices"][0]["finish_reason"], "tool_calls");
  ASSERT_OK_AND_ASSIGN(const json without, f->AskWhole(body + "}", true));
  EXPECT_EQ(without["choices"][0]["finish_reason"], "length");
  EXPECT_THAT(std::string(without["choices"][0]["message"]["content"]), HasSubstr("tool_call"));
  // "[f]" of the tools, and in both the call's argument, which is no text to the template
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3 + int{without["usage"]["prompt_tokens"]});
}

// Templates that add arguments to texts want texts.
TEST(ApiService, ArgumentsAsTheyCameWhereATemplateWantsThat) {
  const auto f = Sayer("ab",
                       "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] "
                       "%}{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}");
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(R"({"messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "tool_calls":
      [{"function": {"name": "f", "arguments": "{\"x\":7}"}}]}], "max_tokens": 1})",
                                                     true));
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 11);  // a space, and a({"x":7})
}

// Beside calls a content may be null or left out: some templates ask whether it is, to others it
// has to be a text, and to none it is "None".
TEST(ApiService, ContentsThatAreNull) {
  const auto tokens = [](const std::string& shown, const std::string& content) {
    const auto f = Sayer("ab", "{% for m in messages %}" + shown + "{% endfor %}");
    const absl::StatusOr<json> whole = f->AskWhole(
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )" + content +
            R"("tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}], "max_tokens": 1})",
        true);
    EXPECT_OK(whole.status());
    return whole.ok() ? int{(*whole)["usage"]["prompt_tokens"]} - 1 : -1;  // without a space
  };
  for (const char* content : {R"("content": null, )", ""}) {
    EXPECT_EQ(tokens("{{ '<' + m.content + '>' }}", content), 5) << "<a><>";
    EXPECT_EQ(tokens("{{ m.content }}", content), 1) << "a";
    EXPECT_EQ(tokens("{{ m.content | trim ~ '.' }}", content), 3) << "a..";
  }
  EXPECT_EQ(tokens("{{ 'null' if m.content is none else m.content }}", R"("content": null, )"), 5);
}

TEST(ApiService, WhatCannotBeAnswered) {
  const auto story = Story();
  const auto why = [](ApiFixture& f, const std::string& body, bool chat) {
    const absl::Status status = f.service.Take(body, chat).status();
    EXPECT_EQ(HttpStatusOf(status), 400) << body;
    return json::parse(ErrorJson(status, 400))["error"];
  };
  const json long_one = why(
      *story,
      R"({"prompt": [)" +
          [] {
            std::string ids = "1";
            for (int i = 0; i < 512; ++i) ids += ",5";
            return ids;
          }() +
          "]}",
      false);
  EXPECT_THAT(std::string(long_one["message"]), HasSubstr("513 tokens"));
  EXPECT_EQ(long_one["code"], "context_length_exceeded");
  EXPECT_EQ(long_one["param"], "prompt");
  EXPECT_THAT(std::string(why(*story, R"({"prompt": [512]})", false)["message"]),
              HasSubstr("token 512, and the model has 512"));
  EXPECT_THAT(std::string(why(*story, R"({"prompt": []})", false)["message"]),
              HasSubstr("no token to begin with"));
  EXPECT_EQ(why(*story, R"({"prompt": "a", "logit_bias": {"512": 1}})", false)["param"],
            "logit_bias");
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_THAT(std::string(why(*story, chat, true)["message"]), HasSubstr("no chat template"));
  const auto strict = Sayer("ab",
                            "{% if messages|length > 1 %}{{ raise_exception('one') }}"
                            "{% endif %}{{ messages[0].content }}");
  EXPECT_THAT(std::string(why(*strict, R"({"messages": [{"role": "user", "content": "a"},
                                           {"role": "user", "content": "b"}]})",
                              true)["message"]),
              HasSubstr("the template says: one"));
  EXPECT_THAT(std::string(why(*strict, R"({"messages": [{"role": "user", "content": "a"}],
                  "tools": [{"type": "function", "function": {"name": "f"}}]})",
                              true)["message"]),
              HasSubstr("writes no tools"));
  EXPECT_OK(strict->Ask(chat, true).status()) << "and it goes on";
}

TEST(ApiService, TooManyThatWait) {
  const auto f = Story();
  std::vector<std::shared_ptr<const ApiService::Job>> jobs;
  const std::string body = R"({"prompt": "Once", "max_tokens": 1, "n": 9})";
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(jobs.emplace_back(), f->service.Take(body, false));
  }
  const absl::Status refused = f->service.Take(body, false).status();
  EXPECT_EQ(HttpStatusOf(refused), 503);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ask again later"));
  EXPECT_EQ(json::parse(ErrorJson(refused, 503))["error"]["type"], "server_error");
  jobs.pop_back();
  EXPECT_OK(f->Ask(body).status());
}

TEST(ApiService, NobodyListens) {
  const auto f = Story();
  for (const bool stream : {true, false}) {
    const std::string body = std::string(R"({"prompt": "Once", "max_tokens": 400, "n": 2,
                                             "stream": )") +
                             (stream ? "true}" : "false}");
    ASSERT_OK_AND_ASSIGN(const auto job, f->service.Take(body, false));
    int told = 0, asked = 0;
    const absl::Status status = f->service
                                    .Answer(
                                        *job, [&](const std::string&) { return ++told < 3; },
                                        [&] { return stream || ++asked < 3; })
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(told, stream ? 3 : 0);
    EXPECT_LT(asked, 10);
  }
  EXPECT_EQ(f->engine.load().running, 0);
}

TEST(ApiService, AnEndEndsIt) {
  const auto f = Story();
  ASSERT_OK_AND_ASSIGN(
      const auto job,
      f->service.Take(R"({"prompt": "Once", "max_tokens": 400, "stream": true})", false));
  int told = 0;
  const absl::Status status = f->service
                                  .Answer(
                                      *job,
                                      [&](const std::string&) {
                                        if (++told == 1) f->service.End();
                                        return true;
                                      },
                                      [] { return true; })
                                  .status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "the server ends"));
  EXPECT_LT(told, 5);
  EXPECT_THAT(f->service.Take(R"({"prompt": "Once"})", false),
              StatusIs(absl::StatusCode::kUnavailable, "the server ends"));
}

TEST(ApiService, TokensAndBack) {
  const auto f = Story();
  EXPECT_THAT(f->service.Tokenize(R"({"content": "Once upon a time"})"),
              IsOkAndHolds(R"({"tokens":[403,407,261,378]})"));
  EXPECT_THAT(f->service.Tokenize(R"({"content": "Once", "add_special": true})"),
              IsOkAndHolds(R"({"tokens":[1,403]})"));
  EXPECT_THAT(f->service.Detokenize(R"({"tokens": [403, 407]})"),
              IsOkAndHolds(R"({"content":" Once upon"})"));
  for (const char* body : {"{}", R"({"content": 1})", R"({"content": "a", "add_special": 1})",
                           R"({"content": "a", "with_pieces": true})"}) {
    EXPECT_EQ(f->service.Tokenize(body).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const char* body :
       {"{}", R"({"tokens": 1})", R"({"tokens": [512]})", R"({"tokens": [-1]})"}) {
    EXPECT_EQ(f->service.Detokenize(body).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ApiService, ThreadsAskAtOnce) {
  const auto f = Story();
  const std::string body = R"({"prompt": "Once upon a time", "max_tokens": 30)";
  ASSERT_OK_AND_ASSIGN(const json alone, f->AskWhole(body + "}"));
  std::vector<std::thread> threads;
  std::vector<std::string> texts(6);
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto parts = f->Ask(body + R"(, "stream": true})");
      ASSERT_OK(parts.status());
      for (const json& part : *parts) texts[i] += part["choices"][0]["text"];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(json(text), alone["choices"][0]["text"]);
  EXPECT_THAT(f->service.Metrics(), HasSubstr("tessera_llm_new_tokens_total 210\n"));
  EXPECT_THAT(f->service.Metrics(), HasSubstr("tessera_llm_texts_running 0\n"));
}

TEST(ApiService, CountsGuesses) {
  const std::string body = R"({"prompt": "the big dog and the big dog and the", "max_tokens": 40,
                               "temperature": 0, "logprobs": 1})";
  const auto plain = Story();
  ApiService::Options options;
  options.name = "story";
  options.guessing = {3, [](absl::Span<const int32_t> text, int64_t most) {
                        return text.size() % 2 == 0 ? LookUp(text, most) : std::vector<int32_t>{5};
                      }};
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  ApiFixture guessing(std::move(model), options);
  ASSERT_OK_AND_ASSIGN(const json want, plain->AskWhole(body));
  ASSERT_OK_AND_ASSIGN(const json got, guessing.AskWhole(body));
  EXPECT_EQ(got["choices"][0]["text"], want["choices"][0]["text"]);
  EXPECT_EQ(got["choices"][0]["logprobs"]["tokens"], want["choices"][0]["logprobs"]["tokens"]);
  EXPECT_EQ(got["usage"], want["usage"]);
  EXPECT_THAT(plain->service.Metrics(), HasSubstr("tessera_llm_guessed_tokens_total 0\n"));
  const std::string metrics = guessing.service.Metrics();
  EXPECT_THAT(metrics, Not(HasSubstr("tessera_llm_guessed_tokens_total 0\n")));
  EXPECT_THAT(metrics, HasSubstr("tessera_llm_kept_guesses_total "));
}

}  // namespace
}  // namespace tessera::llm
