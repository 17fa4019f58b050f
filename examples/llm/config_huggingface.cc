// config.json of Hugging Face models as a configuration.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "examples/llm/config.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Reader {
  Json json;
  const std::string& file;
  std::string within = {};  // the key of the object, for messages

  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return absl::DataLossError(absl::StrCat(file, ": ", parts...));
  }
  absl::Status Wrong(absl::string_view key, const Json& value, const char* wanted) const {
    return Bad("key '", within, key, "' is ", ShowName(std::string(value.text())), ", not ",
               wanted);
  }
  // Of the object itself.
  absl::string_view object() const { return absl::StripSuffix(within, "."); }
  absl::Status BadHere(absl::string_view wants) const {
    return Bad("key '", object(), "': wants ", wants);
  }
  // Null and absent are the same.
  std::optional<Json> Find(absl::string_view key) const {
    const std::optional<Json> v = json.Find(key);
    return v && v->is(Json::Type::kNull) ? std::nullopt : v;
  }
  absl::StatusOr<int64_t> Int(absl::string_view key, std::optional<int64_t> otherwise = {}) const {
    const std::optional<Json> v = Find(key);
    if (!v) {
      if (otherwise) return *otherwise;
      return Bad("the key '", within, key, "' is missing");
    }
    const std::optional<int64_t> n = v->Int();
    if (!n) return Wrong(key, *v, "an integer");
    return *n;
  }
  absl::StatusOr<double> Number(absl::string_view key, std::optional<double> otherwise = {}) const {
    const std::optional<Json> v = Find(key);
    if (!v) {
      if (otherwise) return *otherwise;
      return Bad("the key '", within, key, "' is missing");
    }
    const std::optional<double> n = v->Number();
    if (!n) return Wrong(key, *v, "a number");
    return *n;
  }
  absl::StatusOr<bool> Bool(absl::string_view key, bool otherwise) const {
    const std::optional<Json> v = Find(key);
    if (!v) return otherwise;
    const std::optional<bool> b = v->Bool();
    if (!b) return Wrong(key, *v, "a bool");
    return *b;
  }
};

// Wavelengths beyond the trained context are stretched, short ones kept, those between blended.
absl::Status Llama3Scaling(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(const double factor, r.Number("factor"));
  ASSIGN_OR_RETURN(const double low, r.Number("low_freq_factor"));
  ASSIGN_OR_RETURN(const double high, r.Number("high_freq_factor"));
  ASSIGN_OR_RETURN(const double trained, r.Number("original_max_position_embeddings"));
  if (!(factor > 0) || !(low > 0) || !(high > low) || !(trained > 0)) {
    return r.BadHere("factor > 0, high_freq_factor > low_freq_factor > 0");
  }
  for (int64_t i = 0; i < c->head_dim / 2; ++i) {
    const double frequency = std::pow(c->rope_base, -2.0 * static_cast<double>(i) / c->head_dim);
    const double turns = trained * frequency / (2 * kPi);  // within the trained context
    double kept = (turns - low) / (high - low);            // 1: unchanged, 0: divided
    kept = std::min(1.0, std::max(0.0, kept));
    c->rope_divisors.push_back(1 / (kept + (1 - kept) / factor));
  }
  return absl::OkStatus();
}

absl::Status YarnScaling(const Reader& r, ModelConfig* c) {
  Yarn yarn;
  ASSIGN_OR_RETURN(yarn.factor, r.Number("factor"));
  ASSIGN_OR_RETURN(yarn.trained,
                   r.Number("original_max_position_embeddings", static_cast<double>(c->context)));
  ASSIGN_OR_RETURN(yarn.fast, r.Number("beta_fast", 32));
  ASSIGN_OR_RETURN(yarn.slow, r.Number("beta_slow", 1));
  ASSIGN_OR_RETURN(yarn.whole_pairs, r.Bool("truncate", true));
  if (!Stretch(yarn, c)) {
    return r.BadHere("factor > 0, beta_fast > beta_slow > 0");
  }
  // Models of DeepSeek's kind write two numbers, which count together or not at all.
  ASSIGN_OR_RETURN(const double over, r.Number("mscale", 0));
  ASSIGN_OR_RETURN(const double under, r.Number("mscale_all_dim", 0));
  if (over != 0 && under != 0) {
    c->rope_magnitude = Sharper(yarn.factor, over) / Sharper(yarn.factor, under);
  }
  ASSIGN_OR_RETURN(c->rope_magnitude, r.Number("attention_factor", c->rope_magnitude));
  if (!std::isfinite(c->rope_magnitude)) {
    return r.BadHere("mscale, mscale_all_dim and attention_factor that give a number");
  }
  return absl::OkStatus();
}

// The object that says how positions turn: rope_scaling, or as transformers 5 writes it
// rope_parameters; the former counts where both are.
absl::StatusOr<std::optional<Reader>> FindRope(const Reader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<Json> value = r.Find(key);
    if (!value) continue;
    if (!value->is(Json::Type::kObject)) return r.Wrong(key, *value, "an object");
    for (const JsonItem item : value->Items()) {
      if (item.value().is(Json::Type::kObject)) {
        return r.Bad("key '", key, "': parameters of each kind of layer, as in ",
                     ShowName(item.key()), ", are not known");
      }
    }
    return std::optional<Reader>(Reader{*value, r.file, absl::StrCat(key, ".")});
  }
  return std::optional<Reader>();
}

// The base of the frequencies; other keys of the object win over those outside.
absl::Status ReadRopeBase(const Reader& r, const std::optional<Reader>& rope, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->rope_base, r.Number("rope_theta", 10000));
  ASSIGN_OR_RETURN(double part, r.Number("partial_rotary_factor", 1));
  if (rope) {
    ASSIGN_OR_RETURN(c->rope_base, rope->Number("rope_theta", c->rope_base));
    ASSIGN_OR_RETURN(part, rope->Number("partial_rotary_factor", part));
  }
  if (part != 1) return r.Bad("key 'partial_rotary_factor' is ", part, "; only 1 is known");
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const Reader& r, const std::optional<Reader>& rope, ModelConfig* c) {
  if (!rope) return absl::OkStatus();
  const Reader& s = *rope;
  std::optional<Json> type = s.Find("rope_type");
  if (!type) type = s.Find("type");
  if (!type && s.within == "rope_parameters.") return absl::OkStatus();  // only a base
  const std::string name = type && type->String() ? *type->String() : "";
  if (name == "default") return absl::OkStatus();
  if (name == "llama3") return Llama3Scaling(s, c);
  if (name == "yarn") return YarnScaling(s, c);
  if (name == "linear") {
    ASSIGN_OR_RETURN(const double factor, s.Number("factor"));
    if (!(factor > 0)) return s.BadHere("factor > 0");
    c->rope_divisors.assign(static_cast<size_t>(c->head_dim / 2), factor);
    return absl::OkStatus();
  }
  return r.Bad("key '", s.object(), "': the type ", ShowName(name),
               " is not known; default, linear, llama3 and yarn are");
}

// Which layers the window is for: as layer_types lists, or else, of Qwen's models, the later ones.
absl::Status ReadWindow(const Reader& r, ModelConfig* c) {
  const bool qwen = absl::StartsWith(c->architecture, "qwen");
  ASSIGN_OR_RETURN(const bool window, r.Bool("use_sliding_window", c->architecture == "mistral"));
  if (!window) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->window, r.Int("sliding_window", 0));
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
  if (!qwen) return absl::OkStatus();
  constexpr int64_t kUsual = 28;  // where the key is missing
  ASSIGN_OR_RETURN(const int64_t first, r.Int("max_window_layers", kUsual));
  if (first < 0) return r.Bad("key 'max_window_layers' is ", first);
  c->sees_all.assign(std::min(layers, static_cast<size_t>(first)), true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ConfigFromHuggingFace(const Json& json, const std::string& file) {
  const Reader r{json, file};
  if (!json.is(Json::Type::kObject)) return r.Bad("the configuration is no object");
  const std::optional<Json> type = r.Find("model_type");
  if (!type || !type->String()) return r.Bad("the key 'model_type' is missing");
  ModelConfig c;
  c.architecture = *type->String();
  const Architecture* known = ArchitectureNamed(c.architecture);
  if (known == nullptr) {
    return r.Bad("the model_type ", ShowName(c.architecture), " is not known; known are ",
                 KnownArchitectures());
  }
  ASSIGN_OR_RETURN(c.layers, r.Int("num_hidden_layers"));
  ASSIGN_OR_RETURN(c.dim, r.Int("hidden_size"));
  ASSIGN_OR_RETURN(c.heads, r.Int("num_attention_heads"));
  ASSIGN_OR_RETURN(c.kv_heads, r.Int("num_key_value_heads", c.heads));
  ASSIGN_OR_RETURN(c.ffn, r.Int("intermediate_size"));
  ASSIGN_OR_RETURN(c.vocabulary, r.Int("vocab_size"));
  ASSIGN_OR_RETURN(c.context, r.Int("max_position_embeddings"));
  ASSIGN_OR_RETURN(c.norm_eps, r.Number("rms_norm_eps"));
  ASSIGN_OR_RETURN(const std::optional<Reader> rope, FindRope(r));
  RETURN_IF_ERROR(ReadRopeBase(r, rope, &c));
  if (c.heads <= 0) return r.Bad("key 'num_attention_heads' is ", c.heads);
  if (!r.Find("head_dim") && c.dim % c.heads != 0) {
    return r.Bad("the hidden_size ", c.dim, " is no multiple of ", c.heads, " heads");
  }
  ASSIGN_OR_RETURN(c.head_dim, r.Int("head_dim", c.dim / c.heads));
  ASSIGN_OR_RETURN(const bool tied, r.Bool("tie_word_embeddings", false));
  c.output_apart = !tied;
  if (known->attention_bias) {
    ASSIGN_OR_RETURN(c.attention_biased, r.Bool("attention_bias", false));
  }
  if (known->mlp_bias) {
    ASSIGN_OR_RETURN(c.ffn_biased, r.Bool("mlp_bias", false));
  }
  if (const std::optional<Json> act = r.Find("hidden_act"); act && act->String() != "silu") {
    return r.Wrong("hidden_act", *act, "\"silu\"");
  }
  RETURN_IF_ERROR(CheckConfig(c, file));  // before sizes are used
  RETURN_IF_ERROR(ReadWindow(r, &c));
  if (c.window < 0) return r.Bad("key 'sliding_window' is ", c.window);
  RETURN_IF_ERROR(ReadRopeScaling(r, rope, &c));
  return c;
}

}  // namespace tessera::llm
