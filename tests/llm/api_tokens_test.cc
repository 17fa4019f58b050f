// Tokens of answers with their log-probabilities, and thoughts beside answers.
#include <cmath>

#include "tests/llm/api_fixture.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

constexpr char kThinks[] =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{# </think> #}";

// "grammar" for one text.
std::string Only(const std::string& text) {
  return R"(, "grammar": )" + json("root ::= " + json(text).dump()).dump();
}

// All that streamed parts tell of the first choice, as if told at once.
json Joined(const std::vector<json>& parts, bool chat) {
  json out = {{"text", ""}, {"thought", ""}, {"logprobs", json()}};
  for (const json& part : parts) {
    const json& choice = part["choices"][0];
    const json& from = chat ? choice["delta"] : choice;
    out["text"] = std::string(out["text"]) + from.value(chat ? "content" : "text", "");
    out["thought"] = std::string(out["thought"]) + from.value("reasoning_content", "");
    if (choice["logprobs"].is_null()) continue;
    if (out["logprobs"].is_null()) {
      out["logprobs"] = choice["logprobs"];
      continue;
    }
    for (const auto& [key, list] : choice["logprobs"].items()) {
      if (!list.is_array()) continue;
      json& all = out["logprobs"][key];
      all.insert(all.end(), list.begin(), list.end());
    }
  }
  return out;
}

TEST(ApiTokens, LogProbabilitiesAreTheModels) {
  const auto f = Story();
  const std::string body = R"({"prompt": "Once upon a time", "max_tokens": 12, "logprobs": 2)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}"));
  const json logprobs = whole["choices"][0]["logprobs"];
  std::string text;
  Session session(f->model, {});
  std::vector<int32_t> next = f->model.tokenizer->Encode("Once upon a time", {});
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], text.size());
    const std::string token = logprobs["tokens"][i];
    text += token;
    const float* logits = session.Feed(next);
    next = {LikeliestOf({logits, 512})};
    EXPECT_EQ(f->model.tokenizer->Piece(next[0]), token);
    double sum = 0;
    for (int v = 0; v < 512; ++v) sum += std::exp(double{logits[v]});
    EXPECT_NEAR(logprobs["token_logprobs"][i], logits[next[0]] - std::log(sum), 1e-4);
    ASSERT_EQ(logprobs["top_logprobs"][i].size(), 2u);
    EXPECT_EQ(logprobs["top_logprobs"][i][token], logprobs["token_logprobs"][i]);
    for (const double other : logprobs["top_logprobs"][i]) {
      EXPECT_LE(other, logprobs["token_logprobs"][i]);
    }
  }
  EXPECT_EQ(json(text), whole["choices"][0]["text"]);

  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts, f->Ask(body + R"(, "stream": true})"));
  const json joined = Joined(parts, false)["logprobs"];
  EXPECT_EQ(joined["tokens"], logprobs["tokens"]);
  EXPECT_EQ(joined["text_offset"], logprobs["text_offset"]);
  for (const char* list : {"token_logprobs", "top_logprobs"}) EXPECT_EQ(joined[list].size(), 12u);
  EXPECT_EQ(parts.back()["choices"][0]["logprobs"], json());
  // What is drawn by another temperature among few has the same ones.
  ASSERT_OK_AND_ASSIGN(
      const json warm,
      f->AskWhole(body + R"(, "temperature": 5, "top_k": 1, "frequency_penalty": 0.01})"));
  EXPECT_EQ(warm["choices"][0]["logprobs"]["token_logprobs"][0], logprobs["token_logprobs"][0]);
  ASSERT_OK_AND_ASSIGN(const json none,
                       f->AskWhole(R"({"prompt": "Once", "max_tokens": 2, "logprobs": 0})"));
  EXPECT_EQ(none["choices"][0]["logprobs"]["tokens"].size(), 2u);
  EXPECT_EQ(none["choices"][0]["logprobs"]["top_logprobs"], json());
}

// Tokens of a stop text are not told, though they wait for its end, and come with their text.
TEST(ApiTokens, KeepToTheTextWhereItEnds) {
  const auto f = Story();
  const std::string body =
      R"({"prompt": "Once upon a time", "stop": [" Lily. She", "x"], "max_tokens": 60,
          "logprobs": 1)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}"));
  const json& choice = whole["choices"][0];
  EXPECT_EQ(choice["text"], ", there was a little girl named");
  std::string text;
  for (const std::string token : choice["logprobs"]["tokens"]) text += token;
  EXPECT_EQ(json(text), choice["text"]);
  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts, f->Ask(body + R"(, "stream": true})"));
  EXPECT_EQ(Joined(parts, false)["logprobs"]["tokens"], choice["logprobs"]["tokens"]);
  for (const json& part : parts) {
    if (part["choices"][0]["logprobs"].is_null()) continue;
    std::string of_part;
    for (const std::string token : part["choices"][0]["logprobs"]["tokens"]) of_part += token;
    EXPECT_EQ(json(of_part), part["choices"][0]["text"]);
  }
}

TEST(ApiTokens, PartsOfCharactersAreBytes) {
  const auto f = Sayer("ab", kThinks);
  const std::string euro = R"("max_tokens": 20, "stream": true)" + Only("a\u20ACbc") + "}";
  ASSERT_OK_AND_ASSIGN(const std::vector<json> chat,
                       f->Ask(R"({"messages": [{"role": "user", "content": "a"}],
                                  "logprobs": true, "top_logprobs": 2, )" +
                                  euro,
                              true));
  const json told = Joined(chat, true);
  EXPECT_EQ(told["text"], "a\u20ACbc");
  const json& content = told["logprobs"]["content"];
  ASSERT_EQ(content.size(), 6u);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[1]["token"], "\\xe2");
  EXPECT_EQ(content[1]["bytes"], json({0xE2}));
  EXPECT_EQ(content[3]["bytes"], json({0xAC}));
  EXPECT_NEAR(content[3]["logprob"], -std::log(double{512}), 10);
  ASSERT_EQ(content[3]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[3]["top_logprobs"][0]["token"], "ab");
  EXPECT_EQ(content[3]["top_logprobs"][1]["token"], "<s>") << "a name, as it shows nothing";
  EXPECT_EQ(told["logprobs"]["refusal"], json());
  for (const json& part : chat) {
    const json& choice = part["choices"][0];
    std::string bytes;
    if (!choice["logprobs"].is_null()) {
      for (const json& token : choice["logprobs"]["content"]) {
        for (const int byte : token["bytes"]) bytes += static_cast<char>(byte);
      }
    }
    EXPECT_EQ(choice["delta"].value("content", ""), bytes) << "they come with their character";
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<json> completion,
                       f->Ask(R"({"prompt": "a", "logprobs": 0, )" + euro));
  const json logprobs = Joined(completion, false)["logprobs"];
  EXPECT_EQ(logprobs["tokens"][2], "bytes:\\x82");
  EXPECT_EQ(logprobs["text_offset"], json({0, 1, 1, 1, 2, 3})) << "in characters";
}

TEST(ApiTokens, ThoughtsAreReasoning) {
  const auto f = Sayer("ab", kThinks);
  const std::string body =
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 80, "logprobs": true)" +
      Only("<think>\nhm \u20AC\n</think>\n\nYes.");
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}", true));
  const json& choice = whole["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm \u20AC");
  EXPECT_EQ(choice["message"]["content"], "Yes.");
  std::string content;
  for (const json& token : choice["logprobs"]["content"]) content += token["token"];
  EXPECT_EQ(content, "Yes.") << "tokens of what is said alone";
  ASSERT_OK_AND_ASSIGN(const std::vector<json> parts, f->Ask(body + R"(, "stream": true})", true));
  const json told = Joined(parts, true);
  EXPECT_EQ(told["text"], "Yes.");
  EXPECT_EQ(told["thought"], "hm \u20AC");
  EXPECT_EQ(told["logprobs"]["content"].size(), choice["logprobs"]["content"].size());
  // A model whose template knows no thoughts says all of it.
  const auto plain = Sayer("ab", "{{ messages[0].content }}");
  ASSERT_OK_AND_ASSIGN(const json said, plain->AskWhole(body + "}", true));
  EXPECT_THAT(std::string(said["choices"][0]["message"]["content"]), HasSubstr("<think>\nhm"));
}

TEST(ApiTokens, ThoughtsThatATemplateBegins) {
  const auto f = Sayer("ab", std::string(kThinks) + "<think>\n");
  const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2)";
  ASSERT_OK_AND_ASSIGN(const json whole, f->AskWhole(body + "}", true));
  EXPECT_EQ(whole["choices"][0]["message"]["reasoning_content"], "abab");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "");
  ASSERT_OK_AND_ASSIGN(const json kept, f->AskWhole(body + Only("ab") + "}", true));
  EXPECT_EQ(kept["choices"][0]["message"]["content"], "ab") << "a grammar has no thought";
}

}  // namespace
}  // namespace tessera::llm
