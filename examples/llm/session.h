// A model at work: tokens go in, logits come out, keys and values stay in the caches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "examples/llm/model.h"
#include "examples/llm/transformer.h"
#include "runtime/capture.h"

namespace tessera::llm {

struct SessionOptions {
  int64_t context = 0;  // positions; 0: what the model was trained for, at most 4096
  // Of keys and values; none: f32 for models in F32, and f16 for those stored in less.
  std::optional<DType> cache;
  // None: bf16 where a matrix unit takes it; else integers on CPUs, where their products are
  // several times as fast (of one row by Q8_0 up to 1.7 times, as far as memory follows); f32
  // elsewhere.
  std::optional<Activations> activations;
  const std::atomic<bool>* interrupted = nullptr;  // Ctrl-C: what feeds tokens throws Cancelled
};

class Session {
 public:
  // The model must outlive it; the session works where the model's parts are.
  Session(const Model& model, const SessionOptions& options);
  Session(const Session&) = delete;  // its captured steps know where it is
  Session& operator=(const Session&) = delete;

  // Runs the tokens at the next positions. There must be room, and at least one token.
  void Advance(absl::Span<const int32_t> tokens);
  // Of the last of them: the logits [vocabulary], which stay until the next call, and the first
  // token with the greatest (NaN is the least), which a GPU finds by itself.
  const float* Logits();
  int32_t Likeliest();
  // Both in one.
  const float* Feed(absl::Span<const int32_t> tokens) {
    Advance(tokens);
    return Logits();
  }
  // The same with the logits of every token, [tokens, vocabulary].
  std::vector<float> FeedForAll(absl::Span<const int32_t> tokens);

  int64_t position() const { return position_; }
  int64_t context() const { return transformer_.context(); }
  int64_t room() const { return context() - position_; }
  // Goes back to a position, from which the text may go on otherwise. Models with memories read
  // some of what is before it again, unless they were there at the end of one of the last prompts.
  void Rewind(int64_t position) { position_ = position; }
  uint64_t cache_bytes() const { return transformer_.cache_bytes(); }
  // What the kernels of one decode step are.
  std::string ExplainStep();

 private:
  // One captured step for a number of tokens. What is padded beyond the tokens is overwritten by
  // the positions that follow before anything sees it.
  struct Step {
    int64_t tokens;
    std::string position, row;  // names of its variables
    std::vector<int32_t> ids;   // what `input` reads
    Tensor input;
    Jit jit;
  };
  std::unique_ptr<Step> MakeStep(int64_t tokens, bool all);
  Step& StepFor(size_t tokens, bool all);
  void Run(Step& step, absl::Span<const int32_t> tokens);
  void RunAll(absl::Span<const int32_t> tokens);
  void Recall();
  void KeepMemories();
  void CheckInterrupted() const;

  const Model& model_;
  Transformer transformer_;
  Tensor logits_;                   // [vocabulary]
  Tensor likeliest_;                // [1], of logits that are not on a CPU
  std::vector<float> host_logits_;  // a copy of such
  Tensor all_logits_;               // [kAllTokens, vocabulary], made when first asked for
  std::vector<std::unique_ptr<Step>> steps_;
  std::unique_ptr<Step> all_;
  int64_t position_ = 0;
  // Of models with memories: the tokens at all positions, at which position memories are, and what
  // they were at some, in order.
  struct Kept {
    int64_t position;
    std::vector<Tensor> memories;
  };
  std::vector<int32_t> fed_;
  int64_t remembered_ = 0;
  std::vector<Kept> kept_;
  const std::atomic<bool>* interrupted_;
};

}  // namespace tessera::llm
