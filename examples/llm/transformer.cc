// The parts of the decoder, each a few lines; positions are symbolic, so one capture serves all.
#include "examples/llm/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/llm/mixture.h"

namespace tessera::llm {

namespace {

// Of fewer rows products of integers take about as long, as the weights need not be unpacked.
constexpr int64_t kManyRows = 32;

bool AnyIntegers(const Model& model) {
  const auto among = [](absl::Span<const Matrix* const> all) {
    return std::any_of(all.begin(), all.end(),
                       [](const Matrix* m) { return *m && HasIntegers(m->format); });
  };
  if (among({&model.embedding, &model.output})) return true;
  return std::any_of(model.layers.begin(), model.layers.end(), [&](const LayerWeights& w) {
    return std::any_of(std::begin(kMatrices), std::end(kMatrices),
                       [&](const auto& named) { return among({&(w.*named.second)}); });
  });
}

// A sum that is off is better than one of inf.
Tensor Kept(const Tensor& x, DType dtype) {
  constexpr double kGreatestHalf = 65504;
  return (dtype == kFloat16 ? x.Clamp(-kGreatestHalf, kGreatestHalf) : x).Cast(dtype);
}

Tensor Capped(const Tensor& x, double cap) { return cap == 0 ? x : (x / cap).Tanh() * cap; }
Tensor Scaled(const Tensor& x, double by) { return by == 1 ? x : x * by; }

}  // namespace

std::vector<Tensor> TensorsOf(const Caches& caches) {
  std::vector<Tensor> out;
  for (const Cache& c : caches) {
    if (c.keys) out.push_back(c.keys);
    if (c.values) out.push_back(c.values);
  }
  return out;
}

Caches WithTensors(const Caches& caches, absl::Span<const Tensor> tensors) {
  Caches out = caches;
  size_t i = 0;
  for (Cache& c : out) {
    if (c.keys) c.keys = tensors[i++];
    if (c.values) c.values = tensors[i++];
  }
  return out;
}

Tensor AtPositions(const Tensor& of_all, Parts parts) {
  std::vector<Tensor> out;
  for (const Part& p : parts) {
    out.push_back(of_all.SliceAxis(0, {p.position, p.position + p.tokens}));
  }
  return out.size() == 1 ? out[0] : Cat(out, 0).Contiguous();
}

Transformer::Transformer(const Model& model, int64_t context, DType cache, Activations activations)
    : model_(model),
      context_(context),
      cache_(cache),
      rounds_(
          activations != Activations::kF32 && AnyIntegers(model) &&
          (activations == Activations::kInt8 || model.division.whole.places()[0].kind() == "CPU")),
      narrows_(activations == Activations::kBf16) {
  const ModelConfig& c = model.config;
  const int64_t trained = c.rope_trained > 0 ? c.rope_trained : c.context;
  const bool beyond = !c.long_rope_divisors.empty() && context > trained;
  angles_ =
      AnglesFor(c.rope_base, beyond ? c.long_rope_divisors : c.rope_divisors, c.rope_magnitude);
  if (c.window > 0 && c.local_rope_base > 0) local_angles_ = AnglesFor(c.local_rope_base, {}, 1);
  if (c.sharpness > 0 && context > c.sharper_every) {
    std::vector<float> sharp;
    for (int64_t p = 0; p < context; ++p) {
      sharp.push_back(static_cast<float>(
          1 + c.sharpness * std::log(1 + static_cast<double>(p / c.sharper_every))));
    }
    sharpness_ = Tensor::From(sharp, {context, 1, 1}, model.division.whole).Realize();
  }
}

Caches Transformer::EmptyCaches() const {
  Caches out;
  for (size_t i = 0; i < model_.layers.size(); ++i) out.push_back(EmptyCache(i));
  return out;
}

// Without contents: a position is written in the step that first sees it, so memory is touched
// only as far as texts reach.
Cache Transformer::EmptyCache(size_t layer) const {
  const ModelConfig& c = model_.config;
  const Division& division = model_.division;
  if (c.Convolves(layer)) {
    Tensor read = Tensor::Empty({c.taps - 1 + context_, c.dim}, cache_,
                                model_.layers[layer].conv_taps.device());
    if (c.taps > 1) {  // before the first position there is nothing
      read.SliceAxis(0, {0, c.taps - 1}).Assign(Tensor::Zeros({c.taps - 1, c.dim}, cache_));
      read = read.Realize();
    }
    return {read, {}};
  }
  if (c.Remembers(layer)) {
    const int64_t values = c.memory_value_heads * c.memory_value_dim;
    const auto zeros = [&](const Dims& shape) {
      return Tensor::Zeros(shape, kFloat32, division.whole).Contiguous().Realize();
    };
    return {zeros({c.taps - 1, 2 * c.memory_key_heads * c.memory_key_dim + values}),
            zeros({c.memory_value_heads, c.memory_key_dim, c.memory_value_dim})};
  }
  if (c.latent > 0) {
    return {Tensor::Empty({1, context_, c.latent + c.turned()}, cache_, division.whole), {}};
  }
  if (c.KeysOf(static_cast<int64_t>(layer)) != static_cast<int64_t>(layer)) return {};
  const Dims shape = {division.kv_heads, context_, c.head_dim};
  return {Tensor::Empty(shape, cache_, division.heads),
          Tensor::Empty(shape, cache_, division.heads)};
}

Transformer::Angles Transformer::AnglesFor(double base, const std::vector<double>& divisors,
                                           double magnitude) const {
  const ModelConfig& c = model_.config;
  const int64_t half = c.turned() / 2;
  std::vector<float> cos(context_ * half), sin(context_ * half);
  for (int64_t i = 0; i < half; ++i) {
    double frequency = std::pow(base, -static_cast<double>(2 * i) / c.turned());
    if (!divisors.empty()) frequency /= divisors[i];
    for (int64_t p = 0; p < context_; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos[p * half + i] = static_cast<float>(std::cos(angle) * magnitude);
      sin[p * half + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
  }
  const Device& whole = model_.division.whole;
  return {Tensor::From(cos, {context_, half}, whole).Realize(),
          Tensor::From(sin, {context_, half}, whole).Realize()};
}

std::vector<Tensor*> Transformer::Memories(Caches& caches) const {
  std::vector<Tensor*> out;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!model_.config.Remembers(i)) continue;
    out.push_back(&caches[i].keys);
    out.push_back(&caches[i].values);
  }
  return out;
}

bool Transformer::ByIntegers(const Matrix& weight) const {
  return rounds_ && HasIntegers(weight.format);
}

bool Transformer::MayBeBf16(const Matrix& weight) const {
  return narrows_ &&
         (InfoOf(weight.format).block_elements > 1 || weight.format == WeightFormat::kBF16);
}

// What is multiplied by numbers of a dtype.
Tensor Transformer::RoundedBeside(const Tensor& x, DType dtype) const {
  return rounds_ && dtype == kFloat16 ? Kept(x, dtype).Cast(kFloat32) : x;
}

Transformer::Rows Transformer::Rows::Take(const Tensor& index) const {
  const auto take = [&](const Tensor& t) { return t ? t.Take(index) : t; };
  return {
      take(values), take(bf16), {take(rounded.integers), take(rounded.scales), take(rounded.sums)}};
}

Transformer::Rows Transformer::RowsFor(const Tensor& x, absl::Span<const Matrix> weights) const {
  Rows out{x, {}, {}};
  const bool many = x.elements() / x.size(-1) >= kManyRows;
  for (const Matrix& w : weights) {
    if (many && MayBeBf16(w)) {
      if (!out.bf16) out.bf16 = x.Cast(kBFloat16).Contiguous();
    } else if (ByIntegers(w) && !out.rounded) {
      out.rounded = Quantise(x);
    }
  }
  return out;
}

// [..., rows, columns] of the weight's matrices, of which there may be a batch.
Tensor Transformer::Project(const Rows& x, const Matrix& weight, const Tensor& bias) const {
  if (weight.scale) {
    Matrix plain = weight;
    plain.scale = {};
    const Tensor y = Project(x, plain) * weight.scale;
    return bias ? y + bias : y;
  }
  const auto times = [&](const Tensor& rows, const Tensor& matrix) {
    if (matrix.rank() == 2) return rows.Linear(matrix, bias);
    const Tensor y = rows.MatMul(matrix.SwapAxes(-1, -2));
    return bias ? y + bias : y;
  };
  if (x.bf16 && MayBeBf16(weight)) {
    return times(x.bf16.Cast(kFloat32), weight.values().Cast(kBFloat16).Cast(kFloat32));
  }
  if (!ByIntegers(weight)) {
    return times(RoundedBeside(x.values, weight.stored.dtype()), weight.values());
  }
  // One row takes as long as reading, for which the stored blocks do: in whole models panels were
  // read no faster, and those of Q6_K slower.
  const bool one = x.values.elements() == x.values.size(-1);
  const Blocks stored = weight.panels && !one ? *weight.panels : Blocks(weight.stored);
  const Tensor y = Product(x.rounded, Integers(stored, weight.format));
  return bias ? y + bias : y;
}

Tensor Transformer::Project(const Tensor& x, const Matrix& weight, const Tensor& bias) const {
  return Project(RowsFor(x, {weight}), weight, bias);
}

// Rotary positions of [T, heads, width]: each pair of elements turns by its angle.
Tensor Transformer::Rotate(size_t layer, const Tensor& x, Parts parts) const {
  const ModelConfig& c = model_.config;
  if (!c.Turns(layer)) return x;
  const int64_t turned = c.turned(), half = turned / 2;
  const bool local = local_angles_.cos && c.WindowOf(layer) != 0;
  const Angles& angles = local ? local_angles_ : angles_;
  const Tensor cos = AtPositions(angles.cos, parts).Unsqueeze(1),
               sin = AtPositions(angles.sin, parts).Unsqueeze(1);
  Tensor a, b;
  if (c.rope_interleaved) {
    const Tensor pairs = x.SliceAxis(-1, {0, turned}).Unflatten(-1, {half, 2});
    a = pairs.Select(-1, 0);
    b = pairs.Select(-1, 1);
  } else {
    a = x.SliceAxis(-1, {0, half});
    b = x.SliceAxis(-1, {half, turned});
  }
  const Tensor a_turned = a * cos - b * sin, b_turned = b * cos + a * sin;
  std::vector<Tensor> out = {a_turned, b_turned};
  if (c.rope_interleaved) out = {Stack(out, -1).Flatten(-2)};
  if (turned < x.size(-1)) out.push_back(x.SliceAxis(-1, {turned, x.size(-1)}));
  return out.size() == 1 ? out[0] : Cat(out, -1);
}

// The first position that any of the queries from `position` on sees.
Extent Transformer::FirstSeen(int64_t window, const Extent& position) const {
  return window == 0 || window >= context_ ? 0 : Max(position + (1 - window), 0);
}

// Which keys, from the first that any sees to its own, each of T queries sees.
Tensor Transformer::Mask(int64_t window, int64_t tokens, const Extent& position) const {
  const Extent first = FirstSeen(window, position);
  const Tensor key = Tensor::Arange(position + tokens - first) + first;
  const Tensor query = (Tensor::Arange(tokens) + position).Unsqueeze(1);
  const Tensor seen = key <= query;
  if (window == 0) return seen;
  return seen & (key > query - window);
}

double Transformer::ScoreScale() const {
  const ModelConfig& c = model_.config;
  return c.score_scale > 0 ? c.score_scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
}

// Scores [kv_heads, group * T, keys] of which those of keys that a query does not see are -inf.
Tensor Transformer::Seen(const Tensor& scores, int64_t window, int64_t tokens,
                         const Extent& position) const {
  if (tokens == 1) return scores;
  const Shape flat = scores.shape();
  const int64_t kv_heads = scores.size(0), group = scores.size(1) / tokens;
  return Where(Mask(window, tokens, position), scores.Reshape({kv_heads, group, tokens, flat[2]}),
               -std::numeric_limits<float>::infinity())
      .Reshape(flat);
}

// Softmax of scores [kv_heads, group * T, keys] times values; a sink of each head counts as a key's
// score, and has no value.
Tensor Transformer::Mixed(const Tensor& scores, const Tensor& values, const Tensor& sinks) const {
  if (!sinks) return scores.Softmax().MatMul(values);
  const int64_t kv_heads = scores.size(0), rows = scores.size(1), group = sinks.size(0) / kv_heads;
  const Tensor sink = sinks.Reshape({kv_heads, group, 1})
                          .BroadcastTo({kv_heads, group, rows / group})
                          .Reshape({kv_heads, rows, 1});
  const Tensor most = scores.Max({-1}, /*keepdim=*/true).Maximum(sink);
  const Tensor weights = (scores - most).Exp();
  return weights.MatMul(values) / (weights.Sum({-1}, /*keepdim=*/true) + (sink - most).Exp());
}

// Each number of a position as the last few positions have it, between two gates. What is read is
// kept of every position, so that a text may go on from any.
Tensor Transformer::Convolution(size_t layer, const Tensor& x, Parts parts) const {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const Rows rows = RowsFor(x, {w.conv_in, w.conv_gate, w.conv_out_gate});
  const Tensor read = Project(rows, w.conv_in) * Project(rows, w.conv_gate);
  const Tensor sums = ForEachPart(parts, [&](const Part& part, const auto& own) {
    Tensor kept = part.caches[layer].keys;
    const Extent first = part.position + (c.taps - 1);
    kept.SliceAxis(0, {first, first + part.tokens}).Assign(Kept(own(read), kept.dtype()));
    Tensor sum;
    for (int64_t i = 0; i < c.taps; ++i) {
      const Extent from = part.position + i;
      const Tensor tap = kept.SliceAxis(0, {from, from + part.tokens}).Cast(kFloat32) *
                         w.conv_taps.SliceAxis(0, {i, i + 1});
      sum = sum ? sum + tap : tap;
    }
    return sum;
  });
  return Project(sums * Project(rows, w.conv_out_gate), w.conv_out);
}

Tensor Transformer::Attention(size_t layer, const Tensor& x, Parts parts) const {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  if (c.latent > 0) return LatentAttention(layer, x, parts);
  const int64_t kv_heads = model_.division.kv_heads, tokens = x.size(0);
  const Rows input =
      RowsFor(x, w.k ? std::vector<Matrix>{w.q, w.k, w.v} : std::vector<Matrix>{w.q});
  const Architecture& known = *ArchitectureNamed(c.architecture);
  const auto heads = [&](const Tensor& of_all, int64_t count) {
    return of_all.Reshape({tokens, count, c.head_dim});
  };
  const auto turned = [&](const Tensor& of_all, int64_t count, const Tensor& norm) {
    const auto normed = [&](const Tensor& t) {
      if (!norm) return t;
      if (!known.centred) return t.RmsNorm(norm, c.norm_eps);
      return t.LayerNorm({}, {}, c.norm_eps) * norm.Reshape({count, c.head_dim});
    };
    if (known.turned_first) return normed(Rotate(layer, heads(of_all, count), parts));
    return Rotate(layer,
                  known.widths_normed ? heads(normed(of_all), count) : normed(heads(of_all, count)),
                  parts);
  };
  Tensor projected = Project(input, w.q, w.q_bias), gate;
  if (known.remembers) {  // each head's queries have a gate of its results after them
    const Tensor both = projected.Reshape({tokens, c.heads, 2, c.head_dim});
    projected = both.Select(2, 0).Flatten(1, 2);
    gate = both.Select(2, 1).Flatten(1, 2).Sigmoid();
  }
  Tensor q = turned(projected, c.heads, w.q_norm), k, v;
  if (sharpness_) q = q * AtPositions(sharpness_, parts);
  if (w.k) {
    k = turned(Project(input, w.k, w.k_bias), kv_heads, w.k_norm);
    v = heads(Project(input, w.v, w.v_bias), kv_heads);
    if (known.streams) v = v.RmsNorm({}, c.norm_eps);
  }
  const Tensor results = ForEachPart(parts, [&](const Part& part, const auto& own) {
    const Slice here{part.position, part.position + part.tokens};
    const auto store = [&](Tensor kept, const Tensor& t) {
      kept.SliceAxis(1, here).Assign(own(t).Permute({1, 0, 2}).Cast(kept.dtype()));
    };
    if (w.k) {
      store(part.caches[layer].keys, k);
      store(part.caches[layer].values, v);
    }
    return Attended(layer, own(q), part);
  });
  return Project(gate ? results * gate : results, w.o, w.o_bias);
}

// What queries [T, heads, head_dim] of a part see of its text, [T, heads * head_dim].
Tensor Transformer::Attended(size_t layer, const Tensor& q, const Part& part) const {
  const ModelConfig& c = model_.config;
  const Cache& cache = part.caches[static_cast<size_t>(c.KeysOf(static_cast<int64_t>(layer)))];
  const int64_t kv_heads = model_.division.kv_heads, group = c.heads / kv_heads;
  const int64_t window = c.WindowOf(layer), tokens = part.tokens;
  // Read as they are kept: the cast is part of the products' kernels.
  const Pairs seen = {
      {0, kv_heads}, {FirstSeen(window, part.position), part.position + tokens}, {0, c.head_dim}};
  const Tensor keys = cache.keys.Shrink(seen).Cast(kFloat32);
  const Tensor values = cache.values.Shrink(seen).Cast(kFloat32);

  // Heads that share keys are rows of one product.
  const Tensor rows = RoundedBeside(q, cache.keys.dtype())
                          .Reshape({tokens, kv_heads, group, c.head_dim})
                          .Permute({1, 2, 0, 3})
                          .Reshape({kv_heads, group * tokens, c.head_dim});
  const Tensor scores = Seen(Capped(rows.MatMul(keys.Transpose()) * ScoreScale(), c.score_cap),
                             window, tokens, part.position);
  return Mixed(scores, values, model_.layers[layer].sinks)
      .Reshape({c.heads, tokens, c.head_dim})
      .Permute({1, 0, 2})
      .Reshape({tokens, c.heads * c.head_dim});
}

Tensor Transformer::Gated(const Tensor& gate, const Tensor& up) const {
  const double limit = model_.config.gate_limit;
  if (limit > 0) {
    constexpr double kSteeper = 1.702;
    const Tensor least = gate.Minimum(limit);
    return least * (least * kSteeper).Sigmoid() * (up.Clamp(-limit, limit) + 1);
  }
  return Activated(gate) * up;
}

Tensor Transformer::Activated(const Tensor& x) const {
  const Architecture& known = *ArchitectureNamed(model_.config.architecture);
  if (known.squared) return x.Relu().Square();
  return known.gelu ? x.GeluTanh() : x.Silu();
}

Tensor Transformer::FeedForward(size_t layer, const Tensor& x) const {
  const LayerWeights& w = model_.layers[layer];
  if (!w.gate) return Project(Activated(Project(x, w.up, w.up_bias)), w.down, w.down_bias);
  const Rows rows = RowsFor(x, {w.gate, w.up});
  Tensor gate = Project(rows, w.gate, w.gate_bias);
  const Tensor up = Project(rows, w.up, w.up_bias);
  const std::vector<double>& sparsity = model_.config.sparsity;
  if (layer < sparsity.size() && std::isfinite(sparsity[layer])) {
    const Tensor mean = gate.Mean({-1}, /*keepdim=*/true);
    const Tensor deviation = (gate - mean).Square().Mean({-1}, /*keepdim=*/true).Sqrt();
    gate = (gate - (mean + deviation * sparsity[layer])).Relu();
  }
  return Project(Gated(gate, up), w.down, w.down_bias);
}

// Each token through its experts, and through the one that all share.
Tensor Transformer::Mixture(const LayerWeights& w, const Tensor& x) const {
  const ModelConfig& c = model_.config;
  const Rows rows = RowsFor(x, {w.gate, w.up, w.shared_gate, w.shared_up});
  using Gating = ModelConfig::Gating;
  const bool sigmoid =
      c.gating == Gating::kSigmoid || (c.gating == Gating::kByBias && w.choice_bias);
  const Routes routes = Route(Project(x, w.router, w.router_bias),
                              {c.experts_used, c.experts_renormed, sigmoid, w.choice_bias,
                               c.expert_groups, c.expert_groups_used, c.experts_scale});
  const ExpertBlocks blocks = BlocksOf(routes, c.experts);
  const Rows own = rows.Take(blocks.token);
  const auto bias = [&](const Tensor& of_all) {
    return of_all ? of_all.Take(blocks.expert).Unsqueeze(1) : of_all;
  };
  const Tensor gate = Project(own, w.gate.Of(blocks.expert), bias(w.gate_bias)),
               up = Project(own, w.up.Of(blocks.expert), bias(w.up_bias));
  const Tensor down = Project(Gated(gate, up), w.down.Of(blocks.expert), bias(w.down_bias));
  const Tensor results = down.Flatten(0, 1).Take(blocks.row);  // [T, used, dim]
  const Tensor y = (results * routes.shares.Unsqueeze(-1)).Sum({1});
  if (!w.shared_gate) return y;
  const Tensor shared = Project(Gated(Project(rows, w.shared_gate, w.shared_gate_bias),
                                      Project(rows, w.shared_up, w.shared_up_bias)),
                                w.shared_down, w.shared_down_bias);
  return y + (w.shared_share ? shared * Project(x, w.shared_share).Sigmoid() : shared);
}

Tensor Transformer::Normed(const Tensor& x, const Tensor& norm, const Tensor& bias) const {
  const ModelConfig& c = model_.config;
  if (!norm) return x;
  const bool centred = ArchitectureNamed(c.architecture)->centred;
  return centred ? x.LayerNorm(norm, bias, c.norm_eps) : x.RmsNorm(norm, c.norm_eps);
}

Tensor Transformer::Hidden(const Tensor& tokens, Parts parts) const {
  const ModelConfig& c = model_.config;
  const auto added = [&](const Tensor& x, const Tensor& t, const Tensor& norm) {
    return x + Scaled(Normed(t, norm), c.residual_scale);
  };
  const bool parallel = ArchitectureNamed(c.architecture)->parallel;
  const Matrix& embedding = model_.embedding;
  Tensor x = Values(embedding.stored.Take(tokens), embedding.format);
  if (embedding.scale) x = x * embedding.scale;
  x = Scaled(x, c.embedding_scale);
  if (c.streams > 0) return HiddenOfStreams(x, tokens, parts);
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const LayerWeights& w = model_.layers[i];
    const Tensor read = Normed(x, w.attention_norm, w.attention_norm_bias);
    const Tensor mixed = c.Remembers(i)   ? Memory(i, read, parts)
                         : c.Convolves(i) ? Convolution(i, read, parts)
                                          : Attention(i, read, parts);
    x = added(x, mixed, w.attention_post_norm);
    const Tensor y = parallel ? read : Normed(x, w.ffn_norm, w.ffn_norm_bias);
    x = added(x, w.router ? Mixture(w, y) : FeedForward(i, y), w.ffn_post_norm);
  }
  return Normed(x, model_.norm, model_.norm_bias);
}

Tensor Transformer::Logits(const Tensor& hidden) const {
  const ModelConfig& c = model_.config;
  const Tensor logits = Scaled(Project(hidden, model_.output, model_.output_bias), c.logit_scale);
  return Capped(logits, c.logit_cap).To(model_.division.logits);
}

}  // namespace tessera::llm
