// Weights by their names in files, each checked against the shape that the configuration wants.
#include "examples/llm/model.h"

#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// What a weight is called: in GGUF files, and in safetensors as Hugging Face's classes name it, of
// which some have other names.
struct Names {
  const char* gguf[2];
  const char* hugging_face[2];
};
#define LAYER "model.layers.N."
constexpr Names kEmbedding = {{"token_embd.weight"}, {"model.embed_tokens.weight"}};
constexpr Names kOutput = {{"output.weight"}, {"lm_head.weight"}};
constexpr Names kNorm = {{"output_norm.weight"}, {"model.norm.weight"}};
constexpr Names kNormBias = {{"output_norm.bias"}, {"model.norm.bias"}};
constexpr Names kRopeDivisors = {{"rope_freqs.weight"}, {"rope_freqs.weight"}};
constexpr Names kShortDivisors = {{"rope_factors_short.weight"}, {}};
constexpr Names kLongDivisors = {{"rope_factors_long.weight"}, {}};
constexpr Names kAttentionNorm = {{"blk.N.attn_norm.weight"}, {LAYER "input_layernorm.weight"}};
constexpr Names kFfnNorm = {{"blk.N.ffn_norm.weight", "blk.N.post_attention_norm.weight"},
                            {LAYER "post_attention_layernorm.weight"}};
// Where what is added is normed as well, one is called otherwise.
constexpr Names kFfnNormOfFour = {
    {"blk.N.ffn_norm.weight"},
    {LAYER "pre_feedforward_layernorm.weight", LAYER "post_attention_layernorm.weight"}};
constexpr Names kAttentionPostNorm = {
    {"blk.N.post_attention_norm.weight"},
    {LAYER "post_self_attn_layernorm.weight", LAYER "post_attention_layernorm.weight"}};
constexpr Names kFfnPostNorm = {
    {"blk.N.post_ffw_norm.weight"},
    {LAYER "post_feedforward_layernorm.weight", LAYER "post_mlp_layernorm.weight"}};
constexpr Names kAttentionNormBias = {{"blk.N.attn_norm.bias"}, {LAYER "input_layernorm.bias"}};
constexpr Names kFfnNormBias = {{"blk.N.ffn_norm.bias"}, {LAYER "post_attention_layernorm.bias"}};
constexpr Names kQ = {{"blk.N.attn_q.weight"}, {LAYER "self_attn.q_proj.weight"}};
constexpr Names kK = {{"blk.N.attn_k.weight"}, {LAYER "self_attn.k_proj.weight"}};
constexpr Names kV = {{"blk.N.attn_v.weight"}, {LAYER "self_attn.v_proj.weight"}};
constexpr Names kQkv = {{"blk.N.attn_qkv.weight"}, {LAYER "self_attn.qkv_proj.weight"}};
constexpr Names kO = {{"blk.N.attn_output.weight"}, {LAYER "self_attn.o_proj.weight"}};
constexpr Names kQBias = {{"blk.N.attn_q.bias"}, {LAYER "self_attn.q_proj.bias"}};
constexpr Names kKBias = {{"blk.N.attn_k.bias"}, {LAYER "self_attn.k_proj.bias"}};
constexpr Names kVBias = {{"blk.N.attn_v.bias"}, {LAYER "self_attn.v_proj.bias"}};
constexpr Names kOBias = {{"blk.N.attn_output.bias"}, {LAYER "self_attn.o_proj.bias"}};
constexpr Names kQNorm = {
    {"blk.N.attn_q_norm.weight"},
    {LAYER "self_attn.q_norm.weight", LAYER "self_attn.query_layernorm.weight"}};
constexpr Names kKNorm = {
    {"blk.N.attn_k_norm.weight"},
    {LAYER "self_attn.k_norm.weight", LAYER "self_attn.key_layernorm.weight"}};
constexpr Names kGate = {{"blk.N.ffn_gate.weight"}, {LAYER "mlp.gate_proj.weight"}};
constexpr Names kUp = {{"blk.N.ffn_up.weight"},
                       {LAYER "mlp.up_proj.weight", LAYER "mlp.c_fc.weight"}};
// Files of which the gate is part of another matrix have both under this name.
constexpr Names kGateUp = {{"blk.N.ffn_up.weight"}, {LAYER "mlp.gate_up_proj.weight"}};
constexpr Names kDown = {{"blk.N.ffn_down.weight"},
                         {LAYER "mlp.down_proj.weight", LAYER "mlp.c_proj.weight"}};
constexpr Names kGateBias = {{"blk.N.ffn_gate.bias"}, {LAYER "mlp.gate_proj.bias"}};
constexpr Names kUpBias = {{"blk.N.ffn_up.bias"},
                           {LAYER "mlp.up_proj.bias", LAYER "mlp.c_fc.bias"}};
constexpr Names kDownBias = {{"blk.N.ffn_down.bias"},
                             {LAYER "mlp.down_proj.bias", LAYER "mlp.c_proj.bias"}};
// Experts are in one tensor, or, with an E, each in its own.
constexpr Names kRouter = {{"blk.N.ffn_gate_inp.weight"},
                           {LAYER "mlp.gate.weight", LAYER "block_sparse_moe.gate.weight"}};
constexpr Names kExpertGate = {
    {"blk.N.ffn_gate_exps.weight", "blk.N.ffn_gate.E.weight"},
    {LAYER "mlp.experts.E.gate_proj.weight", LAYER "block_sparse_moe.experts.E.w1.weight"}};
constexpr Names kExpertUp = {
    {"blk.N.ffn_up_exps.weight", "blk.N.ffn_up.E.weight"},
    {LAYER "mlp.experts.E.up_proj.weight", LAYER "block_sparse_moe.experts.E.w3.weight"}};
constexpr Names kExpertDown = {
    {"blk.N.ffn_down_exps.weight", "blk.N.ffn_down.E.weight"},
    {LAYER "mlp.experts.E.down_proj.weight", LAYER "block_sparse_moe.experts.E.w2.weight"}};
constexpr Names kRouterBias = {{"blk.N.ffn_gate_inp.bias"}, {LAYER "mlp.router.bias"}};
constexpr Names kExpertGateBias = {{"blk.N.ffn_gate_exps.bias"}, {}};
constexpr Names kExpertUpBias = {{"blk.N.ffn_up_exps.bias"}, {}};
constexpr Names kExpertDownBias = {{"blk.N.ffn_down_exps.bias"},
                                   {LAYER "mlp.experts.down_proj_bias"}};
constexpr Names kSinks = {{"blk.N.attn_sinks.weight"}, {LAYER "self_attn.sinks"}};
// Granite has gates and ups in one tensor, gpt-oss as well, whose matrices are transposed and of
// which the gates and ups take turns.
constexpr Names kRouterOfJoined = {{}, {LAYER "block_sparse_moe.router.layer.weight"}};
constexpr Names kExpertGateUp = {{}, {LAYER "block_sparse_moe.input_linear.weight"}};
constexpr Names kRouterOfTurned = {{}, {LAYER "mlp.router.weight"}};
constexpr Names kExpertGateUpTurned = {{}, {LAYER "mlp.experts.gate_up_proj"}};
constexpr Names kExpertGateUpNibbles = {{}, {LAYER "mlp.experts.gate_up_proj_blocks"}};
constexpr Names kExpertGateUpExponents = {{}, {LAYER "mlp.experts.gate_up_proj_scales"}};
constexpr Names kExpertGateUpBias = {{}, {LAYER "mlp.experts.gate_up_proj_bias"}};
constexpr Names kExpertDownTurned = {{}, {LAYER "mlp.experts.down_proj"}};
constexpr Names kExpertDownNibbles = {{}, {LAYER "mlp.experts.down_proj_blocks"}};
constexpr Names kExpertDownExponents = {{}, {LAYER "mlp.experts.down_proj_scales"}};
constexpr Names kExpertDownOfJoined = {{}, {LAYER "block_sparse_moe.output_linear.weight"}};
constexpr Names kSharedGate = {{"blk.N.ffn_gate_shexp.weight"},
                               {LAYER "mlp.shared_expert.gate_proj.weight"}};
constexpr Names kSharedUp = {{"blk.N.ffn_up_shexp.weight"},
                             {LAYER "mlp.shared_expert.up_proj.weight"}};
constexpr Names kSharedDown = {{"blk.N.ffn_down_shexp.weight"},
                               {LAYER "mlp.shared_expert.down_proj.weight"}};
constexpr Names kSharedShare = {{"blk.N.ffn_gate_inp_shexp.weight"},
                                {LAYER "mlp.shared_expert_gate.weight"}};
#undef LAYER

// Takes weights out of a set and remembers which were taken.
struct Taker {
  const WeightSet& weights;
  bool gguf;
  const std::string& file;
  bool norms_from_one;
  absl::flat_hash_set<const Weight*> taken = {};

  // What it may be called in such files, the usual name first.
  std::vector<std::string> NamesOf(const Names& names, int64_t layer, int64_t expert) const {
    std::vector<std::string> out;
    const auto add = [&](const char* name) {
      if (name == nullptr) return;
      out.push_back(absl::StrReplaceAll(
          name, {{".N.", absl::StrCat(".", layer, ".")}, {".E.", absl::StrCat(".", expert, ".")}}));
    };
    for (const char* name : gguf ? names.gguf : names.hugging_face) add(name);
    return out;
  }
  const Weight* Find(const Names& names, int64_t layer, int64_t expert = 0) const {
    for (const std::string& name : NamesOf(names, layer, expert)) {
      if (const Weight* w = weights.Find(name)) return w;
    }
    return nullptr;
  }
  // Null where there is none. What is no numbers but parts of blocks is `bytes`.
  absl::StatusOr<const Weight*> Optional(const Names& names, int64_t layer,
                                         const std::vector<int64_t>& shape, int64_t expert = 0,
                                         bool bytes = false) {
    const Weight* w = Find(names, layer, expert);
    if (w == nullptr) return nullptr;
    const auto bad = [&](const auto&... parts) {
      return absl::DataLossError(absl::StrCat(w->file ? w->file->path() : file, ": tensor ",
                                              ShowName(w->name), ": ", parts...));
    };
    if (w->shape != shape) {
      return bad("its shape is ", ShowShape(w->shape), ", and the configuration wants ",
                 ShowShape(shape));
    }
    if (bytes && w->format != WeightFormat::kU8) {
      return bad("its format is ", InfoOf(w->format).name, "; parts of blocks are U8");
    }
    if (!bytes && !CanCompute(w->format)) {
      return bad("its format is ", InfoOf(w->format).name, "; known are ", ComputableFormats());
    }
    if (shape.size() == 1 && InfoOf(w->format).block_elements > 1) {
      return bad("a vector in ", InfoOf(w->format).name, "; vectors are not quantised");
    }
    if (!taken.insert(w).second) return bad("another of this architecture has that name");
    return w;
  }
  absl::StatusOr<const Weight*> Required(const Names& names, int64_t layer,
                                         const std::vector<int64_t>& shape, int64_t expert = 0,
                                         bool bytes = false) {
    ASSIGN_OR_RETURN(const Weight* w, Optional(names, layer, shape, expert, bytes));
    if (w != nullptr) return w;
    return absl::DataLossError(absl::StrCat(file, ": tensor ",
                                            ShowName(NamesOf(names, layer, expert)[0]), " ",
                                            ShowShape(shape), " is missing"));
  }
  // What a matrix's products are multiplied by, which GGUF files have beside it. What its inputs
  // were divided by on chips that multiply in such formats is passed over.
  absl::Status ReadScale(const Names& names, int64_t layer, int64_t count, Matrix* to) {
    if (!gguf) return absl::OkStatus();
    const std::string base(absl::StripSuffix(NamesOf(names, layer, 0)[0], "weight"));
    const std::string own = base + "scale", of_input = base + "input_scale";
    Tensor passed;
    RETURN_IF_ERROR(Read({{own.c_str()}, {}}, layer, {count}, false, &to->scale));
    return Read({{of_input.c_str()}, {}}, layer, {count}, false, &passed);
  }
  absl::Status Read(const Names& names, int64_t layer, int64_t rows, int64_t columns, Matrix* to) {
    ASSIGN_OR_RETURN(const Weight* w, Required(names, layer, {rows, columns}));
    *to = {Stored(*w), w->format};
    return ReadScale(names, layer, 1, to);
  }
  absl::Status Read(const Names& names, int64_t layer, const std::vector<int64_t>& shape,
                    bool required, Tensor* to) {
    absl::StatusOr<const Weight*> w =
        required ? Required(names, layer, shape) : Optional(names, layer, shape);
    RETURN_IF_ERROR(w.status());
    if (*w != nullptr) *to = Values(Stored(**w), (*w)->format).Realize();
    return absl::OkStatus();
  }
  absl::Status ReadNorm(const Names& names, int64_t layer, int64_t size, bool required,
                        Tensor* to) {
    RETURN_IF_ERROR(Read(names, layer, {size}, required, to));
    if (*to && norms_from_one && !gguf) *to = (*to + 1).Realize();
    return absl::OkStatus();
  }
  // Matrices that are one in the file, one below the other.
  absl::Status ReadJoined(const Names& names, int64_t layer, int64_t columns,
                          absl::Span<const std::pair<int64_t, Matrix*>> parts) {
    int64_t rows = 0;
    for (const auto& [own, to] : parts) rows += own;
    ASSIGN_OR_RETURN(const Weight* w, Required(names, layer, {rows, columns}));
    Matrix whole;
    RETURN_IF_ERROR(ReadScale(names, layer, 1, &whole));
    const uint64_t row_bytes = w->bytes.size() / static_cast<uint64_t>(rows);
    uint64_t at = 0;
    for (const auto& [own, to] : parts) {
      Weight part = *w;
      part.shape[0] = own;
      part.bytes = w->bytes.substr(at, static_cast<uint64_t>(own) * row_bytes);
      part.offset += at;
      at += part.bytes.size();
      *to = {Stored(part), part.format, whole.scale};
    }
    return absl::OkStatus();
  }
  // Of all experts: one tensor, or those of each, which are brought together.
  absl::Status ReadExperts(const Names& names, int64_t layer, int64_t experts, int64_t rows,
                           int64_t columns, Matrix* to) {
    if (experts == 1 || Find(names, layer, 0) == Find(names, layer, 1)) {
      ASSIGN_OR_RETURN(const Weight* w, Required(names, layer, {experts, rows, columns}));
      *to = {Stored(*w), w->format};
      RETURN_IF_ERROR(ReadScale(names, layer, experts, to));
      if (to->scale) to->scale = to->scale.Reshape({experts, 1, 1}).Realize();
      return absl::OkStatus();
    }
    std::string bytes;
    Weight all;
    for (int64_t e = 0; e < experts; ++e) {
      ASSIGN_OR_RETURN(const Weight* w, Required(names, layer, {rows, columns}, e));
      if (e > 0 && w->format != all.format) {
        return absl::DataLossError(absl::StrCat(
            file, ": tensor ", ShowName(w->name), ": its format is ", InfoOf(w->format).name,
            ", and that of the experts before it ", InfoOf(all.format).name));
      }
      all.format = w->format;
      absl::StrAppend(&bytes, w->bytes);
    }
    all.shape = {experts, rows, columns};
    all.bytes = bytes;
    *to = {Stored(all), all.format};
    return absl::OkStatus();
  }
  // Of all experts in MXFP4, whose nibbles, two neighbours in a byte, and exponents lie apart: as
  // blocks of GGUF files, of which a byte's nibbles are half a block apart.
  absl::Status ReadApart(const Names& nibbles, const Names& exponents, int64_t layer,
                         int64_t experts, int64_t rows, int64_t columns, Tensor* to) {
    const int64_t size = InfoOf(WeightFormat::kMXFP4).block_elements, half = size / 2;
    if (columns % size != 0) {
      return absl::DataLossError(absl::StrCat(file, ": tensor ",
                                              ShowName(NamesOf(nibbles, layer, 0)[0]), ": rows of ",
                                              columns, " numbers are no whole blocks of ", size));
    }
    const std::vector<int64_t> blocks = {experts, rows, columns / size};
    ASSIGN_OR_RETURN(const Weight* e, Required(exponents, layer, blocks, 0, /*bytes=*/true));
    ASSIGN_OR_RETURN(const Weight* n,
                     Required(nibbles, layer, {experts, rows, columns / size, half}, 0,
                              /*bytes=*/true));
    const Tensor pairs = Stored(*n).Squeeze(-1);
    const Tensor each = Stack({pairs & 15, pairs >> 4}, -1).Flatten(-2);
    const Tensor packed = each.SliceAxis(-1, {0, half}) | each.SliceAxis(-1, {half, size}) << 4;
    *to = Cat({Stored(*e), packed}, -1);
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

absl::Status ReadAttention(Taker* t, const ModelConfig& c, const Architecture& known, int64_t i,
                           LayerWeights* w) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  if (t->Find(kQkv, i) != nullptr) {
    RETURN_IF_ERROR(t->ReadJoined(kQkv, i, c.dim, {{q, &w->q}, {kv, &w->k}, {kv, &w->v}}));
  } else {
    RETURN_IF_ERROR(t->Read(kQ, i, q, c.dim, &w->q));
    RETURN_IF_ERROR(t->Read(kK, i, kv, c.dim, &w->k));
    RETURN_IF_ERROR(t->Read(kV, i, kv, c.dim, &w->v));
  }
  RETURN_IF_ERROR(t->Read(kO, i, c.dim, q, &w->o));
  const bool biased = known.qkv_biased || c.attention_biased;
  RETURN_IF_ERROR(t->Read(kQBias, i, {q}, biased, &w->q_bias));
  RETURN_IF_ERROR(t->Read(kKBias, i, {kv}, biased, &w->k_bias));
  RETURN_IF_ERROR(t->Read(kVBias, i, {kv}, biased, &w->v_bias));
  RETURN_IF_ERROR(t->Read(kOBias, i, {c.dim}, c.attention_biased, &w->o_bias));
  RETURN_IF_ERROR(t->Read(kSinks, i, {c.heads}, known.sinks, &w->sinks));
  const bool normed = known.heads_normed || known.widths_normed;
  const bool whole = known.widths_normed;
  RETURN_IF_ERROR(t->ReadNorm(kQNorm, i, whole ? q : c.head_dim, normed, &w->q_norm));
  return t->ReadNorm(kKNorm, i, whole ? kv : c.head_dim, normed, &w->k_norm);
}

// Gates, ups and downs of all experts, as one file or another has them.
absl::Status ReadAllExperts(Taker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t n = c.experts, f = c.expert_ffn;
  Matrix both, down;
  if (t->Find(kExpertGateUp, i) != nullptr) {
    RETURN_IF_ERROR(t->Read(kRouterOfJoined, i, n, c.dim, &w->router));
    RETURN_IF_ERROR(t->ReadExperts(kExpertGateUp, i, n, 2 * f, c.dim, &both));
    w->gate = {both.stored.SliceAxis(1, {0, f}), both.format};
    w->up = {both.stored.SliceAxis(1, {f, 2 * f}), both.format};
    return t->ReadExperts(kExpertDownOfJoined, i, n, c.dim, f, &w->down);
  }
  const bool apart = t->Find(kExpertGateUpNibbles, i) != nullptr;
  if (apart || t->Find(kExpertGateUpTurned, i) != nullptr) {
    Tensor bias;
    RETURN_IF_ERROR(t->Read(kRouterOfTurned, i, n, c.dim, &w->router));
    RETURN_IF_ERROR(t->Read(kExpertGateUpBias, i, {n, 2 * f}, true, &bias));
    RETURN_IF_ERROR(t->Read(kExpertDownBias, i, {n, c.dim}, true, &w->down_bias));
    w->gate_bias = bias.Unflatten(1, {f, 2}).Select(2, 0).Realize();
    w->up_bias = bias.Unflatten(1, {f, 2}).Select(2, 1).Realize();
    if (apart) {
      both.format = down.format = WeightFormat::kMXFP4;
      RETURN_IF_ERROR(t->ReadApart(kExpertGateUpNibbles, kExpertGateUpExponents, i, n, 2 * f, c.dim,
                                   &both.stored));
      RETURN_IF_ERROR(
          t->ReadApart(kExpertDownNibbles, kExpertDownExponents, i, n, c.dim, f, &down.stored));
    } else {
      RETURN_IF_ERROR(t->ReadExperts(kExpertGateUpTurned, i, n, c.dim, 2 * f, &both));
      RETURN_IF_ERROR(t->ReadExperts(kExpertDownTurned, i, n, f, c.dim, &down));
      both.stored = both.stored.SwapAxes(1, 2);
      down.stored = down.stored.SwapAxes(1, 2);
    }
    const Tensor pairs = both.stored.Unflatten(1, {f, 2});
    w->gate = {pairs.Select(2, 0), both.format};
    w->up = {pairs.Select(2, 1), both.format};
    w->down = down;
    if (!apart) return absl::OkStatus();
    for (Matrix* m : {&w->gate, &w->up, &w->down}) m->stored = m->stored.Realize();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(t->Read(kRouter, i, n, c.dim, &w->router));
  RETURN_IF_ERROR(t->ReadExperts(kExpertGate, i, n, f, c.dim, &w->gate));
  RETURN_IF_ERROR(t->ReadExperts(kExpertUp, i, n, f, c.dim, &w->up));
  RETURN_IF_ERROR(t->ReadExperts(kExpertDown, i, n, c.dim, f, &w->down));
  RETURN_IF_ERROR(t->Read(kExpertGateBias, i, {n, f}, c.ffn_biased, &w->gate_bias));
  RETURN_IF_ERROR(t->Read(kExpertUpBias, i, {n, f}, c.ffn_biased, &w->up_bias));
  return t->Read(kExpertDownBias, i, {n, c.dim}, c.ffn_biased, &w->down_bias);
}

absl::Status ReadMixture(Taker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  if (c.experts == 0) {
    return absl::DataLossError(absl::StrCat(
        t->file, ": layer ", i, " has a router, and the configuration names no experts"));
  }
  RETURN_IF_ERROR(ReadAllExperts(t, c, i, w));
  RETURN_IF_ERROR(t->Read(kRouterBias, i, {c.experts}, c.ffn_biased, &w->router_bias));
  if (c.shared_ffn == 0) return absl::OkStatus();
  RETURN_IF_ERROR(t->Read(kSharedGate, i, c.shared_ffn, c.dim, &w->shared_gate));
  RETURN_IF_ERROR(t->Read(kSharedUp, i, c.shared_ffn, c.dim, &w->shared_up));
  RETURN_IF_ERROR(t->Read(kSharedDown, i, c.dim, c.shared_ffn, &w->shared_down));
  if (t->Find(kSharedShare, i) == nullptr) return absl::OkStatus();
  // GGUF files have it as a vector.
  Tensor row;
  if (t->gguf) {
    RETURN_IF_ERROR(t->Read(kSharedShare, i, {c.dim}, true, &row));
    w->shared_share = {row.Unsqueeze(0), WeightFormat::kF32};
    return absl::OkStatus();
  }
  return t->Read(kSharedShare, i, 1, c.dim, &w->shared_share);
}

absl::Status ReadLayer(Taker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const Architecture& known = *ArchitectureNamed(c.architecture);
  const auto biased = [&](const Names& names, Tensor* to) {
    return known.centred ? t->Read(names, i, {c.dim}, false, to) : absl::OkStatus();
  };
  if (known.normed_before) {
    RETURN_IF_ERROR(t->ReadNorm(kAttentionNorm, i, c.dim, true, &w->attention_norm));
    RETURN_IF_ERROR(biased(kAttentionNormBias, &w->attention_norm_bias));
  }
  if (known.normed_before && !known.parallel) {
    const Names& ffn_norm = known.normed_after ? kFfnNormOfFour : kFfnNorm;
    RETURN_IF_ERROR(t->ReadNorm(ffn_norm, i, c.dim, true, &w->ffn_norm));
    RETURN_IF_ERROR(biased(kFfnNormBias, &w->ffn_norm_bias));
  }
  if (known.normed_after) {
    RETURN_IF_ERROR(t->ReadNorm(kAttentionPostNorm, i, c.dim, true, &w->attention_post_norm));
    RETURN_IF_ERROR(t->ReadNorm(kFfnPostNorm, i, c.dim, true, &w->ffn_post_norm));
  }
  RETURN_IF_ERROR(ReadAttention(t, c, known, i, w));
  for (const Names* router : {&kRouter, &kRouterOfJoined, &kRouterOfTurned}) {
    if (t->Find(*router, i) != nullptr) return ReadMixture(t, c, i, w);
  }
  if (known.joined) {
    RETURN_IF_ERROR(t->ReadJoined(kGateUp, i, c.dim, {{c.ffn, &w->gate}, {c.ffn, &w->up}}));
  } else {
    if (!known.ungated) RETURN_IF_ERROR(t->Read(kGate, i, c.ffn, c.dim, &w->gate));
    RETURN_IF_ERROR(t->Read(kUp, i, c.ffn, c.dim, &w->up));
  }
  RETURN_IF_ERROR(t->Read(kDown, i, c.dim, c.ffn, &w->down));
  RETURN_IF_ERROR(t->Read(kGateBias, i, {c.ffn}, c.ffn_biased && !known.ungated, &w->gate_bias));
  RETURN_IF_ERROR(t->Read(kUpBias, i, {c.ffn}, c.ffn_biased, &w->up_bias));
  return t->Read(kDownBias, i, {c.dim}, c.ffn_biased, &w->down_bias);
}

// What pairs of elements divide their frequencies by, where the file has that as a tensor.
absl::Status ReadRopeDivisors(Taker* t, ModelConfig* c) {
  const std::pair<const Names*, std::vector<double>*> all[] = {
      {&kRopeDivisors, &c->rope_divisors},
      {&kShortDivisors, &c->rope_divisors},
      {&kLongDivisors, &c->long_rope_divisors}};
  for (const auto& [names, to] : all) {
    Tensor divisors;
    RETURN_IF_ERROR(t->Read(*names, 0, {c->turned() / 2}, false, &divisors));
    if (!divisors) continue;
    *to = divisors.ToVector<double>();
    for (double d : *to) {
      if (d > 0) continue;
      return absl::DataLossError(absl::StrCat(t->file, ": tensor ", ShowName(names->gguf[0]),
                                              " holds ", d, ", not above 0"));
    }
  }
  return absl::OkStatus();
}

// The rows of the embedding are the vocabulary: of the configuration, the tokenizer and the file.
absl::Status FindVocabulary(const WeightSet& weights, bool gguf, const Tokenizer* tokenizer,
                            const std::string& file, ModelConfig* c) {
  const char* name = (gguf ? kEmbedding.gguf : kEmbedding.hugging_face)[0];
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
  Taker t{weights, gguf_names, file, ArchitectureNamed(config.architecture)->norms_from_one};
  RETURN_IF_ERROR(ReadRopeDivisors(&t, &config));
  RETURN_IF_ERROR(t.Read(kEmbedding, 0, config.vocabulary, config.dim, &m.embedding));
  const bool apart = config.output_apart || t.Find(kOutput, 0) != nullptr;
  m.output = m.embedding;
  if (apart) RETURN_IF_ERROR(t.Read(kOutput, 0, config.vocabulary, config.dim, &m.output));
  RETURN_IF_ERROR(t.ReadNorm(kNorm, 0, config.dim, true, &m.norm));
  if (ArchitectureNamed(config.architecture)->centred) {
    RETURN_IF_ERROR(t.Read(kNormBias, 0, {config.dim}, false, &m.norm_bias));
  }
  // As many layers as there are, never as many as the file says: a count alone costs nothing.
  for (int64_t i = 0; i < config.layers; ++i) {
    RETURN_IF_ERROR(ReadLayer(&t, config, i, &m.layers.emplace_back()));
  }
  RETURN_IF_ERROR(t.NothingLeft());
  std::map<WeightFormat, uint64_t> by_format;
  for (const Weight& w : weights.all()) {  // parts of blocks are U8
    by_format[w.format == WeightFormat::kU8 ? WeightFormat::kMXFP4 : w.format] += w.bytes.size();
  }
  uint64_t most = 0;
  for (const auto& [format, bytes] : by_format) {
    if (bytes > most) m.format = InfoOf(format).name;
    most = std::max(most, bytes);
  }
  m.bytes_stored = weights.bytes();
  m.bytes_read = m.bytes_stored;
  if (apart) m.bytes_read -= t.Find(kEmbedding, 0)->bytes.size();
  for (const LayerWeights& w : m.layers) {
    if (!w.router) continue;
    for (const Matrix* experts : {&w.gate, &w.up, &w.down}) {
      const uint64_t bytes = static_cast<uint64_t>(experts->stored.elements()) *
                             static_cast<uint64_t>(experts->stored.dtype().bytes());
      m.bytes_read -= bytes / static_cast<uint64_t>(config.experts) *
                      static_cast<uint64_t>(config.experts - config.experts_used);
    }
  }
  m.division.kv_heads = config.kv_heads;
  m.config = std::move(config);
  return m;
}

}  // namespace tessera::llm
