// Every architecture at small size gives the logits that Hugging Face's transformers gives
// (tests/llm/goldens): from the configuration and under the names of its checkpoints, from a GGUF
// file of the same weights, and over several devices.
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/golden_model.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

constexpr int kTokens = 24, kVocabulary = 50;

Place Cpu(int i) { return Place("CPU", i); }

class Transformers : public testing::TestWithParam<const char*> {
 protected:
  // Of the parameter's model.
  void SetUp() override {
    model_ = GoldenModelNamed(GetParam());
    ASSERT_TRUE(model_.golden) << GetParam();
    for (int i = 0; i < kTokens; ++i) tokens_.push_back((i * 17 + 3) % kVocabulary);
  }

  absl::StatusOr<Model> Load() const {
    WeightSet set;
    for (const Named& w : model_.weights) {
      RETURN_IF_ERROR(set.Add({.name = w.name,
                               .format = WeightFormat::kF32,
                               .shape = w.shape,
                               .bytes = {reinterpret_cast<const char*>(w.values.data()),
                                         w.values.size() * sizeof(float)},
                               .offset = 0,
                               .file = nullptr}));
    }
    return MakeModel(model_.config, nullptr, set, false, "test");
  }

  // [tokens, vocabulary], of which the goldens have some.
  void ExpectGolden(const std::vector<float>& all) const {
    const Json logits = *model_.golden->Find("logits");
    for (const JsonItem item : logits.Items()) {
      const int64_t position = std::stoll(item.key());
      std::vector<double> want;
      double largest = 0;
      for (const JsonItem v : item.value().Items()) {
        want.push_back(*v.value().Number());
        largest = std::max(largest, std::fabs(want.back()));
      }
      ASSERT_EQ(want.size(), kVocabulary);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(all[static_cast<size_t>(position) * want.size() + i], want[i], 2e-4 * largest)
            << "position " << position << ", token " << i;
      }
    }
  }

  void ExpectGolden(const Model& model) const {
    SessionOptions options;
    options.context = 64;
    Session session(model, options);
    ExpectGolden(session.FeedForAll(tokens_));
  }

  GoldenModel model_;
  std::vector<int32_t> tokens_;
};

// In all ways in which a model is served.
class ServedTransformers : public Transformers {};

TEST_P(Transformers, GivesTheseLogits) {
  ASSERT_OK_AND_ASSIGN(const Model model, Load());
  ExpectGolden(model);
}

// As a prompt in a step of 16 and then one by one.
TEST_P(ServedTransformers, GivesThemTokenByTokenSlow) {
  ASSERT_OK_AND_ASSIGN(const Model model, Load());
  SessionOptions options;
  options.context = 64;
  Session session(model, options);
  std::vector<float> logits(kTokens * kVocabulary);
  const auto feed = [&](int begin, int end) {
    const float* last = session.Feed(absl::MakeConstSpan(tokens_).subspan(begin, end - begin));
    std::copy(last, last + kVocabulary, logits.begin() + (end - 1) * kVocabulary);
  };
  feed(0, 1);
  session.Rewind(0);
  feed(0, 16);
  for (int i = 16; i < kTokens; ++i) feed(i, i + 1);
  ExpectGolden(logits);
}

// With guesses in a step, of which some are wrong and are left behind; those with memories have
// none.
TEST_P(ServedTransformers, GivesThemWithGuessesSlow) {
  ASSERT_OK_AND_ASSIGN(const Model model, Load());
  SessionOptions options;
  options.context = 32;
  options.guesses = 7;
  Session session(model, options);
  std::vector<float> logits;
  const auto keep = [&](int rows) {
    for (int i = 0; i < rows; ++i) {
      const float* row = session.Logits(static_cast<size_t>(i));
      logits.insert(logits.end(), row, row + kVocabulary);
    }
  };
  if (model.config.AnyRemembers()) {
    EXPECT_EQ(session.MostGuesses(), 0);
    return;
  }
  session.Advance(absl::MakeConstSpan(tokens_).subspan(0, 1));
  keep(1);
  for (int right = 1, i = 1; i < kTokens; i += right, right = right % 6 + 1) {
    right = std::min(right, kTokens - i);
    std::vector<int32_t> guessed(tokens_.begin() + i, tokens_.begin() + i + right);
    while (guessed.size() < 3 || guessed.size() < static_cast<size_t>(right) + 1) {
      guessed.push_back((right * 7 + 5) % kVocabulary);
    }
    session.AdvanceGuessing(guessed);
    keep(right);
    session.Rewind(i + right);
  }
  ExpectGolden(logits);
}

// Two texts that go on by turns alone, and together with a third.
TEST_P(ServedTransformers, GivesThemBesideAnotherTextSlow) {
  ASSERT_OK_AND_ASSIGN(const Model model, Load());
  SessionOptions options;
  options.context = 64;
  options.texts = 3;
  Session session(model, options);
  std::vector<float> first(kTokens * kVocabulary), second = first;
  const auto keep = [&](std::vector<float>& all, int at, size_t which) {
    const float* last = session.Logits(which);
    std::copy(last, last + kVocabulary, all.begin() + at * kVocabulary);
  };
  const auto golden = absl::MakeConstSpan(tokens_);
  const std::vector<int32_t> other = {5, 40, 7, 7, 2};
  session.Advance(golden.subspan(0, 16), 2);
  keep(second, 15, 0);
  session.Advance(other, 1);
  session.Advance(golden.subspan(0, 1), 0);
  keep(first, 0, 0);
  for (int i = 1; i < kTokens; ++i) {
    const int ahead = std::min(i + 15, kTokens);
    std::vector<Session::Next> next = {{0, tokens_[i]}};
    if (ahead < kTokens) next.insert(next.begin(), {2, tokens_[ahead]});
    if (i % 2 == 0) next.push_back({1, other[i % 5]});
    session.AdvanceTogether(next);
    if (ahead < kTokens) keep(second, ahead, 0);
    keep(first, i, ahead < kTokens ? 1 : 0);
  }
  ExpectGolden(first);
  std::copy(first.begin(), first.begin() + 15 * kVocabulary, second.begin());
  ExpectGolden(second);
}

TEST_P(Transformers, GivesThemFromGguf) {
  GgufWriter file;
  SetGgufKeys(model_, &file);
  for (const Named& w : GgufWeights(model_)) {
    file.Add(w.name, WeightFormat::kF32, w.shape,
             std::string(reinterpret_cast<const char*>(w.values.data()), 4 * w.values.size()));
  }
  const std::string path = OwnTempDir() + "/model.gguf";
  ASSERT_OK(file.Write(path));
  ASSERT_OK_AND_ASSIGN(const Gguf gguf, OpenGguf(path));
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ConfigFromGguf(gguf.metadata));
  ASSERT_OK_AND_ASSIGN(const Model model, MakeModel(config, nullptr, gguf.weights, true, path));
  ExpectGolden(model);
}

TEST_P(ServedTransformers, GivesThemOnAnotherPlaceSlow) {
  ASSERT_OK_AND_ASSIGN(Model model, Load());
  ASSERT_OK(Distribute(&model, {Cpu(1)}));
  ExpectGolden(model);
}

// Whose kernels are others, those by experts among them.
TEST_P(ServedTransformers, GivesThemOnASimulatedGpuSlow) {
  ASSERT_OK_AND_ASSIGN(Model model, Load());
  ASSERT_OK(Distribute(&model, {Place("SIM", 0)}));
  ExpectGolden(model);
}

TEST_P(ServedTransformers, GivesThemOverThreePlacesSlow) {
  ASSERT_OK_AND_ASSIGN(Model model, Load());
  ASSERT_OK(Distribute(&model, {Cpu(0), Cpu(1), Cpu(2)}));
  ExpectGolden(model);
}

// Which differ most from one another, and the others.
const std::vector<const char*> kDistinct = {
    "llama",      "qwen3_moe", "gemma2",     "gemma3n",    "phi3_long",   "granitemoe",
    "gpt_oss",    "exaone4",   "starcoder2", "cohere2",    "deepseek_v2", "deepseek_v3",
    "minimax_m2", "lfm2_moe",  "qwen3_next", "qwen3_5_moe"};
const std::vector<const char*> kAlike = {"mistral",
                                         "qwen2",
                                         "qwen3",
                                         "mixtral",
                                         "qwen2_moe",
                                         "olmoe",
                                         "gemma",
                                         "gemma3",
                                         "phi3",
                                         "granite",
                                         "olmo2",
                                         "olmo3",
                                         "smollm3",
                                         "ministral3",
                                         "glm4",
                                         "exaone4_whole",
                                         "seed_oss",
                                         "ernie4_5",
                                         "hunyuan_v1_dense",
                                         "arcee",
                                         "cohere",
                                         "cohere_normed",
                                         "deepseek_v2_greedy",
                                         "glm4_moe_lite",
                                         "glm4_moe",
                                         "dots1",
                                         "ernie4_5_moe",
                                         "ernie4_5_moe_biased",
                                         "lfm2",
                                         "qwen3_5"};

std::string NameOf(const testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Distinct, Transformers, testing::ValuesIn(kDistinct), NameOf);
INSTANTIATE_TEST_SUITE_P(Alike, Transformers, testing::ValuesIn(kAlike), NameOf);
INSTANTIATE_TEST_SUITE_P(Distinct, ServedTransformers, testing::ValuesIn(kDistinct), NameOf);
INSTANTIATE_TEST_SUITE_P(AlikeLong, ServedTransformers, testing::ValuesIn(kAlike), NameOf);

}  // namespace
}  // namespace tessera::llm
