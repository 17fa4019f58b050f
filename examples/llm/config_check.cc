// What must hold of any model's numbers, before sizes are made of them.
#include <cmath>

#include "examples/llm/config.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20, kMaxContext = int64_t{1} << 28, kMaxExperts = 1 << 16;
constexpr int64_t kMaxColumns = kMaxDim * 8, kMaxHeads = 4096, kMaxHead = 4096;

using Config = ModelConfig;

// A number of which all is said by how small and how large it may be.
struct Size {
  const char* what;
  int64_t Config::*value;
  int64_t least, most;
  ConfigKey key;
};

constexpr Size kSizes[] = {
    {"the number of layers", &Config::layers, 1, kMostLayers, kLayersKey},
    {"the embedding length", &Config::dim, 1, kMaxDim, kDimKey},
    {"the number of heads", &Config::heads, 1, kMaxDim, kHeadsKey},
    {"the number of key heads", &Config::kv_heads, 1, kMaxDim, kKvHeadsKey},
    {"the length of a head", &Config::head_dim, 1, kMaxDim, kHeadDimKey},
    {"the feed-forward length", &Config::ffn, 1, kMaxColumns, kFfnKey},
    {"the context length", &Config::context, 1, kMaxContext, kContextKey},
    {"the vocabulary size", &Config::vocabulary, 0, INT32_MAX, {{"vocab_size"}, {"vocab_size"}}},
    {"the sliding window",
     &Config::window,
     0,
     INT32_MAX,
     {{"attention.sliding_window"}, {"sliding_window"}}},
    {"the number of experts", &Config::experts, 0, kMaxExperts, kExpertsKey}};

constexpr Size kOfLatent[] = {
    {"the length of what is kept of a position",
     &Config::latent,
     1,
     kMaxDim,
     {{"attention.kv_lora_rank"}, {"kv_lora_rank"}}},
    {"the length of what queries are made of",
     &Config::query_rank,
     0,
     kMaxDim,
     {{"attention.q_lora_rank"}, {"q_lora_rank"}}},
    {"the length of a head's values",
     &Config::value_dim,
     1,
     kMaxDim,
     {{"attention.value_length_mla", "attention.value_length"}, {"v_head_dim"}}}};

constexpr Size kOfStreams[] = {
    {"the number of streams",
     &Config::streams,
     1,
     64,
     {{"altup.num_inputs"}, {"altup_num_inputs"}}},
    {"the length of a layer's embedding",
     &Config::layer_embedding,
     1,
     kMaxDim,
     {{"embedding_length_per_layer_input"}, {"hidden_size_per_layer_input"}}},
    {"the length of the way past a layer",
     &Config::detour,
     0,
     kMaxDim,
     {{"laurel_rank"}, {"laurel_rank"}}},
    {"the vocabulary of layers' embeddings",
     &Config::layer_vocabulary,
     0,
     INT32_MAX,
     {{"vocab_size_per_layer_input"}, {"vocab_size_per_layer_input"}}}};

constexpr ConfigKey kMemoryKeyHeads = {{"ssm.group_count"}, {"linear_num_key_heads"}};
constexpr ConfigKey kMemoryValueHeads = {{"ssm.time_step_rank"}, {"linear_num_value_heads"}};
constexpr Size kOfMemories[] = {{"the number of keys' heads of a memory", &Config::memory_key_heads,
                                 1, kMaxHeads, kMemoryKeyHeads},
                                {"the number of values' heads of a memory",
                                 &Config::memory_value_heads, 1, kMaxHeads, kMemoryValueHeads},
                                {"the length of a memory's keys",
                                 &Config::memory_key_dim,
                                 1,
                                 kMaxHead,
                                 {{"ssm.state_size"}, {"linear_key_head_dim"}}},
                                {"the length of a memory's values",
                                 &Config::memory_value_dim,
                                 1,
                                 kMaxHead,
                                 {{"ssm.inner_size"}, {"linear_value_head_dim"}}}};

// A factor, or a bound, of which none is 0.
struct Scale {
  const char* what;
  double Config::*value;
  bool may_be_none;
  ConfigKey key;
};
constexpr Scale kScales[] = {
    {"the base of rotary positions",
     &Config::rope_base,
     false,
     {{"rope.freq_base"}, {"rope_parameters", "rope_theta"}}},
    {"the scale of the embedding",
     &Config::embedding_scale,
     false,
     {{"embedding_scale"}, {"embedding_multiplier"}}},
    {"the scale of what layers add",
     &Config::residual_scale,
     false,
     {{"residual_scale"}, {"residual_multiplier"}}},
    {"the scale of the logits",
     &Config::logit_scale,
     false,
     {{"logit_scale"}, {"logits_scaling", "logit_scale"}}},
    {"the scale of the experts' shares",
     &Config::experts_scale,
     false,
     {{"expert_weights_scale"}, {"routed_scaling_factor"}}},
    {"the magnitude of rotary positions",
     &Config::rope_magnitude,
     false,
     {{"rope.scaling.attn_factor"}, {"rope_scaling", "rope_parameters"}}},
    {"the scale of the scores",
     &Config::score_scale,
     true,
     {{"attention.scale"}, {"attention_multiplier", "query_pre_attn_scalar"}}},
    {"the cap of the scores",
     &Config::score_cap,
     true,
     {{"attn_logit_softcapping"}, {"attn_logit_softcapping"}}},
    {"the cap of the logits",
     &Config::logit_cap,
     true,
     {{"final_logit_softcapping"}, {"final_logit_softcapping"}}},
    {"the limit of the gates", &Config::gate_limit, true, {{"swiglu_limit"}, {"swiglu_limit"}}},
    {"the sharpness of queries",
     &Config::sharpness,
     true,
     {{"attention.temperature_scale"}, {"rope_scaling", "rope_parameters"}}},
    {"the base of rotary positions in layers with a window",
     &Config::local_rope_base,
     true,
     {{"rope.freq_base_swa"}, {"rope_local_base_freq", "rope_parameters"}}}};

// What is said of a configuration that is no file's.
std::string OwnName(const ConfigKey& key) { return absl::StrCat("key '", key.gguf[0], "'"); }

struct Checker {
  const ModelConfig& c;
  const std::string& file;
  const KeyNamer& name;

  template <typename... Parts>
  absl::Status Bad(const ConfigKey& key, const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(file, ": ", name(key), ": ", parts...));
  }
  absl::Status Within(const ConfigKey& key, const char* what, int64_t value, int64_t least,
                      int64_t most) const {
    if (least <= value && value <= most) return absl::OkStatus();
    return Bad(key, what, " is ", value, "; ", least, " to ", most, " may be");
  }
  absl::Status Within(const Size& s) const {
    return Within(s.key, s.what, c.*s.value, s.least, s.most);
  }
};

absl::Status CheckExperts(const Checker& check) {
  const ModelConfig& c = check.c;
  if (c.experts == 0) return absl::OkStatus();
  const Size sizes[] = {
      {"the number of experts for a token", &Config::experts_used, 1, c.experts, kExpertsUsedKey},
      {"the feed-forward length of an expert", &Config::expert_ffn, 1, kMaxColumns, kExpertFfnKey},
      {"the feed-forward length of the shared expert", &Config::shared_ffn, 0, kMaxColumns,
       kSharedKey},
      {"the number of groups of experts", &Config::expert_groups, 1, c.experts, kGroupsKey},
      {"the number of groups of experts for a token",
       &Config::expert_groups_used,
       1,
       c.expert_groups,
       {{"expert_group_used_count"}, {"topk_group"}}}};
  for (const Size& s : sizes) RETURN_IF_ERROR(check.Within(s));
  if (c.experts % c.expert_groups != 0) {
    return check.Bad(kGroupsKey, c.experts, " experts are no ", c.expert_groups,
                     " groups of equal size");
  }
  return check.Within(kExpertsUsedKey, "the number of experts for a token", c.experts_used, 1,
                      c.experts / c.expert_groups * c.expert_groups_used);
}

absl::Status CheckStreams(const Checker& check) {
  const ModelConfig& c = check.c;
  for (const Size& s : kOfStreams) RETURN_IF_ERROR(check.Within(s));
  RETURN_IF_ERROR(check.Within({{"altup.active_idx"}, {"altup_active_idx"}},
                               "the stream that layers read", c.active_stream, 0, c.streams - 1));
  RETURN_IF_ERROR(check.Within(kSharedLayersKey, "the number of layers with keys of others",
                               c.own_keys == 0 ? 0 : c.layers - c.own_keys, 0, c.layers - 1));
  if (!c.sparsity.empty() && c.sparsity.size() != static_cast<size_t>(c.layers)) {
    return check.Bad({{"activation_sparsity_scale"}, {"activation_sparsity_pattern"}}, "there are ",
                     c.sparsity.size(), " entries, and ", c.layers, " layers");
  }
  return absl::OkStatus();
}

// Of layers whose window is known.
absl::Status CheckKeys(const Checker& check) {
  for (int64_t i = 0; i < check.c.layers; ++i) {
    if (check.c.KeysOf(i) >= 0) continue;
    return check.Bad(kSharedLayersKey, "layer ", i,
                     " has the keys of another of its kind, and none before it has any");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ShareExperts(int64_t count, const std::string& file, const KeyNamer& name,
                          ModelConfig* c) {
  const Checker check{*c, file, name};
  RETURN_IF_ERROR(check.Within(kSharedKey, "the number of shared experts", count, 0, kMaxExperts));
  RETURN_IF_ERROR(check.Within(kExpertFfnKey, "the feed-forward length of an expert", c->expert_ffn,
                               1, kMaxColumns));
  c->shared_ffn = count * c->expert_ffn;
  return absl::OkStatus();
}

absl::Status CheckConfig(const ModelConfig& c, const std::string& file, const KeyNamer& name) {
  const KeyNamer own = OwnName;
  const Checker check{c, file, name ? name : own};
  for (const Size& s : kSizes) RETURN_IF_ERROR(check.Within(s));
  RETURN_IF_ERROR(CheckExperts(check));
  if (c.latent != 0) {
    for (const Size& s : kOfLatent) RETURN_IF_ERROR(check.Within(s));
    RETURN_IF_ERROR(check.Within(kRotatedKey, "the number of elements of a head that turn",
                                 c.rotated, 2, c.head_dim - 1));
  }
  const Architecture& known = *ArchitectureNamed(c.architecture);
  if (known.remembers) {
    for (const Size& s : kOfMemories) RETURN_IF_ERROR(check.Within(s));
    if (c.memory_value_heads % c.memory_key_heads != 0) {
      return check.Bad(kMemoryValueHeads, c.memory_value_heads,
                       " heads of a memory's values are no multiple of ", c.memory_key_heads,
                       " of its keys");
    }
  }
  if (known.streams) {
    RETURN_IF_ERROR(CheckStreams(check));
    RETURN_IF_ERROR(CheckKeys(check));
  }
  if (known.convolves || known.remembers) {
    RETURN_IF_ERROR(check.Within(
        {{"shortconv.l_cache", "ssm.conv_kernel"}, {"conv_L_cache", "linear_conv_kernel_dim"}},
        "the number of positions of a convolution", c.taps, known.remembers ? 2 : 1, 64));
  }
  if (c.heads % c.kv_heads != 0) {
    return check.Bad(kKvHeadsKey, c.heads, " heads are no multiple of ", c.kv_heads, " key heads");
  }
  if (c.turned() % 2 != 0 || c.turned() < 2 || c.turned() > c.head_dim) {
    return check.Bad(kRotatedKey, "rotary positions of ", c.turned(), " elements in heads of ",
                     c.head_dim, "; they need pairs, and at most all");
  }
  if (!(c.norm_eps > 0) || c.norm_eps > 1) {
    return check.Bad({{"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"},
                      {"rms_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_eps"}},
                     "the epsilon of the norms is ", c.norm_eps,
                     "; above 0 and at most 1 is allowed");
  }
  if (c.sharpness > 0 && c.sharper_every < 1) {
    return check.Bad(
        {{"rope.scaling.original_context_length"}, {"rope_scaling", "rope_parameters"}},
        "queries become sharper every ", c.sharper_every, " positions, not every 1 or more");
  }
  for (const Scale& s : kScales) {
    const double value = c.*s.value;
    if (std::isfinite(value) && (value > 0 || (s.may_be_none && value == 0))) continue;
    return check.Bad(s.key, s.what, " is ", value, ", not a number above 0");
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
