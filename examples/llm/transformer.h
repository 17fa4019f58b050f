// The decoder: embedding, layers of attention and feed-forward, output, as Tensor expressions.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "examples/llm/model.h"
#include "graph/tensor.h"

namespace tessera::llm {

// As what products take activations.
// kF32: as they are.
// kInt8: in models with weights of integers in blocks as llama.cpp does, so that the text is the
// same: beside such weights as integers of eight bits in blocks of 32, beside f16 as f16.
// kBf16: a few rows as kInt8 on CPUs, on GPUs, to which rounding is more work, as kF32; many, as of
// a prompt, as bf16, which is nearer to f32, beside weights of integers (which are made bf16, too)
// and of bf16.
enum class Activations { kF32, kInt8, kBf16 };

// What is kept of a text in a layer.
struct Cache {
  Tensor keys, values;  // [kv_heads, context, head_dim]; of latent attention only `keys`, of
                        // convolutions what they read, [taps - 1 + context, dim], of memories
                        // what the last taps - 1 positions read, and the memory
};
// The same in all layers, of which some have none.
using Caches = std::vector<Cache>;

// The tensors of caches, in order; and caches that have others in the place of these.
std::vector<Tensor> TensorsOf(const Caches& caches);
Caches WithTensors(const Caches& caches, absl::Span<const Tensor> tensors);

// A text's rows of a step: its tokens at position, position + 1, ...; memories get the first
// `count` of them.
struct Part {
  Caches caches;
  int64_t tokens = 1;
  Extent position = 0, count = 1;
};
using Parts = absl::Span<const Part>;

// fn(part, own) of each part, one below another; own(t) is the part's rows of t.
template <typename Fn>
Tensor ForEachPart(Parts parts, Fn fn) {
  std::vector<Tensor> out;
  int64_t first = 0;
  for (const Part& part : parts) {
    const Slice here{first, first + part.tokens};
    const auto own = [&](const Tensor& t) { return parts.size() == 1 ? t : t.SliceAxis(0, here); };
    out.push_back(fn(part, own));
    first += part.tokens;
  }
  return out.size() == 1 ? out[0] : Cat(out, 0);
}
// Of what each position has, the rows of all parts' positions.
Tensor AtPositions(const Tensor& of_all, Parts parts);

class Transformer {
 public:
  // For texts of up to `context` positions, kept in this dtype. The model must outlive it.
  Transformer(const Model& model, int64_t context, DType cache, Activations activations);

  // Of a text that is yet to begin.
  Caches EmptyCaches() const;
  // The last hidden states [T, dim], normed, of tokens [T] (i32), those of the parts one after
  // another; writes their keys and values into the parts' caches.
  Tensor Hidden(const Tensor& tokens, Parts parts) const;
  // [..., vocabulary] of hidden states [..., dim], where the model's division wants them.
  Tensor Logits(const Tensor& hidden) const;

  int64_t context() const { return context_; }
  // What of caches is not kept of each position, but as it is after the last.
  std::vector<Tensor*> Memories(Caches& caches) const;

 private:
  // What several products share: as it is, and rounded where some of these weights want that; bf16
  // is there if the rows are many.
  struct Rows {
    Tensor values, bf16;
    RoundedRows rounded;
    Rows Take(const Tensor& index) const;  // some of [T, dim], of any shape
  };
  // The rotary positions of some layers.
  struct Angles {
    Tensor cos, sin;  // [context, turned / 2]
  };
  Rows RowsFor(const Tensor& x, absl::Span<const Matrix> weights) const;
  Tensor Project(const Rows& x, const Matrix& weight, const Tensor& bias = {}) const;
  Tensor Project(const Tensor& x, const Matrix& weight, const Tensor& bias = {}) const;
  bool ByIntegers(const Matrix& weight) const;
  bool MayBeBf16(const Matrix& weight) const;
  Tensor RoundedBeside(const Tensor& x, DType dtype) const;
  double ScoreScale() const;
  Cache EmptyCache(size_t layer) const;
  Tensor Attention(size_t layer, const Tensor& x, Parts parts) const;
  Tensor Attended(size_t layer, const Tensor& q, const Part& part) const;
  Tensor Memory(size_t layer, const Tensor& x, Parts parts) const;
  Tensor Convolution(size_t layer, const Tensor& x, Parts parts) const;
  Tensor LatentAttention(size_t layer, const Tensor& x, Parts parts) const;
  Tensor HiddenOfStreams(const Tensor& embedded, const Tensor& tokens, Parts parts) const;
  Tensor LayerInputs(const Tensor& embedded, const Tensor& tokens) const;
  std::vector<Tensor> StreamsAfter(size_t layer, const std::vector<Tensor>& streams,
                                   const Tensor& input, Parts parts) const;
  Tensor Seen(const Tensor& scores, int64_t window, int64_t tokens, const Extent& position) const;
  Tensor Mixed(const Tensor& scores, const Tensor& values, const Tensor& sinks) const;
  Tensor FeedForward(size_t layer, const Tensor& x) const;
  Tensor Mixture(const LayerWeights& w, const Tensor& x) const;
  Tensor Gated(const Tensor& gate, const Tensor& up) const;
  Tensor Activated(const Tensor& x) const;
  Tensor Normed(const Tensor& x, const Tensor& norm, const Tensor& bias = {}) const;
  Angles AnglesFor(double base, const std::vector<double>& divisors, double magnitude) const;
  Tensor Rotate(size_t layer, const Tensor& x, Parts parts) const;
  Extent FirstSeen(int64_t window, const Extent& position) const;
  Tensor Mask(int64_t window, int64_t tokens, const Extent& position) const;

  const Model& model_;
  int64_t context_;
  DType cache_;                   // of keys and values
  bool rounds_;                   // activations, as kInt8 says
  bool narrows_;                  // many rows, as kBf16 says
  Angles angles_, local_angles_;  // the latter of layers with a window, where those differ
  Tensor sharpness_;              // [context, 1, 1], of queries, where those of late positions are
};

}  // namespace tessera::llm
