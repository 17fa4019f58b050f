// Experts in MXFP4 as folders of gpt-oss have them, nibbles and exponents apart.
#include <cmath>
#include <map>

#include "examples/llm/session.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

constexpr int64_t kExperts = 5, kDim = 64, kFfn = 32, kVocabulary = 40, kBlock = 32;
const char kExpertsOf[] = "model.layers.0.mlp.experts.";
const char kConfig[] = R"({
  "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 40,
  "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 8, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64, "tie_word_embeddings": false, "attention_bias": true,
  "layer_types": ["sliding_attention"], "rope_theta": 10000.0})";

// What is not the experts' matrices.
void AddCommon(RandomWeights* w) {
  const std::string layer = "model.layers.0.", attention = layer + "self_attn.";
  w->Add("model.embed_tokens.weight", {kVocabulary, kDim}, 0.5);
  w->Add("lm_head.weight", {kVocabulary, kDim}, 0.5);
  w->Add("model.norm.weight", {kDim}, 0.3, 1);
  w->Add(layer + "input_layernorm.weight", {kDim}, 0.3, 1);
  w->Add(layer + "post_attention_layernorm.weight", {kDim}, 0.3, 1);
  for (const auto& [name, rows, columns] :
       {std::tuple("q_proj", 64, 64), {"k_proj", 32, 64}, {"v_proj", 32, 64}, {"o_proj", 64, 64}}) {
    w->Add(absl::StrCat(attention, name, ".weight"), {rows, columns}, 0.5);
    w->Add(absl::StrCat(attention, name, ".bias"), {rows}, 0.5);
  }
  w->Add(attention + "sinks", {4}, 0.5);
  w->Add(layer + "mlp.router.weight", {kExperts, kDim}, 0.5);
  w->Add(layer + "mlp.router.bias", {kExperts}, 0.5);
  w->Add(absl::StrCat(kExpertsOf, "gate_up_proj_bias"), {kExperts, 2 * kFfn}, 0.5);
  w->Add(absl::StrCat(kExpertsOf, "down_proj_bias"), {kExperts, kDim}, 0.5);
}

// Random nibbles and exponents of [experts, rows, columns], and the transposed matrices that they
// stand for.
struct PackedMatrices {
  std::string nibbles, exponents;
  std::vector<float> turned;

  PackedMatrices(int64_t rows, int64_t columns) : turned(kExperts * rows * columns) {
    const float numbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    uint64_t state = static_cast<uint64_t>(rows);
    const auto next = [&] {
      return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33;
    };
    for (int64_t i = 0; i < kExperts * rows * columns; i += kBlock) {
      const int exponent = 120 + static_cast<int>(next() % 6);
      exponents.push_back(static_cast<char>(exponent));
      for (int64_t j = 0; j < kBlock; ++j) {
        const uint64_t nibble = next() % 16;
        if (j % 2 == 0) nibbles.push_back(0);
        nibbles.back() = static_cast<char>(nibbles.back() | nibble << (j % 2 * 4));
        const float value = (nibble < 8 ? 1.0f : -1.0f) * numbers[nibble % 8];
        const int64_t e = (i + j) / (rows * columns), r = (i + j) / columns % rows;
        const int64_t c = (i + j) % columns;
        turned[(e * columns + c) * rows + r] = std::ldexp(value, exponent - 127);
      }
    }
  }
};

struct PackedExperts : testing::Test {
  void SetUp() override {
    AddCommon(&packed);
    AddCommon(&plain);
    ASSERT_OK_AND_ASSIGN(const Json json, Json::Parse(kConfig, "config.json"));
    ASSERT_OK_AND_ASSIGN(config, ConfigFromHuggingFace(json, "config.json"));
  }
  static absl::Status Add(RandomWeights* to, const std::string& name, WeightFormat format,
                          const std::vector<int64_t>& shape, absl::string_view bytes) {
    Weight w;
    w.name = absl::StrCat(kExpertsOf, name);
    w.format = format;
    w.shape = shape;
    w.bytes = bytes;
    return to->set.Add(w);
  }
  absl::StatusOr<Model> Load(const RandomWeights& w) const {
    return MakeModel(config, nullptr, w.set, false, "test");
  }

  const PackedMatrices gate_up{2 * kFfn, kDim}, down{kDim, kFfn};
  RandomWeights packed, plain;
  ModelConfig config;
};

TEST_F(PackedExperts, AreWhatTheyStandFor) {
  for (const auto& [name, m, rows, columns] :
       {std::tuple("gate_up_proj", &gate_up, 2 * kFfn, kDim), {"down_proj", &down, kDim, kFfn}}) {
    ASSERT_OK(Add(&packed, absl::StrCat(name, "_blocks"), WeightFormat::kU8,
                  {kExperts, rows, columns / kBlock, kBlock / 2}, m->nibbles));
    ASSERT_OK(Add(&packed, absl::StrCat(name, "_scales"), WeightFormat::kU8,
                  {kExperts, rows, columns / kBlock}, m->exponents));
    ASSERT_OK(Add(&plain, name, WeightFormat::kF32, {kExperts, columns, rows},
                  {reinterpret_cast<const char*>(m->turned.data()), 4 * m->turned.size()}));
  }
  ASSERT_OK_AND_ASSIGN(const Model model, Load(packed));
  ASSERT_OK_AND_ASSIGN(const Model wanted, Load(plain));
  EXPECT_EQ(model.layers[0].gate.format, WeightFormat::kMXFP4);
  std::vector<int32_t> tokens(20);
  for (int i = 0; i < 20; ++i) tokens[i] = (i * 7 + 3) % kVocabulary;
  SessionOptions options;
  options.context = 32;
  options.activations = Activations::kF32;
  const std::vector<float> got = Session(model, options).FeedForAll(tokens);
  const std::vector<float> want = Session(wanted, options).FeedForAll(tokens);
  double largest = 0;
  for (float v : want) largest = std::max<double>(largest, std::fabs(v));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5 * largest) << i;
}

TEST_F(PackedExperts, AreChecked) {
  const std::vector<int64_t> nibbles = {kExperts, 2 * kFfn, kDim / kBlock, kBlock / 2};
  ASSERT_OK(Add(&packed, "gate_up_proj_blocks", WeightFormat::kU8, nibbles, gate_up.nibbles));
  EXPECT_THAT(Load(packed).status(),
              StatusIs(absl::StatusCode::kDataLoss, "gate_up_proj_scales' [5, 64, 2] is missing"));
  const std::vector<float> floats(kExperts * 2 * kFfn * kDim / kBlock);
  ASSERT_OK(Add(&packed, "gate_up_proj_scales", WeightFormat::kF32, {kExperts, 2 * kFfn, 2},
                {reinterpret_cast<const char*>(floats.data()), 4 * floats.size()}));
  EXPECT_THAT(Load(packed).status(),
              StatusIs(absl::StatusCode::kDataLoss, "its format is F32; parts of blocks are U8"));
}

}  // namespace
}  // namespace tessera::llm
