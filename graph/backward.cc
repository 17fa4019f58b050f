// Marked tensors, and the gradients that Backward leaves in them.
#include <mutex>

#include "absl/container/flat_hash_set.h"
#include "graph/grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// The tensors that are marked, while they live.
struct Marked {
  std::mutex mutex;
  std::vector<std::weak_ptr<void>> states;
};
Marked& AllMarked() {
  static Marked& marked = *new Marked;
  return marked;
}

}  // namespace

Tensor& Tensor::RequireGrad(bool required) {
  Call call("RequireGrad", CallSite::Here());
  uop();
  if (required && !dtype().IsFloat()) Fail(Show(*this), " is not of a float dtype");
  Marked& marked = AllMarked();
  std::lock_guard lock(marked.mutex);
  std::erase_if(marked.states, [this](const std::weak_ptr<void>& w) {
    const std::shared_ptr<void> s = w.lock();
    return s == nullptr || s == state_;
  });
  if (required) marked.states.push_back(state_);
  state_->grad = nullptr;
  return *this;
}

Tensor Tensor::grad() const {
  Tensor out;
  out.state_ = state_ == nullptr ? nullptr : state_->grad;
  return out;
}

void Tensor::ClearGrad() {
  if (state_ != nullptr) state_->grad = nullptr;
}

void Tensor::Backward(CallSite at) const {
  Call call("Backward", at);
  absl::flat_hash_set<const Node*> reached;
  for (const UOp& u : TopoSort({&uop(), 1})) {
    reached.insert(u.get());
    if (const UOp computed = u.realized()) reached.insert(computed.get());
  }
  std::vector<Tensor> parameters;
  {
    Marked& marked = AllMarked();
    std::lock_guard lock(marked.mutex);
    for (const std::weak_ptr<void>& w : marked.states) {
      Tensor t;
      t.state_ = std::static_pointer_cast<State>(w.lock());
      // A step under capture takes in no tensor that it does not use.
      const internal::Trace* trace = internal::Trace::Current();
      if (trace != nullptr && t.state_ != nullptr && !trace->Knows(t.state_)) continue;
      if (t.state_ != nullptr && reached.contains(t.uop().get())) parameters.push_back(t);
    }
  }
  if (parameters.empty()) {
    Fail("the loss ", Show(*this), " depends on no tensor that is marked with RequireGrad");
  }
  const std::vector<Tensor> grads = Grad(*this, parameters, at);
  for (size_t i = 0; i < grads.size(); ++i) {
    std::shared_ptr<State>& sum = parameters[i].state_->grad;
    Tensor before;
    before.state_ = sum;
    sum = before ? (before + grads[i]).state_ : grads[i].state_;
  }
}

}  // namespace tessera
