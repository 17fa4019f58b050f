// A model loaded from files: configuration, tokenizer, and weights as they are stored.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/llm/config.h"
#include "examples/llm/quant.h"
#include "examples/llm/tokenizer.h"
#include "graph/tensor.h"

namespace tessera::llm {

// A matrix as it is stored, [rows, columns] of values, or one for each expert, [experts, ...].
struct Matrix {
  Tensor stored;
  WeightFormat format = WeightFormat::kF32;
  Tensor scale = {};  // of its products: [1], or [experts, 1, 1]; none: they are as they are
  std::shared_ptr<const Blocks> panels = {};  // copies for several rows (panels.h), or none
  explicit operator bool() const { return static_cast<bool>(stored); }
  Tensor values() const { return Values(stored, format); }
  // Those of the experts that `index` names, one axis.
  Matrix Of(const Tensor& index) const {
    return {stored.Take(index), format, scale ? scale.Take(index) : scale};
  }
};

// Empty is what the model has not. With a router gate, up and down are the experts'.
struct LayerWeights {
  Tensor attention_norm, ffn_norm;  // of what is read
  Tensor attention_norm_bias, ffn_norm_bias;
  Tensor attention_post_norm, ffn_post_norm;  // of what is added
  Matrix q, k, v, o;  // q with a gate after each head, where memories are among the layers
  Tensor q_bias, k_bias, v_bias, o_bias;
  Tensor q_norm, k_norm;  // of all heads alike, or of each, one after the other, or of q_down's and
                          // kv_down's results
  // Of latent attention: q_down makes what q makes queries of, kv_down what is kept of a position;
  // k_up and v_up are a matrix for each head, and make of that, or of queries for it, as long ones.
  Matrix q_down, kv_down, k_up, v_up;
  Tensor sinks;  // of each head: a score that counts among those of its keys
  // Of a convolution in place of attention: what it reads is conv_in times conv_gate, and its
  // result times conv_out_gate is what conv_out reads.
  Matrix conv_in, conv_gate, conv_out_gate, conv_out;
  Tensor conv_taps;  // [taps, dim]: what the last positions count, the last one last
  // Of a memory in place of attention.
  Matrix memory_q, memory_k, memory_v, memory_gate, memory_write, memory_keep, memory_out;
  Tensor memory_taps;       // [taps, 2 keys + values], as conv_taps
  Tensor memory_keep_bias;  // of each head of values
  Tensor memory_rate;       // of each, below 0: of how fast it forgets
  Tensor memory_norm;       // of each head's results
  // Of streams of hidden states (see streams.cc).
  Matrix detour_in, detour_out, stream_router, stream_predict, stream_correct, layer_gate, layer_up;
  Tensor detour_norm, stream_norm, stream_scale, layer_norm;
  Matrix gate, up, down;
  Tensor gate_bias, up_bias, down_bias;
  Matrix router;
  Tensor router_bias;
  Tensor choice_bias;  // of each expert, where experts are chosen; not in what they count
  Matrix shared_gate, shared_up, shared_down;
  Tensor shared_gate_bias, shared_up_bias, shared_down_bias;
  Matrix shared_share;  // of one row: what the shared expert counts, by a sigmoid
};
// All of them by their names.
inline constexpr std::pair<const char*, Matrix LayerWeights::*> kMatrices[] = {
    {"q", &LayerWeights::q},
    {"k", &LayerWeights::k},
    {"v", &LayerWeights::v},
    {"o", &LayerWeights::o},
    {"q down", &LayerWeights::q_down},
    {"kv down", &LayerWeights::kv_down},
    {"k up", &LayerWeights::k_up},
    {"v up", &LayerWeights::v_up},
    {"convolution in", &LayerWeights::conv_in},
    {"convolution gate", &LayerWeights::conv_gate},
    {"convolution out gate", &LayerWeights::conv_out_gate},
    {"convolution out", &LayerWeights::conv_out},
    {"memory q", &LayerWeights::memory_q},
    {"memory k", &LayerWeights::memory_k},
    {"memory v", &LayerWeights::memory_v},
    {"memory gate", &LayerWeights::memory_gate},
    {"memory write", &LayerWeights::memory_write},
    {"memory keep", &LayerWeights::memory_keep},
    {"memory out", &LayerWeights::memory_out},
    {"detour in", &LayerWeights::detour_in},
    {"detour out", &LayerWeights::detour_out},
    {"stream router", &LayerWeights::stream_router},
    {"stream predict", &LayerWeights::stream_predict},
    {"stream correct", &LayerWeights::stream_correct},
    {"layer gate", &LayerWeights::layer_gate},
    {"layer up", &LayerWeights::layer_up},
    {"gate", &LayerWeights::gate},
    {"up", &LayerWeights::up},
    {"down", &LayerWeights::down},
    {"router", &LayerWeights::router},
    {"shared gate", &LayerWeights::shared_gate},
    {"shared up", &LayerWeights::shared_up},
    {"shared down", &LayerWeights::shared_down},
    {"shared share", &LayerWeights::shared_share}};
inline constexpr Tensor LayerWeights::*kVectors[] = {&LayerWeights::attention_norm,
                                                     &LayerWeights::ffn_norm,
                                                     &LayerWeights::attention_post_norm,
                                                     &LayerWeights::ffn_post_norm,
                                                     &LayerWeights::q_bias,
                                                     &LayerWeights::k_bias,
                                                     &LayerWeights::v_bias,
                                                     &LayerWeights::o_bias,
                                                     &LayerWeights::q_norm,
                                                     &LayerWeights::k_norm,
                                                     &LayerWeights::gate_bias,
                                                     &LayerWeights::up_bias,
                                                     &LayerWeights::down_bias,
                                                     &LayerWeights::sinks,
                                                     &LayerWeights::router_bias,
                                                     &LayerWeights::choice_bias,
                                                     &LayerWeights::conv_taps,
                                                     &LayerWeights::memory_taps,
                                                     &LayerWeights::memory_keep_bias,
                                                     &LayerWeights::memory_rate,
                                                     &LayerWeights::memory_norm,
                                                     &LayerWeights::attention_norm_bias,
                                                     &LayerWeights::ffn_norm_bias,
                                                     &LayerWeights::shared_gate_bias,
                                                     &LayerWeights::shared_up_bias,
                                                     &LayerWeights::shared_down_bias,
                                                     &LayerWeights::detour_norm,
                                                     &LayerWeights::stream_norm,
                                                     &LayerWeights::stream_scale,
                                                     &LayerWeights::layer_norm};
static_assert(sizeof(LayerWeights) ==
                  std::size(kMatrices) * sizeof(Matrix) + std::size(kVectors) * sizeof(Tensor),
              "each weight is in one of the lists");

// Where the parts of a model are (examples/llm/parallel.h); on one place, all are there.
struct Division {
  Device whole = "CPU";            // what every place has all of: activations, norms, tables
  Device tokens = "CPU";           // where tokens are written
  Place logits = Place("CPU", 0);  // the one place that gets the logits
  Device heads = "CPU";            // the caches, [kv_heads, ...]
  int64_t kv_heads = 0;            // in the caches: those of the model, or each several times
};

struct Model {
  ModelConfig config;
  Division division;
  std::unique_ptr<const Tokenizer> tokenizer;
  Matrix embedding, output;  // the same one where they are tied
  Tensor norm, norm_bias, output_bias;
  // Of several streams: matrices of all but the first, and what all layers have of a token, side by
  // side.
  Matrix streams_in, streams_out, layer_embedding, layer_projection;
  Tensor layer_projection_norm;
  std::vector<LayerWeights> layers;
  // What a decode step reads: every matrix once, of experts those of one token, of the embedding
  // only rows unless it is tied.
  uint64_t bytes_read = 0;
  uint64_t bytes_stored = 0;
  std::string format;  // of most bytes
};

// Called with how many bytes are loaded, and of how many; false ends the loading.
using LoadProgress = std::function<bool(uint64_t done, uint64_t all)>;

// A GGUF file, or a folder with config.json, tokenizer.json and safetensors. Every error is one
// line that names the file and key, byte or tensor. With `progress` the weights are read from disk
// here, while the tokenizer is made, unless they are more than memory holds; else when first used.
absl::StatusOr<Model> LoadModel(const std::string& path, const LoadProgress& progress = {});
// The tokenizer alone: of a folder, of a GGUF file, which needs no weights, or a tokenizer.json of
// any name that ends so.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path);

// From what was read already (tests make models this way).
absl::StatusOr<Model> MakeModel(ModelConfig config, std::unique_ptr<const Tokenizer> tokenizer,
                                const WeightSet& weights, bool gguf_names, const std::string& file);

}  // namespace tessera::llm
