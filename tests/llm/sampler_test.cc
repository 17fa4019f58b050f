// Sampling: what each option leaves over, and how often it is drawn.
#include "examples/llm/sampler.h"

#include <cmath>
#include <set>

#include "tests/testing.h"

namespace tessera::llm {
namespace {

using ::testing::ElementsAre;

constexpr int kVocabulary = 6;
const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f};

std::set<int32_t> Drawn(const SamplerOptions& options, const std::vector<int32_t>& recent = {}) {
  Sampler sampler(options, kVocabulary);
  std::set<int32_t> out;
  for (int i = 0; i < 2000; ++i) out.insert(sampler.Pick(kLogits.data(), recent));
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

TEST(Sampler, RecentTokensBecomeLessLikely) {
  SamplerOptions o;
  o.repeat_penalty = 1.5;
  EXPECT_THAT(Drawn(o, {1, 1}), ElementsAre(3));
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(1));
  o.repeat_penalty = 10;
  EXPECT_THAT(Drawn(o, {1, 3}), ElementsAre(4));
}

TEST(Sampler, APenaltyMakesNoTokenOfNaN) {
  std::vector<float> logits = kLogits;
  logits[1] = logits[5] = std::nanf("");
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions o;
    o.temperature = temperature;
    o.repeat_penalty = 1.5;
    Sampler sampler(o, kVocabulary);
    for (int i = 0; i < 500; ++i) {
      const int32_t id = sampler.Pick(logits.data(), std::vector<int32_t>{1, 5, 1, 3});
      ASSERT_TRUE(id != 1 && id != 5 && (temperature > 0 || id == 3)) << id;
    }
  }
}

TEST(Sampler, TheLikeliestIsTheFirstGreatestNumber) {
  const float nan = std::nanf("");
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, 1, 3, nan, 3}), 2);
  EXPECT_EQ(LikeliestOf(std::vector<float>{-1}), 0);
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, -INFINITY}), 1);
  EXPECT_EQ(LikeliestOf(std::vector<float>{nan, nan}), 0);
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
    for (int i = 0; i < 2000; ++i) out.insert(sampler.Pick(logits.data(), recent, {&allowed, 1}));
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
  EXPECT_THAT(drawn(o, 0b010000, nan), ElementsAre(4));
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
}

}  // namespace
}  // namespace tessera::llm
