// Mixtures as folders have them: the names of their experts' weights, of which there may be one,
// and what is beside them.
#include <cmath>

#include "absl/strings/str_replace.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 16, kFfn = 12, kVocabulary = 40;
constexpr char kOne[] = R"(, "num_experts": 1)";

// A layer with one feed-forward part, which is an expert or the only one.
RandomWeights Weights(bool expert) {
  RandomWeights w;
  const std::string layer = "model.layers.0.", attention = layer + "self_attn.";
  w.Add("model.embed_tokens.weight", {kVocabulary, kDim}, 0.5);
  w.Add("lm_head.weight", {kVocabulary, kDim}, 0.5);
  w.Add("model.norm.weight", {kDim}, 0.3, 1);
  w.Add(layer + "input_layernorm.weight", {kDim}, 0.3, 1);
  w.Add(layer + "post_attention_layernorm.weight", {kDim}, 0.3, 1);
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    w.Add(absl::StrCat(attention, name, ".weight"), {kDim, kDim}, 0.5);
  }
  for (const char* name : {"q_norm", "k_norm"}) {
    w.Add(absl::StrCat(attention, name, ".weight"), {kDim / 2}, 0.3, 1);
  }
  const std::string part = layer + (expert ? "mlp.experts.0." : "mlp.");
  w.Add(part + "gate_proj.weight", {kFfn, kDim}, 0.5);
  w.Add(part + "up_proj.weight", {kFfn, kDim}, 0.5);
  w.Add(part + "down_proj.weight", {kDim, kFfn}, 0.5);
  if (expert) w.Add(layer + "mlp.gate.weight", {1, kDim}, 0.5);
  return w;
}

absl::StatusOr<Model> Make(const char* type, const RandomWeights& weights, const char* keys) {
  const std::string text = absl::StrCat(R"({"hidden_size": 16, "intermediate_size": 12,
      "moe_intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
      "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "num_experts_per_tok": 1,
      "num_key_value_heads": 2, "head_dim": 8, "norm_topk_prob": true, "model_type": ")",
                                        type, "\"", keys, "}");
  ASSIGN_OR_RETURN(const Json json, Json::Parse(text, "config.json"));
  ASSIGN_OR_RETURN(const ModelConfig config, ConfigFromHuggingFace(json, "config.json"));
  return MakeModel(config, nullptr, weights.set, false, "test");
}

TEST(FolderMixtures, MayHaveOneExpert) {
  const RandomWeights of_expert = Weights(true), of_all = Weights(false);
  ASSERT_OK_AND_ASSIGN(const Model mixture, Make("qwen3_moe", of_expert, kOne));
  ASSERT_OK_AND_ASSIGN(const Model dense, Make("qwen3", of_all, ""));
  SessionOptions options;
  options.activations = Activations::kF32;
  options.cache = kFloat32;
  const std::vector<int32_t> tokens = {3, 14, 15, 9, 26};
  const std::vector<float> got = Session(mixture, options).FeedForAll(tokens);
  const std::vector<float> want = Session(dense, options).FeedForAll(tokens);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
  // What is missing is one expert's.
  RandomWeights none = Weights(false);
  none.Add("model.layers.0.mlp.gate.weight", {1, kDim}, 0.5);
  EXPECT_THAT(Make("qwen3_moe", none, kOne).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       "'model.layers.0.mlp.experts.0.gate_proj.weight' [12, 16] is missing"));
}

// Of Ernie's mixtures all products but those of experts add biases where use_bias says so; of
// others it is no key.
TEST(FolderMixtures, BiasesOfExpertsAreNone) {
  const RandomWeights weights = Weights(true);
  const char* const keys = R"(, "num_experts": 1, "use_bias": true)";
  EXPECT_OK(Make("qwen3_moe", weights, keys).status());
  EXPECT_THAT(Make("ernie4_5_moe", weights, keys).status(),
              StatusIs(absl::StatusCode::kDataLoss, "'lm_head.bias' [40] is missing"));
}

TEST(FolderMixtures, LayersThatGuessFurtherTokens) {
  RandomWeights w = Weights(true);
  for (const char* name :
       {"mtp.fc.weight", "mtp.layers.0.mlp.gate.weight", "model.mtp_block.0.input_layernorm.weight",
        "model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight",
        "model.mtp_linear_proj.0.weight"}) {
    w.Add(name, {kDim}, 1);
  }
  EXPECT_OK(Make("qwen3_moe", w, kOne).status());
  w.Add("mtpx.weight", {kDim}, 1);
  EXPECT_THAT(Make("qwen3_moe", w, kOne).status(),
              StatusIs(absl::StatusCode::kDataLoss, "'mtpx.weight' belongs to no part"));
}

}  // namespace
}  // namespace tessera::llm
