// What config.json means where it leaves keys out, and what is said of keys that are wrong.

#include <cmath>

#include "absl/strings/str_split.h"
#include "examples/llm/config.h"
#include "runtime/gguf.h"
#include "runtime/gguf_writer.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

absl::StatusOr<ModelConfig> Read(absl::string_view type, absl::string_view keys = "") {
  const std::string text = absl::StrCat(
      R"({"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 128, "vocab_size": 9,
      "intermediate_size": 8, "max_position_embeddings": 512, "model_type": ")",
      type, "\"", keys.empty() ? "" : ", ", keys, "}");
  ASSIGN_OR_RETURN(const Json json, Json::Parse(text, "config.json"));
  return ConfigFromHuggingFace(json, "config.json");
}

// Of transformers' classes two say nothing of how many experts a token has.
TEST(ConfigDefaults, EveryFamilyHasThem) {
  for (const absl::string_view type : absl::StrSplit(KnownModelTypes(), ", ")) {
    SCOPED_TRACE(type);
    const bool silent = type == "deepseek_v2";
    const absl::StatusOr<ModelConfig> c =
        Read(type, silent ? R"("num_experts_per_tok": 2)" : R"("num_kv_shared_layers": 0)");
    EXPECT_OK(c);
    EXPECT_TRUE(!c.ok() || c->norm_eps <= 1e-5);
  }
  EXPECT_THAT(Read("deepseek_v2").status(),
              StatusIs(absl::StatusCode::kDataLoss, "the key 'num_experts_per_tok' is missing"));
}

TEST(ConfigDefaults, AreTheFamilys) {
  const struct {
    const char* type;
    int64_t kv_heads, head_dim, window;
    double rope_base, norm_eps;
    bool tied;
  } rows[] = {
      {"llama", 128, 8, 0, 1e4, 1e-6, false},         {"mistral", 8, 8, 4096, 1e4, 1e-6, false},
      {"mixtral", 8, 8, 0, 1e6, 1e-5, false},         {"qwen2", 32, 8, 0, 1e4, 1e-6, false},
      {"qwen3", 32, 128, 0, 1e4, 1e-6, false},        {"gemma", 16, 256, 0, 1e4, 1e-6, true},
      {"gemma3_text", 4, 256, 4096, 1e6, 1e-6, true}, {"gemma2", 4, 256, 4096, 1e4, 1e-6, true},
      {"olmo3", 128, 8, 4096, 5e5, 1e-5, false},      {"smollm3", 4, 8, 0, 2e6, 1e-6, true},
      {"gpt_oss", 8, 64, 128, 1.5e5, 1e-5, false},    {"glm4", 2, 128, 0, 1e4, 1.5625e-7, false},
      {"exaone4", 32, 8, 4096, 1e4, 1e-5, false},     {"ernie4_5", 2, 128, 0, 5e5, 1e-5, true},
      {"starcoder2", 2, 8, 0, 1e4, 1e-5, true},       {"cohere", 128, 8, 0, 5e5, 1e-5, true},
      {"minimax_m2", 8, 128, 0, 5e6, 1e-6, false},    {"lfm2", 8, 8, 0, 1e6, 1e-5, true},
      {"qwen3_next", 2, 256, 0, 1e4, 1e-6, false}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.type);
    ASSERT_OK_AND_ASSIGN(const ModelConfig c, Read(row.type));
    EXPECT_EQ(c.kv_heads, row.kv_heads);
    EXPECT_EQ(c.head_dim, row.head_dim);
    EXPECT_EQ(c.window, row.window);
    EXPECT_EQ(c.rope_base, row.rope_base);
    EXPECT_EQ(c.norm_eps, row.norm_eps);
    EXPECT_EQ(c.output_apart, !row.tied);
  }
}

TEST(ConfigDefaults, OfMixtures) {
  const struct {
    const char* type;
    int64_t experts, used;
    bool renormed;
    double scale;
    int64_t groups, groups_used;
  } rows[] = {{"mixtral", 8, 2, true, 1, 1, 1},           {"qwen2_moe", 60, 4, false, 1, 1, 1},
              {"qwen3_moe", 128, 8, false, 1, 1, 1},      {"qwen3_next", 512, 10, true, 1, 1, 1},
              {"olmoe", 64, 8, false, 1, 1, 1},           {"deepseek_v3", 256, 8, true, 2.5, 8, 4},
              {"kimi_k2", 256, 8, true, 2.5, 8, 4},       {"glm4_moe_lite", 64, 4, true, 1.8, 1, 1},
              {"glm4_moe", 128, 8, true, 1, 1, 1},        {"ernie4_5_moe", 64, 6, true, 1, 1, 1},
              {"lfm2_moe", 32, 4, true, 1, 1, 1},         {"minimax_m2", 256, 8, true, 1, 1, 1},
              {"qwen3_vl_moe_text", 60, 4, true, 1, 1, 1}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.type);
    ASSERT_OK_AND_ASSIGN(const ModelConfig c, Read(row.type));
    EXPECT_EQ(c.experts, row.experts);
    EXPECT_EQ(c.experts_used, row.used);
    EXPECT_EQ(c.experts_renormed, row.renormed);
    EXPECT_EQ(c.experts_scale, row.scale);
    EXPECT_EQ(c.expert_groups, row.groups);
    EXPECT_EQ(c.expert_groups_used, row.groups_used);
  }
  // V2 has no such key, and the best of all experts where it does not say.
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig v2,
      Read("deepseek_v2",
           R"("num_experts_per_tok": 2, "norm_topk_prob": true, "n_group": 4, "topk_group": 2)"));
  EXPECT_FALSE(v2.experts_renormed);
  EXPECT_EQ(v2.expert_groups, 1);
  // By another name of the same.
  ASSERT_OK_AND_ASSIGN(const ModelConfig named, Read("qwen3_moe", R"("num_local_experts": 16)"));
  EXPECT_EQ(named.experts, 16);
}

TEST(ConfigDefaults, OfPositions) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig glm, Read("glm4"));
  EXPECT_EQ(glm.rotated, 64);
  ASSERT_OK_AND_ASSIGN(const ModelConfig next, Read("qwen3_next"));
  EXPECT_EQ(next.rotated, 64);
  ASSERT_OK_AND_ASSIGN(const ModelConfig whole,
                       Read("glm4", R"("rope_parameters": {"partial_rotary_factor": 1.0})"));
  EXPECT_EQ(whole.rotated, 128);
  ASSERT_OK_AND_ASSIGN(const ModelConfig both,
                       Read("minimax_m2", R"("partial_rotary_factor": 0.25, "rotary_dim": 64)"));
  EXPECT_EQ(both.rotated, 32);
  // Stretched, also where the file has null.
  for (const char* keys : {"", R"("rope_parameters": null)", R"("rope_theta": 5.0)"}) {
    ASSERT_OK_AND_ASSIGN(const ModelConfig c, Read("ministral3", keys));
    EXPECT_EQ(c.rope_base, 1e6);
    EXPECT_EQ(c.rope_divisors.back(), 16);
    EXPECT_EQ(c.sharpness, 0.1);
    EXPECT_EQ(c.sharper_every, 16384);
  }
  ASSERT_OK_AND_ASSIGN(const ModelConfig oss, Read("gpt_oss"));
  EXPECT_EQ(oss.rope_divisors.back(), 32);
  // Not stretched, and queries are sharper as before.
  ASSERT_OK_AND_ASSIGN(const ModelConfig untyped,
                       Read("ministral3", R"("rope_parameters": {"factor": 8.0,
                            "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.2})"));
  EXPECT_TRUE(untyped.rope_divisors.empty());
  EXPECT_EQ(untyped.sharpness, 0.2);
  EXPECT_EQ(untyped.sharper_every, 64);
  // What was trained is the context.
  ASSERT_OK_AND_ASSIGN(const ModelConfig llama,
                       Read("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                            "low_freq_factor": 1.0, "high_freq_factor": 4.0})"));
  ASSERT_EQ(llama.rope_divisors.size(), 4u);
  EXPECT_EQ(llama.rope_divisors.front(), 1);
  EXPECT_EQ(llama.rope_divisors.back(), 8);  // a turn is of 6283 positions
  const char* const longer =
      R"("rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1],
      "long_factor": [2, 2, 2, 2], "original_max_position_embeddings": 32}, "rms_norm_eps": 1e-5)";
  ASSERT_OK_AND_ASSIGN(const ModelConfig phi, Read("phi3", longer));
  EXPECT_EQ(phi.rope_trained, 4096);
  // Of Gemma 3 one object for both kinds of layers is that of none.
  ASSERT_OK_AND_ASSIGN(const ModelConfig gemma,
                       Read("gemma3_text", R"("rope_parameters": {"rope_theta": 5.0})"));
  EXPECT_EQ(gemma.rope_base, 1e6);
  EXPECT_EQ(gemma.local_rope_base, 1e4);
}

TEST(ConfigDefaults, OfWindows) {
  const auto windows = [](const char* type, const char* keys) {
    const absl::StatusOr<ModelConfig> c = Read(type, keys);
    EXPECT_OK(c);
    std::vector<int64_t> out;
    for (size_t i = 0; i < 4 && c.ok(); ++i) out.push_back(c->WindowOf(i));
    return out;
  };
  using Windows = std::vector<int64_t>;
  const Windows none = {0, 0, 0, 0}, all = {7, 7, 7, 7};
  EXPECT_EQ(windows("mistral", R"("sliding_window": null)"), none);
  EXPECT_EQ(windows("mistral", R"("sliding_window": 7, "use_sliding_window": false)"), all);
  EXPECT_EQ(windows("llama", R"("sliding_window": 7, "use_sliding_window": true)"), none);
  const char* const used = R"("sliding_window": 7, "use_sliding_window": true)";
  EXPECT_EQ(windows("qwen2", used), none);  // of the first 28
  EXPECT_EQ(windows("qwen3_moe", used), all);
  EXPECT_EQ(windows("qwen2_moe", used), Windows({7, 0, 7, 0}));
  EXPECT_EQ(windows("qwen2_moe", R"("sliding_window": 7, "use_sliding_window": true,
                                 "max_window_layers": 2)"),
            Windows({7, 0, 0, 0}));
  EXPECT_EQ(windows("smollm3", used), Windows({0, 0, 0, 7}));
  EXPECT_EQ(windows("smollm3", R"("sliding_window": 7, "use_sliding_window": true,
                                 "no_rope_layers": [1, 0, 1, 0])"),
            Windows({0, 7, 0, 7}));
  EXPECT_EQ(windows("gpt_oss", R"("sliding_window": 7)"), Windows({7, 0, 7, 0}));
}

TEST(ConfigDefaults, OfBiases) {
  const auto biases = [](const char* type, const char* keys) {
    const absl::StatusOr<ModelConfig> c = Read(type, keys);
    EXPECT_OK(c);
    return c.ok() ? std::vector<bool>(
                        {c->qkv_biased || c->attention_biased, c->attention_biased, c->ffn_biased})
                  : std::vector<bool>();
  };
  using Biases = std::vector<bool>;
  EXPECT_EQ(biases("seed_oss", ""), Biases({true, false, false}));
  EXPECT_EQ(biases("seed_oss", R"("attention_bias": false, "mlp_bias": true)"),
            Biases({false, false, true}));
  EXPECT_EQ(biases("qwen2_moe", R"("qkv_bias": false)"), Biases({false, false, false}));
  EXPECT_EQ(biases("starcoder2", ""), Biases({true, true, true}));
  EXPECT_EQ(biases("starcoder2", R"("use_bias": null)"), Biases({false, false, false}));
  EXPECT_EQ(biases("glm4", ""), Biases({true, false, false}));
  EXPECT_EQ(biases("qwen3_next", R"("attention_bias": true)"), Biases({true, true, false}));
}

// GGUF files that do not say how wide experts are, as the first of Qwen's mixtures.
TEST(ConfigDefaults, OfExpertsInGguf) {
  const auto read = [](const std::string& architecture, const char* given) {
    GgufWriter file;
    file.Set("general.architecture", architecture);
    for (const auto& [key, value] : {std::pair("block_count", 1u),
                                     {"embedding_length", 8u},
                                     {"context_length", 64u},
                                     {"feed_forward_length", 120u},
                                     {"attention.head_count", 2u},
                                     {"expert_count", 8u},
                                     {"expert_used_count", 4u}}) {
      file.Set(absl::StrCat(architecture, ".", key), value);
    }
    if (*given != 0) file.Set(absl::StrCat(architecture, ".", given), 24u);
    file.Set(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    const std::string path = OwnTempDir() + "/experts.gguf";
    EXPECT_OK(file.Write(path));
    const absl::StatusOr<Gguf> gguf = OpenGguf(path);
    EXPECT_OK(gguf);
    const absl::StatusOr<ModelConfig> c = ConfigFromGguf(gguf->metadata);
    EXPECT_OK(c);
    return c.ok() ? std::pair(c->expert_ffn, c->shared_ffn) : std::pair<int64_t, int64_t>();
  };
  using Widths = std::pair<int64_t, int64_t>;
  EXPECT_EQ(read("qwen2moe", ""), Widths(30, 120));
  EXPECT_EQ(read("qwen2moe", "expert_feed_forward_length"), Widths(24, 120));
  EXPECT_EQ(read("qwen2moe", "expert_shared_feed_forward_length"), Widths(30, 24));
  EXPECT_EQ(read("qwen3moe", ""), Widths(30, 0));
  EXPECT_EQ(read("llama", ""), Widths(120, 0));
}

// Of each layer a width, or one for all; and gates of which in the first ten layers 5 % are above
// what does not count, if there are more.
TEST(ConfigDefaults, OfLayersThatShareKeys) {
  const auto read = [](int64_t layers, const std::string& keys) {
    const std::string text = absl::StrCat(
        R"({"model_type": "gemma3n_text", "hidden_size": 16, "num_attention_heads": 2,
        "vocab_size": 9, "max_position_embeddings": 512, "num_hidden_layers": )",
        layers, ", ", keys, "}");
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, read(35, R"("intermediate_size": 8)"));
  ASSERT_EQ(c.sparsity.size(), 35u);
  EXPECT_NEAR(c.sparsity[9], 1.6448536269514722, 1e-9);
  EXPECT_TRUE(std::isinf(c.sparsity[10]));
  EXPECT_EQ(c.KeysOf(19), 19);
  EXPECT_EQ(c.KeysOf(20), 18);  // with a window
  EXPECT_EQ(c.KeysOf(24), 19);  // without one
  EXPECT_EQ(c.KeysOf(34), 19);
  const std::string shared = R"("num_kv_shared_layers": 0, "intermediate_size": )";
  ASSERT_OK_AND_ASSIGN(const ModelConfig few, read(3, shared + "[8, 8, 8]"));
  EXPECT_EQ(few.ffn, 8);
  EXPECT_TRUE(few.sparsity.empty());
  const std::pair<const char*, const char*> wrong[] = {
      {"[8, 8]", "key 'intermediate_size' has 2 entries, and there are 3 layers"},
      {"[8, 9, 8]", "key 'intermediate_size': layers of unequal sizes are not known"},
      {R"([8, "8", 8])", "key 'intermediate_size' is '\"8\"', not an integer"},
      {"[]", "key 'intermediate_size' has 0 entries, and there are 3 layers"}};
  for (const auto& [keys, error] : wrong) {
    EXPECT_THAT(read(3, shared + keys), StatusIs(absl::StatusCode::kDataLoss, error));
  }
}

// Errors name the key, its value, and what may be.
TEST(ConfigDefaults, OfWrongKeys) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"llama", R"("num_key_value_heads": 0)",
       "key 'num_key_value_heads': the number of key heads is 0; 1 to 1048576 may be"},
      {"qwen2", R"("num_key_value_heads": 3)",
       "key 'num_key_value_heads': 128 heads are no multiple of 3 key heads"},
      {"llama", R"("head_dim": -8)", "key 'head_dim': the length of a head is -8"},
      {"llama", R"("head_dim": 3)", "key 'head_dim': rotary positions of 3 elements"},
      {"glm4", R"("partial_rotary_factor": 0.275)",
       "key 'partial_rotary_factor': rotary positions of 35 elements"},
      {"llama", R"("head_dim": 8.5)", "key 'head_dim' is '8.5', not an integer"},
      {"llama", R"("head_dim": "8")", "key 'head_dim' is '\"8\"', not an integer"},
      {"llama", R"("head_dim": 99999999999999999999)", "key 'head_dim' is '99999999999999999999'"},
      {"llama", R"("rms_norm_eps": 0)", "key 'rms_norm_eps': the epsilon of the norms is 0"},
      {"llama", R"("rms_norm_eps": "1e-5")", "key 'rms_norm_eps' is '\"1e-5\"', not a number"},
      {"lfm2", R"("norm_eps": 2)", "key 'norm_eps': the epsilon of the norms is 2"},
      {"llama", R"("rope_theta": -1)", "key 'rope_theta': the base of rotary positions is -1"},
      {"llama", R"("rope_parameters": {"rope_theta": 0})",
       "key 'rope_parameters': the base of rotary positions is 0"},
      {"llama", R"("tie_word_embeddings": 1)", "key 'tie_word_embeddings' is '1', not a bool"},
      {"mistral", R"("sliding_window": -1)", "key 'sliding_window' is -1"},
      {"mistral", R"("sliding_window": 2147483648)",
       "key 'sliding_window': the sliding window is 2147483648; 0 to 2147483647 may be"},
      {"cohere2", R"("sliding_window_pattern": 0)", "key 'sliding_window_pattern' is 0; 1 or more"},
      {"smollm3", R"("no_rope_layer_interval": -4)", "key 'no_rope_layer_interval' is -4"},
      {"smollm3", R"("no_rope_layers": [1, 1, "0", 1])", "key 'no_rope_layers' is '\"0\"'"},
      {"mixtral", R"("num_local_experts": -1)",
       "key 'num_local_experts': the number of experts is -1; 0 to 65536 may be"},
      {"qwen3_moe", R"("num_experts": 4)",
       "key 'num_experts_per_tok' (which is missing): the number of experts for a token is 8; 1 to "
       "4"},
      {"ernie4_5_moe", R"("moe_k": 65)", "key 'moe_k': the number of experts for a token is 65"},
      {"deepseek_v3", R"("v_head_dim": 0)", "key 'v_head_dim': the length of a head's values is 0"},
      {"deepseek_v3", R"("attention_bias": true)", "key 'attention_bias' is 'true', not false"},
      {"qwen3_next", R"("linear_num_value_heads": 5)",
       "key 'linear_num_value_heads': 5 heads of a memory's values are no multiple of 16"},
      {"granite", R"("logits_scaling": 0)", "key 'logits_scaling': the scale of the logits is inf"},
      {"gemma2", R"("attn_logit_softcapping": -5)",
       "key 'attn_logit_softcapping': the cap of the scores is -5"},
      {"gemma3n_text", "", "key 'num_kv_shared_layers' is 15 of 4 layers"},
      {"gemma3n_text", R"("num_kv_shared_layers": -1)", "key 'num_kv_shared_layers' is -1 of 4"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "layer_types": ["sliding_attention",
          "sliding_attention", "sliding_attention", "full_attention"])",
       "key 'num_kv_shared_layers': layer 3 has the keys of another of its kind, and none before"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "altup_num_inputs": 0)",
       "key 'altup_num_inputs': the number of streams is 0; 1 to 64 may be"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "altup_active_idx": 4)",
       "key 'altup_active_idx': the stream that layers read is 4; 0 to 3 may be"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "laurel_rank": 0)", "key 'laurel_rank' is 0"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "activation_sparsity_pattern": [0.5])",
       "key 'activation_sparsity_pattern': there are 1 entries, and 4 layers"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "activation_sparsity_pattern": [1])",
       "key 'activation_sparsity_pattern' is '1', not a number of at least 0 and below 1"},
      {"gemma3n_text", R"("num_kv_shared_layers": 1, "activation_sparsity_pattern": 0.5)",
       "key 'activation_sparsity_pattern' is '0.5', not an array"},
      {"gemma3_text", R"("use_bidirectional_attention": true)",
       "key 'use_bidirectional_attention' is 'true', not false"}};
  for (const auto& [type, keys, error] : rows) {
    const absl::Status status = Read(type, keys).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, error)) << type << " " << keys;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "config.json: ")) << keys;
  }
}

}  // namespace
}  // namespace tessera::llm
