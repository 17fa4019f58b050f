// Requests that share a model, against what each of them gets alone.
#include "examples/llm/engine.h"

#include <chrono>
#include <thread>

#include "examples/llm/parallel.h"
#include "tests/llm/models.h"
#include "tests/testing.h"

namespace tessera::llm {
namespace {

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(model_, LoadModel(kStory)); }

  SessionOptions Texts(int64_t count) const {
    SessionOptions options;
    options.texts = count;
    return options;
  }
  std::vector<int32_t> Ids(const std::string& prompt) const {
    return model_->tokenizer->Encode(prompt, {});
  }
  Generated Alone(const std::string& prompt, const GenerateOptions& options) const {
    Session session(*model_, {});
    return ValueOrThrow(llm::Generate(session, *model_, Ids(prompt), options, [](auto&) {}));
  }

  std::optional<Model> model_;
};

GenerateOptions Greedy(int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  return options;
}

bool Ignore(const std::string&) { return true; }

const std::vector<std::string> kPrompts = {
    "Once upon a time", "The cat sat", "Lily and Tom went to the park. They saw a big dog and",
    "One day",          "Once upon",   "It was a sunny day and Max wanted to play with his ball."};

TEST_F(EngineTest, AnswersManyAtOnceAsEachAlone) {
  for (const int64_t texts : {1, 2, 4}) {
    Session session(*model_, Texts(texts));
    Engine engine(session, *model_);
    std::vector<std::thread> askers;
    std::vector<std::string> shown(kPrompts.size()), returned = shown;
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      askers.emplace_back([&, i] {
        const int64_t count = 20 + 10 * static_cast<int64_t>(i);
        const Generated g = ValueOrThrow(
            engine.Generate(Ids(kPrompts[i]), Greedy(count), [&, i](const std::string& text) {
              shown[i] += text;
              return true;
            }));
        returned[i] = g.text;
        EXPECT_STREQ(g.reason, "length");
        EXPECT_EQ(static_cast<int64_t>(g.tokens.size()), count);
      });
    }
    for (std::thread& t : askers) t.join();
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      const int64_t count = 20 + 10 * static_cast<int64_t>(i);
      EXPECT_EQ(returned[i], Alone(kPrompts[i], Greedy(count)).text) << texts << " texts";
      EXPECT_EQ(shown[i], returned[i]);
    }
    EXPECT_EQ(engine.load().running, 0);
    EXPECT_EQ(engine.load().waiting, 0);
  }
}

// Over three places, and on a GPU, which finds the likeliest tokens by itself.
TEST_F(EngineTest, AnswersOnOtherDevices) {
  using Logs = std::vector<double>;
  const auto weighing = [](Logs* logs) {
    GenerateOptions options = Greedy(8);
    options.weighed = [logs](const TokenLikelihood& of) {
      logs->push_back(of.next.log_probability);
    };
    return options;
  };
  std::string wanted[2];
  Logs wanted_logs[2];
  for (int i : {0, 1}) wanted[i] = Alone(kPrompts[i], weighing(&wanted_logs[i])).text;
  const std::vector<Place> places[] = {{Place("CPU", 0), Place("CPU", 1), Place("CPU", 2)},
                                       {Place("SIM", 0)}};
  for (const std::vector<Place>& devices : places) {
    ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
    ASSERT_OK(Distribute(&model, devices));
    Session session(model, Texts(2));
    Engine engine(session, model);
    std::string got[2];
    Logs logs[2];
    const auto ask = [&](size_t i) {
      got[i] = ValueOrThrow(engine.Generate(Ids(kPrompts[i]), weighing(&logs[i]), Ignore)).text;
    };
    std::thread other(ask, 1);
    ask(0);
    other.join();
    for (int i : {0, 1}) {
      EXPECT_EQ(got[i], wanted[i]) << devices[0].ToString();
      EXPECT_THAT(logs[i], ::testing::Pointwise(::testing::DoubleNear(1e-3), wanted_logs[i]));
    }
  }
}

TEST_F(EngineTest, DrawsAsSeedsSay) {
  GenerateOptions options = Greedy(30);
  options.sampler.temperature = 1;
  Session session(*model_, Texts(2));
  Engine engine(session, *model_);
  for (const uint64_t seed : {1, 2, 1}) {
    options.sampler.seed = seed;
    std::thread other([&] { (void)engine.Generate(Ids("One day"), Greedy(50), Ignore); });
    ASSERT_OK_AND_ASSIGN(const Generated g, engine.Generate(Ids(kPrompts[0]), options, Ignore));
    other.join();
    EXPECT_EQ(g.text, Alone(kPrompts[0], options).text);
  }
}

TEST_F(EngineTest, KeepsEachToItsGrammar) {
  Session session(*model_, Texts(3));
  Engine engine(session, *model_);
  GenerateOptions few = Greedy(200), lost = Greedy(200);
  few.grammar = ValueOrThrow(ParseGrammar("root ::= (\" \" [a-z]{2,5}){4} \".\"", "g"));
  // So many ways to read it that they are not followed for long.
  lost.grammar = ValueOrThrow(
      ParseGrammar("root ::= (([^!]{1,99} [^!]{1,99}){1,99} [^!]{1,99}){90,99} \"!\"", "g"));
  const GenerateOptions all[] = {few, lost, Greedy(30)};
  std::vector<std::thread> askers;
  std::vector<absl::StatusOr<Generated>> got(3);
  for (size_t i = 0; i < 3; ++i) {
    askers.emplace_back([&, i] { got[i] = engine.Generate(Ids(kPrompts[0]), all[i], Ignore); });
  }
  for (std::thread& t : askers) t.join();
  ASSERT_OK(got[0]);
  EXPECT_STREQ(got[0]->reason, "end");
  EXPECT_EQ(got[0]->text, Alone(kPrompts[0], few).text);
  EXPECT_THAT(got[0]->text, ::testing::MatchesRegex("( [a-z][a-z][a-z]?[a-z]?[a-z]?)+\\."));
  EXPECT_THAT(got[1], StatusIs(absl::StatusCode::kInvalidArgument, "too ambiguous"));
  ASSERT_OK(got[2]);
  EXPECT_EQ(got[2]->text, Alone(kPrompts[0], Greedy(30)).text);
}

TEST_F(EngineTest, ReadsNoBeginningTwice) {
  Session session(*model_, Texts(2));
  Engine engine(session, *model_);
  ASSERT_OK_AND_ASSIGN(const Generated first,
                       engine.Generate(Ids(kPrompts[2]), Greedy(10), Ignore));
  EXPECT_EQ(first.reused_tokens, 0);
  ASSERT_OK_AND_ASSIGN(const Generated other, engine.Generate(Ids("The cat"), Greedy(10), Ignore));
  EXPECT_LE(other.reused_tokens, 2);  // in the other text: what begins all, at most
  std::vector<int32_t> longer = Ids(kPrompts[2]);
  const int64_t begins = static_cast<int64_t>(longer.size());
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  ASSERT_OK_AND_ASSIGN(const Generated more, engine.Generate(longer, Greedy(20), Ignore));
  EXPECT_EQ(more.reused_tokens, begins + 9);  // of ten the last was not read
  EXPECT_EQ(first.text + more.text, Alone(kPrompts[2], Greedy(30)).text);
  ASSERT_OK_AND_ASSIGN(const Generated again,
                       engine.Generate(Ids(kPrompts[2]), Greedy(10), Ignore));
  EXPECT_EQ(again.reused_tokens, begins - 1);
  EXPECT_EQ(again.text, first.text);
}

TEST_F(EngineTest, ThePromptsLastTokenIsAlwaysRead) {
  const std::vector<int32_t> fed = {1, 2, 3};
  EXPECT_EQ(ReadBefore(fed, std::vector<int32_t>{1, 2, 3, 4}), 3u);
  EXPECT_EQ(ReadBefore(fed, fed), 2u);
  EXPECT_EQ(ReadBefore(fed, std::vector<int32_t>{1, 5, 3, 4}), 1u);
  EXPECT_EQ(ReadBefore(fed, std::vector<int32_t>{1}), 0u);
  EXPECT_EQ(ReadBefore({}, fed), 0u);
  EXPECT_EQ(ReadBefore(fed, {}), 0u);
}

TEST_F(EngineTest, EndsWhatNobodyReads) {
  Session session(*model_, Texts(2));
  Engine engine(session, *model_);
  std::string stays;
  std::thread other(
      [&] { stays = ValueOrThrow(engine.Generate(Ids(kPrompts[0]), Greedy(200), Ignore)).text; });
  int pieces = 0;
  ASSERT_OK_AND_ASSIGN(const Generated g,
                       engine.Generate(Ids("One day"), Greedy(400), [&](const std::string& text) {
                         return text.empty() || ++pieces < 3;
                       }));
  other.join();
  EXPECT_STREQ(g.reason, "interrupt");
  EXPECT_LT(g.tokens.size(), 400u);
  EXPECT_EQ(stays, Alone(kPrompts[0], Greedy(200)).text);

  const std::atomic<bool> interrupted = true;
  GenerateOptions options = Greedy(400);
  options.interrupted = &interrupted;
  ASSERT_OK_AND_ASSIGN(const Generated none, engine.Generate(Ids("One day"), options, Ignore));
  EXPECT_STREQ(none.reason, "interrupt");
}

TEST_F(EngineTest, EndsAtStopsAndTheContextsEnd) {
  SessionOptions small = Texts(2);
  small.context = 48;
  Session session(*model_, small);
  Engine engine(session, *model_);
  GenerateOptions stop = Greedy(40);
  stop.stops = {" Lily"};
  ASSERT_OK_AND_ASSIGN(const Generated stopped, engine.Generate(Ids(kPrompts[0]), stop, Ignore));
  EXPECT_STREQ(stopped.reason, "stop");
  EXPECT_EQ(stopped.text, Alone(kPrompts[0], stop).text);
  ASSERT_OK_AND_ASSIGN(const Generated full,
                       engine.Generate(Ids(kPrompts[0]), Greedy(1000), Ignore));
  EXPECT_STREQ(full.reason, "context");
  EXPECT_EQ(full.tokens.size(), 48 - Ids(kPrompts[0]).size() + 1);
}

TEST_F(EngineTest, RefusesWhatCannotBeContinued) {
  SessionOptions small = Texts(2);
  small.context = 16;
  Session session(*model_, small);
  Engine engine(session, *model_);
  EXPECT_THAT(engine.Generate({}, Greedy(1), Ignore),
              StatusIs(absl::StatusCode::kInvalidArgument, "the prompt is empty"));
  EXPECT_THAT(engine.Generate(std::vector<int32_t>(17, 5), Greedy(1), Ignore),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "has 17 tokens, and the context has room for 16 of 16"));
  GenerateOptions cold = Greedy(1);
  cold.sampler.temperature = -1;
  EXPECT_THAT(engine.Generate({1}, cold, Ignore),
              StatusIs(absl::StatusCode::kInvalidArgument, "temperature"));
  ASSERT_OK_AND_ASSIGN(const Generated g, engine.Generate(Ids("One day"), Greedy(3), Ignore));
  EXPECT_EQ(g.tokens.size(), 3u);
}

TEST_F(EngineTest, EndsWithWhatIsUnderWay) {
  Session session(*model_, Texts(1));
  GenerateOptions slow = Greedy(400);
  slow.piece = [](int32_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::string("x");
  };
  std::vector<std::thread> askers;
  std::atomic<int> interrupted = 0, refused = 0;
  {
    Engine engine(session, *model_);
    for (int i = 0; i < 3; ++i) {
      askers.emplace_back([&] {
        const auto g = engine.Generate(Ids(kPrompts[0]), slow, Ignore);
        if (!g.ok()) ++refused;
        if (g.ok() && std::string(g->reason) == "interrupt") ++interrupted;
      });
    }
    while (engine.load().running != 1 || engine.load().waiting != 2) std::this_thread::yield();
  }
  for (std::thread& t : askers) t.join();
  EXPECT_EQ(interrupted, 1);
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace tessera::llm
