// Layers that convolve: a text goes on from any position as if it had been read at once, whatever
// was read beyond it before; quantised, and over places; and what may be wrong in such files.
#include <cmath>

#include "absl/strings/str_replace.h"
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 64, kHeads = 4, kKeyHeads = 2, kFfn = 96;
constexpr int kContext = 48;

SmallGguf Small(int64_t taps = 3, WeightFormat format = WeightFormat::kF32) {
  SmallGguf g;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  const auto count = [&](const std::string& key, int64_t value) {
    g.Set("lfm2." + key, static_cast<uint32_t>(value));
  };
  g.Set("general.architecture", "lfm2");
  count("block_count", 3);
  count("embedding_length", kDim);
  count("feed_forward_length", kFfn);
  count("context_length", kContext);
  count("attention.head_count", kHeads);
  count("shortconv.l_cache", taps);
  g.Set("lfm2.attention.head_count_kv", std::vector<int32_t>{0, kKeyHeads, 0});
  g.Set("lfm2.attention.layer_norm_rms_epsilon", 1e-5f);
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    g.Drop(absl::StrCat("blk.0.", part, ".weight"));
  }
  g.Drop("output_norm.weight");
  g.Shape("token_embd_norm.weight", {kDim});
  g.Shape("token_embd.weight", {vocabulary, kDim}, format);
  for (int i = 0; i < 3; ++i) {
    const std::string blk = absl::StrCat("blk.", i, ".");
    const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      g.Shape(absl::StrCat(blk, name, ".weight"), {rows, columns}, format);
    };
    g.Shape(blk + "attn_norm.weight", {kDim}).Shape(blk + "ffn_norm.weight", {kDim});
    matrix("ffn_gate", kFfn, kDim);
    matrix("ffn_up", kFfn, kDim);
    matrix("ffn_down", kDim, kFfn);
    if (i != 1) {
      matrix("shortconv.in_proj", 3 * kDim, kDim);
      matrix("shortconv.out_proj", kDim, kDim);
      g.Shape(blk + "shortconv.conv.weight", {kDim, taps});
      continue;
    }
    const int64_t head = kDim / kHeads;
    matrix("attn_q", kDim, kDim);
    matrix("attn_k", kKeyHeads * head, kDim);
    matrix("attn_v", kKeyHeads * head, kDim);
    matrix("attn_output", kDim, kDim);
    g.Shape(blk + "attn_q_norm.weight", {head}).Shape(blk + "attn_k_norm.weight", {head});
  }
  return g;
}

Model Load(int64_t taps, WeightFormat format) {
  absl::StatusOr<Model> model = LoadModel(Small(taps, format).Random().Write());
  EXPECT_OK(model.status());
  return *std::move(model);
}

SessionOptions Exact() {
  SessionOptions options;
  options.context = kContext;
  options.activations = Activations::kF32;
  options.cache = kFloat32;
  return options;
}

// To its last position, in steps that are padded and such that are not, and from any position back.
TEST(Convolution, GoesOnFromAnyPosition) {
  for (const int64_t taps : {1, 3}) {
    SCOPED_TRACE(taps);
    const Model model = Load(taps, WeightFormat::kF32);
    const size_t row = static_cast<size_t>(model.config.vocabulary);
    Session whole(model, Exact()), parts(model, Exact());
    const std::vector<int32_t> ids = SomeTokens(kContext, 0), others = SomeTokens(kContext, 1);
    const std::vector<float> all = whole.FeedForAll(ids);
    const auto expect = [&](const float* logits) {
      const size_t at = static_cast<size_t>(parts.position() - 1) * row;
      ASSERT_LT(RelativeError({all.data() + at, row}, {logits, row}), 1e-4) << parts.position();
    };
    const auto feed = [&](int n) {
      expect(parts.Feed(absl::MakeConstSpan(ids).subspan(parts.position(), n)));
    };
    for (const int n : {1, 1, 5, 1, 16, 3, 1, 17, 2, 1}) feed(n);
    EXPECT_EQ(parts.room(), 0);
    for (const int back : {47, 30, 16, 2, 1, 0}) {
      parts.Rewind(back);
      parts.Feed(absl::MakeConstSpan(others).subspan(back, std::min(9, kContext - back)));
      parts.Rewind(back);
      feed(std::min(4, kContext - back));
    }
  }
}

TEST(Convolution, QuantisedAndOverPlacesSlow) {
  const auto logits = [](const Model& model, Activations activations, DType cache) {
    SessionOptions options = Exact();
    options.activations = activations;
    options.cache = cache;
    Session session(model, options);
    const std::vector<int32_t> ids = SomeTokens(kContext, 2);
    session.Feed(absl::MakeConstSpan(ids).subspan(0, 20));
    const float* last = session.Feed(absl::MakeConstSpan(ids).subspan(20, 1));
    return std::vector<float>(last, last + model.config.vocabulary);
  };
  const Model model = Load(3, WeightFormat::kQ8_0);
  const std::vector<float> exact = logits(model, Activations::kF32, kFloat32);
  EXPECT_LT(RelativeError(exact, logits(model, Activations::kInt8, kFloat16)), 0.03);
  Model spread = Load(3, WeightFormat::kQ8_0);
  ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
  EXPECT_LT(RelativeError(exact, logits(spread, Activations::kF32, kFloat32)), 1e-4);
}

TEST(Convolution, RefusesWhatMakesNoSense) {
  const std::string heads = "lfm2.attention.head_count_kv";
  const struct {
    const char* what;
    SmallGguf file;
    const char* error;
  } rows[] = {
      {"no taps", Small().Drop("lfm2.shortconv.l_cache"), "'lfm2.shortconv.l_cache' is missing"},
      {"0 taps", Small().Set("lfm2.shortconv.l_cache", 0u),
       "positions of a convolution is 0; 1 to 64 may be"},
      {"absurd taps", Small().Set("lfm2.shortconv.l_cache", 4000000000u),
       "positions of a convolution is 4000000000"},
      {"other taps", Small().Set("lfm2.shortconv.l_cache", 4u),
       "'blk.0.shortconv.conv.weight': its shape is [64, 3], and the configuration wants [64, 4]"},
      {"few layers", Small().Set(heads, std::vector<int32_t>{0, 2}),
       "has 2 entries, and there are 3 layers"},
      {"unequal", Small().Set(heads, std::vector<int32_t>{0, 2, 4}), "2 and 4 key heads"},
      {"below 0", Small().Set(heads, std::vector<int32_t>{0, -2, 0}), "key heads is -2"},
      {"attends", Small().Set(heads, std::vector<int32_t>{2, 2, 0}),
       "'blk.0.attn_q.weight' [64, 64] is missing"},
      {"convolves", Small().Set(heads, std::vector<int32_t>{0, 0, 0}),
       "'blk.1.shortconv.in_proj.weight' [192, 64] is missing"},
      {"no taps' weights", Small().Drop("blk.2.shortconv.conv.weight"),
       "'blk.2.shortconv.conv.weight' [64, 3] is missing"},
      {"matrix", Small().Shape("blk.2.shortconv.in_proj.weight", {64, 192}),
       "its shape is [64, 192], and the configuration wants [192, 64]"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    ExpectRefused(row.file, row.error);
  }
}

// Also the keys of first files, whose feed-forward part is as wide as two thirds of a number say.
TEST(Convolution, OfConfigJson) {
  const std::string good = R"({"model_type": "lfm2", "hidden_size": 64, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_hidden_layers": 3, "block_ff_dim": 100, "vocab_size": 9,
      "norm_eps": 1e-5, "max_position_embeddings": 64, "conv_L_cache": 3, "tie_embedding": true,
      "block_multiple_of": 32, "full_attn_idxs": [1]})";
  const auto read = [&](const char* from, const char* to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, read("9,", "9,"));
  EXPECT_EQ(c.convolved, std::vector<bool>({true, false, true}));
  EXPECT_EQ(c.ffn, 96);  // 66, and a multiple of 32
  EXPECT_FALSE(c.output_apart);
  ASSERT_OK_AND_ASSIGN(const ModelConfig as_it_is,
                       read("\"conv_L", "\"block_auto_adjust_ff_dim\": false, \"conv_L"));
  EXPECT_EQ(as_it_is.ffn, 100);
  const char* rows[][3] = {
      {R"("conv_L_cache": 3)", R"("conv_L_cache": -1)", "of a convolution is -1"},
      {R"("conv_L_cache": 3)", R"("conv_L_cache": 3, "conv_bias": true)",
       "'conv_bias' is 'true', not false"},
      {"[1]", "[3]", "'3' is none of 3 layers"},
      {"[1]", "[-1]", "'-1' is none of 3 layers"},
      {"[1]", R"([1], "layer_types": ["conv"])", "has 1 entries, and there are 3 layers"},
      {"[1]", R"([1], "layer_types": ["conv", "what", "conv"])", "full_attention and conv are"},
      {R"("num_hidden_layers": 3)", R"("num_hidden_layers": 9000000000)", "layers is 9000000000"},
      {R"("num_hidden_layers": 3)", R"("num_hidden_layers": -3)", "layers is -3"},
      {R"("block_multiple_of": 32)", R"("block_multiple_of": 0)", "1 and 0; they must be above 0"},
      {R"("block_ff_dim": 100)", R"("block_ff_dim": 9223372036854775807)",
       "keys 'block_ff_dim', 'block_ffn_dim_multiplier'"}};
  for (const auto& [from, to, error] : rows) {
    EXPECT_THAT(read(from, to).status(), StatusIs(absl::StatusCode::kDataLoss, error)) << to;
  }
}

}  // namespace
}  // namespace tessera::llm
