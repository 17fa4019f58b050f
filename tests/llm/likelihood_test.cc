// How likely tokens are, against softmax written out.
#include "examples/llm/likelihood.h"

#include <cmath>

#include "tests/testing.h"

namespace tessera::llm {
namespace {

std::vector<int32_t> Ids(const TokenLikelihood& of) {
  std::vector<int32_t> out;
  for (const TokenLikelihood::One& one : of.likeliest) out.push_back(one.token);
  return out;
}

TEST(Likelihood, IsTheLogarithmOfSoftmax) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f};
  double sum = 0;
  for (const float v : logits) sum += std::exp(double{v});
  for (int32_t i = 0; i < 6; ++i) {
    const TokenLikelihood of = LikelihoodOf(logits, i, 4);
    EXPECT_EQ(of.next.token, i);
    EXPECT_NEAR(of.next.log_probability, logits[i] - std::log(sum), 1e-9);
    EXPECT_EQ(Ids(of), (std::vector<int32_t>{1, 3, 4, 0}));
    EXPECT_NEAR(of.likeliest[2].log_probability, 1 - std::log(sum), 1e-9);
  }
  EXPECT_EQ(Ids(LikelihoodOf(logits, 0, 0)).size(), 0u);
  EXPECT_EQ(Ids(LikelihoodOf(logits, 0, 20)).size(), 6u);
}

TEST(Likelihood, OfWhatHasNone) {
  const float none = -INFINITY;
  const TokenLikelihood of = LikelihoodOf(std::vector<float>{none, std::nanf(""), 5, 5}, 1, 3);
  EXPECT_EQ(of.next.log_probability, kLeastLogProbability);
  EXPECT_EQ(Ids(of), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_NEAR(of.likeliest[0].log_probability, std::log(0.5), 1e-9);
  EXPECT_EQ(of.likeliest[2].log_probability, kLeastLogProbability);
  EXPECT_EQ(LikelihoodOf(std::vector<float>{none, none}, 1, 1).next.log_probability,
            kLeastLogProbability);
  EXPECT_EQ(LikelihoodOf(std::vector<float>{1e30f, -1e30f}, 1, 0).next.log_probability,
            kLeastLogProbability);
}

}  // namespace
}  // namespace tessera::llm
