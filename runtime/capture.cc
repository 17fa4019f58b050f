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
  mutable std::mutex mutex;
  std::vector<std::shared_ptr<CapturedStep>> captures;  // the last one used is the last
};

Jit::Jit(Erased step) : impl_(std::make_unique<Impl>()) { impl_->step = std::move(step.step); }
Jit::~Jit() = default;
Jit::Jit(Jit&&) noexcept = default;

void Jit::CheckArity(size_t takes, size_t given) {
  if (takes == given) return;
  throw Error(absl::InvalidArgumentError(
      absl::StrCat("Jit: the step takes ", takes, " tensors, and ", given, " are passed")));
}

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
    for (const Tensor& x : inputs) {
      if (!x.uop().is(Op::kBuffer)) pending.push_back(x);
    }
    if (!pending.empty()) Tensor::Realize(absl::MakeSpan(pending), at);
  }
  std::shared_ptr<CapturedStep> capture;
  {
    std::lock_guard lock(impl_->mutex);
    auto& all = impl_->captures;
    for (auto it = all.begin(); it != all.end(); ++it) {
      if (!(*it)->Fits(inputs)) continue;
      if ((*it)->IsCurrent()) {
        capture = *it;
        std::rotate(it, it + 1, all.end());
      } else {
        all.erase(it);
      }
      break;
    }
    if (capture == nullptr) {
      capture = std::make_shared<CapturedStep>(impl_->step, inputs, at);
      all.push_back(capture);
      if (all.size() > kMaxCaptures) all.erase(all.begin());
    }
  }
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
