// The story model of the repository: its text, its logits against float64 goldens, its counters.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "examples/llm/command.h"
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

// The steps that it captures know where it is.
static_assert(!std::is_move_constructible_v<Session> && !std::is_copy_constructible_v<Session>);

const char kPrompt[] = "Once upon a time";

struct Told {
  std::string text;
  Generated result;
};

absl::StatusOr<Told> Tell(const Model& model, GenerateOptions options) {
  Session session(model, {});
  Told told;
  told.text = kPrompt;
  ASSIGN_OR_RETURN(told.result, Generate(session, model, model.tokenizer->Encode(kPrompt, {}),
                                         options, [&](const std::string& t) { told.text += t; }));
  return told;
}

GenerateOptions Greedy(int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  return options;
}

void ExpectStory(const std::string& path) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
  ASSERT_OK_AND_ASSIGN(const Told told, Tell(model, Greedy(252)));
  EXPECT_EQ(told.text + "\n", ReadFile(kStoryText));
  EXPECT_STREQ(told.result.reason, "length");
}

TEST(Story, TellsTheExpectedText) { ExpectStory(kStory); }
// The first words: what a GPU finds to be likeliest is so among the logits that it would give.
TEST(Story, AGpuTellsTheSame) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  ASSERT_OK(Distribute(&model, {Place("SIM", 0)}));
  ASSERT_OK_AND_ASSIGN(const Told told, Tell(model, Greedy(6)));
  EXPECT_EQ(ReadFile(kStoryText).rfind(told.text, 0), 0u) << told.text;
  Session session(model, {});
  const std::vector<int32_t> ids = model.tokenizer->Encode(kPrompt, {});
  const float* logits = session.Feed(ids);
  const auto size = static_cast<size_t>(model.config.vocabulary);
  EXPECT_EQ(session.Likeliest(), LikeliestOf({logits, size}));
}

TEST(Story, TwoGpusTellTheSame) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  ASSERT_OK(Distribute(&model, {Place("SIM", 0), Place("SIM", 1)}));
  ASSERT_OK_AND_ASSIGN(const Told told, Tell(model, Greedy(4)));
  EXPECT_EQ(ReadFile(kStoryText).rfind(told.text, 0), 0u) << told.text;
}

TEST(Story, TheSameFromSafetensors) {
  SKIP_WITHOUT_DATA();
  ExpectStory(std::string(kData) + "models/stories260K/hf");
}

nlohmann::json Golden() {
  return nlohmann::json::parse(ReadFile(std::string(kData) + "models/stories260K/golden.json"));
}

TEST(Story, LogitsAreTheGoldens) {
  SKIP_WITHOUT_DATA();
  const nlohmann::json golden = Golden();
  for (const char* path : {kStory, "../shared/data/models/stories260K/hf"}) {
    ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
    const std::vector<int32_t> ids = model.tokenizer->Encode(kPrompt, {});
    EXPECT_EQ(ids, golden["prompt_ids"].get<std::vector<int32_t>>());
    Session session(model, {});
    const float* logits = session.Feed(ids);
    const auto expected = golden["last_logits_f64"].get<std::vector<double>>();
    // Relative to what logits are like: one that happens to be near 0 has no smaller error.
    double squares = 0;
    for (double e : expected) squares += e * e;
    const double typical = std::sqrt(squares / static_cast<double>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(logits[i], expected[i], 1e-5 * std::max(typical, std::fabs(expected[i]))) << i;
    }
    for (const char* text : {"shakespeare_512", "greedy_story"}) {
      const auto tokens = golden[std::string(text) + "_ids"].get<std::vector<int32_t>>();
      session.Rewind(0);
      EXPECT_NEAR(MeanNegativeLogLikelihood(session, model.config.vocabulary, tokens),
                  golden[std::string(text) + "_mean_nll"].get<double>(), 1e-4);
    }
  }
}

// Weights are exact in Q8_0 to 1/254 of their block's greatest, and so are activations unless they
// stay f32, or of many tokens are bf16; the likelihood hardly differs.
TEST(Story, QuantisedToEightBitsIsNearlyTheSameSlow) {
  SKIP_WITHOUT_DATA();
  const nlohmann::json golden = Golden();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       LoadModel(std::string(kData) + "models/stories260K/stories260K-Q8_0.gguf"));
  EXPECT_EQ(model.format, "Q8_0");
  const auto expected = golden["last_logits_f64"].get<std::vector<double>>();
  std::vector<double> errors, losses, of_few;
  for (const Activations activations :
       {Activations::kF32, Activations::kInt8, Activations::kBf16}) {
    const bool rounded = activations != Activations::kF32;
    SessionOptions options;
    options.activations = activations;
    Session session(model, options);
    const float* logits = session.Feed(model.tokenizer->Encode(kPrompt, {}));
    double error = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(logits[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    errors.push_back(std::sqrt(error / size));
    EXPECT_LT(errors.back(), rounded ? 0.02 : 0.01);
    EXPECT_GT(errors.back(), 1e-5);  // it is quantised
    session.Rewind(0);
    losses.push_back(MeanNegativeLogLikelihood(
        session, model.config.vocabulary, golden["greedy_story_ids"].get<std::vector<int32_t>>()));
    EXPECT_NEAR(losses.back(), golden["greedy_story_mean_nll"].get<double>(),
                rounded ? 0.02 : 0.01);
    session.Rewind(0);
    of_few.push_back(session.Feed({1, 403, 407})[0]);
  }
  EXPECT_NE(errors[0], errors[1]);
  EXPECT_NE(losses[1], losses[2]);
  EXPECT_NE(of_few[0], of_few[1]);
  EXPECT_EQ(of_few[1], of_few[2]);  // bf16 is for many at once
}

// All that llama.cpp rounds is rounded alike, so what it says next is the likeliest here, too: of
// five layers and one matrix in f16 in each, by sums in another order, which chips have in orders
// of their own. That may decide between two words that are as likely as each other, but no more.
TEST(Story, EightBitsTellLlamaCppsStory) {
  SKIP_WITHOUT_DATA();
  constexpr float kAsLikely = 0.05f;
  constexpr size_t kTokens = 220;  // of words that were said as the tokenizer would part them
  const std::string folder = std::string(kData) + "models/stories260K/";
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(folder + "stories260K-Q8_0.gguf"));
  const std::string story = ReadFile(folder + "llama.cpp-greedy-Q8_0.txt");
  const std::vector<int32_t> ids = model.tokenizer->Encode(absl::StripAsciiWhitespace(story), {});
  const size_t given = model.tokenizer->Encode(kPrompt, {}).size();
  ASSERT_GT(ids.size(), kTokens);
  Session session(model, {});
  size_t likeliest = 0;
  for (size_t i = 0; i + 1 < kTokens; ++i) {
    const float* logits = session.Feed({ids[i]});
    if (i + 1 < given) continue;
    const float most = *std::max_element(logits, logits + model.config.vocabulary);
    EXPECT_LT(most - logits[ids[i + 1]], kAsLikely) << i;
    likeliest += session.Likeliest() == ids[i + 1];
  }
  EXPECT_GE(likeliest + 2, kTokens - given);
}

// Keys and values in f16 take half the memory and err by half a unit of f16, 2^-11, each.
TEST(Story, KeysAndValuesInHalfPrecision) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 29 + 7) % 512);
  std::vector<std::vector<float>> logits;
  std::vector<uint64_t> bytes;
  for (const DType dtype : {kFloat32, kFloat16}) {
    SessionOptions options;
    options.cache = dtype;
    Session session(model, options);
    bytes.push_back(session.cache_bytes());
    logits.push_back(session.FeedForAll(tokens));
    const float* last = session.Feed({tokens.data(), 1});
    logits.back().insert(logits.back().end(), last, last + model.config.vocabulary);
  }
  EXPECT_EQ(bytes[0], 2 * bytes[1]);
  double error = 0, size = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    error += std::pow(logits[1][i] - logits[0][i], 2);
    size += std::pow(logits[0][i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 1e-3);
  EXPECT_GT(std::sqrt(error / size), 1e-7);
}

TEST(Story, LoadingTellsHowFarItIs) {
  uint64_t last = 0, all = 0;
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory, [&](uint64_t done, uint64_t bytes) {
                         EXPECT_GT(done, last);
                         last = done;
                         all = bytes;
                         return true;
                       }));
  EXPECT_EQ(last, model.bytes_stored);
  EXPECT_EQ(all, model.bytes_stored);
  EXPECT_THAT(LoadModel(kStory, [](uint64_t, uint64_t) { return false; }),
              StatusIs(absl::StatusCode::kCancelled, "interrupted"));
}

TEST(Story, AStepAfterTheFirstPlansAndAllocatesNothing) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  Session session(model, {});
  int32_t token = 1;
  for (int i = 0; i < 3; ++i) session.Feed({&token, 1});
  ASSERT_OK_AND_ASSIGN(DeviceRuntime * device, GetDevice(Place("CPU", 0)));
  const RuntimeStats before = GetRuntimeStats();
  const MemoryStats memory = device->Memory();
  for (int i = 0; i < 100; ++i) session.Feed({&token, 1});
  EXPECT_EQ(GetRuntimeStats().plans_made, before.plans_made);
  EXPECT_GT(GetRuntimeStats().kernels_run, before.kernels_run);
  EXPECT_EQ(device->Memory().allocations, memory.allocations);
  EXPECT_EQ(device->Memory().live_bytes, memory.live_bytes);
  EXPECT_EQ(session.position(), 103);
}

TEST(Story, TheLastPositionsOfTheContext) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  SessionOptions options;
  options.context = 40;
  Session session(model, options);
  ASSERT_OK_AND_ASSIGN(
      const Generated g,
      Generate(session, model, model.tokenizer->Encode(kPrompt, {}), Greedy(100), [](auto&) {}));
  EXPECT_STREQ(g.reason, "context");
  EXPECT_EQ(g.tokens.size(), 40u - 5 + 1);  // the one after the last position is known too
  EXPECT_EQ(ReadFile(kStoryText).substr(16, g.text.size()), g.text);
  const std::vector<int32_t> long_prompt(41, 5);
  session.Rewind(0);
  EXPECT_THAT(Generate(session, model, long_prompt, Greedy(1), [](auto&) {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "41 tokens"));
  EXPECT_THAT(Generate(session, model, {}, Greedy(1), [](auto&) {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "empty"));
}

TEST(Story, StopTextsAreNotShown) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  GenerateOptions options = Greedy(100);
  options.stops = {"never", " She loved"};
  ASSERT_OK_AND_ASSIGN(const Told told, Tell(model, options));
  EXPECT_EQ(told.text, "Once upon a time, there was a little girl named Lily.");
  EXPECT_STREQ(told.result.reason, "stop");
}

TEST(Story, ASeedGivesItsTextEveryTime) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  GenerateOptions options = Greedy(40);
  options.sampler.temperature = 1;
  options.sampler.top_p = 0.9;
  std::vector<std::string> texts;
  for (uint64_t seed : {7, 7, 8}) {
    options.sampler.seed = seed;
    ASSERT_OK_AND_ASSIGN(const Told told, Tell(model, options));
    texts.push_back(told.text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
}

TEST(Story, AnInterruptEndsTheText) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(kStory));
  std::atomic<bool> stop{false};
  GenerateOptions options = Greedy(100);
  options.interrupted = &stop;
  Session session(model, {});
  ASSERT_OK_AND_ASSIGN(const Generated g,
                       Generate(session, model, model.tokenizer->Encode(kPrompt, {}), options,
                                [&](const std::string&) { stop = true; }));
  EXPECT_STREQ(g.reason, "interrupt");
  EXPECT_EQ(g.tokens.size(), 1u);
}

}  // namespace
}  // namespace tessera::llm
