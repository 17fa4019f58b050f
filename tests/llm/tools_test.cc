// Functions that an assistant may call: what a template writes of them stays text, and what is no
// such list is refused.
#include "examples/llm/chat_writer.h"
#include "examples/llm/command.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{% if tools %}<s>{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}</s>{% endfor %}";

std::unique_ptr<const Tokenizer> WithTemplate(const std::string& text) {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kScores;
  for (const std::string& token : SmallTokens()) {
    const bool byte = token.starts_with("<0x");
    const bool control = token == "<s>" || token == "</s>" || token == "<unk>";
    spec.tokens.push_back({.text = token,
                           .score = 0,
                           .kind = byte      ? TokenKind::kByte
                                   : control ? TokenKind::kControl
                                             : TokenKind::kNormal});
  }
  for (const char* mark : {"<answer>", "<other>", "    ", "\n\n"}) {
    spec.tokens.push_back({.text = mark, .score = 0, .kind = TokenKind::kUserDefined});
  }
  spec.bos = 1;
  spec.eos = 2;
  spec.chat_template = text;
  absl::StatusOr<std::unique_ptr<const Tokenizer>> out = Tokenizer::Make(std::move(spec));
  EXPECT_OK(out.status());
  return *std::move(out);
}

TEST(Tools, NamesOfControlTokensInThemAreText) {
  const auto tokenizer = WithTemplate(kTemplate);
  ASSERT_OK_AND_ASSIGN(ChatWriter writer, ChatWriter::Make(*tokenizer));
  ASSERT_OK(writer.SetTools(R"([{"name": "a<s>", "of": [1, 2.5, null, true]}])", "tools.json"));
  ASSERT_OK_AND_ASSIGN(const std::vector<Message> messages,
                       MessagesOfJson(R"([{"role": "user", "content": "b"},
                         {"content": null, "role": "assistant",
                          "tool_calls": [{"function": {"name": "</s>x"}}]},
                         {"role": "tool", "content": "<s>"}])",
                                      "messages.json"));
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1].role, "assistant");
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, writer.Encode(messages));
  EXPECT_THAT(DecodeAll(*tokenizer, ids),
              HasSubstr(R"({"name": "a<s>", "of": [1, 2.5, null, true]})"));
  EXPECT_THAT(DecodeAll(*tokenizer, ids), HasSubstr("assistant:None(</s>x)tool:<s>"));
  // The template's own alone.
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 3);
}

// Names of tokens that the template writes in other conversations alone.
TEST(Tools, NamesOfTheirMarksAreTextBeforeTheySpeak) {
  const auto tokenizer = WithTemplate(
      "{% for m in messages %}<s>{{ '<answer>' if m.role == 'tool' }}{{ m.content }}</s>"
      "{% endfor %}");
  ASSERT_OK_AND_ASSIGN(ChatWriter writer, ChatWriter::Make(*tokenizer));
  const int32_t answer = tokenizer->Find("<answer>"), other = tokenizer->Find("<other>");
  ASSERT_GE(std::min(answer, other), 0);
  const auto count = [&](const Message& m, int32_t token) {
    const absl::StatusOr<std::vector<int32_t>> ids = writer.Encode(absl::MakeConstSpan(&m, 1));
    EXPECT_OK(ids.status());
    return std::count(ids->begin(), ids->end(), token);
  };
  EXPECT_EQ(count({"user", "<answer>"}, answer), 0);
  EXPECT_EQ(count({"tool", "<answer>"}, answer), 1);
  EXPECT_EQ(count({"assistant", "<answer></s>"}, answer), 1) << "its own words";
  EXPECT_EQ(count({"assistant", "<answer></s>"}, 2), 1) << "but no control token of them";
  EXPECT_EQ(count({"user", "<other>"}, other), 1) << "no mark of this template";
  EXPECT_EQ(tokenizer->Encode("<answer>", {.special = false}), std::vector<int32_t>{answer})
      << "outside chats it is what it is";
}

// A template that is indented says nothing of such tokens.
TEST(Tools, TokensOfSpacesAreNoMarks) {
  const auto tokenizer = WithTemplate(
      "{% for m in messages %}\n    {%- if m.role == 'system' %}{{ m.content + '\n\n' }}"
      "{% else %}<s>{{ m.content }}</s>{% endif %}{% endfor %}");
  ASSERT_OK_AND_ASSIGN(ChatWriter writer, ChatWriter::Make(*tokenizer));
  const Message code[] = {{"system", "a"}, {"user", "b:\n\n    c"}};
  for (const size_t from : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                         writer.Encode(absl::MakeConstSpan(code).subspan(from)));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->Find("    ")), 1);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->Find("\n\n")), from == 0 ? 2 : 1);
  }
}

TEST(Tools, WhatIsNoListOfThem) {
  const auto tokenizer = WithTemplate(kTemplate);
  ASSERT_OK_AND_ASSIGN(ChatWriter writer, ChatWriter::Make(*tokenizer));
  const std::pair<const char*, const char*> tools[] = {
      {"", "t.json"},          {"{}", "tools are an array"}, {"[]", "there are no tools"},
      {"[1]", "tool 0 is no"}, {"[{}, []]", "tool 1 is no"}, {"[{\"a\": }]", "t.json"},
      {"[{}", "t.json"}};
  for (const auto& [text, error] : tools) {
    const absl::Status status = writer.SetTools(text, "t.json");
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(error));
  }
  const std::pair<const char*, const char*> messages[] = {
      {"{}", "m.json: messages are an array"},
      {"[1]", "m.json: message 0 is no object"},
      {R"([{"content": "x"}])", "message 0 is no object with a 'role'"},
      {R"([{"role": "user"}, {"role": 1}])", "message 1 is no object"},
      {R"([{"role": ""}])", "message 0"},
      {R"([{"role": "</s>"}])", "a 'role' of letters"}};
  for (const auto& [text, error] : messages) {
    EXPECT_THAT(MessagesOfJson(text, "m.json").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, error));
  }
}

TEST(Tools, TemplatesThatWriteNone) {
  const auto tokenizer = WithTemplate("{% for m in messages %}{{ m.content }}{% endfor %}");
  ASSERT_OK_AND_ASSIGN(ChatWriter writer, ChatWriter::Make(*tokenizer));
  EXPECT_THAT(writer.SetTools("[{}]", "t.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, "template writes no tools"));
  const auto strict =
      WithTemplate("{% if tools %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}");
  ASSERT_OK_AND_ASSIGN(ChatWriter refusing, ChatWriter::Make(*strict));
  EXPECT_THAT(refusing.SetTools("[{}]", "t.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, "template refuses them"));
}

TEST(Tools, GoWithAChat) {
  for (const std::string option : {"--tools", "--messages"}) {
    EXPECT_THAT(ParseCommand(std::vector<std::string>{"--model", "m", option, "f"}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, option + " goes with --chat"));
    ASSERT_OK_AND_ASSIGN(const Command c, ParseCommand(std::vector<std::string>{
                                              "--model", "m", "--chat", option, "f"}));
    EXPECT_EQ(option == "--tools" ? c.tools_file : c.messages_file, "f");
  }
}

}  // namespace
}  // namespace tessera::llm
