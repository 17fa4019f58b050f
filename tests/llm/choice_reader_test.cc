// What is told of texts of models, and of their tokens.
#include "examples/llm/choice_reader.h"

#include "tests/testing.h"

namespace tessera::llm {
namespace {

// All bytes, and marks after them.
std::unique_ptr<const Tokenizer> WithMarks(const std::vector<std::string>& marks) {
  TokenizerSpec spec;
  for (const std::string& b : ByteCharacters()) spec.tokens.push_back({b});
  for (const std::string& mark : marks) spec.tokens.push_back({mark, 0, TokenKind::kControl});
  absl::StatusOr<std::unique_ptr<const Tokenizer>> out = Tokenizer::Make(std::move(spec));
  EXPECT_OK(out.status());
  return *std::move(out);
}

// A text token by token, as generation shows it.
Choice Read(const Tokenizer& tokenizer, const ChoiceReader::Options& options,
            const std::string& text) {
  ChoiceReader reader(tokenizer, options);
  Choice out;
  Utf8Stream utf8;
  size_t shown = 0;
  Tokenizer::Options as_markup;
  as_markup.special = false;
  as_markup.markup = true;
  for (const int32_t id : tokenizer.Encode(text, as_markup)) {
    TokenLikelihood likelihood = {{id, -1}, {{id, -1}, {257, -2}}};
    likelihood.begin = shown;
    reader.Weigh(std::move(likelihood));
    const std::string more = utf8.Push(reader.Show(id));
    shown += more.size();
    reader.Push(more, &out);
  }
  reader.Push(utf8.Finish(), &out);
  reader.Finish(&out);
  return out;
}

std::string BytesOf(const Choice& choice) {
  std::string out;
  for (const ToldToken& token : choice.tokens) out += token.next.bytes;
  return out;
}

TEST(ChoiceReader, TokensOfWhatGptOssSays) {
  const auto t = WithMarks({"<|channel|>", "<|message|>", "<|end|>", "<|start|>"});
  ChoiceReader::Options options;
  options.form = ChatForm::kHarmony;
  const Choice choice =
      Read(*t, options,
           "<|channel|>analysis<|message|>Hm \u20AC.<|end|><|start|>assistant<|channel|>final"
           "<|message|>Yes, \u20AC.");
  EXPECT_EQ(choice.thought, "Hm \u20AC.\n\n");
  EXPECT_EQ(choice.text, "Yes, \u20AC.");
  EXPECT_EQ(BytesOf(choice), choice.text);
  ASSERT_EQ(choice.tokens.size(), 9u);
  EXPECT_EQ(choice.tokens.back().offset, 6) << "in characters";
  EXPECT_EQ(choice.tokens[0].likeliest[1].bytes, "<|message|>");
}

TEST(ChoiceReader, MarksThatAreControlTokens) {
  const auto t = WithMarks({"[THINK]", "[/THINK]"});
  ChoiceReader::Options options;
  options.thoughts = ThoughtMarksOf("[/THINK]");
  const Choice choice = Read(*t, options, "[THINK]Hm.[/THINK]\nYes.");
  EXPECT_EQ(choice.thought, "Hm.");
  EXPECT_EQ(choice.text, "Yes.");
  EXPECT_EQ(BytesOf(choice), "Yes.");
}

TEST(ChoiceReader, TokensOfCallsAreNotText) {
  const auto t = WithMarks({});
  ChoiceReader::Options options;
  options.calls = true;
  const std::string call = R"(<tool_call>{"name": "f"}</tool_call>)";
  Choice choice = Read(*t, options, "So: " + call + call);
  EXPECT_EQ(choice.calls.size(), 2u);
  EXPECT_EQ(choice.text, "So:");
  EXPECT_EQ(BytesOf(choice), "So:");
  choice = Read(*t, options, "a <tool_call>b");
  EXPECT_EQ(choice.text, "a <tool_call>b") << "it is none";
  EXPECT_EQ(BytesOf(choice), choice.text);
  options.one_call = true;
  EXPECT_EQ(Read(*t, options, call + call).calls.size(), 1u);
}

}  // namespace
}  // namespace tessera::llm
