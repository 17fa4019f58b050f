// Random weights and files as text.
#include "tests/llm/models.h"

#include <cmath>
#include <fstream>
#include <iterator>

namespace tessera::llm {

std::vector<int32_t> IdsOf(const std::string& json, const std::string& text) {
  absl::StatusOr<TokenizerSpec> spec = TokenizerFromHuggingFaceText(json, "tokenizer.json");
  EXPECT_OK(spec);
  if (!spec.ok()) return {};
  auto tokenizer = Tokenizer::Make(*std::move(spec));
  EXPECT_OK(tokenizer);
  Tokenizer::Options options;
  options.markup = true;
  return tokenizer.ok() ? (*tokenizer)->Encode(text, options) : std::vector<int32_t>();
}

std::string DecodeAll(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::string out;
  for (int32_t id : ids) out += t.Piece(id);
  return out;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

double RelativeError(absl::Span<const float> exact, absl::Span<const float> other) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(exact[i] - other[i], 2);
    size += std::pow(exact[i], 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(error / size);
}

void RandomWeights::Add(const std::string& name, const std::vector<int64_t>& shape, double scale,
                        double offset) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  auto values = std::make_unique<std::vector<float>>(n);
  for (float& v : *values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<float>((static_cast<double>(state >> 40) / (1 << 23) - 1) * scale + offset);
  }
  Weight w;
  w.name = name;
  w.shape = shape;
  w.bytes = {reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float)};
  memory.push_back(std::move(values));
  EXPECT_OK(set.Add(std::move(w)));
}

const float* RandomWeights::Of(const std::string& name) const {
  const Weight* w = set.Find(name);
  return w == nullptr ? nullptr : reinterpret_cast<const float*>(w->bytes.data());
}

RandomWeights WeightsFor(const ModelConfig& c, bool tied) {
  RandomWeights w;
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  w.Add("token_embd.weight", {c.vocabulary, c.dim}, 1);
  if (!tied) w.Add("output.weight", {c.vocabulary, c.dim}, 0.5);
  w.Add("output_norm.weight", {c.dim}, 0.3, 1);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    w.Add(p + "attn_norm.weight", {c.dim}, 0.3, 1);
    w.Add(p + "ffn_norm.weight", {c.dim}, 0.3, 1);
    w.Add(p + "attn_q.weight", {q, c.dim}, 0.5);
    w.Add(p + "attn_k.weight", {kv, c.dim}, 0.5);
    w.Add(p + "attn_v.weight", {kv, c.dim}, 0.5);
    w.Add(p + "attn_output.weight", {c.dim, q}, 0.5);
    if (c.architecture == "qwen2" || c.attention_biased) {
      w.Add(p + "attn_q.bias", {q}, 0.5);
      w.Add(p + "attn_k.bias", {kv}, 0.5);
      w.Add(p + "attn_v.bias", {kv}, 0.5);
    }
    if (c.attention_biased) w.Add(p + "attn_output.bias", {c.dim}, 0.5);
    if (c.architecture == "qwen3") {
      w.Add(p + "attn_q_norm.weight", {c.head_dim}, 0.3, 1);
      w.Add(p + "attn_k_norm.weight", {c.head_dim}, 0.3, 1);
    }
    w.Add(p + "ffn_gate.weight", {c.ffn, c.dim}, 0.5);
    w.Add(p + "ffn_up.weight", {c.ffn, c.dim}, 0.5);
    w.Add(p + "ffn_down.weight", {c.dim, c.ffn}, 0.5);
    if (c.ffn_biased) {
      w.Add(p + "ffn_gate.bias", {c.ffn}, 0.5);
      w.Add(p + "ffn_up.bias", {c.ffn}, 0.5);
      w.Add(p + "ffn_down.bias", {c.dim}, 0.5);
    }
  }
  return w;
}

}  // namespace tessera::llm
