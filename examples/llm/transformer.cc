// The parts of the decoder, each a few lines; positions are symbolic, so one capture serves all.
#include "examples/llm/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
    return among({&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down});
  });
}

}  // namespace

Transformer::Transformer(const Model& model, int64_t context, DType cache, Activations activations)
    : model_(model),
      context_(context),
      rounds_(
          activations != Activations::kF32 && AnyIntegers(model) &&
          (activations == Activations::kInt8 || model.division.whole.places()[0].kind() == "CPU")),
      narrows_(activations == Activations::kBf16) {
  const ModelConfig& c = model.config;
  const int64_t half = c.head_dim / 2;
  std::vector<float> cos(context * half), sin(context * half);
  for (int64_t i = 0; i < half; ++i) {
    double frequency = std::pow(c.rope_base, -static_cast<double>(2 * i) / c.head_dim);
    if (!c.rope_divisors.empty()) frequency /= c.rope_divisors[i];
    for (int64_t p = 0; p < context; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos[p * half + i] = static_cast<float>(std::cos(angle) * c.rope_magnitude);
      sin[p * half + i] = static_cast<float>(std::sin(angle) * c.rope_magnitude);
    }
  }
  cos_ = Tensor::From(cos, {context, half}, model.division.whole).Realize();
  sin_ = Tensor::From(sin, {context, half}, model.division.whole).Realize();
  const Device by_heads = model.division.heads;
  const Dims shape = {model.division.kv_heads, context, c.head_dim};
  // Without contents: a position is written in the step that first sees it, so memory is touched
  // only as far as texts reach.
  for (int64_t i = 0; i < c.layers; ++i) {
    caches_.push_back(
        {Tensor::Empty(shape, cache, by_heads), Tensor::Empty(shape, cache, by_heads)});
  }
}

uint64_t Transformer::cache_bytes() const {
  uint64_t sum = 0;
  for (const Cache& c : caches_) {
    sum += 2 * static_cast<uint64_t>(c.keys.elements() * c.keys.dtype().bytes());
  }
  return sum;
}

bool Transformer::ByIntegers(const Matrix& weight) const {
  return rounds_ && HasIntegers(weight.format);
}

bool Transformer::ByBf16(const Matrix& weight, int64_t rows) const {
  const bool blocks = InfoOf(weight.format).block_elements > 1;
  return narrows_ && rows >= kManyRows && (blocks || weight.format == WeightFormat::kBF16);
}

// What is multiplied by numbers of a dtype.
Tensor Transformer::RoundedBeside(const Tensor& x, DType dtype) const {
  constexpr double kGreatest = 65504;  // of f16: a product that is off is better than one of inf
  if (!rounds_ || dtype != kFloat16) return x;
  return x.Clamp(-kGreatest, kGreatest).Cast(dtype).Cast(kFloat32);
}

Transformer::Rows Transformer::RowsFor(const Tensor& x, absl::Span<const Matrix> weights) const {
  Rows out{x, {}, {}};
  for (const Matrix& w : weights) {
    if (ByBf16(w, x.size(0))) {
      if (!out.bf16) out.bf16 = x.Cast(kBFloat16).Contiguous();
    } else if (ByIntegers(w) && !out.rounded) {
      out.rounded = Quantise(x);
    }
  }
  return out;
}

Tensor Transformer::Project(const Rows& x, const Matrix& weight, const Tensor& bias) const {
  if (ByBf16(weight, x.values.size(0))) {
    return x.bf16.Cast(kFloat32).Linear(weight.values().Cast(kBFloat16).Cast(kFloat32), bias);
  }
  if (!ByIntegers(weight)) {
    return RoundedBeside(x.values, weight.stored.dtype()).Linear(weight.values(), bias);
  }
  const Tensor y = Product(x.rounded, Integers(weight.stored, weight.format));
  return bias ? y + bias : y;
}

Tensor Transformer::Project(const Tensor& x, const Matrix& weight, const Tensor& bias) const {
  return Project(RowsFor(x, {weight}), weight, bias);
}

// Rotary positions of [T, heads, head_dim]: each pair of elements turns by its angle.
Tensor Transformer::Rotate(const Tensor& x, const Extent& position) const {
  const int64_t tokens = x.size(0), half = model_.config.head_dim / 2;
  const Slice here{position, position + tokens};
  const Tensor cos = cos_.SliceAxis(0, here).Unsqueeze(1),
               sin = sin_.SliceAxis(0, here).Unsqueeze(1);
  if (model_.config.rope_interleaved) {
    const Tensor pairs = x.Unflatten(-1, {half, 2});
    const Tensor a = pairs.Select(-1, 0), b = pairs.Select(-1, 1);
    return Stack({a * cos - b * sin, b * cos + a * sin}, -1).Flatten(-2);
  }
  const Tensor a = x.SliceAxis(-1, {0, half}), b = x.SliceAxis(-1, {half, 2 * half});
  return Cat({a * cos - b * sin, b * cos + a * sin}, -1);
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

Tensor Transformer::Attention(size_t layer, const Tensor& x, const Extent& position) {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  Cache& cache = caches_[layer];
  const int64_t window = c.WindowOf(layer);
  const int64_t kv_heads = model_.division.kv_heads;
  const int64_t tokens = x.size(0), group = c.heads / kv_heads;
  const Rows input = RowsFor(x, {w.q, w.k, w.v});
  Tensor q = Project(input, w.q, w.q_bias).Reshape({tokens, c.heads, c.head_dim});
  Tensor k = Project(input, w.k, w.k_bias).Reshape({tokens, kv_heads, c.head_dim});
  const Tensor v = Project(input, w.v, w.v_bias).Reshape({tokens, kv_heads, c.head_dim});
  if (w.q_norm) q = q.RmsNorm(w.q_norm, c.norm_eps);
  if (w.k_norm) k = k.RmsNorm(w.k_norm, c.norm_eps);
  const Slice here{position, position + tokens};
  const auto store = [&](Tensor& kept, const Tensor& t) {
    kept.SliceAxis(1, here).Assign(t.Permute({1, 0, 2}).Cast(kept.dtype()));
  };
  store(cache.keys, Rotate(k, position));
  store(cache.values, v);
  // Read as they are kept: the cast is part of the products' kernels.
  const Pairs seen = {
      {0, kv_heads}, {FirstSeen(window, position), position + tokens}, {0, c.head_dim}};
  const Tensor keys = cache.keys.Shrink(seen).Cast(kFloat32);
  const Tensor values = cache.values.Shrink(seen).Cast(kFloat32);

  // Heads that share keys are rows of one product.
  const Tensor rows = RoundedBeside(Rotate(q, position), cache.keys.dtype())
                          .Reshape({tokens, kv_heads, group, c.head_dim})
                          .Permute({1, 2, 0, 3})
                          .Reshape({kv_heads, group * tokens, c.head_dim});
  Tensor scores = rows.MatMul(keys.Transpose()) * (1 / std::sqrt(static_cast<double>(c.head_dim)));
  if (tokens > 1) {
    const Shape flat = scores.shape();
    scores = Where(Mask(window, tokens, position),
                   scores.Reshape({kv_heads, group, tokens, keys.shape()[1]}),
                   -std::numeric_limits<float>::infinity())
                 .Reshape(flat);
  }
  const Tensor mixed = scores.Softmax().MatMul(values);
  return Project(mixed.Reshape({c.heads, tokens, c.head_dim})
                     .Permute({1, 0, 2})
                     .Reshape({tokens, c.heads * c.head_dim}),
                 w.o, w.o_bias);
}

Tensor Transformer::Hidden(const Tensor& tokens, const Extent& position) {
  const double eps = model_.config.norm_eps;
  Tensor x = Values(model_.embedding.stored.Take(tokens), model_.embedding.format);
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const LayerWeights& w = model_.layers[i];
    x = x + Attention(i, x.RmsNorm(w.attention_norm, eps), position);
    const Rows y = RowsFor(x.RmsNorm(w.ffn_norm, eps), {w.gate, w.up});
    const Tensor gate = Project(y, w.gate, w.gate_bias), up = Project(y, w.up, w.up_bias);
    x = x + Project(gate.Silu() * up, w.down, w.down_bias);
  }
  return x.RmsNorm(model_.norm, eps);
}

Tensor Transformer::Logits(const Tensor& hidden) const {
  return Project(hidden, model_.output, {}).To(model_.division.logits);
}

}  // namespace tessera::llm
