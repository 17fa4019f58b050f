// Texts with guesses are those without, in fewer steps if the guesses are right.
#include "examples/llm/guess.h"

#include <algorithm>

#include "examples/llm/engine.h"
#include "examples/llm/parallel.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using Tokens = std::vector<int32_t>;

TEST(LookUp, TellsWhatFollowedBefore) {
  const struct {
    Tokens text;
    int64_t most;
    Tokens want;
  } rows[] = {{{1, 2, 3, 4, 5, 1, 2}, 3, {3, 4, 5}},
              {{1, 2, 3, 4, 5, 1, 2}, 1, {3}},
              {{1, 2, 3, 4, 5, 1, 2}, 0, {}},
              {{1, 2, 3, 1, 2, 4, 1, 2}, 1, {4}},        // the later of equal places
              {{9, 1, 2, 3, 1, 2, 4, 9, 1, 2}, 1, {3}},  // the one that more was at
              {{7, 7, 7}, 4, {7, 7, 7, 7}},              // goes on beyond the end
              {{5, 6, 5, 6}, 5, {5, 6, 5, 6, 5}},
              {{1, 2, 3, 2}, 3, {}},  // one token alone says little
              {{1, 2, 3, 4}, 3, {}},
              {{1}, 3, {}}};
  for (const auto& row : rows) {
    EXPECT_EQ(LookUp(row.text, row.most), row.want) << testing::PrintToString(row.text);
  }
}

TEST(Pace, WrongGuessesBecomeRare) {
  Pace pace(15);
  int guesses = 0;
  for (int step = 0; step < 960; ++step) {
    if (pace.Most() == 0) {
      pace.Passed();
      continue;
    }
    EXPECT_EQ(pace.Most(), 3);
    pace.Checked(3, 0);
    ++guesses;
  }
  EXPECT_GE(guesses, 30);  // what comes later may be known again
  EXPECT_LE(guesses, 4 + 960 / 24);
}

TEST(Pace, RightGuessesBecomeMany) {
  Pace pace(12), few(2);
  for (const int64_t most : {3, 7, 12, 12}) {
    EXPECT_EQ(pace.Most(), most);
    pace.Checked(most, most);
    EXPECT_EQ(few.Most(), 2);
    few.Checked(2, 2);
  }
  pace.Checked(12, 11);
  EXPECT_EQ(pace.Most(), 3);
  for (int i = 0; i < 100; ++i) pace.Checked(3, 1);  // each pays for its step
  EXPECT_EQ(pace.Most(), 3);
  EXPECT_EQ(Pace(0).Most(), 0);
}

const char kPrompt[] = "Once upon a time";

class Guesses : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(model_, LoadModel(kStory));
    prompt_ = model_->tokenizer->Encode(kPrompt, {});
    session_.guesses = kMostGuesses;
  }

  struct Written {
    Generated g;
    std::string shown;
    std::vector<double> logs;
    int64_t position = 0;
  };
  Written Write(Session& session, GenerateOptions options, const Tokens& prompt) const {
    Written out;
    options.likeliest = 2;
    options.weighed = [&](const TokenLikelihood& of) {
      out.logs.push_back(of.next.log_probability);
      for (const auto& one : of.likeliest) out.logs.push_back(one.log_probability);
      out.logs.push_back(static_cast<double>(of.begin));
    };
    out.g = ValueOrThrow(llm::Generate(session, *model_, prompt, options,
                                       [&](const std::string& t) { out.shown += t; }));
    out.position = session.position();
    return out;
  }
  Written Write(const GenerateOptions& options) const {
    Session session(*model_, session_);
    return Write(session, options, prompt_);
  }
  static void ExpectSame(const Written& got, const Written& want) {
    EXPECT_EQ(got.g.text, want.g.text);
    EXPECT_EQ(got.shown, want.shown);
    EXPECT_EQ(got.g.tokens, want.g.tokens);
    EXPECT_STREQ(got.g.reason, want.g.reason);
    EXPECT_EQ(got.position, want.position);
    EXPECT_THAT(got.logs, testing::Pointwise(testing::DoubleNear(1e-3), want.logs));
    EXPECT_EQ(got.g.decode_steps + got.g.kept, want.g.decode_steps);
  }

  // Those that know how a text goes on: always rightly, always wrongly, and with every third token
  // wrong.
  enum class Kind { kRight, kWrong, kThird };
  Guesser Knowing(const Tokens& written, Kind kind) const {
    Tokens all = prompt_;
    all.insert(all.end(), written.begin(), written.end());
    return [all, kind](absl::Span<const int32_t> text, int64_t most) {
      Tokens out;
      for (size_t i = text.size(); static_cast<int64_t>(out.size()) < most; ++i) {
        const int32_t token = i < all.size() ? all[i] : 5;
        const bool wrong = kind == Kind::kWrong || (kind == Kind::kThird && i % 3 == 0);
        out.push_back(wrong ? (token + 1) % 500 : token);
      }
      return out;
    };
  }

  // The same text by all guessers; gives the plain one.
  Written ExpectSameByAll(GenerateOptions options) const {
    options.guessing.most = 0;
    const Written want = Write(options);
    EXPECT_EQ(want.g.guessed, 0);
    for (const int64_t most : {1, 3, 15}) {
      SCOPED_TRACE(most);
      options.guessing = {most, LookUp};
      ExpectSame(Write(options), want);
      options.guessing.guesser = Knowing(want.g.tokens, Kind::kRight);
      const Written right = Write(options);
      ExpectSame(right, want);
      EXPECT_GT(right.g.kept, 0);
      options.guessing.guesser = Knowing(want.g.tokens, Kind::kThird);
      const Written third = Write(options);
      ExpectSame(third, want);
      EXPECT_LT(third.g.kept, third.g.guessed);
      options.guessing.guesser = Knowing(want.g.tokens, Kind::kWrong);
      const Written wrong = Write(options);
      ExpectSame(wrong, want);
      EXPECT_GT(wrong.g.guessed, 0);
      EXPECT_EQ(wrong.g.kept, 0);
    }
    return want;
  }

  std::optional<Model> model_;
  Tokens prompt_;
  SessionOptions session_;
};

GenerateOptions Long(int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  return options;
}

TEST_F(Guesses, ChangeNoGreedyText) {
  const Written w = ExpectSameByAll(Long(100));
  EXPECT_STREQ(w.g.reason, "length");
  EXPECT_EQ(ReadFile(kStoryText).rfind(kPrompt + w.g.text, 0), 0u);
}

TEST_F(Guesses, ChangeNoDrawnText) {
  GenerateOptions options = Long(80);
  options.sampler.temperature = 1;
  for (const uint64_t seed : {1, 2}) {
    options.sampler.seed = seed;
    ExpectSameByAll(options);
  }
  options.sampler.top_k = 40;
  options.sampler.top_p = 0.9;
  options.sampler.min_p = 0.02;
  ExpectSameByAll(options);
}

TEST_F(Guesses, ChangeNoPenaltyOrBias) {
  GenerateOptions options = Long(80);
  options.sampler.repeat_penalty = 1.3;
  options.sampler.presence_penalty = 0.5;
  options.sampler.frequency_penalty = 0.4;
  options.sampler.biases = {{prompt_.back(), 1}, {300, 2}};
  const Written greedy = ExpectSameByAll(options);
  EXPECT_NE(greedy.g.text, Write(Long(80)).g.text);
  options.sampler.temperature = 0.8;
  options.sampler.seed = 3;
  ExpectSameByAll(options);
}

TEST_F(Guesses, KeepToTheGrammar) {
  GenerateOptions options = Long(80);
  options.grammar = ValueOrThrow(ParseGrammar("root ::= (\" \" [a-z]{2,5}){9} \".\"", "g"));
  EXPECT_STREQ(ExpectSameByAll(options).g.reason, "end");
  options.sampler.temperature = 1;
  EXPECT_STREQ(ExpectSameByAll(options).g.reason, "end");
}

TEST_F(Guesses, EndAtStopsAndEnds) {
  const Written all = Write(Long(60));
  GenerateOptions options = Long(60);
  const size_t at = all.g.text.find("Lily", 80);  // as a word within it
  ASSERT_NE(at, std::string::npos);
  options.stops = {all.g.text.substr(at - 3, 9)};
  EXPECT_STREQ(ExpectSameByAll(options).g.reason, "stop");
  // A token that ends the text, at several places within the guesses of a step.
  int ends = 0;
  for (auto at = all.g.tokens.begin() + 30; at < all.g.tokens.end() && ends < 5; ++at) {
    if (std::find(all.g.tokens.begin(), at, *at) != at) continue;
    ++ends;
    options = Long(60);
    options.end = *at;
    const Written w = ExpectSameByAll(options);
    EXPECT_STREQ(w.g.reason, "end");
    EXPECT_EQ(w.g.tokens, Tokens(all.g.tokens.begin(), at));
  }
  EXPECT_EQ(ends, 5);
}

TEST_F(Guesses, EndWithTheContext) {
  session_.context = 48;
  for (int i = 0; i < 9; ++i) {  // with one token more each time
    const Written w = ExpectSameByAll(Long(1000));
    EXPECT_STREQ(w.g.reason, "context");
    EXPECT_EQ(w.position, 48);
    prompt_.push_back(w.g.tokens[0]);
  }
}

TEST_F(Guesses, EndAtEveryLength) {
  for (int64_t tokens = 2; tokens < 8; ++tokens) {
    const Written want = Write(Long(tokens));
    GenerateOptions options = Long(tokens);
    options.guessing = {3, Knowing(want.g.tokens, Kind::kRight)};
    ExpectSame(Write(options), want);
  }
}

TEST_F(Guesses, TakeAsFewStepsAsTheyAreRight) {
  GenerateOptions options = Long(101);  // one by the prompt, a hundred by steps
  const Written want = Write(options);
  EXPECT_EQ(want.g.decode_steps, 100);
  const auto steps = [&](int64_t most, Kind kind) {
    options.guessing = {most, Knowing(want.g.tokens, kind)};
    return Write(options).g.decode_steps;
  };
  EXPECT_EQ(steps(1, Kind::kRight), 50);
  EXPECT_EQ(steps(3, Kind::kRight), 25);
  EXPECT_EQ(steps(7, Kind::kRight), 1 + 12);      // 4 and 12 * 8
  EXPECT_EQ(steps(15, Kind::kRight), 1 + 1 + 6);  // 4, 8 and 88 of 6 * 16
  EXPECT_EQ(steps(15, Kind::kWrong), 100);
  EXPECT_LT(steps(3, Kind::kThird), 50);
}

TEST_F(Guesses, WhatRepeatsItselfIsLookedUp) {
  const std::string story = ReadFile(kStoryText).substr(0, 300);
  prompt_ = model_->tokenizer->Encode(story + "\n" + story.substr(0, 60), {});
  GenerateOptions options = Long(60);
  const Written want = Write(options);
  options.guessing.most = 7;
  const Written got = Write(options);
  ExpectSame(got, want);
  EXPECT_GE(got.g.kept, 6);
}

// What draws goes on from text to text, and so does what the session has seen.
TEST_F(Guesses, LeaveTheSessionAndTheSamplerAsTheyWere) {
  GenerateOptions options = Long(21);
  options.sampler.temperature = 1;
  const Tokens more = model_->tokenizer->Encode(" The end. One day", {});
  const auto both = [&](const Guesser& guesser) {
    Session session(*model_, session_);
    Sampler sampler(options.sampler, model_->config.vocabulary);
    options.draws = &sampler;
    options.guessing = {guesser ? 7 : 0, guesser};
    Written first = Write(session, options, prompt_);
    options.before = prompt_;
    options.before.insert(options.before.end(), first.g.tokens.begin(), first.g.tokens.end() - 1);
    Written second = Write(session, options, more);
    options.before.clear();
    return std::pair(std::move(first), std::move(second));
  };
  const auto want = both({});
  for (const Kind kind : {Kind::kRight, Kind::kWrong, Kind::kThird}) {
    const auto got = both(Knowing(want.first.g.tokens, kind));
    ExpectSame(got.first, want.first);
    ExpectSame(got.second, want.second);
  }
}

TEST_F(Guesses, ThatAreNoTokensAreDropped) {
  const Written want = Write(Long(20));
  GenerateOptions options = Long(20);
  for (const int32_t none : {-1, 512, 1 << 30}) {
    options.guessing = {3, [none](auto, auto) { return Tokens{none, 5, 5}; }};
    const Written got = Write(options);
    ExpectSame(got, want);
    EXPECT_EQ(got.g.guessed, 0);
  }
}

TEST_F(Guesses, TellTheSameOnOtherDevicesSlow) {
  const Written want = Write(Long(12));
  const std::vector<Place> places[] = {{Place("CPU", 0), Place("CPU", 1)}, {Place("SIM", 0)}};
  for (const std::vector<Place>& devices : places) {
    ASSERT_OK_AND_ASSIGN(model_, LoadModel(kStory));
    ASSERT_OK(Distribute(&*model_, devices));
    GenerateOptions options = Long(12);
    options.guessing = {3, Knowing(want.g.tokens, Kind::kThird)};
    const Written got = Write(options);
    ExpectSame(got, want);
    EXPECT_GT(got.g.kept, 0);
    EXPECT_LT(got.g.kept, got.g.guessed);
  }
}

TEST_F(Guesses, OfAnEngineAreOfOneTextAlone) {
  const auto ignore = [](const std::string&) { return true; };
  const Written want = Write(Long(60));
  GenerateOptions options = Long(60);
  options.guessing = {7, Knowing(want.g.tokens, Kind::kThird)};
  session_.texts = 2;
  Session session(*model_, session_);
  Engine engine(session, *model_);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const Generated g, engine.Generate(prompt_, options, ignore));
    EXPECT_EQ(g.tokens, want.g.tokens);
    EXPECT_GT(g.kept, 0);
    EXPECT_LT(g.kept, g.guessed);
    EXPECT_EQ(g.decode_steps + g.kept, want.g.decode_steps);
  }
  // What it has seen is the text without what was wrong.
  Tokens longer = prompt_;
  longer.insert(longer.end(), want.g.tokens.begin(), want.g.tokens.end());
  ASSERT_OK_AND_ASSIGN(const Generated more, engine.Generate(longer, Long(20), ignore));
  EXPECT_EQ(more.reused_tokens, static_cast<int64_t>(longer.size()) - 1);
  EXPECT_EQ(want.g.text + more.text, Write(Long(80)).g.text);
  // Beside another text.
  Generated beside;
  std::thread other([&] { beside = ValueOrThrow(engine.Generate(prompt_, Long(200), ignore)); });
  ASSERT_OK_AND_ASSIGN(const Generated g, engine.Generate(prompt_, options, ignore));
  other.join();
  EXPECT_EQ(g.tokens, want.g.tokens);
  EXPECT_EQ(beside.text, Write(Long(200)).g.text);
}

}  // namespace
}  // namespace tessera::llm
