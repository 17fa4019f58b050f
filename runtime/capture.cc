// Jit: the steps that it has captured, and which of them a call is one of.
#include "runtime/capture.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "graph/status.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/captured_step.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Trace;

// Of one Jit; an extent that takes more values than these is better a Variable.
constexpr size_t kMaxCaptures = 64;

}  // namespace

struct Jit::Impl {
  Step step;
  std::mutex capturing;  // one thread at a time runs the step, which may ask for captures()
  mutable std::mutex mutex;
  std::vector<std::shared_ptr<CapturedStep>> captures;  // with the mutex held; last used last

  // The one for these inputs; nothing where there is none, or none that holds any more.
  std::shared_ptr<CapturedStep> Find(const std::vector<Tensor>& inputs) {
    std::shared_ptr<CapturedStep> found;  // what it holds dies after the lock
    std::lock_guard lock(mutex);
    const auto it = std::find_if(captures.begin(), captures.end(),
                                 [&](const auto& c) { return c->Fits(inputs); });
    if (it == captures.end()) return nullptr;
    found = *it;
    if (!found->IsCurrent()) {
      captures.erase(it);
      return nullptr;
    }
    std::rotate(it, it + 1, captures.end());
    return found;
  }

  std::shared_ptr<CapturedStep> FindOrCapture(const std::vector<Tensor>& inputs, CallSite at) {
    if (auto found = Find(inputs)) return found;
    std::lock_guard one(capturing);
    if (auto found = Find(inputs)) return found;
    auto made = std::make_shared<CapturedStep>(step, inputs, at);
    std::shared_ptr<CapturedStep> oldest;
    std::lock_guard lock(mutex);
    captures.push_back(made);
    if (captures.size() > kMaxCaptures) {
      oldest = std::move(captures.front());
      captures.erase(captures.begin());
    }
    return made;
  }
};

Jit::Jit(Erased step) : impl_(std::make_unique<Impl>()) { impl_->step = std::move(step.step); }
Jit::~Jit() = default;
Jit::Jit(Jit&&) noexcept = default;

int Jit::captures() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->captures.size());
}

std::vector<Tensor> Jit::operator()(const std::vector<Tensor>& inputs, const Bindings& values,
                                    CallSite at) {
  if (Trace::Current() != nullptr) {
    Call call("Jit", at);
    if (!values.empty()) {
      Fail(
          "inside a step that is being captured, Variables have no values yet; give them to the "
          "outer Jit");
    }
    return impl_->step(inputs);
  }
  {
    Call call("Jit", at);
    for (const Tensor& x : inputs) {
      if (!x) Fail("input ", &x - inputs.data(), " is empty: moved from, or never given a value");
    }
    std::vector<Tensor> pending;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& x = inputs[i];
      // Equal expressions are one node: as inputs they are tensors that may become unequal.
      const bool shared = x.uop().get()->refs.load() > 1;
      for (size_t j = 0; shared && j < i; ++j) {
        if (inputs[j].uop() == x.uop() && !inputs[j].Is(x)) x.MakeOwn();
      }
      if (x.uop().is(Op::kBuffer)) continue;
      for (const Extent& e : x.shape()) {
        if (e.is_int()) continue;
        Fail("input ", i, ", ", internal::Show(x), ", is as long as a variable says; pass what it ",
             "is a slice of, and take the slice within the step");
      }
      pending.push_back(x);
    }
    if (!pending.empty()) Tensor::Realize(absl::MakeSpan(pending), at);
  }
  const std::shared_ptr<CapturedStep> capture = impl_->FindOrCapture(inputs, at);
  Call call("Jit", at);
  return capture->Run(inputs, values);
}

Tensor Jit::One(const std::vector<Tensor>& inputs, const Bindings& values, CallSite at) {
  std::vector<Tensor> out = (*this)(inputs, values, at);
  Call call("Jit", at);
  if (out.size() != 1) Fail("the step has ", out.size(), " results, not one");
  return std::move(out[0]);
}

}  // namespace tessera
