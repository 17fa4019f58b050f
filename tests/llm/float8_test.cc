// Folders with matrices in 8-bit floats: as the same model with what these stand for in f32.
#include <cmath>

#include "absl/strings/match.h"
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 256, kFfn = 320, kExpertFfn = 128, kKv = 64, kVocabulary = 40;

enum class Scales { kOne, kScalar, kRows, kBlocks };

// Four bits of exponent, three of mantissa.
float OfE4M3(uint8_t b) {
  const int exponent = (b >> 3) & 15, mantissa = b & 7;
  const float size = exponent == 0 ? std::ldexp(mantissa / 8.0f, -6)
                                   : std::ldexp(1 + mantissa / 8.0f, exponent - 7);
  return b >> 7 ? -size : size;
}

// One model twice: with matrices in 8 bits and their scales, and with their values.
struct Twins {
  RandomWeights eight, plain;
  std::vector<std::unique_ptr<std::string>> bytes;

  void AddVector(const std::string& name, int64_t size) {
    plain.state = eight.state;
    for (RandomWeights* w : {&eight, &plain}) w->Add(name, {size}, 0.3, 1);
  }
  void AddPlain(const std::string& name, int64_t rows, int64_t columns) {
    plain.state = eight.state;
    for (RandomWeights* w : {&eight, &plain}) w->Add(name, {rows, columns}, 0.5);
  }
  void AddMatrix(const std::string& name, int64_t rows, int64_t columns, Scales kind) {
    const auto blocks = [](int64_t n) { return (n + 127) / 128; };
    std::vector<int64_t> shape;
    if (kind == Scales::kOne) shape = {1};
    if (kind == Scales::kRows) shape = {rows, 1};
    if (kind == Scales::kBlocks) shape = {blocks(rows), blocks(columns)};
    const std::string scale_name = name + (kind == Scales::kBlocks ? "_scale_inv" : "_scale");
    eight.Add(scale_name, shape, 1e-3, 2e-3);
    const float* scale = eight.Of(scale_name);
    plain.Add(name, {rows, columns}, 1);
    float* values = plain.memory.back()->data();
    bytes.push_back(std::make_unique<std::string>(rows * columns, '\0'));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        uint64_t& state = eight.state;
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint8_t b = static_cast<uint8_t>(state >> 56);
        if ((b & 127) == 127) b ^= 64;  // no NaN
        (*bytes.back())[r * columns + c] = static_cast<char>(b);
        const int64_t at = kind == Scales::kRows     ? r
                           : kind == Scales::kBlocks ? r / 128 * blocks(columns) + c / 128
                                                     : 0;
        values[r * columns + c] = OfE4M3(b) * scale[at];
      }
    }
    Weight w;
    w.name = name;
    w.format = WeightFormat::kF8E4M3;
    w.shape = {rows, columns};
    w.bytes = *bytes.back();
    EXPECT_OK(eight.set.Add(std::move(w)));
  }
};

void AddOutside(Twins* t) {
  t->AddPlain("model.embed_tokens.weight", kVocabulary, kDim);
  t->AddPlain("lm_head.weight", kVocabulary, kDim);
  t->AddVector("model.norm.weight", kDim);
  t->AddVector("model.layers.0.input_layernorm.weight", kDim);
  t->AddVector("model.layers.0.post_attention_layernorm.weight", kDim);
}

void AddAttention(Twins* t, Scales kind) {
  const std::string attention = "model.layers.0.self_attn.";
  t->AddMatrix(attention + "q_proj.weight", kDim, kDim, kind);
  t->AddMatrix(attention + "k_proj.weight", kKv, kDim, kind);
  t->AddMatrix(attention + "v_proj.weight", kKv, kDim, kind);
  t->AddMatrix(attention + "o_proj.weight", kDim, kDim, kind);
  t->AddVector(attention + "q_norm.weight", kKv);
  t->AddVector(attention + "k_norm.weight", kKv);
}

void AddFfn(Twins* t, const std::string& part, int64_t width, Scales kind) {
  t->AddMatrix(part + "gate_proj.weight", width, kDim, kind);
  t->AddMatrix(part + "up_proj.weight", width, kDim, kind);
  t->AddMatrix(part + "down_proj.weight", kDim, width, kind);
}

// All of a mixture of two experts.
void AddMixture(Twins* t) {
  AddOutside(t);
  AddAttention(t, Scales::kBlocks);
  for (const char* part : {"model.layers.0.mlp.experts.0.", "model.layers.0.mlp.experts.1."}) {
    AddFfn(t, part, kExpertFfn, Scales::kBlocks);
  }
  t->AddPlain("model.layers.0.mlp.gate.weight", 2, kDim);
}

absl::StatusOr<Model> Make(const std::string& type, const RandomWeights& weights,
                           const std::string& keys = "") {
  const std::string text = absl::StrCat(R"({"hidden_size": 256, "intermediate_size": 320,
      "moe_intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
      "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "num_experts_per_tok": 1,
      "num_experts": 2, "num_key_value_heads": 1, "head_dim": 64, "norm_topk_prob": true,
      "pad_token_id": 0, "model_type": ")",
                                        type, "\"", keys, "}");
  ASSIGN_OR_RETURN(const Json json, Json::Parse(text, "config.json"));
  ASSIGN_OR_RETURN(const ModelConfig config, ConfigFromHuggingFace(json, "config.json"));
  return MakeModel(config, nullptr, weights.set, false, "test");
}

void ExpectTwins(const std::string& type, const Twins& t, WeightFormat format, int places = 1) {
  ASSERT_OK_AND_ASSIGN(Model eight, Make(type, t.eight));
  ASSERT_OK_AND_ASSIGN(const Model plain, Make(type, t.plain));
  EXPECT_EQ(eight.layers[0].o.format, format);
  std::vector<Place> on;
  for (int i = 0; i < places; ++i) on.emplace_back("CPU", i);
  ASSERT_OK(Distribute(&eight, on));
  SessionOptions options;
  options.activations = Activations::kF32;
  options.cache = kFloat32;
  const std::vector<int32_t> tokens = {3, 14, 15, 9, 26};
  const std::vector<float> got = Session(eight, options).FeedForAll(tokens);
  const std::vector<float> want = Session(plain, options).FeedForAll(tokens);
  EXPECT_LT(RelativeError(want, got), 1e-5);
}

TEST(Float8, EveryKindOfScale) {
  for (const Scales kind : {Scales::kOne, Scales::kScalar, Scales::kRows, Scales::kBlocks}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Twins t;
    AddOutside(&t);
    AddAttention(&t, kind);
    AddFfn(&t, "model.layers.0.mlp.", kFfn, kind);
    // What those who multiply in 8 bits have beside it.
    t.eight.Add("model.layers.0.mlp.down_proj.input_scale", {1}, 1);
    t.eight.Add("model.layers.0.self_attn.k_scale", {1}, 1);
    ExpectTwins("qwen3", t, WeightFormat::kF8E4M3Scaled);
  }
}

TEST(Float8, Experts) {
  Twins t;
  AddMixture(&t);
  ExpectTwins("qwen3_moe", t, WeightFormat::kF8E4M3Scaled);
}

TEST(Float8, ExpertsOfWhichOneHasNoScale) {
  Twins t;
  AddMixture(&t);
  RandomWeights spoiled;
  for (const Weight& w : t.eight.set.all()) {
    if (w.name != "model.layers.0.mlp.experts.1.up_proj.weight_scale_inv") {
      EXPECT_OK(spoiled.set.Add(w));
    }
  }
  EXPECT_THAT(Make("qwen3_moe", spoiled).status(),
              StatusIs(absl::StatusCode::kDataLoss, "experts.1.up_proj.weight"));
}

TEST(Float8, MatricesThatAreOne) {
  for (const Scales kind : {Scales::kOne, Scales::kRows, Scales::kBlocks}) {
    Twins t;
    AddOutside(&t);
    t.AddMatrix("model.layers.0.self_attn.qkv_proj.weight", kDim + 2 * kKv, kDim, kind);
    t.AddMatrix("model.layers.0.self_attn.o_proj.weight", kDim, kDim, kind);
    t.AddMatrix("model.layers.0.mlp.gate_up_proj.weight", 2 * kFfn, kDim, kind);
    t.AddMatrix("model.layers.0.mlp.down_proj.weight", kDim, kFfn, kind);
    ExpectTwins("phi3", t, WeightFormat::kF8E4M3Scaled);
  }
}

TEST(Float8, OverSeveralPlaces) {
  Twins t;
  AddOutside(&t);
  AddAttention(&t, Scales::kBlocks);
  AddFfn(&t, "model.layers.0.mlp.", kFfn, Scales::kBlocks);
  for (int places : {2, 3}) ExpectTwins("qwen3", t, WeightFormat::kF8E4M3Scaled, places);
}

TEST(Float8, WithoutScalesTheyAreTheirValues) {
  Twins t;
  AddOutside(&t);
  AddAttention(&t, Scales::kOne);
  AddFfn(&t, "model.layers.0.mlp.", kFfn, Scales::kOne);
  RandomWeights bare;
  for (const Weight& w : t.eight.set.all()) {
    if (absl::EndsWith(w.name, "_scale")) {
      *const_cast<float*>(t.eight.Of(w.name)) = 1;
    } else {
      EXPECT_OK(bare.set.Add(w));
    }
  }
  ASSERT_OK_AND_ASSIGN(const Model one, Make("qwen3", t.eight));
  ASSERT_OK_AND_ASSIGN(const Model none, Make("qwen3", bare));
  const std::vector<int32_t> tokens = {3, 14};
  SessionOptions options;
  options.activations = Activations::kF32;
  EXPECT_LT(RelativeError(Session(one, options).FeedForAll(tokens),
                          Session(none, options).FeedForAll(tokens)),
            1e-5);
}

TEST(Float8, ScalesThatFitNoMatrix) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3}, {256, 3}, {0, 1}, {2, 2, 1}, {1, 257}}) {
    Twins t;
    AddOutside(&t);
    AddAttention(&t, Scales::kBlocks);
    t.AddMatrix("model.layers.0.mlp.gate_proj.weight", kFfn, kDim, Scales::kBlocks);
    t.AddMatrix("model.layers.0.mlp.up_proj.weight", kFfn, kDim, Scales::kBlocks);
    t.AddPlain("model.layers.0.mlp.down_proj.weight", kDim, kFfn);
    EXPECT_OK(Make("qwen3", t.eight).status());
    RandomWeights spoiled;
    for (Weight w : t.eight.set.all()) {
      if (w.name == "model.layers.0.mlp.up_proj.weight_scale_inv") {
        spoiled.Add(w.name, shape, 1);
      } else {
        EXPECT_OK(spoiled.set.Add(w));
      }
    }
    EXPECT_THAT(Make("qwen3", spoiled).status(),
                StatusIs(absl::StatusCode::kDataLoss, "up_proj.weight_scale_inv"));
  }
}

TEST(Float8, OtherWaysAreNamed) {
  Twins t;
  AddOutside(&t);
  EXPECT_THAT(
      Make("qwen3", t.plain, R"(, "quantization_config": {"quant_method": "awq"})").status(),
      StatusIs(absl::StatusCode::kDataLoss, "'awq' are not read"));
  EXPECT_THAT(
      Make("qwen3", t.plain, R"(, "quantization_config": {"quant_method": "fp8"})").status(),
      StatusIs(absl::StatusCode::kDataLoss, "is missing"));
}

}  // namespace
}  // namespace tessera::llm
