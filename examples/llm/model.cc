// Which weights a layer has, and what else a model is made of.
#include "examples/llm/model.h"

#include <map>

#include "examples/llm/weight_names.h"
#include "examples/llm/weight_taker.h"
#include "graph/status.h"

namespace tessera::llm {
namespace {

// The matrices that make keys and values of what is kept. The keys' works on the queries, so it has
// the columns that these have.
absl::Status ReadLatentUps(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t own = c.head_dim - c.turned();
  if (t->Find(kKvUp, i) == nullptr && t->gguf) {
    RETURN_IF_ERROR(t->ReadBatch(kKUp, i, c.heads, c.latent, own, &w->k_up));
    return t->ReadBatch(kVUp, i, c.heads, c.value_dim, c.latent, &w->v_up);
  }
  Matrix both;
  RETURN_IF_ERROR(t->Read(kKvUp, i, c.heads * (own + c.value_dim), c.latent, &both));
  const Tensor of_heads = both.stored.Unflatten(0, {c.heads, own + c.value_dim});
  Tensor keys = of_heads.SliceAxis(1, {0, own});
  w->v_up = {of_heads.SliceAxis(1, {own, own + c.value_dim}), both.format, both.scale};
  if (InfoOf(both.format).block_elements > 1) {
    // Blocks lie along the axis that would have to be the rows.
    keys = Values(keys, both.format).SwapAxes(1, 2).Cast(kFloat16).Contiguous().Realize();
    w->k_up = {keys, WeightFormat::kF16, both.scale};
  } else {
    w->k_up = {keys.SwapAxes(1, 2), both.format, both.scale};
  }
  return absl::OkStatus();
}

// What the last positions count, of each of so many numbers: turned over.
absl::Status ReadTaps(WeightTaker* t, const Names& names, int64_t i, int64_t numbers, int64_t taps,
                      Tensor* to) {
  std::vector<int64_t> shape = {numbers, taps};
  if (!t->gguf) shape.insert(shape.begin() + 1, 1);
  RETURN_IF_ERROR(t->Read(names, i, shape, true, to));
  *to = to->Reshape({numbers, taps}).Transpose().Contiguous().Realize();
  return absl::OkStatus();
}

absl::Status ReadConvolution(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  RETURN_IF_ERROR(
      t->ReadJoined(kConvIn, i, c.dim,
                    {{c.dim, &w->conv_gate}, {c.dim, &w->conv_out_gate}, {c.dim, &w->conv_in}}));
  RETURN_IF_ERROR(ReadTaps(t, kConvTaps, i, c.dim, c.taps, &w->conv_taps));
  return t->Read(kConvOut, i, c.dim, c.dim, &w->conv_out);
}

// Of each group of `sizes` rows the part `index`, of all groups together.
Matrix PartOfGroups(const Matrix& m, int64_t groups, absl::Span<const int64_t> sizes,
                    size_t index) {
  int64_t begin = 0, all = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < index) begin += sizes[i];
    all += sizes[i];
  }
  const Tensor part =
      m.stored.Unflatten(0, {groups, all}).SliceAxis(1, {begin, begin + sizes[index]});
  return {part.Flatten(0, 1).Contiguous().Realize(), m.format, m.scale};
}

absl::Status ReadMemory(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t groups = c.memory_key_heads, heads = c.memory_value_heads, each = heads / groups;
  const int64_t keys = groups * c.memory_key_dim, values = heads * c.memory_value_dim;
  if (t->Find(kMemoryQkvGate, i) != nullptr) {  // all that belongs to a head of keys is together
    const int64_t of_group = each * c.memory_value_dim;
    const int64_t sizes[] = {c.memory_key_dim, c.memory_key_dim, of_group, of_group};
    Matrix all;
    RETURN_IF_ERROR(t->Read(kMemoryQkvGate, i, 2 * (keys + values), c.dim, &all));
    size_t index = 0;
    for (Matrix* m : {&w->memory_q, &w->memory_k, &w->memory_v, &w->memory_gate}) {
      *m = PartOfGroups(all, groups, sizes, index++);
    }
  } else {
    RETURN_IF_ERROR(
        t->ReadJoined(kMemoryQkv, i, c.dim,
                      {{keys, &w->memory_q}, {keys, &w->memory_k}, {values, &w->memory_v}}));
    RETURN_IF_ERROR(t->Read(kMemoryGate, i, values, c.dim, &w->memory_gate));
  }
  if (t->Find(kMemoryWriteKeep, i) != nullptr) {
    Matrix both;
    RETURN_IF_ERROR(t->Read(kMemoryWriteKeep, i, 2 * heads, c.dim, &both));
    w->memory_write = PartOfGroups(both, groups, {each, each}, 0);
    w->memory_keep = PartOfGroups(both, groups, {each, each}, 1);
  } else {
    RETURN_IF_ERROR(t->Read(kMemoryWrite, i, heads, c.dim, &w->memory_write));
    RETURN_IF_ERROR(t->Read(kMemoryKeep, i, heads, c.dim, &w->memory_keep));
  }
  RETURN_IF_ERROR(ReadTaps(t, kMemoryTaps, i, 2 * keys + values, c.taps, &w->memory_taps));
  RETURN_IF_ERROR(t->Read(kMemoryKeepBias, i, {heads}, true, &w->memory_keep_bias));
  RETURN_IF_ERROR(t->Read(kMemoryRate, i, {heads}, true, &w->memory_rate));
  if (!t->gguf) w->memory_rate = w->memory_rate.Exp().Neg().Realize();
  RETURN_IF_ERROR(t->Read(kMemoryNorm, i, {c.memory_value_dim}, true, &w->memory_norm));
  return t->Read(kMemoryOut, i, c.dim, values, &w->memory_out);
}

absl::Status ReadLatentAttention(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t q = c.heads * c.head_dim;
  if (c.query_rank > 0) {
    RETURN_IF_ERROR(t->Read(kQDown, i, c.query_rank, c.dim, &w->q_down));
    RETURN_IF_ERROR(t->ReadNorm(kQDownNorm, i, c.query_rank, true, &w->q_norm));
    RETURN_IF_ERROR(t->Read(kQUp, i, q, c.query_rank, &w->q));
  } else {
    RETURN_IF_ERROR(t->Read(kQ, i, q, c.dim, &w->q));
  }
  RETURN_IF_ERROR(t->Read(kKvDown, i, c.latent + c.turned(), c.dim, &w->kv_down));
  RETURN_IF_ERROR(t->ReadNorm(kKvDownNorm, i, c.latent, true, &w->k_norm));
  RETURN_IF_ERROR(ReadLatentUps(t, c, i, w));
  return t->Read(kO, i, c.dim, c.heads * c.value_dim, &w->o);
}

absl::Status ReadAttention(WeightTaker* t, const ModelConfig& c, const Architecture& known,
                           int64_t i, LayerWeights* w) {
  if (c.latent > 0) return ReadLatentAttention(t, c, i, w);
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const bool own = c.KeysOf(i) == i;
  if (!own) {
    t->PassOver({&kK, &kV, &kKBias, &kVBias, &kKNorm}, i);
    RETURN_IF_ERROR(t->Read(kQ, i, q, c.dim, &w->q));
  } else if (t->Find(kQkv, i) != nullptr) {
    RETURN_IF_ERROR(t->ReadJoined(kQkv, i, c.dim, {{q, &w->q}, {kv, &w->k}, {kv, &w->v}}));
  } else {
    RETURN_IF_ERROR(t->Read(kQ, i, known.remembers ? 2 * q : q, c.dim, &w->q));
    RETURN_IF_ERROR(t->Read(kK, i, kv, c.dim, &w->k));
    RETURN_IF_ERROR(t->Read(kV, i, kv, c.dim, &w->v));
  }
  RETURN_IF_ERROR(t->Read(kO, i, c.dim, q, &w->o));
  const bool biased = c.qkv_biased || c.attention_biased;
  RETURN_IF_ERROR(t->Read(kQBias, i, {known.remembers ? 2 * q : q}, biased, &w->q_bias));
  if (own) {
    RETURN_IF_ERROR(t->Read(kKBias, i, {kv}, biased, &w->k_bias));
    RETURN_IF_ERROR(t->Read(kVBias, i, {kv}, biased, &w->v_bias));
  }
  RETURN_IF_ERROR(t->Read(kOBias, i, {c.dim}, c.attention_biased, &w->o_bias));
  RETURN_IF_ERROR(t->Read(kSinks, i, {c.heads}, known.sinks, &w->sinks));
  const bool normed = known.heads_normed || known.widths_normed || c.heads_normed;
  const bool whole = known.widths_normed;
  if (known.centred) {  // each head by weights of its own
    RETURN_IF_ERROR(t->Read(kQNorm, i, {c.heads, c.head_dim}, normed, &w->q_norm));
    RETURN_IF_ERROR(t->Read(kKNorm, i, {c.kv_heads, c.head_dim}, normed, &w->k_norm));
    for (Tensor* norm : {&w->q_norm, &w->k_norm}) *norm = *norm ? norm->Flatten() : *norm;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(t->ReadNorm(kQNorm, i, whole ? q : c.head_dim, normed, &w->q_norm));
  if (!own) return absl::OkStatus();
  return t->ReadNorm(kKNorm, i, whole ? kv : c.head_dim, normed, &w->k_norm);
}

// Gates, ups and downs of all experts, as one file or another has them.
absl::Status ReadAllExperts(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
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
  const bool biased = ArchitectureNamed(c.architecture)->all_biased;
  RETURN_IF_ERROR(t->Read(kExpertGateBias, i, {n, f}, biased, &w->gate_bias));
  RETURN_IF_ERROR(t->Read(kExpertUpBias, i, {n, f}, biased, &w->up_bias));
  return t->Read(kExpertDownBias, i, {n, c.dim}, biased, &w->down_bias);
}

absl::Status ReadMixture(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  if (c.experts == 0) {
    return absl::DataLossError(absl::StrCat(
        t->file, ": layer ", i, " has a router, and the configuration names no experts: its key '",
        t->gguf ? c.architecture + "." + kExpertsKey.gguf[0] : kExpertsKey.json[0],
        "' is missing or 0"));
  }
  RETURN_IF_ERROR(ReadAllExperts(t, c, i, w));
  const bool all = ArchitectureNamed(c.architecture)->all_biased;
  RETURN_IF_ERROR(t->Read(kRouterBias, i, {c.experts}, all, &w->router_bias));
  RETURN_IF_ERROR(t->Read(kChoiceBias, i, {c.experts}, false, &w->choice_bias));
  if (!w->choice_bias && t->Find(kChoiceBiasOfStatics, i) != nullptr) {
    RETURN_IF_ERROR(t->Read(kChoiceBiasOfStatics, i, {1, c.experts}, true, &w->choice_bias));
    w->choice_bias = w->choice_bias.Squeeze(0).Realize();
  }
  if (c.shared_ffn == 0) return absl::OkStatus();
  RETURN_IF_ERROR(t->Read(kSharedGate, i, c.shared_ffn, c.dim, &w->shared_gate));
  RETURN_IF_ERROR(t->Read(kSharedUp, i, c.shared_ffn, c.dim, &w->shared_up));
  RETURN_IF_ERROR(t->Read(kSharedDown, i, c.dim, c.shared_ffn, &w->shared_down));
  const bool biased = c.ffn_biased;
  RETURN_IF_ERROR(t->Read(kSharedGateBias, i, {c.shared_ffn}, biased, &w->shared_gate_bias));
  RETURN_IF_ERROR(t->Read(kSharedUpBias, i, {c.shared_ffn}, biased, &w->shared_up_bias));
  RETURN_IF_ERROR(t->Read(kSharedDownBias, i, {c.dim}, biased, &w->shared_down_bias));
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

absl::Status ReadStreams(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
  const int64_t n = c.streams, own = c.layer_embedding;
  RETURN_IF_ERROR(t->Read(kDetourIn, i, c.detour, c.dim, &w->detour_in));
  RETURN_IF_ERROR(t->Read(kDetourOut, i, c.dim, c.detour, &w->detour_out));
  RETURN_IF_ERROR(t->ReadNorm(kDetourNorm, i, c.dim, true, &w->detour_norm));
  RETURN_IF_ERROR(t->Read(kStreamRouter, i, n, c.dim, &w->stream_router));
  RETURN_IF_ERROR(t->ReadNorm(kStreamRouterNorm, i, c.dim, true, &w->stream_norm));
  RETURN_IF_ERROR(t->Read(kStreamPredict, i, n * n, n, &w->stream_predict));
  RETURN_IF_ERROR(t->Read(kStreamCorrect, i, n, n, &w->stream_correct));
  RETURN_IF_ERROR(t->Read(kStreamScale, i, {c.dim}, true, &w->stream_scale));
  RETURN_IF_ERROR(t->Read(kLayerGate, i, own, c.dim, &w->layer_gate));
  RETURN_IF_ERROR(t->Read(kLayerUp, i, c.dim, own, &w->layer_up));
  return t->ReadNorm(kLayerNorm, i, c.dim, true, &w->layer_norm);
}

// What is not of one layer. Of some lengths the file's tensors alone say what they are.
absl::Status ReadAllStreams(WeightTaker* t, ModelConfig* c, Model* m) {
  const int64_t all = c->layers * c->layer_embedding, others = c->streams - 1;
  const auto rows = [&](const Names& names, int64_t* to) {
    const Weight* w = t->Find(names, 0);
    if (*to == 0 && w != nullptr && w->shape.size() == 2) *to = w->shape[0];
  };
  rows(kDetourIn, &c->detour);
  rows(kLayerEmbedding, &c->layer_vocabulary);
  RETURN_IF_ERROR(t->Read(kLayerEmbedding, 0, c->layer_vocabulary, all, &m->layer_embedding));
  RETURN_IF_ERROR(t->Read(kLayerProjection, 0, all, c->dim, &m->layer_projection));
  RETURN_IF_ERROR(
      t->ReadNorm(kLayerProjectionNorm, 0, c->layer_embedding, true, &m->layer_projection_norm));
  if (others == 0) return absl::OkStatus();
  RETURN_IF_ERROR(t->ReadExperts(kStreamsIn, 0, others, c->dim, c->dim, &m->streams_in));
  return t->ReadExperts(kStreamsOut, 0, others, c->dim, c->dim, &m->streams_out);
}

absl::Status ReadLayer(WeightTaker* t, const ModelConfig& c, int64_t i, LayerWeights* w) {
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
  if (known.streams) RETURN_IF_ERROR(ReadStreams(t, c, i, w));
  RETURN_IF_ERROR(c.Remembers(static_cast<size_t>(i))   ? ReadMemory(t, c, i, w)
                  : c.Convolves(static_cast<size_t>(i)) ? ReadConvolution(t, c, i, w)
                                                        : ReadAttention(t, c, known, i, w));
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
absl::Status ReadRopeDivisors(WeightTaker* t, ModelConfig* c) {
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
  WeightTaker t{weights, gguf_names, file, ArchitectureNamed(config.architecture)->norms_from_one};
  RETURN_IF_ERROR(ReadRopeDivisors(&t, &config));
  RETURN_IF_ERROR(t.Read(kEmbedding, 0, config.vocabulary, config.dim, &m.embedding));
  const bool apart = config.output_apart || t.Find(kOutput, 0) != nullptr;
  m.output = m.embedding;
  if (apart) RETURN_IF_ERROR(t.Read(kOutput, 0, config.vocabulary, config.dim, &m.output));
  if (ArchitectureNamed(config.architecture)->output_biased) {
    RETURN_IF_ERROR(
        t.Read(kOutputBias, 0, {config.vocabulary}, config.attention_biased, &m.output_bias));
  }
  RETURN_IF_ERROR(t.ReadNorm(kNorm, 0, config.dim, true, &m.norm));
  if (ArchitectureNamed(config.architecture)->centred) {
    RETURN_IF_ERROR(t.Read(kNormBias, 0, {config.dim}, false, &m.norm_bias));
  }
  if (config.streams > 0) RETURN_IF_ERROR(ReadAllStreams(&t, &config, &m));
  // As many layers as there are, never as many as the file says: a count alone costs nothing.
  for (int64_t i = 0; i < config.layers; ++i) {
    RETURN_IF_ERROR(ReadLayer(&t, config, i, &m.layers.emplace_back()));
  }
  RETURN_IF_ERROR(t.NothingLeft(config.layers, config.predicting_layers));
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
  if (config.streams > 0) m.bytes_read -= t.Find(kLayerEmbedding, 0)->bytes.size();
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
