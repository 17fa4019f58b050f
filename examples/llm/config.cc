// Metadata of GGUF files as a configuration, and the checks of every configuration.
#include "examples/llm/config.h"

#include <algorithm>
#include <cmath>

#include "graph/status.h"

namespace tessera::llm {
namespace {

struct Reader {
  const GgufMetadata& m;
  std::string prefix;

  std::string Key(const char* name) const { return absl::StrCat(prefix, ".", name); }
  absl::Status Bad(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(m.file(), ": ", what));
  }
  // For messages.
  KeyNamer namer() const {
    return [r = *this](const ConfigKey& key) {
      for (const char* name : key.gguf) {
        if (name != nullptr && r.m.Find(r.Key(name)) != nullptr) {
          return absl::StrCat("key '", r.Key(name), "'");
        }
      }
      return absl::StrCat("key '", r.Key(key.gguf[0]), "' (which is missing)");
    };
  }
  absl::StatusOr<int64_t> Int(const char* name) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> v, m.Int(Key(name)));
    if (!v) return Bad(absl::StrCat("the key '", Key(name), "' is missing"));
    return *v;
  }
  absl::StatusOr<int64_t> Int(const char* name, int64_t otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> v, m.Int(Key(name)));
    return v.value_or(otherwise);
  }
  absl::StatusOr<double> Number(const char* name, double otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<double> v, m.Number(Key(name)));
    return v.value_or(otherwise);
  }
  // A number for the model, or an array with an equal one for each layer.
  absl::StatusOr<int64_t> EachLayer(const char* name, int64_t layers) const {
    const GgufValue* v = m.Find(Key(name));
    if (v == nullptr || v->type != GgufType::kArray) return Int(name);
    ASSIGN_OR_RETURN(const GgufArray* a, m.Numbers(Key(name)));
    if (a->count != static_cast<uint64_t>(layers)) {
      return Bad(absl::StrCat("key '", Key(name), "' has ", a->count, " entries, and there are ",
                              layers, " layers"));
    }
    for (uint64_t i = 1; i < a->count; ++i) {
      if (a->Int(i) != a->Int(0)) {
        return Bad(absl::StrCat("key '", Key(name), "': layers of unequal sizes are not known"));
      }
    }
    return a->count == 0 ? 0 : a->Int(0);
  }
};

absl::Status ReadYarn(const Reader& r, double factor, ModelConfig* c) {
  Yarn yarn;
  yarn.factor = factor;
  ASSIGN_OR_RETURN(const double under, r.Number("rope.scaling.yarn_log_multiplier", 0));
  yarn.whole_pairs = !ArchitectureNamed(c->architecture)->yarn_between;
  ASSIGN_OR_RETURN(const int64_t trained,
                   r.Int("rope.scaling.original_context_length", c->context));
  yarn.trained = static_cast<double>(trained);
  ASSIGN_OR_RETURN(yarn.fast, r.Number("rope.scaling.yarn_beta_fast", yarn.fast));
  ASSIGN_OR_RETURN(yarn.slow, r.Number("rope.scaling.yarn_beta_slow", yarn.slow));
  ASSIGN_OR_RETURN(const double magnitude, r.Number("rope.scaling.attn_factor", 1));
  if (!Stretch(yarn, c) || !(magnitude > 0)) {
    return r.Bad(absl::StrCat("keys '", r.Key("rope.scaling"),
                              ".*': yarn wants a factor, an original_context_length and an "
                              "attn_factor above 0, and yarn_beta_fast >= yarn_beta_slow > 0"));
  }
  if (c->latent > 0 && under != 0) {
    // Such files have a tenth of what others have. Scores are sharper, and angles are as they are:
    // what these would be multiplied by is the same for all models that are published.
    constexpr double kTenth = 0.1;
    c->rope_magnitude = magnitude;
    SharpenScores(Sharper(factor, under / kTenth), c);
  } else {
    c->rope_magnitude *= magnitude;
    if (under != 0) c->rope_magnitude /= Sharper(factor, under);
  }
  ASSIGN_OR_RETURN(c->sharpness, r.Number("attention.temperature_scale", 0));
  c->sharper_every = trained;
  return absl::OkStatus();
}

// Divisors for short contexts and for long ones, which are tensors of the file.
absl::Status ReadLongRope(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->rope_trained, r.Int("rope.scaling.original_context_length", c->context));
  const double own =
      LongMagnitude(static_cast<double>(c->context), static_cast<double>(c->rope_trained));
  ASSIGN_OR_RETURN(c->rope_magnitude, r.Number("rope.scaling.attn_factor", own));
  return absl::OkStatus();
}

// Which layers the window is for, and how positions turn there.
absl::Status ReadLayerKinds(const Reader& r, const Architecture& known, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->window, r.Int("attention.sliding_window", known.window));
  const std::string key = r.Key("attention.sliding_window_pattern");
  const GgufValue* pattern = r.m.Find(key);
  if (pattern != nullptr && pattern->type == GgufType::kArray) {  // which layers the window is for
    const auto& each = std::get<GgufArray>(pattern->value);
    if (each.element == GgufType::kString || each.count != static_cast<uint64_t>(c->layers)) {
      return r.Bad(absl::StrCat("key '", key, "' has ", each.count, " entries, and wants ",
                                c->layers, " bools, for each layer"));
    }
    for (uint64_t i = 0; i < each.count; ++i) c->sees_all.push_back(each.Int(i) == 0);
  } else {
    ASSIGN_OR_RETURN(const int64_t every,
                     r.Int("attention.sliding_window_pattern", known.sees_all_every));
    if (every < 0) return r.Bad(absl::StrCat("key '", key, "' is ", every));
    c->sees_all = EveryLast(c->layers, every);
  }
  c->unturned = EveryLast(c->layers, known.unturned_every);
  TurnByWindow(known, c);
  const bool apart = known.local_rope_base > 0 || (known.local_unstretched && c->window > 0);
  if (!apart) return absl::OkStatus();
  const double own = known.local_rope_base > 0 ? known.local_rope_base : c->rope_base;
  ASSIGN_OR_RETURN(c->local_rope_base, r.Number("rope.freq_base_swa", own));
  return absl::OkStatus();
}

// By what the model multiplies.
absl::Status ReadScales(const Reader& r, const Architecture& known, ModelConfig* c) {
  const double own = known.embedding_scaled ? std::sqrt(static_cast<double>(c->dim)) : 1;
  ASSIGN_OR_RETURN(c->embedding_scale, r.Number("embedding_scale", own));
  ASSIGN_OR_RETURN(c->residual_scale, r.Number("residual_scale", 1));
  ASSIGN_OR_RETURN(const double divided, r.Number("logit_scale", 1));
  c->logit_scale = known.logits_multiplied ? divided : 1 / divided;
  ASSIGN_OR_RETURN(c->score_scale, r.Number("attention.scale", known.streams ? 1 : 0));
  ASSIGN_OR_RETURN(c->score_cap, r.Number("attn_logit_softcapping", known.score_cap));
  ASSIGN_OR_RETURN(c->logit_cap, r.Number("final_logit_softcapping", known.logit_cap));
  // Files of the largest Gemma 2 and 3 do not say that they divide by another root.
  const bool largest = (c->architecture == "gemma2" && c->layers == 46) ||
                       (c->architecture == "gemma3" && c->layers == 62);
  if (largest && c->score_scale == 0) {
    c->score_scale = 1 / std::sqrt(static_cast<double>(c->dim / c->heads));
  }
  return absl::OkStatus();
}

absl::Status ReadExperts(const Reader& r, const Architecture& known, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->experts, r.Int("expert_count", 0));
  if (c->experts == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->experts_used, r.Int("expert_used_count"));
  const bool divided = known.experts_divide && c->experts_used > 0;
  const int64_t part = divided ? c->ffn / c->experts_used : c->ffn;
  ASSIGN_OR_RETURN(c->expert_ffn, r.Int("expert_feed_forward_length", part));
  const int64_t shared_ffn = known.shared_whole ? c->ffn : 0;
  ASSIGN_OR_RETURN(c->shared_ffn, r.Int("expert_shared_feed_forward_length", shared_ffn));
  if (c->shared_ffn == 0) {
    ASSIGN_OR_RETURN(const int64_t shared, r.Int("expert_shared_count", 0));
    RETURN_IF_ERROR(ShareExperts(shared, r.m.file(), r.namer(), c));
  }
  ASSIGN_OR_RETURN(const std::optional<bool> renormed, r.m.Bool(r.Key("expert_weights_norm")));
  c->experts_renormed = renormed.value_or(known.renormed);
  ASSIGN_OR_RETURN(c->experts_scale, r.Number("expert_weights_scale", 1));
  if (c->experts_scale == 0) c->experts_scale = 1;  // as some files say that there is none
  ASSIGN_OR_RETURN(c->expert_groups, r.Int("expert_group_count", 1));
  ASSIGN_OR_RETURN(c->expert_groups_used, r.Int("expert_group_used_count", c->expert_groups));
  using Gating = ModelConfig::Gating;
  constexpr int64_t kUnsaid = 0, kSigmoid = 2, kSoftmaxOfChosen = 3;
  ASSIGN_OR_RETURN(const int64_t gating, r.Int("expert_gating_func", kUnsaid));
  c->gating = gating == kSigmoid || (gating == kUnsaid && known.sigmoid) ? Gating::kSigmoid
                                                                         : Gating::kSoftmax;
  if (gating == kUnsaid && known.choice_biased) c->gating = Gating::kByBias;
  if (gating == kSoftmaxOfChosen) c->experts_renormed = true;
  if (gating < kUnsaid || gating > kSoftmaxOfChosen) {
    return r.Bad(absl::StrCat("key '", r.Key("expert_gating_func"), "' is ", gating,
                              "; 1, 2 and 3, which are softmax, sigmoid and softmax of those "
                              "chosen, are known"));
  }
  return absl::OkStatus();
}

// Which layers convolve: those that have no key heads.
absl::Status ReadConvolutions(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("shortconv.l_cache"));
  const std::string key = r.Key("attention.head_count_kv");
  const GgufValue* v = r.m.Find(key);
  if (v == nullptr || v->type != GgufType::kArray) {  // none does
    ASSIGN_OR_RETURN(c->kv_heads, r.Int("attention.head_count_kv"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const GgufArray* each, r.m.Numbers(key));
  if (each->count != static_cast<uint64_t>(c->layers)) {
    return r.Bad(absl::StrCat("key '", key, "' has ", each->count, " entries, and there are ",
                              c->layers, " layers"));
  }
  c->kv_heads = 0;
  for (uint64_t i = 0; i < each->count; ++i) {
    const int64_t heads = each->Int(i);
    c->convolved.push_back(heads == 0);
    if (heads == 0) continue;
    if (c->kv_heads != 0 && heads != c->kv_heads) {
      return r.Bad(absl::StrCat("key '", key, "': ", c->kv_heads, " and ", heads,
                                " key heads; layers of unequal ones are not known"));
    }
    c->kv_heads = heads;
  }
  if (c->kv_heads == 0) c->kv_heads = c->heads;  // of no layer
  return absl::OkStatus();
}

// Which layers have a memory, and its shape.
absl::Status ReadMemories(const Reader& r, const Architecture& known, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->taps, r.Int("ssm.conv_kernel"));
  ASSIGN_OR_RETURN(c->memory_key_dim, r.Int("ssm.state_size"));
  ASSIGN_OR_RETURN(c->memory_key_heads, r.Int("ssm.group_count"));
  ASSIGN_OR_RETURN(c->memory_value_heads, r.Int("ssm.time_step_rank"));
  ASSIGN_OR_RETURN(const int64_t values, r.Int("ssm.inner_size"));
  if (c->memory_value_heads < 1 || values % c->memory_value_heads != 0) {
    return r.Bad(absl::StrCat("keys '", r.Key("ssm.inner_size"), "' and '.time_step_rank' are ",
                              values, " and ", c->memory_value_heads,
                              "; the former must be a multiple of the latter, which is above 0"));
  }
  c->memory_value_dim = values / c->memory_value_heads;
  c->memory_tiled = known.memory_tiled;
  const std::string key = r.Key("attention.recurrent_layers");
  if (r.m.Find(key) != nullptr) {
    ASSIGN_OR_RETURN(const GgufArray* each, r.m.Numbers(key));
    if (each->count < static_cast<uint64_t>(c->layers)) {
      return r.Bad(absl::StrCat("key '", key, "' has ", each->count, " entries, and there are ",
                                c->layers, " layers"));
    }
    for (int64_t i = 0; i < c->layers && i < kMostLayers; ++i) {
      c->remembers.push_back(each->Int(static_cast<uint64_t>(i)) != 0);
    }
    return absl::OkStatus();
  }
  constexpr int64_t kUsual = 4;
  ASSIGN_OR_RETURN(const int64_t every, r.Int("full_attention_interval", kUsual));
  if (every < 1)
    return r.Bad(absl::StrCat("key '", r.Key("full_attention_interval"), "' is ", every));
  c->remembers = EveryLast(std::min(c->layers, kMostLayers), every);
  c->remembers.flip();
  return absl::OkStatus();
}

// Streams of hidden states, and which gates count. Files do not say how wide ways past layers are.
absl::Status ReadStreams(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->streams, r.Int("altup.num_inputs"));
  ASSIGN_OR_RETURN(c->active_stream, r.Int("altup.active_idx", 0));
  ASSIGN_OR_RETURN(c->layer_embedding, r.Int("embedding_length_per_layer_input"));
  ASSIGN_OR_RETURN(const int64_t shared, r.Int("attention.shared_kv_layers"));
  if (shared < 0 || shared >= c->layers) {
    return r.Bad(absl::StrCat("key '", r.Key("attention.shared_kv_layers"), "' is ", shared, " of ",
                              c->layers, " layers"));
  }
  c->own_keys = shared == 0 ? 0 : c->layers - shared;
  const std::string key = r.Key("activation_sparsity_scale");
  if (r.m.Find(key) == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const GgufArray* each, r.m.Numbers(key));
  for (uint64_t i = 0; i < each->count && i <= kMostLayers; ++i) {
    c->sparsity.push_back(each->Number(i));
    if (std::isnan(c->sparsity.back())) return r.Bad(absl::StrCat("key '", key, "' holds nan"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const Reader& r, ModelConfig* c) {
  if (r.m.Find(r.Key("attention.key_length")) == nullptr && c->dim % c->heads != 0) {
    return r.Bad(absl::StrCat("key '", r.Key("embedding_length"), "' is ", c->dim,
                              ", which is no multiple of ", c->heads, " heads"));
  }
  ASSIGN_OR_RETURN(c->head_dim, r.Int("attention.key_length", c->dim / c->heads));
  ASSIGN_OR_RETURN(const int64_t value_dim, r.Int("attention.value_length", c->head_dim));
  if (value_dim != c->head_dim) {
    return r.Bad(absl::StrCat("keys '", r.Key("attention.key_length"), "' and '.value_length' are ",
                              c->head_dim, " and ", value_dim, "; only equal ones are known"));
  }
  ASSIGN_OR_RETURN(c->rotated, r.Int("rope.dimension_count", c->head_dim));
  if (c->rotated != 0 || c->head_dim < 1) return absl::OkStatus();  // none would mean all
  return r.Bad(absl::StrCat("key '", r.Key("rope.dimension_count"),
                            "' is 0; a pair of a head's elements must turn"));
}

// Heads whose keys and values are made of one vector a position. Newer files have as lengths of
// keys and values what is kept, and those of a head under other names.
absl::Status ReadLatent(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->latent, r.Int("attention.kv_lora_rank"));
  if (c->latent == 0)
    return r.Bad(absl::StrCat("key '", r.Key("attention.kv_lora_rank"), "' is 0"));
  ASSIGN_OR_RETURN(c->query_rank, r.Int("attention.q_lora_rank", 0));
  const bool newer = r.m.Find(r.Key("attention.key_length_mla")) != nullptr;
  ASSIGN_OR_RETURN(c->head_dim, r.Int(newer ? "attention.key_length_mla" : "attention.key_length"));
  ASSIGN_OR_RETURN(c->value_dim,
                   r.Int(newer ? "attention.value_length_mla" : "attention.value_length"));
  ASSIGN_OR_RETURN(c->rotated, r.Int("rope.dimension_count"));
  c->kv_heads = 1;
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> type,
                   r.m.String(r.Key("rope.scaling.type")));
  if (type && *type == "none") return absl::OkStatus();
  // Phi's files have divisors for short contexts and long ones, and do not say so.
  const auto has = [&](const char* key) { return r.m.Find(r.Key(key)) != nullptr; };
  if (!type && has("rope.scaling.original_context_length") && !has("rope.scaling.factor")) {
    return ReadLongRope(r, c);
  }
  // What old files call it, which have no type: it is linear.
  const bool old = r.m.Find(r.Key("rope.scaling.factor")) == nullptr;
  const char* name = old ? "rope.scale_linear" : "rope.scaling.factor";
  ASSIGN_OR_RETURN(double factor, r.Number(name, 1));
  if (type && *type == "yarn") return ReadYarn(r, factor, c);
  if (factor == 0) factor = 1;  // as some files say that there is none
  if (type && *type == "longrope") return ReadLongRope(r, c);
  if (type && *type != "linear") {
    return r.Bad(absl::StrCat("key '", r.Key("rope.scaling.type"), "' is ", ShowName(*type),
                              "; none, linear, yarn and longrope are known"));
  }
  if (!(factor > 0) || std::isinf(factor)) {
    return r.Bad(absl::StrCat("key '", r.Key(name), "' is ", factor, ", not a number above 0"));
  }
  if (factor == 1) return absl::OkStatus();
  c->rope_divisors.assign(static_cast<size_t>(c->turned() / 2), factor);
  return absl::OkStatus();
}

}  // namespace

bool ModelConfig::AnyRemembers() const {
  return std::find(remembers.begin(), remembers.end(), true) != remembers.end();
}

bool ModelConfig::AllRemember() const {
  return std::count(remembers.begin(), remembers.end(), true) == layers;
}

int64_t ModelConfig::KeysOf(int64_t layer) const {
  if (own_keys == 0 || layer < own_keys) return layer;
  for (int64_t i = own_keys - 1; i >= 0; --i) {
    if (WindowOf(static_cast<size_t>(i)) == WindowOf(static_cast<size_t>(layer))) return i;
  }
  return -1;
}

double Sharper(double factor, double by) {
  return factor > 1 ? 0.1 * by * std::log(factor) + 1 : 1;
}

void SharpenScores(double sharper, ModelConfig* c) {
  c->score_scale = sharper * sharper / std::sqrt(static_cast<double>(c->head_dim));
}

double LongMagnitude(double context, double trained) {
  return context > trained && trained > 1
             ? std::sqrt(1 + std::log(context / trained) / std::log(trained))
             : 1;
}

void TurnByWindow(const Architecture& known, ModelConfig* c) {
  if (known.turned_by_window && c->window > 0) c->unturned = c->sees_all;
}

std::vector<bool> EveryLast(int64_t layers, int64_t every) {
  std::vector<bool> out;
  if (every <= 0) return out;
  for (int64_t i = 0; i < layers; ++i) out.push_back(i % every == every - 1);
  return out;
}

bool Stretch(const Yarn& y, ModelConfig* c) {
  constexpr double kPi = 3.14159265358979323846;
  const bool sensible = y.factor > 0 && y.trained > 0 && y.fast >= y.slow && y.slow > 0 &&
                        c->rope_base > 1 && !std::isinf(y.factor * y.trained * y.fast);
  if (!sensible) return false;
  const auto pair_of = [&](double turns) {  // the pair that turns so often in the trained context
    return c->turned() * std::log(y.trained / (turns * 2 * kPi)) / (2 * std::log(c->rope_base));
  };
  double begin = pair_of(y.fast), end = pair_of(y.slow);
  if (y.whole_pairs) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(0.0, begin);
  end = std::min(static_cast<double>(c->turned() - 1), end);
  c->rope_divisors.clear();
  for (int64_t i = 0; i < c->turned() / 2; ++i) {
    double slow = (static_cast<double>(i) - begin) / std::max(end - begin, 0.001);
    slow = std::min(1.0, std::max(0.0, slow));
    c->rope_divisors.push_back(1 / (slow / y.factor + (1 - slow)));
  }
  c->rope_magnitude = Sharper(y.factor);
  return true;
}

absl::StatusOr<ModelConfig> ConfigFromGguf(const GgufMetadata& m) {
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> arch, m.String("general.architecture"));
  Reader r{m, arch ? std::string(*arch) : ""};
  if (!arch) return r.Bad("the key 'general.architecture' is missing");
  ModelConfig c;
  c.architecture = std::string(*arch);
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> name, m.String("general.name"));
  if (name) c.name = std::string(*name);
  const Architecture* known = ArchitectureNamed(c.architecture);
  if (known == nullptr) {
    return r.Bad(absl::StrCat("the architecture ", ShowName(c.architecture),
                              " is not known; known are ", KnownArchitectures()));
  }
  c.rope_interleaved = known->rope_interleaved;
  c.attention_biased = c.ffn_biased = known->all_biased;
  c.qkv_biased = known->qkv_biased;
  c.gate_limit = known->gate_limit;
  ASSIGN_OR_RETURN(c.layers, r.Int("block_count"));
  ASSIGN_OR_RETURN(c.predicting_layers, r.Int("nextn_predict_layers", 0));
  if (c.predicting_layers < 0 || (c.predicting_layers > 0 && c.predicting_layers >= c.layers)) {
    return r.Bad(absl::StrCat("key '", r.Key("nextn_predict_layers"), "' is ", c.predicting_layers,
                              " of ", c.layers, " layers"));
  }
  ASSIGN_OR_RETURN(c.dim, r.Int("embedding_length"));
  ASSIGN_OR_RETURN(c.context, r.Int("context_length"));
  // Where all layers have experts there may be no other length.
  const bool dense = m.Find(r.Key("feed_forward_length")) != nullptr ||
                     m.Find(r.Key("expert_feed_forward_length")) == nullptr;
  ASSIGN_OR_RETURN(
      c.ffn, r.EachLayer(dense ? "feed_forward_length" : "expert_feed_forward_length", c.layers));
  ASSIGN_OR_RETURN(c.heads, r.EachLayer("attention.head_count", c.layers));
  c.kv_heads = c.heads;
  if (known->convolves) {
    RETURN_IF_ERROR(ReadConvolutions(r, &c));
  } else if (m.Find(r.Key("attention.head_count_kv")) != nullptr) {
    ASSIGN_OR_RETURN(c.kv_heads, r.EachLayer("attention.head_count_kv", c.layers));
  }
  const char* epsilon =
      known->centred ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  ASSIGN_OR_RETURN(c.norm_eps, r.Number(epsilon, -1));
  if (c.norm_eps == -1 && m.Find(r.Key(epsilon)) == nullptr) {
    return r.Bad(absl::StrCat("the key '", r.Key(epsilon), "' is missing"));
  }
  if (c.heads <= 0) {
    return r.Bad(absl::StrCat("key '", r.Key("attention.head_count"), "' is ", c.heads));
  }
  c.layers -= c.predicting_layers;
  RETURN_IF_ERROR(known->latent ? ReadLatent(r, &c) : ReadHeads(r, &c));
  if (known->remembers) RETURN_IF_ERROR(ReadMemories(r, *known, &c));
  if (known->streams) RETURN_IF_ERROR(ReadStreams(r, &c));
  ASSIGN_OR_RETURN(const double clamp, r.Number("attention.clamp_kqv", 0));
  if (clamp != 0) {
    return r.Bad(absl::StrCat("key '", r.Key("attention.clamp_kqv"), "' is ", clamp,
                              "; queries, keys and values that are clamped are not known"));
  }
  ASSIGN_OR_RETURN(c.vocabulary, r.Int("vocab_size", 0));
  ASSIGN_OR_RETURN(c.rope_base, r.Number("rope.freq_base", 10000));
  RETURN_IF_ERROR(ReadExperts(r, *known, &c));
  RETURN_IF_ERROR(CheckConfig(c, m.file(), r.namer()));  // before sizes are used
  RETURN_IF_ERROR(ReadLayerKinds(r, *known, &c));
  RETURN_IF_ERROR(ReadScales(r, *known, &c));
  RETURN_IF_ERROR(ReadRopeScaling(r, &c));
  RETURN_IF_ERROR(CheckConfig(c, m.file(), r.namer()));
  return c;
}

}  // namespace tessera::llm
