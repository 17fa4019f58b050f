// Files whose tensors are in different formats, as the usual mixtures (Q4_K_M, Q5_K_M) are.
#include <cmath>

#include "examples/llm/panels.h"
#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 256, kFfn = 512;

std::string MixedFile(WeightFormat most, WeightFormat more, WeightFormat odd) {
  SmallGguf g;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  g.Set("llama.embedding_length", static_cast<uint32_t>(kDim));
  g.Set("llama.feed_forward_length", static_cast<uint32_t>(kFfn));
  g.Shape("token_embd.weight", {vocabulary, kDim}, more);
  for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    g.Shape(absl::StrCat(norm, ".weight"), {kDim});
  }
  g.Shape("blk.0.attn_q.weight", {kDim, kDim}, most);
  g.Shape("blk.0.attn_k.weight", {kDim, kDim}, odd);
  g.Shape("blk.0.attn_v.weight", {kDim, kDim}, more);
  g.Shape("blk.0.attn_output.weight", {kDim, kDim}, most);
  g.Shape("blk.0.ffn_gate.weight", {kFfn, kDim}, odd);
  g.Shape("blk.0.ffn_up.weight", {kFfn, kDim}, most);
  g.Shape("blk.0.ffn_down.weight", {kDim, kFfn}, more);
  return g.Random().Write();
}

std::vector<float> LogitsOf(const Model& model, Activations activations,
                            absl::Span<const int32_t> tokens) {
  SessionOptions options;
  options.activations = activations;
  options.cache = kFloat32;
  Session session(model, options);
  const float* logits = session.Feed(tokens);
  return {logits, logits + model.config.vocabulary};
}

// One token or several, in turn: activations in integers of eight bits err by 1/254 of their
// blocks.
TEST(MixedFormats, IntegersAreNearlyTheValuesSlow) {
  const WeightFormat rows[][3] = {
      {WeightFormat::kQ4K, WeightFormat::kQ6K, WeightFormat::kQ5_0},
      {WeightFormat::kQ5K, WeightFormat::kQ8_0, WeightFormat::kQ5_1},
      {WeightFormat::kIQ4XS, WeightFormat::kQ5K, WeightFormat::kIQ4NL},
      {WeightFormat::kQ3K, WeightFormat::kQ2K, WeightFormat::kMXFP4},
      {WeightFormat::kIQ2XXS, WeightFormat::kIQ3S, WeightFormat::kTQ2},
      {WeightFormat::kIQ1S, WeightFormat::kIQ2S, WeightFormat::kNVFP4},
      {WeightFormat::kIQ1M, WeightFormat::kIQ3XXS, WeightFormat::kIQ2XS},
      {WeightFormat::kTQ1, WeightFormat::kQ2_0, WeightFormat::kQ1_0},
  };
  int tokens = 1;
  for (const auto& [most, more, odd] : rows) {
    SCOPED_TRACE(InfoOf(most).name);
    ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(MixedFile(most, more, odd)));
    tokens = tokens == 1 ? 16 : 1;
    std::vector<int32_t> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(3 + i * 7);
    const std::vector<float> exact = LogitsOf(model, Activations::kF32, ids),
                             rounded = LogitsOf(model, Activations::kInt8, ids);
    const double error = RelativeError(exact, rounded);
    EXPECT_GT(error, 0);
    EXPECT_LT(error, 0.02) << tokens;
  }
}

TEST(MixedFormats, PanelsGiveNearlyTheSameLogits) {
  const std::string path = MixedFile(WeightFormat::kQ4K, WeightFormat::kQ6K, WeightFormat::kQ8_0);
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
  ASSERT_OK_AND_ASSIGN(Model laid_out, LoadModel(path));
  EXPECT_TRUE(LeavesRoomForPanels(laid_out));
  uint64_t told = 0, of = 1;
  ASSERT_OK(CopyIntoPanels(&laid_out, [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, told);
    told = done;
    of = all;
    return true;
  }));
  EXPECT_EQ(told, of);
  for (const auto& [name, matrix] : kMatrices) {
    const Matrix& m = laid_out.layers[0].*matrix;
    EXPECT_EQ(m.panels != nullptr, static_cast<bool>(m)) << name;
  }
  for (const int tokens : {1, 5, 16}) {
    const std::vector<int32_t> ids = SomeTokens(tokens);
    const std::vector<float> exact = LogitsOf(model, Activations::kInt8, ids);
    EXPECT_LT(RelativeError(exact, LogitsOf(laid_out, Activations::kInt8, ids)), 0.005) << tokens;
    const std::vector<float> floats = LogitsOf(model, Activations::kF32, ids);
    EXPECT_EQ(floats, LogitsOf(laid_out, Activations::kF32, ids)) << "by what the file has";
  }
  ASSERT_OK_AND_ASSIGN(Model ended, LoadModel(path));
  const auto no = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(CopyIntoPanels(&ended, no).code(), absl::StatusCode::kCancelled);
  ASSERT_OK_AND_ASSIGN(Model spread, LoadModel(path));
  ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
  ASSERT_OK(CopyIntoPanels(&spread));
  EXPECT_EQ(spread.layers[0].q.panels, nullptr) << "of several places each has a part";
}

// Matrices with a scale beside them, each or of each expert, as files in NVFP4 have them.
SmallGguf ScaledFile(bool experts) {
  SmallGguf g;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    const int64_t scales = shape.size() == 3 ? shape[0] : 1;
    g.Shape(name + ".weight", std::move(shape), WeightFormat::kNVFP4);
    g.Shape(name + ".scale", {scales});
    g.Shape(name + ".input_scale", {scales});
  };
  constexpr int64_t kWidth = 64, kColumns = 128, kExperts = 3;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  g.Set("llama.embedding_length", static_cast<uint32_t>(kWidth));
  g.Set("llama.feed_forward_length", static_cast<uint32_t>(kColumns));
  add("token_embd", {vocabulary, kWidth});
  for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    g.Shape(absl::StrCat(norm, ".weight"), {kWidth});
  }
  add("output", {vocabulary, kWidth});
  for (const char* part : {"q", "k", "v", "output"}) {
    add(absl::StrCat("blk.0.attn_", part), {kWidth, kWidth});
  }
  if (experts) {
    g.Set("llama.expert_count", static_cast<uint32_t>(kExperts));
    g.Set("llama.expert_used_count", 2u);
    g.Shape("blk.0.ffn_gate_inp.weight", {kExperts, kWidth});
  }
  for (const std::string part : {"gate", "up", "down"}) {
    g.Drop("blk.0.ffn_" + part + ".weight");
    std::vector<int64_t> shape = {kColumns, kWidth};
    if (part == "down") std::swap(shape[0], shape[1]);
    if (experts) shape.insert(shape.begin(), kExperts);
    add("blk.0.ffn_" + part + (experts ? "_exps" : ""), shape);
  }
  return g;
}

TEST(MixedFormats, ScalesBesideMatrices) {
  const std::vector<int32_t> ids = {3, 40, 77, 5, 90};
  for (const bool experts : {false, true}) {
    const std::string path = ScaledFile(experts).Random().Write();
    ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
    ASSERT_OK_AND_ASSIGN(Model spread, LoadModel(path));
    ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
    ASSERT_OK_AND_ASSIGN(Model multiplied, LoadModel(path));
    ASSERT_OK_AND_ASSIGN(Model without, LoadModel(path));
    const auto multiply = [](Matrix& m) {
      if (m.scale) m = {(m.values() * m.scale).Realize(), WeightFormat::kF32};
    };
    multiply(multiplied.embedding);
    multiply(multiplied.output);
    without.output.scale = {};
    for (const auto& [name, matrix] : kMatrices) {
      multiply(multiplied.layers[0].*matrix);
      (without.layers[0].*matrix).scale = {};
    }
    const std::vector<float> exact = LogitsOf(multiplied, Activations::kF32, ids);
    EXPECT_LT(RelativeError(exact, LogitsOf(model, Activations::kF32, ids)), 1e-5);
    EXPECT_LT(RelativeError(exact, LogitsOf(spread, Activations::kF32, ids)), 1e-5);
    EXPECT_LT(RelativeError(exact, LogitsOf(model, Activations::kInt8, ids)), 0.02);
    EXPECT_GT(RelativeError(exact, LogitsOf(without, Activations::kF32, ids)), 0.1);
  }
}

TEST(MixedFormats, ScalesOfOtherShapes) {
  SmallGguf g = ScaledFile(true);
  ExpectRefused(g.Shape("blk.0.ffn_up_exps.scale", {2}),
                "'blk.0.ffn_up_exps.scale': its shape is [2], and the configuration wants ");
}

// A mixture of experts in blocks, by activations of each kind, of one token, of some that are few
// for a matrix unit and many for the experts' blocks, and of many; and over two places.
void TryExperts(WeightFormat gate, WeightFormat up, WeightFormat down) {
  constexpr int64_t kExperts = 6;
  SmallGguf g;
  const int64_t vocabulary = static_cast<int64_t>(SmallTokens().size());
  g.Set("llama.embedding_length", static_cast<uint32_t>(kDim));
  g.Set("llama.feed_forward_length", static_cast<uint32_t>(kFfn));
  g.Set("llama.context_length", 256u);
  g.Set("llama.expert_count", static_cast<uint32_t>(kExperts));
  g.Set("llama.expert_used_count", 2u);
  g.Shape("token_embd.weight", {vocabulary, kDim}, WeightFormat::kQ8_0);
  for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    g.Shape(absl::StrCat(norm, ".weight"), {kDim});
  }
  for (const char* part : {"q", "k", "v", "output"}) {
    g.Shape(absl::StrCat("blk.0.attn_", part, ".weight"), {kDim, kDim}, WeightFormat::kQ8_0);
  }
  for (const char* part : {"gate", "up", "down"})
    g.Drop(absl::StrCat("blk.0.ffn_", part, ".weight"));
  g.Shape("blk.0.ffn_gate_inp.weight", {kExperts, kDim});
  g.Shape("blk.0.ffn_gate_exps.weight", {kExperts, kFfn, kDim}, gate);
  g.Shape("blk.0.ffn_up_exps.weight", {kExperts, kFfn, kDim}, up);
  g.Shape("blk.0.ffn_down_exps.weight", {kExperts, kDim, kFfn}, down);
  const std::string path = g.Random().Write();
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
  ASSERT_OK_AND_ASSIGN(Model spread, LoadModel(path));
  ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
  for (const int tokens : {1, 16, 100}) {
    SCOPED_TRACE(tokens);
    const std::vector<int32_t> ids = SomeTokens(tokens);
    const std::vector<float> exact = LogitsOf(model, Activations::kF32, ids);
    EXPECT_LT(RelativeError(exact, LogitsOf(spread, Activations::kF32, ids)), 1e-4);
    for (const Activations kind : {Activations::kInt8, Activations::kBf16}) {
      EXPECT_LT(RelativeError(exact, LogitsOf(model, kind, ids)), 0.05);
      EXPECT_LT(RelativeError(exact, LogitsOf(spread, kind, ids)), 0.05);
    }
  }
}

TEST(MixedFormats, ExpertsByEveryActivationSlow) {
  TryExperts(WeightFormat::kQ4K, WeightFormat::kQ4_0, WeightFormat::kQ6K);
}
TEST(MixedFormats, ExpertsInCodebooksByEveryActivationSlow) {
  TryExperts(WeightFormat::kIQ2XXS, WeightFormat::kIQ3S, WeightFormat::kTQ2);
}

}  // namespace
}  // namespace tessera::llm
