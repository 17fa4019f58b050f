// Files whose tensors are in different formats, as the usual mixtures (Q4_K_M, Q5_K_M) are.
#include <cmath>
#include <fstream>

#include "examples/llm/parallel.h"
#include "examples/llm/session.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"

namespace tessera::llm {
namespace {

constexpr int64_t kDim = 256, kFfn = 512;

std::string MixedFile(const std::string& name, WeightFormat most, WeightFormat more,
                      WeightFormat odd) {
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
  const std::string path = OwnTempDir() + "/" + name + ".gguf";
  std::ofstream(path, std::ios::binary) << g.Random().Bytes();
  return path;
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

double RelativeError(const std::vector<float>& exact, const std::vector<float>& other) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(exact[i] - other[i], 2);
    size += std::pow(exact[i], 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(error / size);
}

// One token and several: activations in integers of eight bits err by 1/254 of their blocks.
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
  for (const auto& [most, more, odd] : rows) {
    SCOPED_TRACE(InfoOf(most).name);
    ASSERT_OK_AND_ASSIGN(const Model model,
                         LoadModel(MixedFile(InfoOf(most).name, most, more, odd)));
    for (const int tokens : {1, 16}) {
      std::vector<int32_t> ids;
      for (int i = 0; i < tokens; ++i) ids.push_back(3 + i * 7);
      const std::vector<float> exact = LogitsOf(model, Activations::kF32, ids),
                               rounded = LogitsOf(model, Activations::kInt8, ids);
      const double error = RelativeError(exact, rounded);
      EXPECT_GT(error, 0);
      EXPECT_LT(error, 0.02) << tokens;
    }
  }
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
  const std::string path = OwnTempDir() + "/experts.gguf";
  std::ofstream(path, std::ios::binary) << g.Random().Bytes();
  ASSERT_OK_AND_ASSIGN(const Model model, LoadModel(path));
  ASSERT_OK_AND_ASSIGN(Model spread, LoadModel(path));
  ASSERT_OK(Distribute(&spread, {Place("CPU", 0), Place("CPU", 1)}));
  for (const int tokens : {1, 16, 100}) {
    SCOPED_TRACE(tokens);
    std::vector<int32_t> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(3 + i * 7 % 200);
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
