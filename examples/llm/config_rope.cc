// How positions turn, as config.json has it.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "examples/llm/config_json.h"

namespace tessera::llm {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Wavelengths beyond the trained context are stretched, short ones kept, those between blended.
absl::Status Llama3Scaling(const JsonReader& r, ModelConfig* c) {
  const double context = static_cast<double>(c->context);
  ASSIGN_OR_RETURN(const double factor, r.Number("factor"));
  ASSIGN_OR_RETURN(const double low, r.Number("low_freq_factor"));
  ASSIGN_OR_RETURN(const double high, r.Number("high_freq_factor"));
  ASSIGN_OR_RETURN(const double trained, r.Number("original_max_position_embeddings", context));
  if (!(factor > 0) || !(low > 0) || !(high > low) || !(trained > 0)) {
    return r.BadHere("factor > 0, high_freq_factor > low_freq_factor > 0");
  }
  for (int64_t i = 0; i < c->turned() / 2; ++i) {
    const double frequency = std::pow(c->rope_base, -2.0 * static_cast<double>(i) / c->turned());
    const double turns = trained * frequency / (2 * kPi);  // within the trained context
    double kept = (turns - low) / (high - low);            // 1: unchanged, 0: divided
    kept = std::min(1.0, std::max(0.0, kept));
    c->rope_divisors.push_back(1 / (kept + (1 - kept) / factor));
  }
  return absl::OkStatus();
}

absl::Status YarnScaling(const JsonReader& r, ModelConfig* c) {
  Yarn yarn;
  ASSIGN_OR_RETURN(yarn.factor, r.Number("factor"));
  ASSIGN_OR_RETURN(yarn.trained,
                   r.Number("original_max_position_embeddings", static_cast<double>(c->context)));
  ASSIGN_OR_RETURN(yarn.fast, r.Number("beta_fast", 32));
  ASSIGN_OR_RETURN(yarn.slow, r.Number("beta_slow", 1));
  ASSIGN_OR_RETURN(yarn.whole_pairs, r.Bool("truncate", true));
  if (!Stretch(yarn, c)) {
    return r.BadHere("factor > 0, beta_fast >= beta_slow > 0");
  }
  // Models of DeepSeek's kind write two numbers, which count together or not at all.
  ASSIGN_OR_RETURN(const double over, r.Number("mscale", 0));
  ASSIGN_OR_RETURN(const double under, r.Number("mscale_all_dim", 0));
  if (over != 0 && under != 0) {
    c->rope_magnitude = Sharper(yarn.factor, over) / Sharper(yarn.factor, under);
  }
  if (c->latent > 0 && under != 0) SharpenScores(Sharper(yarn.factor, under), c);
  ASSIGN_OR_RETURN(c->rope_magnitude, r.Number("attention_factor", c->rope_magnitude));
  if (!std::isfinite(c->rope_magnitude)) {
    return r.BadHere("mscale, mscale_all_dim and attention_factor that give a number");
  }
  return absl::OkStatus();
}

// Divisors for contexts as trained, and for longer ones.
absl::Status LongRopeScaling(const JsonReader& r, const JsonReader& s, ModelConfig* c) {
  const auto read = [&](const char* key, std::vector<double>* to) -> absl::Status {
    const std::optional<Json> list = s.Find(key);
    if (!list || !list->is(Json::Type::kArray)) {
      return s.BadHere(absl::StrCat("a list named ", key));
    }
    for (const JsonItem item : list->Items()) {
      const std::optional<double> n = item.value().Number();
      if (!n || !(*n > 0)) return s.BadHere(absl::StrCat("numbers above 0 in ", key));
      to->push_back(*n);
    }
    if (to->size() == static_cast<size_t>(c->turned() / 2)) return absl::OkStatus();
    return s.BadHere(absl::StrCat("a number in ", key, " for each of ", c->turned() / 2,
                                  " pairs; there are ", to->size()));
  };
  RETURN_IF_ERROR(read("short_factor", &c->rope_divisors));
  RETURN_IF_ERROR(read("long_factor", &c->long_rope_divisors));
  const char* key = "original_max_position_embeddings";
  ASSIGN_OR_RETURN(c->rope_trained, s.Int(key, c->context));
  ASSIGN_OR_RETURN(c->rope_trained, r.Int(key, c->rope_trained));
  const double trained = static_cast<double>(c->rope_trained);
  ASSIGN_OR_RETURN(const double factor,
                   s.Number("factor", static_cast<double>(c->context) / trained));
  const double own = LongMagnitude(factor * trained, trained);
  ASSIGN_OR_RETURN(c->rope_magnitude, s.Number("attention_factor", own));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<JsonReader>> FindRope(const JsonReader& r, const char* kind) {
  const bool two_ways = r.Knows("rope_local_base_freq");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    std::optional<Json> value = r.Find(key);
    if (!value && r.defaults) value = r.defaults->Find(key);
    if (!value) continue;
    if (!value->is(Json::Type::kObject)) return r.Wrong(key, *value, "an object");
    const JsonReader rope{*value, r.file, absl::StrCat(key, ".")};
    bool of_kinds = false;
    for (const JsonItem item : value->Items()) {
      if (!item.value().is(Json::Type::kObject)) continue;
      of_kinds = two_ways && (item.key() == "full_attention" || item.key() == "sliding_attention");
      if (!of_kinds) {
        return r.Bad("key '", key, "': parameters of each kind of layer, as in ",
                     ShowName(item.key()), ", are not known");
      }
    }
    if (!of_kinds && two_ways && absl::StartsWith(key, "rope_p")) continue;
    if (!of_kinds) return std::optional<JsonReader>(rope);
    const std::optional<Json> own = rope.Find(kind);
    if (!own) return std::optional<JsonReader>();
    if (!own->is(Json::Type::kObject)) return rope.Wrong(kind, *own, "an object");
    return std::optional<JsonReader>(JsonReader{*own, r.file, absl::StrCat(key, ".", kind, ".")});
  }
  return std::optional<JsonReader>();
}

absl::Status ReadRopeBase(const JsonReader& r, const Architecture& known,
                          const std::optional<JsonReader>& rope, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->rope_base, r.Number("rope_theta", 10000));
  ASSIGN_OR_RETURN(double part, r.Number("partial_rotary_factor", 1));
  if (rope) {
    ASSIGN_OR_RETURN(c->rope_base, rope->Number("rope_theta", c->rope_base));
    ASSIGN_OR_RETURN(part, rope->Number("partial_rotary_factor", part));
  }
  if (!(part > 0) || part > 1) {
    return r.Bad("key 'partial_rotary_factor' is ", part, "; above 0 and at most 1 is allowed");
  }
  c->rotated = static_cast<int64_t>(static_cast<double>(c->head_dim) * part);
  const char* const by = "partial_rotary_factor";
  if (!r.Find(by) && !(rope && rope->Find(by))) {
    ASSIGN_OR_RETURN(c->rotated, r.Int("rotary_dim", c->rotated));
  }
  // None would mean all. Latent attention says it by another key, and CheckConfig refuses no heads.
  if (c->rotated == 0 && c->head_dim > 0 && !known.latent) {
    if (r.Find("rotary_dim")) return r.Bad("key 'rotary_dim' is 0; a head must turn in part");
    return r.Bad("key 'partial_rotary_factor' is ", part, ", which is none of the ", c->head_dim,
                 " elements of a head; they need a pair that turns");
  }
  if (!r.Knows("rope_local_base_freq")) return absl::OkStatus();
  ASSIGN_OR_RETURN(c->local_rope_base, r.Number("rope_local_base_freq", c->rope_base));
  ASSIGN_OR_RETURN(const std::optional<JsonReader> local, FindRope(r, "sliding_attention"));
  if (local && absl::StrContains(local->within, "sliding_attention")) {
    ASSIGN_OR_RETURN(c->local_rope_base, local->Number("rope_theta", c->local_rope_base));
  }
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const JsonReader& r, const std::optional<JsonReader>& rope,
                             ModelConfig* c) {
  if (!rope) return absl::OkStatus();
  const JsonReader& s = *rope;
  ASSIGN_OR_RETURN(c->sharpness, s.Number("llama_4_scaling_beta", 0));
  ASSIGN_OR_RETURN(const double trained,
                   s.Number("original_max_position_embeddings", static_cast<double>(c->context)));
  c->sharper_every = static_cast<int64_t>(std::min(trained, 0x1p40));
  std::optional<Json> type = s.Find("rope_type");
  if (!type) type = s.Find("type");
  if (!type && absl::StartsWith(s.within, "rope_parameters.")) {
    return absl::OkStatus();  // only a base
  }
  const std::string name = type && type->String() ? *type->String() : "";
  if (name == "default") return absl::OkStatus();
  if (name == "llama3") return Llama3Scaling(s, c);
  const bool phi = c->architecture == "phi3";  // whose first files have other names
  if (name == "longrope" || name == "su" || (phi && name == "yarn")) {
    return LongRopeScaling(r, s, c);
  }
  if (name == "yarn") return YarnScaling(s, c);
  if (name == "dynamic" && s.Find("alpha")) {  // it is not: the base alone is another
    ASSIGN_OR_RETURN(const double alpha, s.Number("alpha"));
    if (!(alpha > 0) || c->turned() < 4) return s.BadHere("alpha > 0");
    c->rope_base *= std::pow(alpha, c->turned() / (c->turned() - 2.0));
    return absl::OkStatus();
  }
  if (name == "linear") {
    ASSIGN_OR_RETURN(const double factor, s.Number("factor"));
    if (!(factor > 0)) return s.BadHere("factor > 0");
    c->rope_divisors.assign(static_cast<size_t>(c->turned() / 2), factor);
    return absl::OkStatus();
  }
  return r.Bad("key '", s.object(), "': the type ", ShowName(name),
               " is not known; default, linear, llama3, longrope and yarn are");
}

}  // namespace tessera::llm
