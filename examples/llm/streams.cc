// Hidden states of several streams, of which layers read one and correct all (Gemma 3n's
// alternating updates), with an embedding of its own for each layer and a narrow way past
// attention.
#include <cmath>

#include "examples/llm/transformer.h"

namespace tessera::llm {
namespace {

const double kHalf = std::sqrt(0.5);

Tensor MeanSquare(const Tensor& x) { return x.Square().Mean({-1}, /*keepdim=*/true); }

// As long as `length` says, the root of a mean square.
Tensor AsLong(const Tensor& x, const Tensor& length) {
  constexpr double kLeast = 1e-5;
  return x * length / MeanSquare(x).Maximum(kLeast).Sqrt();
}

Matrix Nth(const Matrix& of_all, int64_t i) {
  return {of_all.stored.Select(0, i), of_all.format,
          of_all.scale ? of_all.scale.Select(0, i).Flatten() : of_all.scale};
}

}  // namespace

// [T, layers, layer_embedding]: of the token's own, and of its embedding.
Tensor Transformer::LayerInputs(const Tensor& embedded, const Tensor& tokens) const {
  const ModelConfig& c = model_.config;
  const Matrix& own = model_.layer_embedding;
  const int64_t all = embedded.size(0);
  Tensor rows = tokens;
  if (c.layer_vocabulary < c.vocabulary) rows = Where(tokens < c.layer_vocabulary, tokens, 0);
  Tensor of_tokens = Values(own.stored.Take(rows), own.format);
  if (own.scale) of_tokens = of_tokens * own.scale;
  of_tokens = of_tokens * std::sqrt(static_cast<double>(c.layer_embedding));
  const Tensor made =
      Project(embedded, model_.layer_projection) * (1 / std::sqrt(static_cast<double>(c.dim)));
  const auto by_layer = [&](const Tensor& t) {
    return t.Reshape({all, c.layers, c.layer_embedding});
  };
  const Tensor normed = by_layer(made).RmsNorm(model_.layer_projection_norm, c.norm_eps);
  return ((normed + by_layer(of_tokens)) * kHalf).Contiguous();
}

// A layer reads what it expects of the active stream; how far its result is from that corrects all.
std::vector<Tensor> Transformer::StreamsAfter(size_t layer, const std::vector<Tensor>& streams,
                                              const Tensor& input, Parts parts) const {
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const size_t n = streams.size(), active = static_cast<size_t>(c.active_stream);
  const auto normed = [&](const Tensor& x, const Tensor& norm) {
    return x.RmsNorm(norm, c.norm_eps);
  };
  const auto routed = [&](const Tensor& x) {  // [T, n]
    const Tensor read = normed(x, w.stream_norm) * (1 / static_cast<double>(c.dim));
    return Project(read, w.stream_router).Tanh();
  };
  const auto column = [](const Tensor& of_all, size_t i) {
    const int64_t at = static_cast<int64_t>(i);
    return of_all.SliceAxis(-1, {at, at + 1});
  };
  const Tensor expects = Project(routed(streams[active]), w.stream_predict);  // [T, n * n]
  std::vector<Tensor> expected;
  for (size_t k = 0; k < n; ++k) {
    Tensor sum = streams[k];
    for (size_t j = 0; j < n; ++j) sum = sum + streams[j] * column(expects, k * n + j);
    expected.push_back(sum.Contiguous());
  }
  const Tensor& x = expected[active];
  const Tensor read = normed(x, w.attention_norm);
  const Tensor past =
      read + normed(Project(Project(read, w.detour_in), w.detour_out), w.detour_norm);
  const Tensor mixed = normed(Attention(layer, read, parts), w.attention_post_norm);
  const Tensor between = (x + mixed + past) * kHalf;
  const Tensor fed = FeedForward(layer, normed(between, w.ffn_norm));
  const Tensor result = (between + normed(fed, w.ffn_post_norm)).Contiguous();

  const Tensor shares = Project(routed(result), w.stream_correct) + 1;  // [T, n]
  const Tensor news = result - x;
  std::vector<Tensor> out;
  for (size_t k = 0; k < n; ++k) out.push_back(expected[k] + news * column(shares, k));
  const Tensor first = c.stream_scaled ? out[active] * w.stream_scale : out[active];
  const Tensor gated = Activated(Project(first, w.layer_gate)) * input;
  const Tensor own = normed(Project(gated, w.layer_up), w.layer_norm);
  for (size_t k = 0; k < n; ++k) out[k] = (k == 0 ? out[k] : out[k] + own).Contiguous();
  return out;
}

Tensor Transformer::HiddenOfStreams(const Tensor& embedded, const Tensor& tokens,
                                    Parts parts) const {
  const ModelConfig& c = model_.config;
  const Tensor inputs = LayerInputs(embedded, tokens);
  std::vector<Tensor> streams = {embedded};
  const Tensor length = MeanSquare(embedded).Sqrt();
  for (int64_t i = 1; i < c.streams; ++i) {
    streams.push_back(AsLong(Project(embedded, Nth(model_.streams_in, i - 1)), length));
  }
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    streams = StreamsAfter(i, streams, inputs.Select(1, static_cast<int64_t>(i)), parts);
  }
  const Tensor last = MeanSquare(streams[0]).Sqrt();
  Tensor sum = streams[0];
  for (int64_t i = 1; i < c.streams; ++i) {
    const Matrix back = Nth(model_.streams_out, i - 1);
    sum = sum + AsLong(Project(streams[static_cast<size_t>(i)], back), last);
  }
  return Normed(sum * (1 / static_cast<double>(c.streams)), model_.norm);
}

}  // namespace tessera::llm
