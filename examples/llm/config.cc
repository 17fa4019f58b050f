// Metadata of GGUF files as a configuration, and the checks of every configuration.
#include "examples/llm/config.h"

#include <cmath>

#include "graph/status.h"

namespace tessera::llm {
namespace {

constexpr Architecture kKnown[] = {
    {.name = "llama", .rope_interleaved = true, .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .rope_interleaved = true},
    {.name = "qwen2", .qkv_biased = true},
    {.name = "qwen3", .heads_normed = true, .attention_bias = true}};

struct Reader {
  const GgufMetadata& m;
  std::string prefix;

  std::string Key(const char* name) const { return absl::StrCat(prefix, ".", name); }
  absl::Status Bad(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(m.file(), ": ", what));
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
  ASSIGN_OR_RETURN(const int64_t trained,
                   r.Int("rope.scaling.original_context_length", c->context));
  yarn.trained = static_cast<double>(trained);
  ASSIGN_OR_RETURN(yarn.fast, r.Number("rope.scaling.yarn_beta_fast", yarn.fast));
  ASSIGN_OR_RETURN(yarn.slow, r.Number("rope.scaling.yarn_beta_slow", yarn.slow));
  ASSIGN_OR_RETURN(const double magnitude, r.Number("rope.scaling.attn_factor", 1));
  if (!Stretch(yarn, c) || !(magnitude > 0)) {
    return r.Bad(absl::StrCat("keys '", r.Key("rope.scaling"),
                              ".*': yarn wants a factor, an original_context_length and an "
                              "attn_factor above 0, and yarn_beta_fast > yarn_beta_slow > 0"));
  }
  c->rope_magnitude *= magnitude;
  return absl::OkStatus();
}

absl::Status ReadRope(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(c->rope_base, r.Number("rope.freq_base", 10000));
  ASSIGN_OR_RETURN(const int64_t dims, r.Int("rope.dimension_count", c->head_dim));
  if (dims != c->head_dim) {
    return r.Bad(absl::StrCat("key '", r.Key("rope.dimension_count"), "' is ", dims,
                              "; only the whole head, ", c->head_dim, ", is known"));
  }
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const Reader& r, ModelConfig* c) {
  ASSIGN_OR_RETURN(const std::optional<absl::string_view> type,
                   r.m.String(r.Key("rope.scaling.type")));
  if (type && *type == "none") return absl::OkStatus();
  // What old files call it, which have no type: it is linear.
  const bool old = r.m.Find(r.Key("rope.scaling.factor")) == nullptr;
  const char* name = old ? "rope.scale_linear" : "rope.scaling.factor";
  ASSIGN_OR_RETURN(const double factor, r.Number(name, 1));
  if (type && *type == "yarn") return ReadYarn(r, factor, c);
  if (type && *type != "linear") {
    return r.Bad(absl::StrCat("key '", r.Key("rope.scaling.type"), "' is ", ShowName(*type),
                              "; none, linear and yarn are known"));
  }
  if (!(factor > 0) || std::isinf(factor)) {
    return r.Bad(absl::StrCat("key '", r.Key(name), "' is ", factor, ", not a number above 0"));
  }
  if (factor == 1) return absl::OkStatus();
  c->rope_divisors.assign(static_cast<size_t>(c->head_dim / 2), factor);
  return absl::OkStatus();
}

}  // namespace

const Architecture* ArchitectureNamed(absl::string_view name) {
  for (const Architecture& a : kKnown) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

std::string KnownArchitectures() {
  std::string out;
  for (const Architecture& a : kKnown) absl::StrAppend(&out, out.empty() ? "" : ", ", a.name);
  return out;
}

double Sharper(double factor, double by) {
  return factor > 1 ? 0.1 * by * std::log(factor) + 1 : 1;
}

bool Stretch(const Yarn& y, ModelConfig* c) {
  constexpr double kPi = 3.14159265358979323846;
  const bool sensible = y.factor > 0 && y.trained > 0 && y.fast > y.slow && y.slow > 0 &&
                        c->rope_base > 1 && !std::isinf(y.factor * y.trained * y.fast);
  if (!sensible) return false;
  const auto pair_of = [&](double turns) {  // the pair that turns so often in the trained context
    return c->head_dim * std::log(y.trained / (turns * 2 * kPi)) / (2 * std::log(c->rope_base));
  };
  double begin = pair_of(y.fast), end = pair_of(y.slow);
  if (y.whole_pairs) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(0.0, begin);
  end = std::min(static_cast<double>(c->head_dim - 1), end);
  c->rope_divisors.clear();
  for (int64_t i = 0; i < c->head_dim / 2; ++i) {
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
  ASSIGN_OR_RETURN(c.layers, r.Int("block_count"));
  ASSIGN_OR_RETURN(c.dim, r.Int("embedding_length"));
  ASSIGN_OR_RETURN(c.context, r.Int("context_length"));
  ASSIGN_OR_RETURN(c.ffn, r.EachLayer("feed_forward_length", c.layers));
  ASSIGN_OR_RETURN(c.heads, r.EachLayer("attention.head_count", c.layers));
  c.kv_heads = c.heads;
  if (m.Find(r.Key("attention.head_count_kv")) != nullptr) {
    ASSIGN_OR_RETURN(c.kv_heads, r.EachLayer("attention.head_count_kv", c.layers));
  }
  ASSIGN_OR_RETURN(c.norm_eps, r.Number("attention.layer_norm_rms_epsilon", -1));
  if (c.norm_eps == -1) {
    return r.Bad(
        absl::StrCat("the key '", r.Key("attention.layer_norm_rms_epsilon"), "' is missing"));
  }
  if (c.heads <= 0) {
    return r.Bad(absl::StrCat("key '", r.Key("attention.head_count"), "' is ", c.heads));
  }
  if (m.Find(r.Key("attention.key_length")) == nullptr && c.dim % c.heads != 0) {
    return r.Bad(
        absl::StrCat("the embedding length ", c.dim, " is no multiple of ", c.heads, " heads"));
  }
  ASSIGN_OR_RETURN(c.head_dim, r.Int("attention.key_length", c.dim / c.heads));
  ASSIGN_OR_RETURN(const int64_t value_dim, r.Int("attention.value_length", c.head_dim));
  if (value_dim != c.head_dim) {
    return r.Bad(absl::StrCat("heads have ", c.head_dim, " keys and ", value_dim,
                              " values; only equal ones are known"));
  }
  ASSIGN_OR_RETURN(c.window, r.Int("attention.sliding_window", 0));
  ASSIGN_OR_RETURN(const int64_t experts, r.Int("expert_count", 0));
  if (experts > 0) return r.Bad(absl::StrCat("a mixture of ", experts, " experts is not known"));
  if (c.head_dim <= 0 || c.head_dim % 2 != 0) {
    return r.Bad(absl::StrCat("heads of ", c.head_dim, " elements; rotary positions need pairs"));
  }
  ASSIGN_OR_RETURN(c.vocabulary, r.Int("vocab_size", 0));
  RETURN_IF_ERROR(ReadRope(r, &c));
  RETURN_IF_ERROR(CheckConfig(c, m.file()));  // before sizes are used
  RETURN_IF_ERROR(ReadRopeScaling(r, &c));
  return c;
}

absl::Status CheckConfig(const ModelConfig& c, const std::string& file) {
  const auto bad = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(file, ": ", parts...));
  };
  constexpr int64_t kMaxLayers = 4096, kMaxDim = int64_t{1} << 20, kMaxContext = int64_t{1} << 28;
  const struct {
    const char* what;
    int64_t value, most;
  } counts[] = {{"the number of layers", c.layers, kMaxLayers},
                {"the embedding length", c.dim, kMaxDim},
                {"the number of heads", c.heads, kMaxDim},
                {"the number of key heads", c.kv_heads, kMaxDim},
                {"the length of a head", c.head_dim, kMaxDim},
                {"the feed-forward length", c.ffn, kMaxDim * 8},
                {"the context length", c.context, kMaxContext}};
  for (const auto& n : counts) {
    if (n.value <= 0 || n.value > n.most) {
      return bad(n.what, " is ", n.value, "; 1 to ", n.most, " may be");
    }
  }
  if (c.heads % c.kv_heads != 0) {
    return bad(c.heads, " heads are no multiple of ", c.kv_heads, " key heads");
  }
  if (c.head_dim % 2 != 0) {
    return bad("heads of ", c.head_dim, " elements; rotary positions need pairs");
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
  return absl::OkStatus();
}

}  // namespace tessera::llm
