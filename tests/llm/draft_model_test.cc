// A model that guesses for another: in step with its text wherever that goes, and of one
// vocabulary.
#include "examples/llm/draft_model.h"

#include "examples/llm/generate.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

using Tokens = std::vector<int32_t>;

// What the story model writes next, one token after the other.
Tokens Next(const Model& model, const Tokens& text, int64_t count) {
  Session session(model, {});
  Tokens out;
  session.Advance(text);
  while (static_cast<int64_t>(out.size()) < count) {
    out.push_back(session.Likeliest());
    session.Advance({&out.back(), 1});
  }
  return out;
}

TEST(DraftModel, GuessesWhatItWouldWrite) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  ASSERT_OK_AND_ASSIGN(Model own, LoadModel(kStory));
  SessionOptions options;
  options.context = 40;
  ASSERT_OK_AND_ASSIGN(const Guesser guess, GuesserByModel(std::move(own), options, model));
  Tokens text = model.tokenizer->Encode("Once upon a time", {});
  const Tokens begin = text;
  const auto expect = [&](int64_t most) {
    EXPECT_EQ(guess(text, most), Next(model, text, most)) << text.size();
  };
  expect(4);
  const Tokens next = Next(model, text, 6);
  text.insert(text.end(), next.begin(), next.begin() + 2);
  expect(3);  // two were kept
  text.back() = 300;
  expect(3);  // one was not
  text.push_back(301);
  expect(1);
  expect(3);  // the same again
  text = begin;
  expect(2);  // back to the beginning
  text = model.tokenizer->Encode("The cat sat on the mat and", {});
  expect(5);
  text.resize(38, 300);
  EXPECT_EQ(guess(text, 9), Next(model, text, 3)) << "as many as there is room for";
  text.resize(41, 300);
  EXPECT_EQ(guess(text, 9), Tokens());
  text = {1, 512};
  EXPECT_EQ(guess(text, 9), Tokens()) << "a token that only the large model has";
}

TEST(DraftModel, SavesSteps) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  const Tokens prompt = model.tokenizer->Encode("One day", {});
  SessionOptions checking;
  checking.guesses = 3;
  Session session(model, checking);
  GenerateOptions writing;
  writing.max_tokens = 80;
  const auto write = [&](const GenerateOptions& o) {
    session.Rewind(0);
    return ValueOrThrow(Generate(session, model, prompt, o, [](auto&) {}));
  };
  GenerateOptions guessing = writing;
  ASSERT_OK_AND_ASSIGN(Model own, LoadModel(kStory));
  ASSERT_OK_AND_ASSIGN(guessing.guessing.guesser, GuesserByModel(std::move(own), {}, model));
  guessing.guessing.most = 3;
  for (const double temperature : {0.0, 1.0}) {
    writing.sampler.temperature = guessing.sampler.temperature = temperature;
    const Generated want = write(writing), got = write(guessing);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.decode_steps + got.kept, want.decode_steps);
    if (temperature == 0) {
      EXPECT_EQ(got.decode_steps, 20);  // of four tokens each but for the last
    } else {
      EXPECT_GT(got.kept, 10);
      EXPECT_LT(got.kept, got.guessed);
    }
  }
}

TEST(DraftModel, HasTheSameTokens) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(SmallGguf().Write()));
  const auto with = [&](const std::vector<std::string>& tokens) {
    const int64_t count = static_cast<int64_t>(tokens.size());
    SmallGguf file;
    file.Set("tokenizer.ggml.tokens", tokens)
        .Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0))
        .Set("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 1))
        .Shape("token_embd.weight", {count, 8});
    Model draft = ValueOrThrow(LoadModel(file.Write()));
    return GuesserByModel(std::move(draft), {}, model).status();
  };
  std::vector<std::string> tokens = SmallTokens();
  EXPECT_OK(with(tokens));
  tokens.push_back("more");
  EXPECT_OK(with(tokens));
  tokens[260] = "c";
  EXPECT_THAT(with(tokens),
              StatusIs(absl::StatusCode::kInvalidArgument, "token 260 is 'c' there and 'a' here"));
}

}  // namespace
}  // namespace tessera::llm
