// What a step does while it is captured: the tensors it takes from outside, what it assigns to
// them, and how many random numbers it draws.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/tensor.h"

namespace tessera::internal {

// While one is open on a thread, that thread sees every tensor from outside as a placeholder: a
// BUFFER without storage, of its shape, dtype and device. What it assigns to such a tensor stays in
// the trace, so that a step that fails leaves nothing behind. A tensor without a device is made of
// constants alone and is seen as it is.
class Trace {
 public:
  Trace();  // opens on this thread, where none may be open
  ~Trace();
  Trace(const Trace&) = delete;
  static Trace* Current() { return current_; }
  // Whether this thread may replace the tensor's value by an equal one: under capture, of what the
  // step made.
  static bool Owns(const Tensor& t) {
    return current_ == nullptr || t.state_->trace == current_->id();
  }

  // An argument of the step: a tensor of the trace that stands for whatever is passed.
  Tensor AddInput(DType dtype, const Shape& shape, Device device);

  // One tensor from outside that the step used.
  class Captured {
   public:
    Tensor tensor() const;  // outside the trace
    const UOp& seen() const { return seen_; }
    bool is_placeholder() const { return is_placeholder_; }
    const UOp& value() const { return inside_.value; }  // after the step
    bool assigned() const { return !(inside_.value == seen_); }
    bool is_view() const { return inside_.base != nullptr; }
    // Of a view that the step assigned: the version of its base that it is a view of after it.
    const UOp& base_version() const { return inside_.base_version; }
    // Whether its value is the same as when the step saw it.
    bool unchanged() const { return outside_->value == seen_; }
    // Whether nothing but the capture still holds it.
    bool abandoned() const { return outside_.use_count() == 1; }
    // The value outside now; null of a moved or empty tensor.
    const UOp& now() const { return outside_->value; }
    // The gradient that the step leaves, if it is another tensor than before or none; and whether
    // what it found is what there is now.
    bool makes_gradient() const { return inside_.grad != start_grad_.lock(); }
    Tensor gradient() const;
    void SetGradient(const Tensor& t) const { outside_->grad = t.state_; }
    bool finds_gradient() const {
      return !saw_grad_ ||
             (had_grad_ == (outside_->grad != nullptr) && outside_->grad == start_grad_.lock());
    }
    // Drops what the step made; the graph need not live on.
    void Release() { inside_ = {}; }
    // What assigning to a view from outside leaves behind: its chain over the base's new value.
    Tensor base() const;
    void SetView(const UOp& base_value) const;

   private:
    friend class Trace;
    std::shared_ptr<Tensor::State> outside_;
    Tensor::State inside_;
    UOp seen_;
    bool is_placeholder_ = false;
    std::weak_ptr<Tensor::State> start_grad_;
    bool had_grad_ = false, saw_grad_ = false, set_grad_ = false;
  };
  const std::vector<std::shared_ptr<Captured>>& captured() const { return captured_; }

  // The counter and key of random numbers: the process's at the time of the replay.
  UOp RandomCounter(int64_t elements);
  UOp RandomSeed() const;
  int64_t drawn() const { return drawn_; }
  static constexpr const char* kCounterName = "@random_counter";
  static constexpr const char* kSeedName = "@random_seed";

  // How many tensors made by the step are held by others than these; they would never be computed.
  int Escaped(std::initializer_list<absl::Span<const Tensor>> held) const;

  // ---- for Tensor
  Tensor::State& See(const std::shared_ptr<Tensor::State>& state);
  void Born(const std::shared_ptr<Tensor::State>& state);
  std::shared_ptr<Tensor::State>& GradOf(const std::shared_ptr<Tensor::State>& state,
                                         bool replaced);
  uint64_t id() const { return id_; }
  // Whether a value is a placeholder that stands for another tensor than the one with this state:
  // Contiguous and views may make one of the same node, and what is written to that is its own.
  bool StandsForAnother(const UOp& value, const Tensor::State& state) const;
  // Whether the step has made or used it so far.
  bool Knows(const std::shared_ptr<Tensor::State>& state) const;

 private:
  static inline thread_local Trace* current_ = nullptr;
  static inline std::atomic<uint64_t> last_id_{0};
  const uint64_t id_;
  int64_t drawn_ = 0;
  std::vector<std::weak_ptr<Tensor::State>> born_;
  absl::flat_hash_map<const Node*, const Tensor::State*> inputs_;
  std::vector<std::shared_ptr<Captured>> captured_;
  absl::flat_hash_map<const Tensor::State*, Captured*> by_state_;
};

// The process's counter of random numbers, advanced by these elements, and its seed.
struct RandomState {
  uint64_t first = 0, seed = 0;
};
RandomState DrawRandom(int64_t elements);

}  // namespace tessera::internal
