// Attention that keeps one vector a position, from quantised files: the same logits however the
// file has its matrices, by activations of each kind, in any steps, over places; and what may be
// wrong in such files.
#include <cmath>
#include <limits>

#include "absl/strings/str_replace.h"
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 64, kHeads = 3, kOwn = 32, kTurned = 16, kValue = 32, kLatent = 64,
                  kRank = 32, kExperts = 4;

// A layer without experts and one with, as converters wrote them once, or write them today.
SmallGguf Small(bool older, WeightFormat format = WeightFormat::kF32) {
  SmallGguf g;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  const auto count = [&](const std::string& key, int64_t value) {
    g.Set("deepseek2." + key, static_cast<uint32_t>(value));
  };
  g.Set("general.architecture", "deepseek2");
  count("block_count", 2);
  count("embedding_length", kDim);
  count("feed_forward_length", 96);
  count("context_length", 256);
  count("attention.head_count", kHeads);
  count("attention.head_count_kv", older ? kHeads : 1);
  g.Set("deepseek2.attention.layer_norm_rms_epsilon", 1e-5f);
  count("attention.kv_lora_rank", kLatent);
  count("attention.q_lora_rank", kRank);
  count("attention.key_length", older ? kOwn + kTurned : kLatent + kTurned);
  count("attention.value_length", older ? kValue : kLatent);
  if (!older) {
    count("attention.key_length_mla", kOwn + kTurned);
    count("attention.value_length_mla", kValue);
  }
  count("rope.dimension_count", kTurned);
  count("expert_count", kExperts);
  count("expert_used_count", 2);
  count("expert_feed_forward_length", 32);
  count("expert_shared_count", 1);
  g.Set("deepseek2.expert_weights_scale", 1.5f);
  g.Set("deepseek2.expert_weights_norm", true);
  g.Shape("token_embd.weight", {vocabulary, kDim}, format);
  g.Shape("output_norm.weight", {kDim});
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    g.Drop(absl::StrCat("blk.0.", part, ".weight"));
  }
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    const auto matrix = [&](const char* name, std::vector<int64_t> shape) {
      g.Shape(absl::StrCat(blk, name, ".weight"), std::move(shape), format);
    };
    g.Shape(blk + "attn_norm.weight", {kDim});
    g.Shape(blk + "ffn_norm.weight", {kDim});
    g.Shape(blk + "attn_q_a_norm.weight", {kRank});
    g.Shape(blk + "attn_kv_a_norm.weight", {kLatent});
    matrix("attn_q_a", {kRank, kDim});
    matrix("attn_q_b", {kHeads * (kOwn + kTurned), kRank});
    matrix("attn_kv_a_mqa", {kLatent + kTurned, kDim});
    if (older) {
      matrix("attn_kv_b", {kHeads * (kOwn + kValue), kLatent});
    } else {
      matrix("attn_k_b", {kHeads, kLatent, kOwn});
      matrix("attn_v_b", {kHeads, kValue, kLatent});
    }
    matrix("attn_output", {kDim, kHeads * kValue});
    if (blk == "blk.0.") {
      for (const char* name : {"ffn_gate", "ffn_up"}) matrix(name, {96, kDim});
      matrix("ffn_down", {kDim, 96});
      continue;
    }
    g.Shape(blk + "ffn_gate_inp.weight", {kExperts, kDim});
    g.Shape(blk + "exp_probs_b.bias", {kExperts});
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps"}) matrix(name, {kExperts, 32, kDim});
    matrix("ffn_down_exps", {kExperts, kDim, 32});
    for (const char* name : {"ffn_gate_shexp", "ffn_up_shexp"}) matrix(name, {32, kDim});
    matrix("ffn_down_shexp", {kDim, 32});
  }
  return g;
}

Model Load(bool older, WeightFormat format) {
  absl::StatusOr<Model> model = LoadModel(Small(older, format).Random().Write());
  EXPECT_OK(model.status());
  return *std::move(model);
}

constexpr int kTokens = 40;

// Those of all tokens: in steps of these sizes, the last token of each.
std::vector<float> LogitsOf(const Model& model, Activations activations, DType cache,
                            const std::vector<int>& steps) {
  SessionOptions options;
  options.activations = activations;
  options.cache = cache;
  Session session(model, options);
  const std::vector<int32_t> ids = SomeTokens(kTokens);
  std::vector<float> out;
  size_t fed = 0;
  for (const int n : steps) {
    const float* logits = session.Feed(absl::MakeConstSpan(ids).subspan(fed, n));
    fed += n;
    out.assign(logits, logits + model.config.vocabulary);
  }
  EXPECT_EQ(fed, kTokens);
  return out;
}

// What f32 gives of the same numbers, which is compared with transformers elsewhere.
Model Unpacked(bool older, WeightFormat format) {
  Model model = Load(older, format);
  const auto unpack = [](Matrix& m) {
    if (m) m = {m.values().Realize(), WeightFormat::kF32};
  };
  unpack(model.embedding);
  model.output = model.embedding;
  for (LayerWeights& w : model.layers) {
    for (const auto& [name, matrix] : kMatrices) unpack(w.*matrix);
  }
  return model;
}

void TryQuantised(bool older) {
  constexpr WeightFormat kFormat = WeightFormat::kQ8_0;
  const Model model = Load(older, kFormat);
  const std::vector<float> exact =
      LogitsOf(Unpacked(older, kFormat), Activations::kF32, kFloat32, {kTokens});
  EXPECT_LT(RelativeError(exact, LogitsOf(model, Activations::kF32, kFloat32, {16, 1, 16, 7})),
            1e-4);
  EXPECT_LT(RelativeError(exact, LogitsOf(model, Activations::kInt8, kFloat16, {39, 1})), 0.03);
  if (older) return;
  EXPECT_LT(RelativeError(exact, LogitsOf(model, Activations::kBf16, kFloat16, {kTokens})), 0.03);
  Model spread = Load(older, kFormat);
  ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
  EXPECT_LT(RelativeError(exact, LogitsOf(spread, Activations::kF32, kFloat32, {39, 1})), 1e-4);
}
TEST(LatentAttention, QuantisedMatricesOfOlderFilesSlow) { TryQuantised(true); }
TEST(LatentAttention, QuantisedMatricesOfNewerFilesSlow) { TryQuantised(false); }

// What is kept of a position is that of one head, however many there are.
TEST(LatentAttention, KeepsOneVectorAPosition) {
  const Model model = Load(false, WeightFormat::kF32);
  SessionOptions options;
  options.context = 100;
  options.cache = kFloat16;
  EXPECT_EQ(Session(model, options).cache_bytes(), 2u * 100 * (kLatent + kTurned) * 2);
}

TEST(LatentAttention, RefusesWhatMakesNoSense) {
  const struct {
    const char* what;
    SmallGguf file;
    const char* error;
  } rows[] = {
      {"no rank", Small(false).Drop("deepseek2.attention.kv_lora_rank"),
       "'deepseek2.attention.kv_lora_rank' is missing"},
      {"rank 0", Small(false).Set("deepseek2.attention.kv_lora_rank", 0u), "kv_lora_rank' is 0"},
      {"absurd rank", Small(false).Set("deepseek2.attention.kv_lora_rank", 2000000000u),
       "what is kept of a position is 2000000000"},
      {"absurd queries", Small(false).Set("deepseek2.attention.q_lora_rank", 2000000000u),
       "what queries are made of is 2000000000"},
      {"no values", Small(false).Set("deepseek2.attention.value_length_mla", 0u),
       "a head's values is 0"},
      {"all turns", Small(false).Set("deepseek2.rope.dimension_count", 48u),
       "elements of a head that turn is 48; 2 to 47 may be"},
      {"nothing turns", Small(false).Set("deepseek2.rope.dimension_count", 0u),
       "elements of a head that turn is 0"},
      {"no length", Small(true).Drop("deepseek2.attention.key_length"),
       "'deepseek2.attention.key_length' is missing"},
      {"0 heads", Small(false).Set("deepseek2.attention.head_count", 0u), "head_count' is 0"},
      {"other rank", Small(false).Set("deepseek2.attention.kv_lora_rank", 32u),
       "'blk.0.attn_kv_a_mqa.weight': its shape is [80, 64], and the configuration wants [48, 64]"},
      {"no keys", Small(false).Drop("blk.1.attn_k_b.weight"),
       "'blk.1.attn_k_b.weight' [3, 64, 32] is missing"},
      {"values", Small(false).Shape("blk.0.attn_v_b.weight", {3, 31, 64}),
       "'blk.0.attn_v_b.weight': its shape is [3, 31, 64]"},
      {"older", Small(true).Shape("blk.0.attn_kv_b.weight", {190, 64}),
       "its shape is [190, 64], and the configuration wants [192, 64]"},
      {"groups 0", Small(false).Set("deepseek2.expert_group_count", 0u),
       "the number of groups of experts is 0; 1 to 4 may be"},
      {"groups", Small(false).Set("deepseek2.expert_group_count", 3u),
       "4 experts are no 3 groups of equal size"},
      {"groups used",
       Small(false)
           .Set("deepseek2.expert_group_count", 2u)
           .Set("deepseek2.expert_group_used_count", 3u),
       "groups of experts for a token is 3; 1 to 2 may be"},
      {"few in groups",
       Small(false)
           .Set("deepseek2.expert_group_count", 4u)
           .Set("deepseek2.expert_group_used_count", 1u),
       "the number of experts for a token is 2; 1 to 1 may be"},
      {"gating", Small(false).Set("deepseek2.expert_gating_func", 9u), "expert_gating_func' is 9"},
      {"scale",
       Small(false).Set("deepseek2.expert_weights_scale", std::numeric_limits<float>::infinity()),
       "the scale of the experts' shares is inf"},
      {"absurd shared", Small(false).Set("deepseek2.expert_shared_count", 4000000000u),
       "the number of shared experts is 4000000000"},
      {"absurd expert", Small(false).Set("deepseek2.expert_feed_forward_length", 4000000000u),
       "the feed-forward length of an expert is 4000000000"},
      {"no layer left", Small(false).Set("deepseek2.nextn_predict_layers", 2u),
       "nextn_predict_layers' is 2 of 2 layers"},
      {"bias", Small(false).Shape("blk.1.exp_probs_b.bias", {5}),
       "'blk.1.exp_probs_b.bias': its shape is [5], and the configuration wants [4]"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    ExpectRefused(row.file, row.error);
  }
}

TEST(LatentAttention, RefusesSuchConfigJson) {
  const std::string good =
      R"({"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 3,
      "num_hidden_layers": 2, "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 64, "kv_lora_rank": 64, "q_lora_rank": null, "v_head_dim": 32,
      "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "n_routed_experts": 4,
      "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
      "n_group": 2, "topk_group": 1, "num_nextn_predict_layers": 1})";
  const auto read = [&](const char* from, const char* to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_TRUE(text != good || std::string(from) == to) << from;
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json").status() : json.status();
  };
  EXPECT_OK(read("", ""));
  const char* rows[][3] = {
      {R"("vocab_size": 9,)", "", "'vocab_size' is missing"},
      {R"("kv_lora_rank": 64,)", R"("kv_lora_rank": -64,)", "what is kept of a position is -64"},
      {R"("kv_lora_rank": 64,)", R"("kv_lora_rank": 0,)", "'kv_lora_rank' is 0"},
      {R"("q_lora_rank": null)", R"("q_lora_rank": -1)", "what queries are made of is -1"},
      {R"("v_head_dim": 32)", R"("v_head_dim": -2)", "a head's values is -2"},
      {R"("qk_nope_head_dim": 32)", R"("qk_nope_head_dim": 0)", "are 0 and 16; 1 to 1048576"},
      {R"("qk_nope_head_dim": 32)", R"("qk_nope_head_dim": 9223372036854775807)",
       "are 9223372036854775807 and 16"},
      {R"("qk_rope_head_dim": 16)", R"("qk_rope_head_dim": 15)", "they need pairs"},
      {R"("n_shared_experts": 1)", R"("n_shared_experts": -1)", "shared experts is -1"},
      {R"("n_group": 2)", R"("n_group": 0)", "groups of experts is 0"},
      {R"("n_group": 2)", R"("n_group": -2)", "groups of experts is -2"},
      {R"("topk_group": 1)", R"("topk_group": 0)", "groups of experts for a token is 0"},
      {R"("n_group": 2)", R"("n_group": 2, "scoring_func": "magic")", "\"softmax\" or"},
      {R"("n_group": 2)", R"("n_group": 2, "routed_scaling_factor": 0)", "shares is 0"},
      {R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": -1)", "layers' is -1"}};
  for (const auto& [from, to, error] : rows) {
    EXPECT_THAT(read(from, to), StatusIs(absl::StatusCode::kDataLoss, error)) << to;
  }
}

// Of tensors that end in an axis of 1 writers leave it out: here it is that of the heads.
TEST(LatentAttention, OneHeadWithoutItsAxis) {
  SmallGguf g = Small(false);
  g.Set("deepseek2.attention.head_count", 1u);
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    g.Shape(blk + "attn_q_b.weight", {kOwn + kTurned, kRank});
    g.Shape(blk + "attn_k_b.weight", {kLatent, kOwn})
        .Shape(blk + "attn_v_b.weight", {kValue, kLatent});
    g.Shape(blk + "attn_output.weight", {kDim, kValue});
  }
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(g.Write()));
  EXPECT_EQ(model.layers[0].k_up.stored.shape(), Shape({1, kLatent, kOwn}));
  g.Shape("blk.1.attn_k_b.weight", {kOwn, kLatent});
  ExpectRefused(g, "its shape is [32, 64], and the configuration wants [1, 64, 32]");
}

// Layers that guess further tokens are passed over; others that are too many are not.
TEST(LatentAttention, LayersThatGuessFurtherTokens) {
  SmallGguf g = Small(false);
  g.Set("deepseek2.block_count", 3u).Set("deepseek2.nextn_predict_layers", 1u);
  g.Shape("blk.2.nextn.eh_proj.weight", {kDim, 2 * kDim}).Shape("blk.2.attn_norm.weight", {kDim});
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(g.Write()));
  EXPECT_EQ(model.layers.size(), 2u);
  ExpectRefused(g.Shape("blk.3.attn_norm.weight", {kDim}),
                "'blk.3.attn_norm.weight' belongs to no part");
}

}  // namespace
}  // namespace tessera::llm
