// A model at work on one text, or on several side by side: tokens go in, logits come out, keys and
// values stay in the caches.
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
  int64_t texts = 1;                               // side by side, each with caches of its own
  int64_t guesses = 0;                             // most that are checked in a step
  const std::atomic<bool>* interrupted = nullptr;  // Ctrl-C: what feeds tokens throws Cancelled
};

class Session {
 public:
  // The model must outlive it; the session works where the model's parts are.
  Session(const Model& model, const SessionOptions& options);
  Session(const Session&) = delete;  // its captured steps know where it is
  Session& operator=(const Session&) = delete;

  // Runs the tokens at a text's next positions. There must be room, and at least one token.
  void Advance(absl::Span<const int32_t> tokens, int64_t text = 0);
  // The same with as many of the tokens as one step takes, of which it gives the number.
  size_t AdvanceSome(absl::Span<const int32_t> tokens, int64_t text = 0);
  // One token more of each of several texts, as one step: the weights are read once for all.
  struct Next {
    int64_t text;
    int32_t token;
  };
  void AdvanceTogether(absl::Span<const Next> next);
  // A text's next token and guesses of what follows it, as one step that tells of each what comes
  // after it: Rewind leaves those behind that were wrong.
  void AdvanceGuessing(absl::Span<const int32_t> tokens, int64_t text = 0);
  // How many may be guessed there now: what is after them must have room, too, and memories know no
  // way back.
  int64_t MostGuesses(int64_t text = 0) const;
  // Of the last token, or of one of those that went on together or guessing: the logits
  // [vocabulary], which stay until the next call, and the first token with the greatest (NaN is the
  // least), which a GPU finds by itself.
  const float* Logits(size_t which = 0);
  int32_t Likeliest(size_t which = 0);
  // Advances, and gives the logits.
  const float* Feed(absl::Span<const int32_t> tokens) {
    Advance(tokens);
    return Logits();
  }
  // The same with the logits of every token, [tokens, vocabulary].
  std::vector<float> FeedForAll(absl::Span<const int32_t> tokens);

  int64_t texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t context() const { return transformer_.context(); }  // of each
  int64_t position(int64_t text = 0) const { return texts_[text].position; }
  int64_t room(int64_t text = 0) const { return context() - position(text); }
  // Goes back to a position, from which the text may go on otherwise. Models with memories read
  // some of what is before it again, unless they were there at the end of one of the last prompts.
  void Rewind(int64_t position, int64_t text = 0) { texts_[text].position = position; }
  uint64_t cache_bytes() const;
  // What the kernels of one decode step are.
  std::string ExplainStep();

 private:
  struct Text {
    Caches caches;
    int64_t position = 0;
    // Of models with memories: the tokens at all positions, at which position memories are, and
    // what they were at some, in order.
    struct Kept {
      int64_t position;
      std::vector<Tensor> memories;
    };
    std::vector<int32_t> fed = {};
    int64_t remembered = 0;
    std::vector<Kept> kept = {};
  };
  // Whose logits: texts' last tokens, each of a few, or each of many.
  enum class Gives { kLast, kEach, kAll };
  // One captured step of so many texts, for a number of tokens of each, whichever texts they are:
  // their caches are inputs. What is padded beyond the tokens is overwritten by the positions that
  // follow before anything sees it.
  struct Step {
    size_t texts;
    int64_t tokens;
    Gives gives;
    std::vector<std::string> positions;  // names of its variables
    std::string row;
    std::vector<int32_t> ids;  // what `input` reads
    Tensor input;
    Jit jit;
  };
  // What steps give, of so many rows at most.
  struct Given {
    Tensor logits;                        // [rows, vocabulary]
    Tensor likeliest = {};                // [rows], of logits that are not on a CPU
    std::vector<float> host_logits = {};  // copies of such, once asked for
    std::vector<int32_t> host_likeliest = {};
  };
  Given Room(int64_t rows) const;
  std::unique_ptr<Step> MakeStep(size_t texts, int64_t tokens, Gives gives);
  Step& StepFor(size_t tokens, const Text& text);
  Step& StepOf(size_t texts, int64_t tokens, Gives gives = Gives::kLast);
  Step& StepForAll();
  void Run(Step& step, absl::Span<const int32_t> tokens, absl::Span<Text* const> texts);
  size_t RunSome(absl::Span<const int32_t> tokens, Text& text);
  void Recall(Text& text);
  void KeepMemories(Text& text);
  void CheckInterrupted() const;

  const Model& model_;
  Transformer transformer_;
  std::vector<Text> texts_;
  const int64_t guesses_;
  Given last_, each_;
  Given* given_ = &last_;  // by the last step
  Tensor all_logits_;      // [kAllTokens, vocabulary], made when first asked for
  std::vector<std::unique_ptr<Step>> steps_;
  std::unique_ptr<Step> all_;
  const std::atomic<bool>* interrupted_;
};

}  // namespace tessera::llm
