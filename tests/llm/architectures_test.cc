// Logits of every architecture at small random size, against plain loops in float64.
#include <cmath>

#include "absl/strings/str_replace.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

using Vector = std::vector<double>;

Vector MatVec(const float* w, const Vector& x, int64_t rows) {
  Vector y(rows, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < x.size(); ++k) y[r] += double(w[r * x.size() + k]) * x[k];
  }
  return y;
}

void AddBias(const float* b, Vector* y) {
  for (size_t i = 0; b != nullptr && i < y->size(); ++i) (*y)[i] += b[i];
}

// RMS norm of x[begin, begin + n).
void Norm(const float* w, double eps, int64_t begin, int64_t n, Vector* x) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (*x)[begin + i] * (*x)[begin + i];
  const double scale = 1 / std::sqrt(sum / n + eps);
  for (int64_t i = 0; i < n; ++i) (*x)[begin + i] *= scale * w[i];
}

void Rotate(const ModelConfig& c, int64_t position, int64_t begin, Vector* x) {
  const int64_t half = c.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    double angle = position * std::pow(c.rope_base, -2.0 * i / c.head_dim);
    if (!c.rope_divisors.empty()) angle /= c.rope_divisors[i];
    const double cos = std::cos(angle) * c.rope_magnitude;
    const double sin = std::sin(angle) * c.rope_magnitude;
    double& a = (*x)[begin + (c.rope_interleaved ? 2 * i : i)];
    double& b = (*x)[begin + (c.rope_interleaved ? 2 * i + 1 : half + i)];
    const double a0 = a, b0 = b;
    a = a0 * cos - b0 * sin;
    b = b0 * cos + a0 * sin;
  }
}

// The logits after each of the tokens.
std::vector<Vector> Reference(const ModelConfig& c, const RandomWeights& w,
                              const std::vector<int32_t>& tokens) {
  std::vector<std::vector<Vector>> keys(c.layers), values(c.layers);
  std::vector<Vector> out;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const float* row = w.Of("token_embd.weight") + tokens[t] * c.dim;
    Vector x(row, row + c.dim);
    for (int64_t l = 0; l < c.layers; ++l) {
      const std::string p = "blk." + std::to_string(l) + ".";
      Vector n = x;
      Norm(w.Of(p + "attn_norm.weight"), c.norm_eps, 0, c.dim, &n);
      Vector q = MatVec(w.Of(p + "attn_q.weight"), n, c.heads * c.head_dim);
      Vector k = MatVec(w.Of(p + "attn_k.weight"), n, c.kv_heads * c.head_dim);
      Vector v = MatVec(w.Of(p + "attn_v.weight"), n, c.kv_heads * c.head_dim);
      AddBias(w.Of(p + "attn_q.bias"), &q);
      AddBias(w.Of(p + "attn_k.bias"), &k);
      AddBias(w.Of(p + "attn_v.bias"), &v);
      for (int64_t h = 0; h < c.heads; ++h) {
        const float* norm = w.Of(p + "attn_q_norm.weight");
        if (norm != nullptr) Norm(norm, c.norm_eps, h * c.head_dim, c.head_dim, &q);
        Rotate(c, t, h * c.head_dim, &q);
      }
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const float* norm = w.Of(p + "attn_k_norm.weight");
        if (norm != nullptr) Norm(norm, c.norm_eps, h * c.head_dim, c.head_dim, &k);
        Rotate(c, t, h * c.head_dim, &k);
      }
      keys[l].push_back(k);
      values[l].push_back(v);
      Vector mixed(c.heads * c.head_dim, 0.0);
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t g = h / (c.heads / c.kv_heads);
        const bool windowed = c.window > 0 && (c.sees_all.empty() || !c.sees_all[l]);
        const size_t first = windowed && int64_t(t) >= c.window ? t + 1 - c.window : 0;
        Vector score;
        double sum = 0;
        for (size_t s = first; s <= t; ++s) {
          double dot = 0;
          for (int64_t i = 0; i < c.head_dim; ++i) {
            dot += q[h * c.head_dim + i] * keys[l][s][g * c.head_dim + i];
          }
          score.push_back(std::exp(dot / std::sqrt(double(c.head_dim))));
          sum += score.back();
        }
        for (size_t s = first; s <= t; ++s) {
          for (int64_t i = 0; i < c.head_dim; ++i) {
            mixed[h * c.head_dim + i] += score[s - first] / sum * values[l][s][g * c.head_dim + i];
          }
        }
      }
      Vector o = MatVec(w.Of(p + "attn_output.weight"), mixed, c.dim);
      AddBias(w.Of(p + "attn_output.bias"), &o);
      for (int64_t i = 0; i < c.dim; ++i) x[i] += o[i];
      n = x;
      Norm(w.Of(p + "ffn_norm.weight"), c.norm_eps, 0, c.dim, &n);
      Vector gate = MatVec(w.Of(p + "ffn_gate.weight"), n, c.ffn);
      Vector up = MatVec(w.Of(p + "ffn_up.weight"), n, c.ffn);
      AddBias(w.Of(p + "ffn_gate.bias"), &gate);
      AddBias(w.Of(p + "ffn_up.bias"), &up);
      for (int64_t i = 0; i < c.ffn; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      Vector down = MatVec(w.Of(p + "ffn_down.weight"), gate, c.dim);
      AddBias(w.Of(p + "ffn_down.bias"), &down);
      for (int64_t i = 0; i < c.dim; ++i) x[i] += down[i];
    }
    Norm(w.Of("output_norm.weight"), c.norm_eps, 0, c.dim, &x);
    const float* output = w.Of("output.weight");
    out.push_back(MatVec(output ? output : w.Of("token_embd.weight"), x, c.vocabulary));
  }
  return out;
}

ModelConfig Small(const std::string& architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.layers = 2;
  c.dim = 24;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = architecture == "qwen3" ? 8 : 4;  // Qwen 3 gives it apart from dim / heads
  c.ffn = 40;
  c.vocabulary = 50;
  c.context = 48;
  c.norm_eps = 1e-5;
  c.rope_interleaved = architecture == "llama";
  return c;
}

void ExpectReference(const ModelConfig& config, bool tied) {
  const RandomWeights weights = WeightsFor(config, tied);
  ASSERT_OK_AND_ASSIGN(const Model model, MakeModel(config, nullptr, weights.set, true, "test"));
  std::vector<int32_t> tokens;
  for (int i = 0; i < 29; ++i) tokens.push_back((i * 17 + 3) % static_cast<int>(config.vocabulary));
  const std::vector<Vector> expected = Reference(config, weights, tokens);
  double largest = 0;
  for (double v : expected.back()) largest = std::max(largest, std::fabs(v));

  // As a prompt in parts of 16, 1, 1, 8 (padded to 16), then token by token.
  Session session(model, {});
  size_t fed = 0;
  for (size_t n : {16, 1, 1, 8, 1, 1, 1}) {
    const float* logits = session.Feed(absl::MakeConstSpan(tokens).subspan(fed, n));
    fed += n;
    for (int64_t i = 0; i < config.vocabulary; ++i) {
      ASSERT_NEAR(logits[i], expected[fed - 1][i], 1e-4 * largest) << "token " << fed << ", " << i;
    }
  }
  session.Rewind(0);
  const std::vector<float> all = session.FeedForAll(tokens);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (int64_t i = 0; i < config.vocabulary; ++i) {
      ASSERT_NEAR(all[t * config.vocabulary + i], expected[t][i], 1e-4 * largest) << t << " " << i;
    }
  }
}

TEST(Architectures, Llama) { ExpectReference(Small("llama"), false); }
TEST(Architectures, LlamaTied) { ExpectReference(Small("llama"), true); }
TEST(Architectures, LlamaWithHalvedPairsAndScaledRope) {
  ModelConfig c = Small("llama");
  c.rope_interleaved = false;
  c.rope_divisors = {1, 4.5};
  c.rope_magnitude = 1.1;
  ExpectReference(c, true);
}
TEST(Architectures, MistralSlidingWindow) {
  ModelConfig c = Small("mistral");
  c.window = 7;
  ExpectReference(c, false);
}
TEST(Architectures, Qwen2WithAWindowInLaterLayers) {
  ModelConfig c = Small("qwen2");
  c.window = 7;
  c.sees_all = {true, false};
  ExpectReference(c, true);
}
TEST(Architectures, Qwen2) { ExpectReference(Small("qwen2"), true); }
TEST(Architectures, Qwen3) { ExpectReference(Small("qwen3"), false); }
TEST(Architectures, BiasesEverywhere) {
  ModelConfig c = Small("llama");
  c.attention_biased = c.ffn_biased = true;
  ExpectReference(c, false);
}
TEST(Architectures, AsManyKeyHeadsAsHeads) {
  ModelConfig c = Small("llama");
  c.kv_heads = c.heads;
  ExpectReference(c, false);
}

// Llama's and Qwen 3's configurations say whether their products add biases.
TEST(Architectures, BiasesOfConfigJson) {
  const auto read = [](const std::string& type) {
    const std::string text = absl::StrCat(
        R"({"attention_bias": true, "mlp_bias": true, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "model_type": ")",
        type, "\"}");
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  ASSERT_OK_AND_ASSIGN(ModelConfig llama, read("llama"));
  EXPECT_TRUE(llama.attention_biased && llama.ffn_biased);
  ASSERT_OK_AND_ASSIGN(const ModelConfig qwen3, read("qwen3"));
  EXPECT_TRUE(qwen3.attention_biased && !qwen3.ffn_biased);
  ASSERT_OK_AND_ASSIGN(const ModelConfig mistral, read("mistral"));
  EXPECT_FALSE(mistral.attention_biased || mistral.ffn_biased);
  const RandomWeights weights = WeightsFor(Small("llama"), false);
  ModelConfig wants = Small("llama");
  wants.ffn_biased = true;
  EXPECT_THAT(MakeModel(wants, nullptr, weights.set, true, "test"),
              StatusIs(absl::StatusCode::kDataLoss, "'blk.0.ffn_gate.bias' [40] is missing"));
}

TEST(Architectures, RopeScalingOfConfigJson) {
  const std::string text = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {
      "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";
  ASSERT_OK_AND_ASSIGN(const Json json, Json::Parse(text, "config.json"));
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, ConfigFromHuggingFace(json, "config.json"));
  ASSERT_EQ(c.rope_divisors.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double wave = 2 * M_PI * std::pow(500000.0, 2.0 * i / 64);
    double want = 1;  // short waves stay
    if (wave > 8192.0) {
      want = 32;  // long ones are stretched
    } else if (wave > 8192.0 / 4) {
      const double smooth = (8192 / wave - 1) / 3;
      want = 1 / ((1 - smooth) / 32 + smooth);
    }
    EXPECT_NEAR(c.rope_divisors[i], want, 1e-9 * want) << i;
  }
}

// Which layers a window is for, as transformers' Qwen2Config and its layer_types say.
TEST(Architectures, WindowsOfConfigJson) {
  const auto read = [](const std::string& keys) {
    const std::string text = absl::StrCat(
        R"({"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "sliding_window": 64, "use_sliding_window": )",
        keys, "}");
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  const auto windows = [&](const std::string& keys) {
    const absl::StatusOr<ModelConfig> c = read(keys);
    EXPECT_OK(c);
    std::vector<int64_t> out;
    for (size_t i = 0; i < 4 && c.ok(); ++i) out.push_back(c->WindowOf(i));
    return out;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("false"), Windows({0, 0, 0, 0}));
  EXPECT_EQ(windows(R"(true, "max_window_layers": 3)"), Windows({0, 0, 0, 64}));
  EXPECT_EQ(windows(R"(true, "max_window_layers": 0)"), Windows({64, 64, 64, 64}));
  EXPECT_EQ(windows(R"(true, "max_window_layers": 9)"), Windows({0, 0, 0, 0}));
  EXPECT_EQ(windows("true"), Windows({0, 0, 0, 0}));  // 28, if it is missing
  const std::string full = "\"full_attention\"", part = "\"sliding_attention\"";
  EXPECT_EQ(
      windows(absl::StrCat("true, \"layer_types\": [", part, ",", full, ",", full, ",", part, "]")),
      Windows({64, 0, 0, 64}));
  const std::pair<std::string, const char*> wrong[] = {
      {R"(true, "max_window_layers": -1)", "'max_window_layers' is -1"},
      {R"(true, "layer_types": 3)", "not an array"},
      {R"(true, "layer_types": ["x"])", "full_attention and sliding_attention"},
      {absl::StrCat("true, \"layer_types\": [", full, "]"), "1 entries, and there are 4 layers"}};
  for (const auto& [keys, error] : wrong) {
    EXPECT_THAT(read(keys), StatusIs(absl::StatusCode::kDataLoss, error));
  }
}

// Of dots' models no key says that windows are used; minimax's say again how queries are normed;
// of no head nothing turns.
TEST(Architectures, OtherKeysOfConfigJson) {
  const auto read = [](const std::string& type, const std::string& keys) {
    const std::string text = absl::StrCat(
        R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 8, "head_dim": 8,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "model_type": ")",
        type, "\", ", keys, "}");
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  const auto windows = [&](const std::string& keys) {
    const absl::StatusOr<ModelConfig> c = read("dots1", keys);
    EXPECT_OK(c);
    return c.ok() ? std::pair(c->WindowOf(0), c->WindowOf(1)) : std::pair<int64_t, int64_t>(-1, -1);
  };
  using Windows = std::pair<int64_t, int64_t>;
  const std::string types = R"("layer_types": ["sliding_attention", "full_attention"])";
  EXPECT_EQ(windows(types + R"(, "sliding_window": 7)"), Windows(7, 0));
  EXPECT_EQ(windows(types), Windows(4096, 0));
  EXPECT_EQ(windows(types + R"(, "sliding_window": null)"), Windows(0, 0));
  EXPECT_EQ(windows(R"("sliding_window": 7, "max_window_layers": 1)"), Windows(0, 7));
  EXPECT_EQ(windows(R"("sliding_window": 7)"), Windows(0, 0));  // 62, if it is missing

  EXPECT_OK(read("minimax_m2", R"("use_qk_norm": true, "qk_norm_type": "per_layer")"));
  EXPECT_OK(read("qwen3", R"("use_qk_norm": true, "qk_norm_type": "per_head")"));
  EXPECT_OK(read("qwen3", R"("partial_rotary_factor": 0.25)"));
  const std::tuple<const char*, const char*, const char*> wrong[] = {
      {"minimax_m2", R"("use_qk_norm": true, "qk_norm_type": "per_head")",
       "'qk_norm_type' is '\"per_head\"', not \"per_layer\""},
      {"llama", R"("use_qk_norm": true)", "'use_qk_norm' is true, which is not known"},
      {"qwen3", R"("partial_rotary_factor": 0.01)",
       "'partial_rotary_factor' is 0.01, which is none"},
      {"minimax_m2", R"("rotary_dim": 0)", "'rotary_dim' is 0"}};
  for (const auto& [type, keys, error] : wrong) {
    EXPECT_THAT(read(type, keys), StatusIs(absl::StatusCode::kDataLoss, error));
  }
}

// Files from before rope.scaling.type say how far positions are stretched by another key.
TEST(Architectures, RopeScalingOfOldFiles) {
  const auto divisors = [](SmallGguf file) {
    const absl::StatusOr<Gguf> gguf = OpenGguf(file.Write());
    EXPECT_OK(gguf);
    const absl::StatusOr<ModelConfig> c = ConfigFromGguf(gguf->metadata);
    EXPECT_OK(c);
    return c.ok() ? c->rope_divisors : std::vector<double>();
  };
  const std::vector<double> four(2, 4), none;
  const std::string old = "llama.rope.scale_linear", factor = "llama.rope.scaling.factor";
  EXPECT_EQ(divisors(SmallGguf().Set(old, 4.0f)), four);
  EXPECT_EQ(divisors(SmallGguf().Set(old, 1.0f)), none);
  EXPECT_EQ(divisors(SmallGguf().Set(factor, 4.0f)), four);
  EXPECT_EQ(divisors(SmallGguf().Set(factor, 4.0f).Set(old, 2.0f)), four);
  EXPECT_EQ(divisors(SmallGguf().Set(old, 4.0f).Set("llama.rope.scaling.type", "none")), none);
}

// As transformers 5 writes it: one object, with the base.
TEST(Architectures, RopeParametersOfConfigJson) {
  const auto read = [](const std::string& keys) {
    const std::string text = absl::StrCat(
        R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072)",
        keys, "}");
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  const std::string llama3 = R"("factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3")";
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig before,
      read(absl::StrCat(R"(, "rope_theta": 500000.0, "rope_scaling": {)", llama3, "}")));
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig now,
      read(absl::StrCat(R"(, "rope_parameters": {"rope_theta": 500000.0, )", llama3, "}")));
  EXPECT_EQ(now.rope_base, 500000.0);
  ASSERT_EQ(now.rope_divisors.size(), 32u);
  EXPECT_EQ(now.rope_divisors.back(), 32.0);
  EXPECT_EQ(now.rope_divisors, before.rope_divisors);
  for (const char* keys : {R"(, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})",
                           R"(, "rope_parameters": {"rope_theta": 1e6}, "rope_scaling": null)",
                           R"(, "rope_parameters": {}, "rope_theta": 1e6)"}) {
    ASSERT_OK_AND_ASSIGN(const ModelConfig c, read(keys));
    EXPECT_EQ(c.rope_base, 1e6);
    EXPECT_TRUE(c.rope_divisors.empty());
  }
  const std::pair<const char*, const char*> wrong[] = {
      {R"(, "rope_parameters": {"rope_type": "longer"})", "'rope_parameters': the type 'longer'"},
      {R"(, "rope_parameters": {"rope_type": "longrope"})", "a list named short_factor"},
      {R"(, "rope_parameters": {"rope_type": "longrope", "short_factor": [1]})",
       "a number in short_factor for each of 32 pairs; there are 1"},
      {R"(, "rope_parameters": {"rope_type": "linear"})", "'rope_parameters.factor' is missing"},
      {R"(, "rope_parameters": {"rope_type": "linear", "factor": 0})", "wants factor > 0"},
      {R"(, "rope_parameters": {"full_attention": {"rope_type": "default"}})", "kind of layer"},
      {R"(, "rope_parameters": 3)", "not an object"},
      {R"(, "rope_parameters": {"partial_rotary_factor": 1.5})", "above 0 and at most 1"},
      {R"(, "rope_scaling": {"rope_type": "dynamic"})", "'rope_scaling': the type 'dynamic'"}};
  for (const auto& [keys, error] : wrong) {
    EXPECT_THAT(read(keys), StatusIs(absl::StatusCode::kDataLoss, error));
  }
}

// Frequencies that Hugging Face's transformers 5.23 gives for these numbers (ROPE_INIT_FUNCTIONS).
TEST(Architectures, YarnIsThatOfTransformers) {
  std::vector<double> want = {1.0,           0.223994657,    0.0416666642,   0.00395284733,
                              0.00124999997, 0.000395284733, 0.000125000006, 3.95284733e-05};
  const auto expect = [&](const ModelConfig& c, double magnitude) {
    EXPECT_NEAR(c.rope_magnitude, magnitude, 1e-9);
    ASSERT_EQ(c.rope_divisors.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(std::pow(c.rope_base, -static_cast<double>(i) / 8) / c.rope_divisors[i], want[i],
                  1e-6 * want[i])
          << i;
    }
  };
  const std::string text = R"({"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2,
        "intermediate_size": 8, "vocab_size": 9, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "rope_scaling": {"type": "yarn",
      "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0,
      "attention_factor": 1.25}})";
  ASSERT_OK_AND_ASSIGN(const Json json, Json::Parse(text, "config.json"));
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, ConfigFromHuggingFace(json, "config.json"));
  expect(c, 1.25);

  // Queries that would become sharper every 0 positions.
  const std::string never = absl::StrReplaceAll(
      text, {{R"("original_max_position_embeddings": 64)",
              R"("original_max_position_embeddings": 0.5, "llama_4_scaling_beta": 0.1)"}});
  ASSERT_OK_AND_ASSIGN(const Json bad, Json::Parse(never, "config.json"));
  EXPECT_THAT(ConfigFromHuggingFace(bad, "config.json").status(),
              StatusIs(absl::StatusCode::kDataLoss, "queries become sharper every 0 positions"));

  // Blending that begins and ends between pairs, and the numbers that make attention sharper.
  const auto with = [&](const char* keys) {
    const std::string other = absl::StrReplaceAll(text, {{R"("attention_factor": 1.25)", keys}});
    const absl::StatusOr<Json> changed = Json::Parse(other, "config.json");
    EXPECT_OK(changed);
    const absl::StatusOr<ModelConfig> out = ConfigFromHuggingFace(*changed, "config.json");
    EXPECT_OK(out);
    return out.ok() ? *out : ModelConfig();
  };
  expect(with(R"("mscale": 0.7, "mscale_all_dim": 1.3)"), 0.901783986979);
  expect(with(R"("mscale": 0.7)"), 1.20794415417);
  expect(with(R"("mscale": 0.7, "mscale_all_dim": 1.3, "attention_factor": 1.25)"), 1.25);
  want[1] = 0.272999018;
  want[2] = 0.0136626968;
  expect(with(R"("truncate": false)"), 1.20794415417);
  want[1] = 0.223994657;
  want[2] = 0.0416666642;

  // The same in a GGUF file, whose factor of attention comes on top of yarn's own.
  SmallGguf file;
  file.Set("llama.attention.key_length", 16u).Set("llama.rope.scaling.type", "yarn");
  file.Set("llama.rope.scaling.factor", 8.0f);
  file.Set("llama.rope.scaling.original_context_length", 64u);
  file.Set("llama.rope.scaling.yarn_beta_fast", 4.0f);
  ASSERT_OK_AND_ASSIGN(const Gguf gguf, OpenGguf(file.Write()));
  ASSERT_OK_AND_ASSIGN(const ModelConfig g, ConfigFromGguf(gguf.metadata));
  expect(g, 1 + 0.1 * std::log(8.0));

  // What Qwen 2.5 is published with: the default turns, 32 and 1, and heads of 128.
  ModelConfig qwen;
  qwen.head_dim = 128;
  qwen.rope_base = 1e6;
  ASSERT_TRUE(Stretch({4, 32768, 32, 1}, &qwen));
  EXPECT_NEAR(qwen.rope_magnitude, 1.138629436111989, 1e-12);
  const std::pair<int, double> some[] = {{0, 1.0},
                                         {23, 0.00697830599},
                                         {24, 0.00537532149},
                                         {31, 0.000802959781},
                                         {39, 6.4903943e-05},
                                         {40, 4.44569851e-05},
                                         {63, 3.10234441e-07}};
  for (const auto& [i, frequency] : some) {
    EXPECT_NEAR(std::pow(1e6, -i / 64.0) / qwen.rope_divisors[i], frequency, 1e-6 * frequency) << i;
  }
  EXPECT_FALSE(Stretch({0, 32768, 32, 1}, &qwen));
  EXPECT_FALSE(Stretch({4, 32768, 0.5, 1}, &qwen));
  // What Kimi K2 is published with: no pair blends.
  ModelConfig kimi;
  kimi.head_dim = 64;
  kimi.rope_base = 50000;
  ASSERT_TRUE(Stretch({32, 4096, 1, 1}, &kimi));
  ASSERT_EQ(kimi.rope_divisors.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(kimi.rope_divisors[i], i < 20 ? 1 : 32) << i;
}

}  // namespace
}  // namespace tessera::llm
