// What must hold of any model's numbers, before sizes are made of them.
#include <cmath>

#include "examples/llm/config.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20, kMaxContext = int64_t{1} << 28, kMaxExperts = 1 << 16;

absl::Status CheckWithin(const std::string& file, const char* what, int64_t value, int64_t least,
                         int64_t most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(file, ": ", what, " is ", value, "; ", least, " to ", most, " may be"));
}

absl::Status CheckLatent(const ModelConfig& c, const std::string& file) {
  RETURN_IF_ERROR(
      CheckWithin(file, "the length of what is kept of a position", c.latent, 1, kMaxDim));
  RETURN_IF_ERROR(
      CheckWithin(file, "the length of what queries are made of", c.query_rank, 0, kMaxDim));
  RETURN_IF_ERROR(CheckWithin(file, "the length of a head's values", c.value_dim, 1, kMaxDim));
  return CheckWithin(file, "the number of elements of a head that turn", c.rotated, 2,
                     c.head_dim - 1);
}

absl::Status CheckMemories(const ModelConfig& c, const std::string& file) {
  constexpr int64_t kMaxHeads = 4096, kMaxHead = 4096;
  RETURN_IF_ERROR(
      CheckWithin(file, "the number of keys' heads of a memory", c.memory_key_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(CheckWithin(file, "the number of values' heads of a memory", c.memory_value_heads,
                              1, kMaxHeads));
  RETURN_IF_ERROR(
      CheckWithin(file, "the length of a memory's keys", c.memory_key_dim, 1, kMaxHead));
  RETURN_IF_ERROR(
      CheckWithin(file, "the length of a memory's values", c.memory_value_dim, 1, kMaxHead));
  if (c.memory_value_heads % c.memory_key_heads != 0) {
    return absl::DataLossError(absl::StrCat(file, ": ", c.memory_value_heads,
                                            " heads of a memory's values are no multiple of ",
                                            c.memory_key_heads, " of its keys"));
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ModelConfig& c, const std::string& file) {
  const int64_t most = kMaxDim * 8;
  RETURN_IF_ERROR(CheckWithin(file, "the number of experts", c.experts, 0, kMaxExperts));
  if (c.experts == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckWithin(file, "the number of experts for a token", c.experts_used, 1, c.experts));
  RETURN_IF_ERROR(CheckWithin(file, "the feed-forward length of an expert", c.expert_ffn, 1, most));
  RETURN_IF_ERROR(
      CheckWithin(file, "the feed-forward length of the shared expert", c.shared_ffn, 0, most));
  RETURN_IF_ERROR(
      CheckWithin(file, "the number of groups of experts", c.expert_groups, 1, c.experts));
  RETURN_IF_ERROR(CheckWithin(file, "the number of groups of experts for a token",
                              c.expert_groups_used, 1, c.expert_groups));
  if (c.experts % c.expert_groups != 0) {
    return absl::DataLossError(absl::StrCat(file, ": ", c.experts, " experts are no ",
                                            c.expert_groups, " groups of equal size"));
  }
  return CheckWithin(file, "the number of experts for a token", c.experts_used, 1,
                     c.experts / c.expert_groups * c.expert_groups_used);
}

}  // namespace

absl::Status ShareExperts(int64_t count, const std::string& file, ModelConfig* c) {
  RETURN_IF_ERROR(CheckWithin(file, "the number of shared experts", count, 0, kMaxExperts));
  RETURN_IF_ERROR(
      CheckWithin(file, "the feed-forward length of an expert", c->expert_ffn, 1, kMaxDim * 8));
  c->shared_ffn = count * c->expert_ffn;
  return absl::OkStatus();
}

absl::Status CheckConfig(const ModelConfig& c, const std::string& file) {
  const auto bad = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(file, ": ", parts...));
  };
  const struct {
    const char* what;
    int64_t value, most;
  } counts[] = {{"the number of layers", c.layers, kMostLayers},
                {"the embedding length", c.dim, kMaxDim},
                {"the number of heads", c.heads, kMaxDim},
                {"the number of key heads", c.kv_heads, kMaxDim},
                {"the length of a head", c.head_dim, kMaxDim},
                {"the feed-forward length", c.ffn, kMaxDim * 8},
                {"the context length", c.context, kMaxContext}};
  for (const auto& n : counts) RETURN_IF_ERROR(CheckWithin(file, n.what, n.value, 1, n.most));
  RETURN_IF_ERROR(CheckExperts(c, file));
  if (c.latent != 0) RETURN_IF_ERROR(CheckLatent(c, file));
  const Architecture& known = *ArchitectureNamed(c.architecture);
  if (known.remembers) RETURN_IF_ERROR(CheckMemories(c, file));
  if (known.convolves || known.remembers) {
    RETURN_IF_ERROR(CheckWithin(file, "the number of positions of a convolution", c.taps,
                                known.remembers ? 2 : 1, 64));
  }
  if (c.heads % c.kv_heads != 0) {
    return bad(c.heads, " heads are no multiple of ", c.kv_heads, " key heads");
  }
  if (c.turned() % 2 != 0 || c.turned() < 2 || c.turned() > c.head_dim) {
    return bad("rotary positions of ", c.turned(), " elements in heads of ", c.head_dim,
               "; they need pairs, and at most all");
  }
  if (c.vocabulary < 0 || c.vocabulary > INT32_MAX) {
    return bad("the vocabulary size is ", c.vocabulary);
  }
  if (!(c.norm_eps > 0) || c.norm_eps > 1) {
    return bad("the epsilon of the norms is ", c.norm_eps, "; above 0 and at most 1 is allowed");
  }
  if (!(c.rope_base > 0) || std::isinf(c.rope_base)) {
    return bad("the base of rotary positions is ", c.rope_base, ", not above 0");
  }
  if (c.window < 0) return bad("the sliding window is ", c.window);
  if (c.sharpness > 0 && c.sharper_every < 1) {
    return bad("queries become sharper every ", c.sharper_every, " positions, not every 1 or more");
  }
  const std::pair<const char*, double> scales[] = {
      {"the scale of the embedding", c.embedding_scale},
      {"the scale of what layers add", c.residual_scale},
      {"the scale of the logits", c.logit_scale},
      {"the scale of the experts' shares", c.experts_scale},
      {"the magnitude of rotary positions", c.rope_magnitude},
      {"the scale of the scores", c.score_scale},
      {"the cap of the scores", c.score_cap},
      {"the cap of the logits", c.logit_cap},
      {"the limit of the gates", c.gate_limit},
      {"the sharpness of queries", c.sharpness},
      {"the base of rotary positions in layers with a window", c.local_rope_base}};
  for (size_t i = 0; i < std::size(scales); ++i) {
    const auto& [what, value] = scales[i];
    const bool may_be_none = i >= 5;
    if (std::isfinite(value) && (value > 0 || (may_be_none && value == 0))) continue;
    return bad(what, " is ", value, ", not a number above 0");
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
