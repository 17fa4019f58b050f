// Layers with memories: a text goes on from any position as if it had been read at once, also from
// one that memories have left behind; and what may be wrong in such files.
#include <atomic>
#include <cmath>

#include "absl/strings/str_replace.h"
#include "examples/llm/generate.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 32, kHeads = 2, kHead = 8, kFfn = 40, kGroups = 2, kValueHeads = 4,
                  kKey = 8, kValue = 6, kTaps = 4;
constexpr int kContext = 40;

SmallGguf Small() {
  SmallGguf g;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  const auto count = [&](const std::string& key, int64_t value) {
    g.Set("qwen35." + key, static_cast<uint32_t>(value));
  };
  g.Set("general.architecture", "qwen35");
  count("block_count", 2);
  count("embedding_length", kDim);
  count("feed_forward_length", kFfn);
  count("context_length", kContext);
  count("attention.head_count", kHeads);
  count("attention.head_count_kv", 1);
  count("attention.key_length", kHead);
  count("attention.value_length", kHead);
  count("rope.dimension_count", 4);
  count("full_attention_interval", 2);
  count("ssm.conv_kernel", kTaps);
  count("ssm.state_size", kKey);
  count("ssm.group_count", kGroups);
  count("ssm.time_step_rank", kValueHeads);
  count("ssm.inner_size", kValueHeads * kValue);
  g.Set("qwen35.attention.layer_norm_rms_epsilon", 1e-5f);
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm"}) {
    g.Drop(absl::StrCat("blk.0.", part, ".weight"));
  }
  g.Shape("token_embd.weight", {vocabulary, kDim}).Shape("output_norm.weight", {kDim});
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    g.Shape(blk + "attn_norm.weight", {kDim}).Shape(blk + "post_attention_norm.weight", {kDim});
    g.Shape(blk + "ffn_gate.weight", {kFfn, kDim}).Shape(blk + "ffn_up.weight", {kFfn, kDim});
    g.Shape(blk + "ffn_down.weight", {kDim, kFfn});
  }
  constexpr int64_t kRead = 2 * kGroups * kKey + kValueHeads * kValue;
  g.Shape("blk.0.attn_qkv.weight", {kRead, kDim});
  g.Shape("blk.0.attn_gate.weight", {kValueHeads * kValue, kDim});
  g.Shape("blk.0.ssm_conv1d.weight", {kRead, kTaps});
  g.Shape("blk.0.ssm_beta.weight", {kValueHeads, kDim});
  g.Shape("blk.0.ssm_alpha.weight", {kValueHeads, kDim});
  g.Shape("blk.0.ssm_dt.bias", {kValueHeads}).Shape("blk.0.ssm_a", {kValueHeads});
  g.Shape("blk.0.ssm_norm.weight", {kValue});
  g.Shape("blk.0.ssm_out.weight", {kDim, kValueHeads * kValue});
  g.Shape("blk.1.attn_q.weight", {2 * kHeads * kHead, kDim});
  g.Shape("blk.1.attn_k.weight", {kHead, kDim}).Shape("blk.1.attn_v.weight", {kHead, kDim});
  g.Shape("blk.1.attn_output.weight", {kDim, kHeads * kHead});
  g.Shape("blk.1.attn_q_norm.weight", {kHead}).Shape("blk.1.attn_k_norm.weight", {kHead});
  return g;
}

TEST(DeltaRule, GoesOnFromAnyPosition) {
  RandomWeights weights;
  for (const auto& [name, tensor] : Small().tensors) {
    const bool norm = name.find("norm") != std::string::npos, rate = name.ends_with("ssm_a");
    weights.Add(name, tensor.shape, norm || rate ? 0.3 : 0.5, norm ? 1 : rate ? -0.5 : 0);
  }
  ASSERT_OK_AND_ASSIGN(const Gguf file, OpenGguf(Small().Write()));
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ConfigFromGguf(file.metadata));
  ASSERT_OK_AND_ASSIGN(const Model model, MakeModel(config, nullptr, weights.set, true, "test"));
  SessionOptions options;
  options.context = kContext;
  options.activations = Activations::kF32;
  options.cache = kFloat32;
  const size_t row = static_cast<size_t>(model.config.vocabulary);
  const std::vector<int32_t> ids = SomeTokens(kContext, 0), others = SomeTokens(kContext, 1);
  // One by one, each by the rule itself, is what all else is compared with.
  Session single(model, options), parts(model, options);
  std::vector<float> all;
  for (const int32_t id : ids) {
    const float* logits = single.Feed({&id, 1});
    all.insert(all.end(), logits, logits + row);
  }
  const std::vector<float> at_once = parts.FeedForAll(ids);
  EXPECT_LT(RelativeError(all, at_once), 1e-4);

  const auto feed = [&](int n) {
    const float* logits = parts.Feed(absl::MakeConstSpan(ids).subspan(parts.position(), n));
    const size_t at = static_cast<size_t>(parts.position() - 1) * row;
    ASSERT_LT(RelativeError({all.data() + at, row}, {logits, row}), 1e-4) << parts.position();
  };
  parts.Rewind(0);
  for (const int n : {1, 5, 1, 16, 1, 3, 10, 1, 2}) feed(n);
  EXPECT_EQ(parts.room(), 0);
  // Back to where a prompt ended, to before and after such, and to the beginning.
  for (const int back : {39, 24, 37, 22, 7, 3, 2, 1, 0, 12}) {
    SCOPED_TRACE(back);
    parts.Rewind(back);
    parts.Feed(absl::MakeConstSpan(others).subspan(back, std::min(9, kContext - back)));
    parts.Rewind(back);
    feed(std::min(4, kContext - back));
    parts.Rewind(back);  // as it is when nothing was read in between
    feed(1);
    while (parts.room() > 8) feed(4);
  }
  // A place between that was read as another text.
  parts.Rewind(20);
  EXPECT_GT(parts.Feed(absl::MakeConstSpan(others).subspan(20, 5))[0], -1e30f);
  parts.Rewind(22);
  const float* logits = parts.Feed(absl::MakeConstSpan(others).subspan(22, 3));
  Session again(model, options);
  again.Feed(absl::MakeConstSpan(ids).subspan(0, 20));
  const float* want = again.Feed(absl::MakeConstSpan(others).subspan(20, 5));
  EXPECT_LT(RelativeError({want, row}, {logits, row}), 1e-4);
}

// Memories know no way back from a wrong guess.
TEST(DeltaRule, WritesWithoutGuesses) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(Small().Random().Write()));
  SessionOptions options;
  options.guesses = 3;
  Session session(model, options);
  GenerateOptions writing;
  writing.max_tokens = 20;
  const std::vector<int32_t> ids = SomeTokens(5);
  ASSERT_OK_AND_ASSIGN(const Generated want, Generate(session, model, ids, writing, [](auto&) {}));
  session.Rewind(0);
  writing.guessing = {3, [](auto, auto) {
                        ADD_FAILURE() << "asked for guesses";
                        return std::vector<int32_t>{5};
                      }};
  ASSERT_OK_AND_ASSIGN(const Generated got, Generate(session, model, ids, writing, [](auto&) {}));
  EXPECT_GT(want.tokens.size(), 5u);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.decode_steps, want.decode_steps);
}

// Interrupted while it reads again what is before a position, a session is where it was.
TEST(DeltaRule, GoesOnAfterAnInterruption) {
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(Small().Random().Write()));
  std::atomic<bool> interrupted = false;
  SessionOptions options;
  options.context = kContext;
  options.interrupted = &interrupted;
  const std::vector<int32_t> ids = SomeTokens(kContext, 0), others = SomeTokens(kContext, 1);
  Session session(model, options), again(model, options);
  session.Feed(absl::MakeConstSpan(ids).subspan(0, 12));
  for (int i = 12; i < 30; ++i) session.Feed({&ids[static_cast<size_t>(i)], 1});
  session.Rewind(20);
  interrupted = true;
  try {
    session.Feed(absl::MakeConstSpan(others).subspan(20, 3));
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(session.position(), 20);
  interrupted = false;
  session.Rewind(18);
  const size_t row = static_cast<size_t>(model.config.vocabulary);
  const float* logits = session.Feed(absl::MakeConstSpan(others).subspan(18, 3));
  again.Feed(absl::MakeConstSpan(ids).subspan(0, 18));
  const float* want = again.Feed(absl::MakeConstSpan(others).subspan(18, 3));
  EXPECT_LT(RelativeError({want, row}, {logits, row}), 1e-2);
}

// A model without attention does not know of positions.
TEST(DeltaRule, MayBeInAllLayers) {
  SmallGguf g = Small();
  g.Set("qwen35.block_count", 1u);
  for (const auto& [name, tensor] : Small().tensors) {
    if (name.starts_with("blk.1.")) g.Drop(name);
  }
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(g.Random().Write()));
  ASSERT_TRUE(model.config.AllRemember());
  SessionOptions options;
  options.context = kContext;
  options.activations = Activations::kF32;
  const size_t row = static_cast<size_t>(model.config.vocabulary);
  Session single(model, options), parts(model, options);
  std::vector<float> all;
  for (const int32_t id : SomeTokens(kContext, 0)) {
    const float* logits = single.Feed({&id, 1});
    all.insert(all.end(), logits, logits + row);
  }
  EXPECT_LT(RelativeError(all, parts.FeedForAll(SomeTokens(kContext, 0))), 1e-4);
  parts.Rewind(5);
  const std::vector<int32_t> ids = SomeTokens(kContext, 0);
  const float* logits = parts.Feed(absl::MakeConstSpan(ids).subspan(5, 20));
  EXPECT_LT(RelativeError({all.data() + 24 * row, row}, {logits, row}), 1e-4);
}

TEST(DeltaRule, RefusesWhatMakesNoSense) {
  const struct {
    const char* what;
    SmallGguf file;
    const char* error;
  } rows[] = {
      {"no taps", Small().Drop("qwen35.ssm.conv_kernel"), "'qwen35.ssm.conv_kernel' is missing"},
      {"1 tap", Small().Set("qwen35.ssm.conv_kernel", 1u), "is 1; 2 to 64 may be"},
      {"0 heads", Small().Set("qwen35.ssm.time_step_rank", 0u), "are 24 and 0; the former must"},
      {"0 groups", Small().Set("qwen35.ssm.group_count", 0u), "keys' heads of a memory is 0"},
      {"groups", Small().Set("qwen35.ssm.group_count", 3u),
       "4 heads of a memory's values are no multiple of 3 of its keys"},
      {"absurd groups", Small().Set("qwen35.ssm.group_count", 4000000000u),
       "keys' heads of a memory is 4000000000"},
      {"values", Small().Set("qwen35.ssm.inner_size", 25u), "are 25 and 4; the former must"},
      {"0 values", Small().Set("qwen35.ssm.inner_size", 0u), "length of a memory's values is 0"},
      {"0 keys", Small().Set("qwen35.ssm.state_size", 0u), "length of a memory's keys is 0"},
      {"absurd keys", Small().Set("qwen35.ssm.state_size", 4000000000u),
       "length of a memory's keys is 4000000000"},
      {"every 0", Small().Set("qwen35.full_attention_interval", 0u), "attention_interval' is 0"},
      {"few layers", Small().Set("qwen35.attention.recurrent_layers", std::vector<int32_t>{1}),
       "has 1 entries, and there are 2 layers"},
      {"another layer",
       Small().Set("qwen35.attention.recurrent_layers", std::vector<int32_t>{0, 1}),
       "'blk.0.attn_qkv.weight': its shape is [56, 32]"},
      {"no rate", Small().Drop("blk.0.ssm_a"), "'blk.0.ssm_a' [4] is missing"},
      {"taps", Small().Shape("blk.0.ssm_conv1d.weight", {56, 3}),
       "its shape is [56, 3], and the configuration wants [56, 4]"},
      {"no gate", Small().Drop("blk.0.attn_gate.weight"),
       "'blk.0.attn_gate.weight' [24, 32] is missing"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    ExpectRefused(row.file, row.error);
  }
}

TEST(DeltaRule, RefusesSuchConfigJson) {
  const std::string good = R"({"model_type": "qwen3_5_text", "hidden_size": 64,
      "num_attention_heads": 4, "head_dim": 16, "num_hidden_layers": 4, "intermediate_size": 8,
      "vocab_size": 9, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 2})";
  const auto read = [&](const char* from, const char* to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    const absl::StatusOr<Json> json = Json::Parse(text, "config.json");
    return json.ok() ? ConfigFromHuggingFace(*json, "config.json") : json.status();
  };
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, read("9,", "9,"));
  EXPECT_EQ(c.remembers, std::vector<bool>({true, false, true, false}));
  const char* rows[][3] = {
      {R"("linear_num_key_heads": 2)", R"("linear_num_key_heads": 0)", "of a memory is 0"},
      {R"("linear_num_key_heads": 2)", R"("linear_num_key_heads": -2)", "of a memory is -2"},
      {R"("linear_num_value_heads": 4)", R"("linear_num_value_heads": 5)", "no multiple of 2"},
      {R"("linear_key_head_dim": 8)", R"("linear_key_head_dim": 1e9)", "not an integer"},
      {R"("full_attention_interval": 2)", R"("full_attention_interval": 0)", "interval' is 0"},
      {R"("num_hidden_layers": 4)", R"("num_hidden_layers": 90000000000)", "layers is 90000000000"},
      {R"("num_hidden_layers": 4)", R"("num_hidden_layers": -1)", "layers is -1"}};
  for (const auto& [from, to, error] : rows) {
    EXPECT_THAT(read(from, to).status(), StatusIs(absl::StatusCode::kDataLoss, error)) << to;
  }
}

}  // namespace
}  // namespace tessera::llm
