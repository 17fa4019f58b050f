// config.json of Hugging Face models as a configuration.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "examples/llm/config_json.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kMostColumns = 1 << 23;  // CheckConfig refuses more

// A whole number of layers, or of other things that are counted off.
absl::StatusOr<int64_t> Every(const JsonReader& r, const char* key) {
  ASSIGN_OR_RETURN(const int64_t every, r.Int(key));
  if (every < 1) return r.Bad("key '", key, "' is ", every, "; 1 or more may be");
  return every;
}

// Of each layer, whether its type is this one, and not full_attention.
absl::Status ReadKinds(const JsonReader& r, const char* kind, const ModelConfig& c,
                       std::vector<bool>* to) {
  const Json types = *r.Find("layer_types");
  if (!types.is(Json::Type::kArray)) return r.Wrong("layer_types", types, "an array");
  for (const JsonItem item : types.Items()) {
    const std::optional<std::string> type = item.value().String();
    if (type != "full_attention" && type != kind) {
      return r.Bad("key 'layer_types': ", ShowName(std::string(item.value().text())),
                   " is not known; full_attention and ", kind, " are");
    }
    to->push_back(type == kind);
  }
  if (to->size() == static_cast<size_t>(c.layers)) return absl::OkStatus();
  return r.Bad("key 'layer_types' has ", to->size(), " entries, and there are ", c.layers,
               " layers");
}

// Weights in 8-bit floats are known, and gpt-oss's in MXFP4.
absl::Status CheckQuantisation(const JsonReader& r) {
  const std::optional<Json> how = r.Find("quantization_config");
  if (!how || !how->is(Json::Type::kObject)) return absl::OkStatus();
  const std::optional<Json> method = how->Find("quant_method");
  constexpr const char* kKnown[] = {"fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "mxfp4"};
  const std::optional<std::string> name = method ? method->String() : std::nullopt;
  if (!name || absl::c_linear_search(kKnown, *name)) return absl::OkStatus();
  return r.Bad("key 'quantization_config': weights by ", ShowName(*name),
               " are not read; those in FP8 are, and GGUF files of the model");
}

// Which layers the window is for: as layer_types lists, or else all, or as one of the family's keys
// says.
absl::Status ReadWindow(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  if (!r.Knows("sliding_window")) return absl::OkStatus();
  if (r.Knows("use_sliding_window")) {
    ASSIGN_OR_RETURN(const bool used, r.Bool("use_sliding_window", false));
    if (!used) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(c->window, r.Int("sliding_window", 0));
  if (c->window < 0) return r.Bad("key 'sliding_window' is ", c->window);
  if (r.Knows("layer_types") && r.Find("layer_types")) {
    RETURN_IF_ERROR(ReadKinds(r, "sliding_attention", *c, &c->sees_all));
    c->sees_all.flip();
    return absl::OkStatus();
  }
  const size_t layers = static_cast<size_t>(c->layers);
  if (!c->unturned.empty()) {
    c->sees_all = c->unturned;
    c->sees_all.flip();
  } else if (r.Knows("max_window_layers")) {
    ASSIGN_OR_RETURN(const int64_t first, r.Int("max_window_layers"));
    if (first < 0) return r.Bad("key 'max_window_layers' is ", first);
    c->sees_all.assign(std::min(layers, static_cast<size_t>(first)), true);
    if (!known.windows_early) return absl::OkStatus();
    for (size_t i = 0; i < c->sees_all.size(); ++i) c->sees_all[i] = i % 2 != 0;
    c->sees_all.resize(layers, true);
  } else if (r.Find("sliding_window_pattern")) {
    ASSIGN_OR_RETURN(const int64_t every, Every(r, "sliding_window_pattern"));
    c->sees_all = EveryLast(c->layers, every);
  }
  return absl::OkStatus();
}

// Which layers go without rotary positions: a list with 1 for those that have them.
absl::Status ReadUnturned(const JsonReader& r, ModelConfig* c) {
  if (!r.Knows("no_rope_layer_interval")) return absl::OkStatus();
  const std::optional<Json> list = r.Find("no_rope_layers");
  if (!list) {
    ASSIGN_OR_RETURN(const int64_t every, Every(r, "no_rope_layer_interval"));
    c->unturned = EveryLast(c->layers, every);
    return absl::OkStatus();
  }
  if (!list->is(Json::Type::kArray)) return r.Wrong("no_rope_layers", *list, "an array");
  for (const JsonItem item : list->Items()) {
    const std::optional<int64_t> turned = item.value().Int();
    if (!turned) return r.Wrong("no_rope_layers", item.value(), "0 or 1");
    c->unturned.push_back(turned == 0);
  }
  if (c->unturned.size() == static_cast<size_t>(c->layers)) return absl::OkStatus();
  return r.Bad("key 'no_rope_layers' has ", c->unturned.size(), " entries, and there are ",
               c->layers, " layers");
}

// How many layers after the others guess further tokens: they are not used.
absl::Status ReadPredicting(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->predicting_layers, r.Int("num_nextn_predict_layers", 0));
  return c->predicting_layers >= 0
             ? absl::OkStatus()
             : r.Bad("key 'num_nextn_predict_layers' is ", c->predicting_layers);
}

// Which layers have a memory, and its shape.
absl::Status ReadMemories(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("linear_conv_kernel_dim"));
  ASSIGN_OR_RETURN(c->memory_key_dim, r.Int("linear_key_head_dim"));
  ASSIGN_OR_RETURN(c->memory_value_dim, r.Int("linear_value_head_dim"));
  ASSIGN_OR_RETURN(c->memory_key_heads, r.Int("linear_num_key_heads"));
  ASSIGN_OR_RETURN(c->memory_value_heads, r.Int("linear_num_value_heads"));
  if (r.Find("layer_types")) return ReadKinds(r, "linear_attention", *c, &c->remembers);
  ASSIGN_OR_RETURN(const int64_t every, Every(r, "full_attention_interval"));
  c->remembers = EveryLast(std::min(c->layers, kMostLayers), every);
  c->remembers.flip();
  return absl::OkStatus();
}

// Which layers convolve, and how wide the feed-forward part is, which such files say in terms of
// another number.
absl::Status ReadConvolutions(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("conv_L_cache"));
  if (r.Find("layer_types")) {
    RETURN_IF_ERROR(ReadKinds(r, "conv", *c, &c->convolved));
  } else if (const std::optional<Json> attend = r.Find("full_attn_idxs")) {
    if (!attend->is(Json::Type::kArray)) return r.Wrong("full_attn_idxs", *attend, "an array");
    if (c->layers < 1 || c->layers > kMostLayers)
      return absl::OkStatus();  // refused by CheckConfig
    c->convolved.assign(static_cast<size_t>(c->layers), true);
    for (const JsonItem item : attend->Items()) {
      const int64_t layer = item.value().Int().value_or(-1);
      if (layer < 0 || layer >= c->layers) {
        return r.Bad("key 'full_attn_idxs': ", ShowName(std::string(item.value().text())),
                     " is none of ", c->layers, " layers");
      }
      c->convolved[static_cast<size_t>(layer)] = false;
    }
  }
  if (!r.Knows("block_auto_adjust_ff_dim")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool adjusted, r.Bool("block_auto_adjust_ff_dim", false));
  if (!adjusted) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double times, r.Number("block_ffn_dim_multiplier", 1));
  ASSIGN_OR_RETURN(const int64_t unit, r.Int("block_multiple_of", 256));
  if (unit < 1 || !(times > 0) || c->ffn < 1 || c->ffn > kMostColumns || unit > kMostColumns ||
      times > 64) {
    return r.Bad("keys '", r.NameOf({"block_ff_dim", "intermediate_size"}),
                 "', 'block_ffn_dim_multiplier' and 'block_multiple_of' are ", c->ffn, ", ", times,
                 " and ", unit, "; they must be above 0, and sensible");
  }
  const double columns = std::floor(times * static_cast<double>(2 * c->ffn / 3));
  c->ffn = (static_cast<int64_t>(columns) + unit - 1) / unit * unit;
  return absl::OkStatus();
}

// Above which a share of what is normally distributed is left, in deviations from the mean.
double DeviationsOf(double share) {
  if (!(share > 0)) return -std::numeric_limits<double>::infinity();
  double low = -40, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
  }
  return low;
}

// Streams of hidden states, and which gates count.
absl::Status ReadStreams(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->streams, r.Int("altup_num_inputs"));
  ASSIGN_OR_RETURN(c->active_stream, r.Int("altup_active_idx"));
  ASSIGN_OR_RETURN(c->stream_scaled, r.Bool("altup_correct_scale", false));
  ASSIGN_OR_RETURN(c->layer_embedding, r.Int("hidden_size_per_layer_input"));
  ASSIGN_OR_RETURN(c->layer_vocabulary, r.Int("vocab_size_per_layer_input"));
  ASSIGN_OR_RETURN(c->detour, r.Int("laurel_rank"));
  if (c->detour < 1) return r.Bad("key 'laurel_rank' is ", c->detour);
  ASSIGN_OR_RETURN(const int64_t shared, r.Int("num_kv_shared_layers"));
  if (shared < 0 || shared >= c->layers) {
    return r.Bad("key 'num_kv_shared_layers' is ", shared, " of ", c->layers, " layers");
  }
  c->own_keys = shared == 0 ? 0 : c->layers - shared;
  c->score_scale = 1;
  const char* const key = "activation_sparsity_pattern";
  const std::optional<Json> each = r.Find(key);
  if (!each) {
    constexpr int64_t kFirst = 10;
    constexpr double kUsual = 0.95;
    if (c->layers <= kFirst || c->layers > kMostLayers) return absl::OkStatus();
    c->sparsity.assign(static_cast<size_t>(c->layers), DeviationsOf(0));
    std::fill_n(c->sparsity.begin(), kFirst, DeviationsOf(kUsual));
    return absl::OkStatus();
  }
  if (!each->is(Json::Type::kArray)) return r.Wrong(key, *each, "an array");
  for (const JsonItem item : each->Items()) {
    const std::optional<double> share = item.value().Number();
    if (!share || !(*share >= 0) || *share >= 1) {
      return r.Wrong(key, item.value(), "a number of at least 0 and below 1");
    }
    c->sparsity.push_back(DeviationsOf(*share));
  }
  return absl::OkStatus();
}

// One number, or an array of as many equal ones as there are layers.
absl::StatusOr<int64_t> EachLayer(const JsonReader& r, const char* key, int64_t layers) {
  const std::optional<Json> each = r.Find(key);
  if (!each || !each->is(Json::Type::kArray)) return r.Int(key);
  int64_t count = 0, one = 0;
  for (const JsonItem item : each->Items()) {
    const std::optional<int64_t> n = item.value().Int();
    if (!n) return r.Wrong(key, item.value(), "an integer");
    if (count++ == 0) one = *n;
    if (one != *n) return r.Bad("key '", key, "': layers of unequal sizes are not known");
  }
  if (count == layers) return one;
  return r.Bad("key '", key, "' has ", count, " entries, and there are ", layers, " layers");
}

// Heads whose keys and values are made of one vector a position.
absl::Status ReadLatent(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->latent, r.Int("kv_lora_rank"));
  if (c->latent == 0) return r.Bad("key 'kv_lora_rank' is 0");
  ASSIGN_OR_RETURN(c->query_rank, r.Int("q_lora_rank", 0));
  ASSIGN_OR_RETURN(c->value_dim, r.Int("v_head_dim"));
  ASSIGN_OR_RETURN(c->rotated, r.Int("qk_rope_head_dim"));
  ASSIGN_OR_RETURN(const int64_t own, r.Int("qk_nope_head_dim"));
  constexpr int64_t kMost = 1 << 20;
  for (const int64_t part : {own, c->rotated}) {
    if (part < 1 || part > kMost) {
      return r.Bad("keys 'qk_nope_head_dim' and 'qk_rope_head_dim' are ", own, " and ", c->rotated,
                   "; 1 to ", kMost, " may be");
    }
  }
  c->head_dim = own + c->rotated;
  c->kv_heads = 1;
  ASSIGN_OR_RETURN(c->rope_interleaved, r.Bool("rope_interleave", c->rope_interleaved));
  return absl::OkStatus();
}

// How a router's logits become shares.
absl::Status ReadGating(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  using Gating = ModelConfig::Gating;
  c->gating = known.sigmoid ? Gating::kSigmoid : Gating::kSoftmax;
  if (const std::optional<Json> scores = r.Find("scoring_func")) {
    const std::optional<std::string> name = scores->String();
    if (name != "softmax" && name != "sigmoid") {
      return r.Wrong("scoring_func", *scores, "\"softmax\" or \"sigmoid\"");
    }
    c->gating = name == "sigmoid" ? Gating::kSigmoid : Gating::kSoftmax;
  }
  ASSIGN_OR_RETURN(c->experts_scale, r.Number("routed_scaling_factor", 1));
  // Files of V2 have groups also where all experts may be chosen.
  const std::optional<Json> method = r.Find("topk_method");
  if (r.Knows("topk_method") && method && method->String() == "greedy") return absl::OkStatus();
  ASSIGN_OR_RETURN(c->expert_groups, r.Int("n_group", 1));
  ASSIGN_OR_RETURN(c->expert_groups_used, r.Int("topk_group", c->expert_groups));
  return absl::OkStatus();
}

absl::Status ReadExperts(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  const char* const count =
      r.NameOf({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"});
  ASSIGN_OR_RETURN(c->experts, r.Int(count, 0));
  if (c->experts == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->experts_used, r.Int(r.NameOf({"num_experts_per_tok", "moe_k"})));
  ASSIGN_OR_RETURN(c->expert_ffn, r.Int("moe_intermediate_size", c->ffn));
  ASSIGN_OR_RETURN(c->shared_ffn, r.Int("shared_expert_intermediate_size", 0));
  if (c->shared_ffn == 0) {
    ASSIGN_OR_RETURN(const int64_t shared_count,
                     r.Int(r.NameOf({"n_shared_experts", "moe_num_shared_experts"}), 0));
    RETURN_IF_ERROR(ShareExperts(shared_count, r.file, r.namer(), c));
  }
  c->experts_renormed = known.renormed;
  if (r.Knows("norm_topk_prob")) {
    ASSIGN_OR_RETURN(c->experts_renormed, r.Bool("norm_topk_prob", false));
  }
  return ReadGating(r, known, c);
}

// By what the model multiplies, and what bounds.
absl::Status ReadScales(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  c->embedding_scale = known.embedding_scaled ? std::sqrt(static_cast<double>(c->dim)) : 1;
  if (r.Knows("embedding_multiplier")) {
    ASSIGN_OR_RETURN(c->embedding_scale, r.Number("embedding_multiplier", 1));
    ASSIGN_OR_RETURN(c->residual_scale, r.Number("residual_multiplier", 1));
    ASSIGN_OR_RETURN(const double divided, r.Number("logits_scaling", 1));
    c->logit_scale = 1 / divided;
    ASSIGN_OR_RETURN(c->score_scale, r.Number("attention_multiplier", 1));
  }
  if (r.Knows("logit_scale")) {
    ASSIGN_OR_RETURN(c->logit_scale, r.Number("logit_scale"));
  }
  if (r.Knows("query_pre_attn_scalar")) {
    ASSIGN_OR_RETURN(const double divided, r.Number("query_pre_attn_scalar"));
    c->score_scale = 1 / std::sqrt(divided);
  }
  if (r.Knows("attn_logit_softcapping")) {
    ASSIGN_OR_RETURN(c->score_cap, r.Number("attn_logit_softcapping", 0));
  }
  if (r.Knows("final_logit_softcapping")) {
    ASSIGN_OR_RETURN(c->logit_cap, r.Number("final_logit_softcapping", 0));
  }
  return absl::OkStatus();
}

// Whether the gates are those of the architecture.
absl::Status CheckActivation(const JsonReader& r, const Architecture& known) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::optional<Json> act = r.Find(key);
    if (!act) continue;
    const std::optional<std::string> name = act->String();
    // Gemma's first files say gelu, and mean the approximation.
    const char* wanted = known.gelu ? "gelu_pytorch_tanh" : known.squared ? "relu2" : "silu";
    const bool good = name == wanted || (known.gelu && name == "gelu");
    if (!good) return r.Wrong(key, *act, absl::StrCat("\"", wanted, "\"").c_str());
  }
  return absl::OkStatus();
}

// Which products add biases.
absl::Status ReadBiases(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  c->attention_biased = c->ffn_biased = known.all_biased;
  c->qkv_biased = known.qkv_biased;
  if (r.Knows("use_bias")) {
    ASSIGN_OR_RETURN(c->attention_biased, r.Bool("use_bias", false));
    c->ffn_biased = c->attention_biased;
  }
  if (known.attention_bias) {
    ASSIGN_OR_RETURN(c->attention_biased, r.Bool("attention_bias", false));
  } else {
    for (const char* key : {"attention_bias", "qkv_bias"}) {
      if (!r.Knows(key)) continue;
      ASSIGN_OR_RETURN(c->qkv_biased, r.Bool(key, false));
      if (known.latent && c->qkv_biased) return r.Wrong(key, *r.Find(key), "false");
    }
  }
  if (!r.Knows("mlp_bias")) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->ffn_biased, r.Bool("mlp_bias", false));
  if (c->ffn_biased && !known.mlp_bias) return r.Wrong("mlp_bias", *r.Find("mlp_bias"), "false");
  return absl::OkStatus();
}

// Keys of which one value alone is known.
absl::Status CheckOthers(const JsonReader& r) {
  constexpr std::pair<const char*, const char*> kOnly[] = {
      {"attention_out_bias", "false"},
      {"clip_qkv", "null"},
      {"conv_bias", "false"},
      {"use_bidirectional_attention", "false"}};
  for (const auto& [key, value] : kOnly) {
    const std::optional<Json> found = r.Find(key);
    if (found && found->text() != value) return r.Wrong(key, *found, value);
  }
  return absl::OkStatus();
}

// Whether queries and keys are normed, each head or all together, where the architecture does not
// say, or as it does.
absl::Status ReadQueryNorms(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  ASSIGN_OR_RETURN(const bool normed, r.Bool("use_qk_norm", false));
  if (!normed) return absl::OkStatus();
  if (!known.may_norm_heads && !known.heads_normed && !known.widths_normed) {
    return r.Bad("key 'use_qk_norm' is true, which is not known");
  }
  c->heads_normed = !known.widths_normed;
  const std::optional<Json> type = r.Find("qk_norm_type");
  const char* const wanted = known.widths_normed ? "per_layer" : "per_head";
  if (!type || type->String() == wanted) return absl::OkStatus();
  return r.Wrong("qk_norm_type", *type, absl::StrCat("\"", wanted, "\"").c_str());
}

}  // namespace

absl::StatusOr<ModelConfig> ConfigFromHuggingFace(const Json& json, const std::string& file) {
  JsonReader r{json, file};
  if (!json.is(Json::Type::kObject)) return r.Bad("the configuration is no object");
  const std::optional<Json> type = r.Find("model_type");
  if (!type || !type->String()) return r.Bad("the key 'model_type' is missing");
  ModelConfig c;
  const Architecture* known = ArchitectureOfType(*type->String());
  if (known == nullptr) {
    return r.Bad("the model_type ", ShowName(*type->String()), " is not known; known are ",
                 KnownModelTypes());
  }
  r.defaults = DefaultsOf(*type->String());
  RETURN_IF_ERROR(CheckQuantisation(r));
  c.architecture = known->name;
  ASSIGN_OR_RETURN(c.layers, r.Int("num_hidden_layers"));
  ASSIGN_OR_RETURN(c.dim, r.Int("hidden_size"));
  ASSIGN_OR_RETURN(c.heads, r.Int("num_attention_heads"));
  ASSIGN_OR_RETURN(c.kv_heads, r.Int("num_key_value_heads", c.heads));
  const bool older = r.Knows("block_auto_adjust_ff_dim") && r.Find("block_ff_dim");
  const bool mixture = !r.Find("intermediate_size") && r.Find("moe_intermediate_size");
  const char* const width = older     ? "block_ff_dim"
                            : mixture ? "moe_intermediate_size"
                                      : "intermediate_size";
  ASSIGN_OR_RETURN(c.ffn, EachLayer(r, width, c.layers));
  ASSIGN_OR_RETURN(c.vocabulary, r.Int("vocab_size"));
  ASSIGN_OR_RETURN(c.context, r.Int("max_position_embeddings"));
  const char* epsilon = "rms_norm_eps";
  for (const char* name : {"norm_eps", "norm_epsilon", "layer_norm_eps"}) {
    if (r.Knows(name)) epsilon = name;
  }
  ASSIGN_OR_RETURN(c.norm_eps, r.Number(epsilon));
  if (c.heads <= 0) return r.Bad("key 'num_attention_heads' is ", c.heads);
  if (!known->latent && !r.Find("head_dim") && c.dim % c.heads != 0) {
    return r.Bad("key 'hidden_size' is ", c.dim, ", which is no multiple of ", c.heads, " heads");
  }
  ASSIGN_OR_RETURN(c.head_dim, r.Int("head_dim", c.dim / c.heads));
  ASSIGN_OR_RETURN(const std::optional<JsonReader> rope, FindRope(r, "full_attention"));
  RETURN_IF_ERROR(ReadRopeBase(r, *known, rope, &c));
  ASSIGN_OR_RETURN(const bool tied,
                   r.Bool(r.NameOf({"tie_embedding", "tie_word_embeddings"}), false));
  c.output_apart = !tied;
  c.rope_interleaved = known->beside_everywhere;
  RETURN_IF_ERROR(ReadBiases(r, *known, &c));
  if (known->gate_limit > 0) {
    ASSIGN_OR_RETURN(c.gate_limit, r.Number("swiglu_limit", known->gate_limit));
  }
  RETURN_IF_ERROR(CheckActivation(r, *known));
  RETURN_IF_ERROR(CheckOthers(r));
  RETURN_IF_ERROR(ReadQueryNorms(r, *known, &c));
  if (known->latent) RETURN_IF_ERROR(ReadLatent(r, &c));
  if (known->convolves) RETURN_IF_ERROR(ReadConvolutions(r, &c));
  if (known->remembers) RETURN_IF_ERROR(ReadMemories(r, &c));
  if (known->streams) RETURN_IF_ERROR(ReadStreams(r, &c));
  RETURN_IF_ERROR(ReadPredicting(r, &c));
  RETURN_IF_ERROR(ReadExperts(r, *known, &c));
  RETURN_IF_ERROR(CheckConfig(c, file, r.namer()));  // before sizes are used
  RETURN_IF_ERROR(ReadUnturned(r, &c));
  RETURN_IF_ERROR(ReadWindow(r, *known, &c));
  TurnByWindow(*known, &c);
  RETURN_IF_ERROR(ReadScales(r, *known, &c));
  RETURN_IF_ERROR(ReadRopeScaling(r, rope, &c));
  RETURN_IF_ERROR(CheckConfig(c, file, r.namer()));
  return c;
}

}  // namespace tessera::llm
