// config.json of Hugging Face models as a configuration.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "examples/llm/config_json.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr int64_t kMostColumns = 1 << 23;  // CheckConfig refuses more

// Which layers the window is for: as layer_types lists, or else as the architecture has it; of
// Qwen's and dots' models the later ones.
absl::Status ReadWindow(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  ASSIGN_OR_RETURN(const bool window, r.Bool("use_sliding_window", known.windowed));
  if (!window) return absl::OkStatus();
  const bool dots = c->architecture == "dots1";
  const bool later = dots || absl::StartsWith(c->architecture, "qwen");
  const bool named = r.json.Find("sliding_window").has_value();  // null: none
  // GGUF files of dots' models that do not say have none.
  const int64_t usual_window = dots ? 4096 : known.window;
  ASSIGN_OR_RETURN(c->window, r.Int("sliding_window", named ? 0 : usual_window));
  if (c->window < 0) return r.Bad("key 'sliding_window' is ", c->window);
  const size_t layers = static_cast<size_t>(c->layers);
  if (const std::optional<Json> types = r.Find("layer_types")) {
    if (!types->is(Json::Type::kArray)) return r.Wrong("layer_types", *types, "an array");
    for (const JsonItem item : types->Items()) {
      const std::optional<std::string> type = item.value().String();
      if (type != "full_attention" && type != "sliding_attention") {
        return r.Bad("key 'layer_types': ", ShowName(std::string(item.value().text())),
                     " is not known; full_attention and sliding_attention are");
      }
      c->sees_all.push_back(type == "full_attention");
    }
    if (c->sees_all.size() == layers) return absl::OkStatus();
    return r.Bad("key 'layer_types' has ", c->sees_all.size(), " entries, and there are ", layers,
                 " layers");
  }
  ASSIGN_OR_RETURN(const int64_t every, r.Int("sliding_window_pattern", known.sees_all_every));
  c->sees_all = EveryLast(c->layers, every);
  if (!later) return absl::OkStatus();
  const int64_t usual = dots ? 62 : 28;  // where the key is missing
  ASSIGN_OR_RETURN(const int64_t first, r.Int("max_window_layers", usual));
  if (first < 0) return r.Bad("key 'max_window_layers' is ", first);
  c->sees_all.assign(std::min(layers, static_cast<size_t>(first)), true);
  return absl::OkStatus();
}

// Which layers go without rotary positions: a list with 1 for those that have them.
absl::Status ReadUnturned(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  if (known.unturned_every == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t every, r.Int("no_rope_layer_interval", known.unturned_every));
  c->unturned = EveryLast(c->layers, every);
  const std::optional<Json> list = r.Find("no_rope_layers");
  if (!list) return absl::OkStatus();
  if (!list->is(Json::Type::kArray)) return r.Wrong("no_rope_layers", *list, "an array");
  c->unturned.clear();
  for (const JsonItem item : list->Items()) c->unturned.push_back(item.value().Int() == 0);
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

// Which layers have a memory, and its shape.
absl::Status ReadMemories(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("linear_conv_kernel_dim"));
  ASSIGN_OR_RETURN(c->memory_key_dim, r.Int("linear_key_head_dim"));
  ASSIGN_OR_RETURN(c->memory_value_dim, r.Int("linear_value_head_dim"));
  ASSIGN_OR_RETURN(c->memory_key_heads, r.Int("linear_num_key_heads"));
  ASSIGN_OR_RETURN(c->memory_value_heads, r.Int("linear_num_value_heads"));
  if (r.Find("layer_types")) return ReadKinds(r, "linear_attention", *c, &c->remembers);
  ASSIGN_OR_RETURN(const int64_t every, r.Int("full_attention_interval", 4));
  if (every < 1) return r.Bad("key 'full_attention_interval' is ", every);
  c->remembers = EveryLast(std::min(c->layers, kMostLayers), every);
  c->remembers.flip();
  return absl::OkStatus();
}

// Which layers convolve, and how wide the feed-forward part is, which such files say in terms of
// another number.
absl::Status ReadConvolutions(const JsonReader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("conv_L_cache"));
  ASSIGN_OR_RETURN(const bool biased, r.Bool("conv_bias", false));
  if (biased) return r.Bad("key 'conv_bias' is true, which is not known");
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
  ASSIGN_OR_RETURN(const bool adjusted,
                   r.Bool("block_auto_adjust_ff_dim", c->architecture == "lfm2"));
  if (!adjusted) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double times, r.Number("block_ffn_dim_multiplier", 1));
  ASSIGN_OR_RETURN(const int64_t unit, r.Int("block_multiple_of", 256));
  if (unit < 1 || !(times > 0) || c->ffn < 1 || c->ffn > kMostColumns || unit > kMostColumns ||
      times > 64) {
    return r.Bad(
        "keys 'intermediate_size', 'block_ffn_dim_multiplier' and 'block_multiple_of' are ", c->ffn,
        ", ", times, " and ", unit, "; they must be above 0, and sensible");
  }
  const double columns = std::floor(times * static_cast<double>(2 * c->ffn / 3));
  c->ffn = (static_cast<int64_t>(columns) + unit - 1) / unit * unit;
  return absl::OkStatus();
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
  if (method && method->String() == "greedy") return absl::OkStatus();
  ASSIGN_OR_RETURN(c->expert_groups, r.Int("n_group", 1));
  ASSIGN_OR_RETURN(c->expert_groups_used, r.Int("topk_group", c->expert_groups));
  return absl::OkStatus();
}

absl::Status ReadExperts(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  const char* count = "num_local_experts";
  for (const char* name : {"num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (r.Find(name)) count = name;
  }
  ASSIGN_OR_RETURN(c->experts, r.Int(count, 0));
  if (c->experts == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->experts_used, r.Int(r.Find("moe_k") ? "moe_k" : "num_experts_per_tok"));
  ASSIGN_OR_RETURN(c->expert_ffn, r.Int("moe_intermediate_size", c->ffn));
  ASSIGN_OR_RETURN(c->shared_ffn, r.Int("shared_expert_intermediate_size", 0));
  if (c->shared_ffn == 0) {
    const char* const shared =
        r.Find("moe_num_shared_experts") ? "moe_num_shared_experts" : "n_shared_experts";
    ASSIGN_OR_RETURN(const int64_t shared_count, r.Int(shared, 0));
    RETURN_IF_ERROR(ShareExperts(shared_count, r.file, c));
  }
  c->experts_renormed = known.renormed;
  if (known.norm_topk_prob) {
    ASSIGN_OR_RETURN(c->experts_renormed, r.Bool("norm_topk_prob", false));
  }
  return ReadGating(r, known, c);
}

// By what the model multiplies, and what bounds.
absl::Status ReadScales(const JsonReader& r, const Architecture& known, ModelConfig* c) {
  c->embedding_scale = known.embedding_scaled ? std::sqrt(static_cast<double>(c->dim)) : 1;
  if (known.multipliers) {
    ASSIGN_OR_RETURN(c->embedding_scale, r.Number("embedding_multiplier", 1));
    ASSIGN_OR_RETURN(c->residual_scale, r.Number("residual_multiplier", 1));
    ASSIGN_OR_RETURN(const double divided, r.Number("logits_scaling", 1));
    c->logit_scale = 1 / divided;
    ASSIGN_OR_RETURN(c->score_scale, r.Number("attention_multiplier", 1));
  }
  if (known.logits_multiplied) {
    constexpr double kOfLogits = 0.0625;
    ASSIGN_OR_RETURN(c->logit_scale, r.Number("logit_scale", kOfLogits));
  }
  if (!known.gelu || !known.normed_after) return absl::OkStatus();  // the first Gemma has none
  constexpr double kUsual = 256;
  ASSIGN_OR_RETURN(const double divided, r.Number("query_pre_attn_scalar", kUsual));
  c->score_scale = 1 / std::sqrt(divided);
  const auto cap = [&](const char* key, double usual) {  // null: none
    return r.Number(key, r.json.Find(key) ? 0 : usual);
  };
  ASSIGN_OR_RETURN(c->score_cap, cap("attn_logit_softcapping", known.score_cap));
  ASSIGN_OR_RETURN(c->logit_cap, cap("final_logit_softcapping", known.logit_cap));
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
  const JsonReader r{json, file};
  if (!json.is(Json::Type::kObject)) return r.Bad("the configuration is no object");
  const std::optional<Json> type = r.Find("model_type");
  if (!type || !type->String()) return r.Bad("the key 'model_type' is missing");
  ModelConfig c;
  const Architecture* known = ArchitectureOfType(*type->String());
  if (known == nullptr) {
    return r.Bad("the model_type ", ShowName(*type->String()), " is not known; known are ",
                 KnownModelTypes());
  }
  c.architecture = known->name;
  ASSIGN_OR_RETURN(c.layers, r.Int("num_hidden_layers"));
  ASSIGN_OR_RETURN(c.dim, r.Int("hidden_size"));
  ASSIGN_OR_RETURN(c.heads, r.Int("num_attention_heads"));
  ASSIGN_OR_RETURN(c.kv_heads, r.Int("num_key_value_heads", c.heads));
  const char* width = "intermediate_size";
  for (const char* name : {"moe_intermediate_size", "block_ff_dim", "intermediate_size"}) {
    if (r.Find(name)) width = name;
  }
  ASSIGN_OR_RETURN(c.ffn, r.Int(width));
  ASSIGN_OR_RETURN(c.vocabulary, r.Int("vocab_size"));
  ASSIGN_OR_RETURN(c.context, r.Int("max_position_embeddings"));
  const char* epsilon = known->convolves         ? "norm_eps"
                        : !known->centred        ? "rms_norm_eps"
                        : r.Find("norm_epsilon") ? "norm_epsilon"
                                                 : "layer_norm_eps";
  ASSIGN_OR_RETURN(c.norm_eps, r.Number(epsilon));
  if (c.heads <= 0) return r.Bad("key 'num_attention_heads' is ", c.heads);
  if (!known->latent && !r.Find("head_dim") && c.dim % c.heads != 0) {
    return r.Bad("the hidden_size ", c.dim, " is no multiple of ", c.heads, " heads");
  }
  ASSIGN_OR_RETURN(c.head_dim, r.Int("head_dim", c.dim / c.heads));
  ASSIGN_OR_RETURN(const std::optional<JsonReader> rope, FindRope(r, *known, "full_attention"));
  RETURN_IF_ERROR(ReadRopeBase(r, *known, rope, &c));
  const char* const tie = r.Find("tie_embedding") ? "tie_embedding" : "tie_word_embeddings";
  ASSIGN_OR_RETURN(const bool tied, r.Bool(tie, known->tied));
  c.output_apart = !tied;
  c.rope_interleaved = known->beside_everywhere;
  ASSIGN_OR_RETURN(const bool biased, r.Bool("use_bias", known->all_biased));
  c.attention_biased = c.ffn_biased = biased;
  if (known->gate_limit > 0) {
    ASSIGN_OR_RETURN(c.gate_limit, r.Number("swiglu_limit", known->gate_limit));
  }
  if (known->attention_bias) {
    ASSIGN_OR_RETURN(c.attention_biased, r.Bool("attention_bias", false));
  }
  if (known->mlp_bias) {
    ASSIGN_OR_RETURN(c.ffn_biased, r.Bool("mlp_bias", false));
  }
  RETURN_IF_ERROR(CheckActivation(r, *known));
  if (const std::optional<Json> clip = r.Find("clip_qkv"))
    return r.Wrong("clip_qkv", *clip, "null");
  RETURN_IF_ERROR(ReadQueryNorms(r, *known, &c));
  if (known->latent) RETURN_IF_ERROR(ReadLatent(r, &c));
  if (known->convolves) RETURN_IF_ERROR(ReadConvolutions(r, &c));
  if (known->remembers) RETURN_IF_ERROR(ReadMemories(r, &c));
  RETURN_IF_ERROR(ReadPredicting(r, &c));
  RETURN_IF_ERROR(ReadExperts(r, *known, &c));
  RETURN_IF_ERROR(CheckConfig(c, file));  // before sizes are used
  RETURN_IF_ERROR(ReadWindow(r, *known, &c));
  RETURN_IF_ERROR(ReadUnturned(r, *known, &c));
  TurnByWindow(*known, &c);
  RETURN_IF_ERROR(ReadScales(r, *known, &c));
  RETURN_IF_ERROR(ReadRopeScaling(r, rope, &c));
  RETURN_IF_ERROR(CheckConfig(c, file));
  return c;
}

}  // namespace tessera::llm
