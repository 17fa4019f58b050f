// Weights by their names in files, each checked against the shape that the configuration wants.
#include "examples/llm/model.h"

#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// What a weight is called: in GGUF files, and in safetensors as Hugging Face's classes name it.
struct Names {
  const char* gguf;
  const char* hugging_face;
};
constexpr Names kEmbedding = {"token_embd.weight", "model.embed_tokens.weight"};
constexpr Names kOutput = {"output.weight", "lm_head.weight"};
constexpr Names kNorm = {"output_norm.weight", "model.norm.weight"};
constexpr Names kRopeDivisors = {"rope_freqs.weight", "rope_freqs.weight"};
constexpr Names kAttentionNorm = {"blk.N.attn_norm.weight",
                                  "model.layers.N.input_layernorm.weight"};
constexpr Names kFfnNorm = {"blk.N.ffn_norm.weight",
                            "model.layers.N.post_attention_layernorm.weight"};
constexpr Names kQ = {"blk.N.attn_q.weight", "model.layers.N.self_attn.q_proj.weight"};
constexpr Names kK = {"blk.N.attn_k.weight", "model.layers.N.self_attn.k_proj.weight"};
constexpr Names kV = {"blk.N.attn_v.weight", "model.layers.N.self_attn.v_proj.weight"};
constexpr Names kO = {"blk.N.attn_output.weight", "model.layers.N.self_attn.o_proj.weight"};
constexpr Names kQBias = {"blk.N.attn_q.bias", "model.layers.N.self_attn.q_proj.bias"};
constexpr Names kKBias = {"blk.N.attn_k.bias", "model.layers.N.self_attn.k_proj.bias"};
constexpr Names kVBias = {"blk.N.attn_v.bias", "model.layers.N.self_attn.v_proj.bias"};
constexpr Names kOBias = {"blk.N.attn_output.bias", "model.layers.N.self_attn.o_proj.bias"};
constexpr Names kQNorm = {"blk.N.attn_q_norm.weight", "model.layers.N.self_attn.q_norm.weight"};
constexpr Names kKNorm = {"blk.N.attn_k_norm.weight", "model.layers.N.self_attn.k_norm.weight"};
constexpr Names kGate = {"blk.N.ffn_gate.weight", "model.layers.N.mlp.gate_proj.weight"};
constexpr Names kUp = {"blk.N.ffn_up.weight", "model.layers.N.mlp.up_proj.weight"};
constexpr Names kDown = {"blk.N.ffn_down.weight", "model.layers.N.mlp.down_proj.weight"};
constexpr Names kGateBias = {"blk.N.ffn_gate.bias", "model.layers.N.mlp.gate_proj.bias"};
constexpr Names kUpBias = {"blk.N.ffn_up.bias", "model.layers.N.mlp.up_proj.bias"};
constexpr Names kDownBias = {"blk.N.ffn_down.bias", "model.layers.N.mlp.down_proj.bias"};

// Takes weights out of a set and remembers which were taken.
struct Taker {
  const WeightSet& weights;
  bool gguf;
  const std::string& file;
  absl::flat_hash_set<const Weight*> taken = {};

  std::string Name(const Names& names, int64_t layer) const {
    return absl::StrReplaceAll(gguf ? names.gguf : names.hugging_face,
                               {{".N.", absl::StrCat(".", layer, ".")}});
  }
  // Null where there is none.
  absl::StatusOr<const Weight*> Optional(const Names& names, int64_t layer,
                                         const std::vector<int64_t>& shape) {
    const Weight* w = weights.Find(Name(names, layer));
    if (w == nullptr) return nullptr;
    const auto bad = [&](const auto&... parts) {
      return absl::DataLossError(absl::StrCat(w->file ? w->file->path() : file, ": tensor ",
                                              ShowName(w->name), ": ", parts...));
    };
    if (w->shape != shape) {
      return bad("its shape is ", ShowShape(w->shape), ", and the configuration wants ",
                 ShowShape(shape));
    }
    if (!CanCompute(w->format)) {
      return bad("its format is ", InfoOf(w->format).name, "; known are ", ComputableFormats());
    }
    if (shape.size() == 1 && InfoOf(w->format).block_elements > 1) {
      return bad("a vector in ", InfoOf(w->format).name, "; vectors are not quantised");
    }
    taken.insert(w);
    return w;
  }
  absl::StatusOr<const Weight*> Required(const Names& names, int64_t layer,
                                         const std::vector<int64_t>& shape) {
    ASSIGN_OR_RETURN(const Weight* w, Optional(names, layer, shape));
    if (w != nullptr) return w;
    return absl::DataLossError(absl::StrCat(file, ": tensor ", ShowName(Name(names, layer)), " ",
                                            ShowShape(shape), " is missing"));
  }
  absl::Status Read(const Names& names, int64_t layer, int64_t rows, int64_t columns, Matrix* to) {
    ASSIGN_OR_RETURN(const Weight* w, Required(names, layer, {rows, columns}));
    *to = {Stored(*w), w->format};
    return absl::OkStatus();
  }
  absl::Status Read(const Names& names, int64_t layer, int64_t size, bool required, Tensor* to) {
    absl::StatusOr<const Weight*> w =
        required ? Required(names, layer, {size}) : Optional(names, layer, {size});
    RETURN_IF_ERROR(w.status());
    if (*w != nullptr) *to = Values(Stored(**w), (*w)->format).Realize();
    return absl::OkStatus();
  }
  absl::Status NothingLeft() const {
    for (const Weight& w : weights.all()) {
      if (taken.contains(&w) || absl::EndsWith(w.name, "rotary_emb.inv_freq")) continue;
      return absl::DataLossError(absl::StrCat(w.file ? w.file->path() : file, ": tensor ",
                                              ShowName(w.name),
                                              " belongs to no part of this architecture"));
    }
    return absl::OkStatus();
  }
};

absl::Status ReadLayer(Taker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  RETURN_IF_ERROR(t->Read(kAttentionNorm, i, c.dim, true, &w->attention_norm));
  RETURN_IF_ERROR(t->Read(kQ, i, q, c.dim, &w->q));
  RETURN_IF_ERROR(t->Read(kK, i, kv, c.dim, &w->k));
  RETURN_IF_ERROR(t->Read(kV, i, kv, c.dim, &w->v));
  RETURN_IF_ERROR(t->Read(kO, i, c.dim, q, &w->o));
  const Architecture& known = *ArchitectureNamed(c.architecture);
  const bool biased = known.qkv_biased || c.attention_biased, normed = known.heads_normed;
  RETURN_IF_ERROR(t->Read(kQBias, i, q, biased, &w->q_bias));
  RETURN_IF_ERROR(t->Read(kKBias, i, kv, biased, &w->k_bias));
  RETURN_IF_ERROR(t->Read(kVBias, i, kv, biased, &w->v_bias));
  RETURN_IF_ERROR(t->Read(kOBias, i, c.dim, c.attention_biased, &w->o_bias));
  RETURN_IF_ERROR(t->Read(kQNorm, i, c.head_dim, normed, &w->q_norm));
  RETURN_IF_ERROR(t->Read(kKNorm, i, c.head_dim, normed, &w->k_norm));
  RETURN_IF_ERROR(t->Read(kFfnNorm, i, c.dim, true, &w->ffn_norm));
  RETURN_IF_ERROR(t->Read(kGate, i, c.ffn, c.dim, &w->gate));
  RETURN_IF_ERROR(t->Read(kUp, i, c.ffn, c.dim, &w->up));
  RETURN_IF_ERROR(t->Read(kDown, i, c.dim, c.ffn, &w->down));
  RETURN_IF_ERROR(t->Read(kGateBias, i, c.ffn, c.ffn_biased, &w->gate_bias));
  RETURN_IF_ERROR(t->Read(kUpBias, i, c.ffn, c.ffn_biased, &w->up_bias));
  return t->Read(kDownBias, i, c.dim, c.ffn_biased, &w->down_bias);
}

absl::Status ReadRopeDivisors(Taker* t, ModelConfig* c) {
  Tensor divisors;
  RETURN_IF_ERROR(t->Read(kRopeDivisors, 0, c->head_dim / 2, false, &divisors));
  if (!divisors) return absl::OkStatus();
  c->rope_divisors = divisors.ToVector<double>();
  for (double d : c->rope_divisors) {
    if (!(d > 0)) {
      return absl::DataLossError(
          absl::StrCat(t->file, ": tensor 'rope_freqs.weight' holds ", d, ", not above 0"));
    }
  }
  return absl::OkStatus();
}

// The rows of the embedding are the vocabulary: of the configuration, the tokenizer and the file.
absl::Status FindVocabulary(const WeightSet& weights, bool gguf, const Tokenizer* tokenizer,
                            const std::string& file, ModelConfig* c) {
  const char* name = gguf ? kEmbedding.gguf : kEmbedding.hugging_face;
  const Weight* w = weights.Find(name);
  if (w == nullptr)
    return absl::DataLossError(absl::StrCat(file, ": tensor '", name, "' is missing"));
  if (w->shape.size() != 2) {
    return absl::DataLossError(absl::StrCat(file, ": tensor '", name, "' has ", w->shape.size(),
                                            " axes, a vocabulary has 2"));
  }
  const int64_t rows = w->shape[0];
  if (c->vocabulary == 0) c->vocabulary = rows;
  const int64_t tokens = tokenizer == nullptr ? 0 : tokenizer->size();
  if (rows != c->vocabulary || tokens > rows) {
    return absl::DataLossError(absl::StrCat(
        file, ": tensor '", name, "' has ", rows, " rows, the configuration's vocabulary is ",
        c->vocabulary, " and the tokenizer has ", tokens, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> MakeModel(ModelConfig config, std::unique_ptr<const Tokenizer> tokenizer,
                                const WeightSet& weights, bool gguf_names,
                                const std::string& file) {
  RETURN_IF_ERROR(CheckConfig(config, file));
  RETURN_IF_ERROR(FindVocabulary(weights, gguf_names, tokenizer.get(), file, &config));
  Model m;
  m.tokenizer = std::move(tokenizer);
  Taker t{weights, gguf_names, file};
  RETURN_IF_ERROR(ReadRopeDivisors(&t, &config));
  RETURN_IF_ERROR(t.Read(kEmbedding, 0, config.vocabulary, config.dim, &m.embedding));
  const std::vector<int64_t> shape = {config.vocabulary, config.dim};
  ASSIGN_OR_RETURN(const Weight* output, config.output_apart ? t.Required(kOutput, 0, shape)
                                                             : t.Optional(kOutput, 0, shape));
  m.output = output == nullptr ? m.embedding : Matrix{Stored(*output), output->format};
  RETURN_IF_ERROR(t.Read(kNorm, 0, config.dim, true, &m.norm));
  // As many layers as there are, never as many as the file says: a count alone costs nothing.
  for (int64_t i = 0; i < config.layers; ++i) {
    RETURN_IF_ERROR(ReadLayer(&t, config, i, &m.layers.emplace_back()));
  }
  RETURN_IF_ERROR(t.NothingLeft());
  std::map<WeightFormat, uint64_t> by_format;
  for (const Weight& w : weights.all()) by_format[w.format] += w.bytes.size();
  uint64_t most = 0;
  for (const auto& [format, bytes] : by_format) {
    if (bytes > most) m.format = InfoOf(format).name;
    most = std::max(most, bytes);
  }
  m.bytes_stored = weights.bytes();
  m.bytes_read = m.bytes_stored;
  if (output != nullptr) {
    const Weight* e = weights.Find(gguf_names ? kEmbedding.gguf : kEmbedding.hugging_face);
    m.bytes_read -= e->bytes.size();
  }
  m.division.kv_heads = config.kv_heads;
  m.config = std::move(config);
  return m;
}

}  // namespace tessera::llm
