// Sampling: what each option leaves over, and how often it is drawn.
#include "examples/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "tests/testing.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;

constexpr int kVocabulary = 6;
const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f};

// Of a text of these tokens, all but `given` of which were written.
std::set<int32_t> Drawn(const SamplerOptions& options, const std::vector<int32_t>& tokens = {},
                        size_t given = 0) {
  Sampler sampler(options, kVocabulary);
  std::set<int32_t> out;
  for (int i = 0; i < 2000; ++i) {
    out.insert(sampler.Pick(kLogits.data(), {tokens, tokens.size() - given}));
  }
  return out;
}

SamplerOptions Warm() {
  SamplerOptions o;
  o.temperature = 2;
  return o;
}

TEST(Sampler, GreedyTakesTheFirstOfTheGreatest) { EXPECT_THAT(Drawn({}), ElementsAre(1)); }

TEST(Sampler, OptionsLeaveTheLikeliest) {
  EXPECT_EQ(Drawn(Warm()).size(), 6u);
  SamplerOptions o = Warm();
  o.top_k = 3;
  EXPECT_THAT(Drawn(o), ElementsAre(1, 3, 4));
  o = Warm();
  o.top_p = 0.7;  // 1 and 3 have 0.71 together
  EXPECT_THAT(Drawn(o), ElementsAre(1, 3));
  o = Warm();
  o.min_p = 0.3;  // of 1's: e^-1 is above, e^-1.5 is not
  EXPECT_THAT(Drawn(o), ElementsAre(1, 3, 4));
}

// Probabilities are 0.38 of 1 and 3, 0.14, 0.08, 0.02 and 0.003, and the usual surprise is 1.31.
TEST(Sampler, TypicalTokensAreNearestToTheUsualSurprise) {
  SamplerOptions o = Warm();
  o.typical_p = 0.3;  // 1 and 3 are nearest, at 0.97
  EXPECT_THAT(Drawn(o), ElementsAre(3));
  o.typical_p = 0.6;
  EXPECT_THAT(Drawn(o), ElementsAre(1, 3));
  o.typical_p = 0.8;  // then 4, at 1.97
  EXPECT_THAT(Drawn(o), ElementsAre(1, 3, 4));
  o.typical_p = 0.99;
  EXPECT_THAT(Drawn(o), ElementsAre(0, 1, 2, 3, 4));
  o.top_k = 1;
  EXPECT_THAT(Drawn(o), ElementsAre(1));
}

TEST(Sampler, TheLikeliestMayBeTooUsual) {
  // One token of 0.56 and eight of 0.055: the usual surprise is 1.6, their own are 0.58 and 2.9.
  std::vector<float> logits(9, 0.0f);
  logits[4] = std::log(10.2f);
  SamplerOptions o = Warm();
  o.typical_p = 0.4;
  Sampler sampler(o, 9);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.Pick(logits.data(), {}), 4);
  // One of 0.34 and forty of 0.0165: 1.08 and 4.1 of 3.08, so that the many are nearer.
  logits.assign(41, 0.0f);
  logits[4] = std::log(20.6f);
  o.typical_p = 0.6;
  Sampler many(o, 41);
  for (int i = 0; i < 500; ++i) EXPECT_NE(many.Pick(logits.data(), {}), 4);
}

TEST(Sampler, RecentTokensBecomeLessLikely) {
  SamplerOptions o;
  o.repeat_penalty = 1.5;
  EXPECT_THAT(Drawn(o, {1, 1}), ElementsAre(3));
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(1));
  o.repeat_penalty = 10;
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(4));
  o.repeat_last = 1;
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(1));
  o.repeat_last = 0;
  EXPECT_THAT(Drawn(o, {1, 1}), ElementsAre(1));
  o.repeat_last = -1;
  std::vector<int32_t> long_ago(100, 5);
  long_ago[0] = 1;
  EXPECT_THAT(Drawn(o, long_ago, 100), ElementsAre(3));
}

// Of 1 the logit is 2, of 4 it is 1, and of 0 a half.
TEST(Sampler, PenaltiesOfWhatWasWritten) {
  SamplerOptions o;
  o.presence_penalty = 1.25;
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(4));
  EXPECT_THAT(Drawn(o, {1, 3, 1, 3, 4}), ElementsAre(1)) << "once, however often it was written";
  EXPECT_THAT(Drawn(o, {1, 3}, 2), ElementsAre(1)) << "a prompt was not written";
  EXPECT_THAT(Drawn(o, {1, 3}, 1), ElementsAre(1));
  o.presence_penalty = 0;
  o.frequency_penalty = 0.75;
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(1));
  EXPECT_THAT(Drawn(o, {1, 3, 1, 3}), ElementsAre(4));
  EXPECT_THAT(Drawn(o, {1, 3, 1, 3, 1, 3, 4}), ElementsAre(0));
  o.frequency_penalty = -2;
  EXPECT_THAT(Drawn(o, {2, 2}), ElementsAre(2));
  EXPECT_FALSE(Sampler(o, kVocabulary).IsGreedy());
}

TEST(Sampler, BiasesAreAdded) {
  SamplerOptions o;
  o.biases = {{5, 100}};
  EXPECT_THAT(Drawn(o), ElementsAre(5));
  EXPECT_FALSE(Sampler(o, kVocabulary).IsGreedy());
  o.biases = {{1, -100}, {3, -100}};
  EXPECT_THAT(Drawn(o), ElementsAre(4));
  o.temperature = 1;
  EXPECT_THAT(Drawn(o), ElementsAre(0, 2, 4, 5));
}

TEST(Sampler, APenaltyMakesNoTokenOfNaN) {
  std::vector<float> logits = kLogits;
  logits[1] = logits[5] = std::nanf("");
  const std::vector<int32_t> past = {1, 5, 1, 3};
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions o;
    o.temperature = temperature;
    o.repeat_penalty = 1.5;
    Sampler sampler(o, kVocabulary);
    for (int i = 0; i < 500; ++i) {
      const int32_t id = sampler.Pick(logits.data(), {past, past.size()});
      ASSERT_TRUE(id != 1 && id != 5 && (temperature > 0 || id == 3)) << id;
    }
  }
}

TEST(Sampler, TheLikeliestIsTheFirstGreatestNumber) {
  const float nan = std::nanf("");
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, 1, 3, nan, 3}), 2);
  EXPECT_EQ(LikeliestOf(std::vector<float>{-1}), 0);
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, -INFINITY}), 1);
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, nan}), kNoNumbers);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  SamplerOptions o;
  o.temperature = 1;
  o.seed = 3;
  Sampler sampler(o, kVocabulary);
  std::vector<double> expected, count(kVocabulary, 0.0);
  double sum = 0;
  for (float v : kLogits) expected.push_back(std::exp(v)), sum += expected.back();
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) ++count[sampler.Pick(kLogits.data(), {})];
  for (int i = 0; i < kVocabulary; ++i) {
    const double p = expected[i] / sum;
    EXPECT_NEAR(count[i] / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << i;
  }
}

TEST(Sampler, OfAllowedTokensTheOptionsLeaveTheLikeliest) {
  const auto drawn = [](const SamplerOptions& options, uint64_t allowed,
                        const std::vector<float>& logits, const std::vector<int32_t>& recent = {}) {
    Sampler sampler(options, kVocabulary);
    std::set<int32_t> out;
    for (int i = 0; i < 2000; ++i) out.insert(sampler.Pick(logits.data(), {recent}, {&allowed, 1}));
    return out;
  };
  EXPECT_THAT(drawn({}, 0b111000, kLogits), ElementsAre(3));
  EXPECT_THAT(drawn({}, 0b110101, kLogits), ElementsAre(4));
  EXPECT_THAT(drawn({}, 0, kLogits), ElementsAre(-1));
  EXPECT_THAT(drawn({}, uint64_t{1} << 40, kLogits), ElementsAre(-1));  // no token
  EXPECT_THAT(drawn(Warm(), 0b100101, kLogits), ElementsAre(0, 2, 5));
  SamplerOptions o = Warm();
  o.top_k = 2;
  EXPECT_THAT(drawn(o, 0b110101, kLogits), ElementsAre(0, 4));
  o.repeat_penalty = 100;
  EXPECT_THAT(drawn(o, 0b110110, kLogits, {1, 4}), ElementsAre(1, 4));
  o.top_k = 0;
  const std::vector<float> none(kVocabulary, -INFINITY), nan(kVocabulary, std::nanf(""));
  EXPECT_THAT(drawn(o, 0b001000, none), ElementsAre(3));
  EXPECT_THAT(drawn(o, 0b010000, nan), ElementsAre(kNoNumbers));
  EXPECT_THAT(drawn({}, 0b010000, nan), ElementsAre(kNoNumbers));
}

// Of a large vocabulary only what is looked at is put in order: as if all were.
TEST(Sampler, DrawsAsFromAllInOrder) {
  constexpr int64_t kMany = 5000;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kMany);
  for (float& l : logits) l = std::round(normal(random) * 16) / 16;  // many are equal
  std::vector<int32_t> order(kMany);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (const auto& [top_p, min_p, temperature, top_k] :
       std::vector<std::tuple<double, double, double, int64_t>>{{1, 0, 1, 0},
                                                                {0.9, 0, 1, 0},
                                                                {1, 0.01, 0.7, 0},
                                                                {0.99, 1e-4, 2, 0},
                                                                {1, 0, 50, 0},
                                                                {0.95, 0, 1, 1000}}) {
    SamplerOptions o;
    o.temperature = temperature;
    o.top_p = top_p;
    o.min_p = min_p;
    o.top_k = top_k;
    o.seed = 9;
    const auto weight = [&](size_t i, double t) {
      return std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / t);
    };
    size_t kept = top_k > 0 ? static_cast<size_t>(top_k) : kMany;
    double sum = 0, reached = 0;
    for (size_t i = 0; i < kept; ++i) sum += weight(i, 1);
    if (top_p < 1) {
      for (size_t i = 0; i < kept; ++i) {
        reached += weight(i, 1) / sum;
        if (reached >= top_p) kept = i + 1;
      }
    }
    while (kept > 1 && weight(kept - 1, 1) < min_p) --kept;
    sum = 0;
    for (size_t i = 0; i < kept; ++i) sum += weight(i, temperature);
    Sampler sampler(o, kMany);
    std::mt19937_64 same(o.seed);
    for (int n = 0; n < 300; ++n) {
      double left = static_cast<double>(same() >> 11) * 0x1p-53 * sum;
      size_t at = 0;
      while (at + 1 < kept && (left -= weight(at, temperature)) >= 0) ++at;
      ASSERT_EQ(sampler.Pick(logits.data(), {}), order[at]) << n << " by " << temperature;
    }
  }
}

TEST(Sampler, OptionsOutOfRangeAreErrors) {
  const auto bad = [](auto set, const char* name) {
    SamplerOptions o;
    set(o);
    EXPECT_THAT(CheckSampler(o), StatusIs(absl::StatusCode::kInvalidArgument, name));
  };
  bad([](auto& o) { o.temperature = -1; }, "--temperature");
  bad([](auto& o) { o.temperature = std::nan(""); }, "--temperature");
  bad([](auto& o) { o.top_k = -1; }, "--top-k");
  bad([](auto& o) { o.top_p = 0; }, "--top-p");
  bad([](auto& o) { o.top_p = 1.5; }, "--top-p");
  bad([](auto& o) { o.min_p = -0.1; }, "--min-p");
  bad([](auto& o) { o.repeat_penalty = 0; }, "--repeat-penalty");
  bad([](auto& o) { o.repeat_last = -2; }, "--repeat-last-n");
  bad([](auto& o) { o.typical_p = 0; }, "--typical-p");
  bad([](auto& o) { o.presence_penalty = 2.5; }, "--presence-penalty");
  bad([](auto& o) { o.frequency_penalty = std::nan(""); }, "--frequency-penalty");
  bad([](auto& o) { o.biases = {{1, 101}}; }, "--logit-bias is 101");
  bad([](auto& o) { o.biases = {{-1, 1}}; }, "--logit-bias has token -1");
  SamplerOptions o;
  o.biases = {{6, 1}};
  EXPECT_OK(CheckSampler(o));
  EXPECT_THAT(CheckSampler(o, 6), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "--logit-bias has token 6, and the model has 6"));
}

}  // namespace
}  // namespace tessera::llm
