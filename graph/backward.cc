// Marked tensors, and the gradients that Backward leaves in them.
#include <atomic>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/buffer.h"
#include "graph/grad.h"
#include "graph/history.h"
#include "graph/sample.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// The tensors that are marked, while they live. Nothing dies while the mutex is held: what frees
// its memory may be a function of the user's, which may ask for gradients itself.
struct Marked {
  std::mutex mutex;
  absl::flat_hash_map<const void*, std::weak_ptr<void>> states;
  size_t after_sweep = 0;

  // Forgets those that have died; seldom, so that marking stays cheap.
  void Sweep() {
    if (states.size() < 2 * after_sweep + 64) return;
    absl::erase_if(states, [](const auto& entry) { return entry.second.expired(); });
    after_sweep = states.size();
  }
};
Marked& AllMarked() {
  static Marked& marked = *new Marked;
  return marked;
}

// Whether another tensor may have this node as its value: equal expressions are one node, and so
// is the buffer that they were computed into.
bool MayBeShared(const UOp& value) {
  if (!value.is(Op::kBuffer)) return true;
  const Buffer& buffer = *value.arg<BufferArg>().buffer;
  const bool computed = buffer.history != nullptr || !buffer.computed_from.empty();
  return computed && value.get()->refs.load() > 1;
}

}  // namespace

void internal::ReplaceValue(UOp& of_tensor, UOp value) {
  Marked& marked = AllMarked();
  std::lock_guard lock(marked.mutex);
  std::swap(of_tensor, value);  // the old one dies without the lock
}

UOp internal::ValueNow(const Tensor& tensor) {
  std::lock_guard lock(AllMarked().mutex);
  return tensor.uop();
}

void Tensor::MakeOwn() const {
  static std::atomic<int64_t> last{0};
  const UOp u = internal::Current(uop());
  if (state_->base != nullptr || u.is(Op::kAssign)) return;
  SetUOp(UOp::Make(Op::kMark, {u}, ++last));
  state_->own = true;
}

Tensor& Tensor::RequireGrad(bool required) {
  Call call("RequireGrad", CallSite::Here(), *this);
  uop();
  if (required && !dtype().IsFloat()) Fail(Show(*this), " is not of a float dtype");
  const bool may_be_shared = internal::Trace::Owns(*this) && !state_->own && MayBeShared(uop());
  if (required && may_be_shared) MakeOwn();
  const std::shared_ptr<State> before = std::exchange(state_->grad, nullptr);
  Marked& marked = AllMarked();
  std::lock_guard lock(marked.mutex);
  if (required) {
    marked.states[state_.get()] = state_;
    marked.Sweep();
  } else {
    marked.states.erase(state_.get());
  }
  return *this;
}

std::vector<Tensor> Tensor::AllRequiringGrad() {
  std::vector<Tensor> out;
  {
    Marked& marked = AllMarked();
    std::lock_guard lock(marked.mutex);
    for (const auto& [key, weak] : marked.states) {
      out.emplace_back().state_ = std::static_pointer_cast<State>(weak.lock());
    }
  }
  // A step under capture takes in no tensor that it does not use.
  const internal::Trace* trace = internal::Trace::Current();
  std::erase_if(out, [&](const Tensor& t) {
    return t.state_ == nullptr || (trace != nullptr && !trace->Knows(t.state_));
  });
  return out;
}

Tensor Tensor::grad() const {
  Tensor out;
  out.state_ = state_ == nullptr ? nullptr : GradNow(/*replaced=*/false);
  return out;
}

void Tensor::ClearGrad() {
  if (state_ != nullptr) GradNow(/*replaced=*/true) = nullptr;
}

std::shared_ptr<Tensor::State>& Tensor::GradNow(bool replaced) const {
  internal::Trace* trace = internal::Trace::Current();
  return trace == nullptr ? state_->grad : trace->GradOf(state_, replaced);
}

void Tensor::Backward(CallSite at) const {
  Call call("Backward", at, *this);
  if (internal::FunctionScope::Current() != 0) {
    Fail("a function under Vmap, Jvp or the like leaves no gradients behind; return those of Grad");
  }
  absl::flat_hash_set<const Node*> reached;
  const UOp loss = WithHistory(uop());
  for (const UOp& u : TopoSort({&loss, 1})) {
    reached.insert(u.get());
    if (const UOp computed = u.realized()) reached.insert(computed.get());
  }
  std::vector<Tensor> parameters = AllRequiringGrad();
  std::erase_if(parameters,
                [&](const Tensor& t) { return !reached.contains(internal::ValueNow(t).get()); });
  if (parameters.empty()) {
    Fail(
        "the loss ", Show(*this),
        " depends on no tensor that is marked with RequireGrad, as it is ",
        "now; if one was assigned to since, call Backward before, and if a captured step made the ",
        "loss, within it");
  }
  const std::vector<Tensor> grads = Grad(Tensor(loss), parameters, at);
  for (size_t i = 0; i < grads.size(); ++i) {
    Tensor before = parameters[i].grad();
    const internal::Trace* trace = internal::Trace::Current();
    if (before && trace != nullptr && before.state_->trace != trace->id()) {
      before.Assign(before + grads[i]);  // at each call
    } else {
      parameters[i].GradNow(/*replaced=*/true) =
          before ? (before + grads[i]).state_ : grads[i].state_;
    }
  }
}

}  // namespace tessera
