#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/step_rules.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// Where numbers for tensors of a device lie: on each of its places.
Device OfNumbers(Device device) {
  return device.is_sharding() ? Device(Sharding(device.sharding().mesh())) : device;
}

// Memory of its own from the start, which the first step need not copy.
Tensor Filled(const Shape& shape, DType dtype, Device device, double x) {
  return Tensor::Empty(Dims(shape.ToExtents()), dtype, device).Assign(x).Realize();
}

void CheckSettable() {
  if (internal::Trace::Current() == nullptr) return;
  Fail("a captured step cannot set the rate, since that would run once; call it between steps, or ",
       "give it a schedule (runtime/learning_rate.h) before the first one");
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, OptimizerOptions options, CallSite at)
    : options_(std::move(options)),
      rate_(std::visit([](const auto& o) { return o.rate; }, options_)) {
  Call call("Optimizer", at);
  CheckOptions(options_);
  if (parameters.empty()) Fail("is given no parameters; name the tensors that it shall change");
  for (Tensor& p : parameters) Adopt(std::move(p));
}

void Optimizer::Adopt(Tensor value) {
  if (!value) Fail("parameter ", parameters_.size(), " is empty");
  for (const Parameter& other : parameters_) {
    if (other.value.Is(value)) Fail("the parameter ", Show(value), " is given twice");
  }
  value.Realize();
  value.RequireGrad();
  const Device device = OfNumbers(value.device());
  const auto known = std::find_if(shared_.begin(), shared_.end(),
                                  [&](const Shared& s) { return s.device == device; });
  const auto shared = static_cast<size_t>(known - shared_.begin());
  if (known == shared_.end()) {
    shared_.push_back({device, Filled(Shape(), kFloat64, device, rate_), {}});
  }
  Parameter p{value, {}, {}, shared};
  const Remembered remembered = WhatIsRemembered(options_);
  for (const double begin : remembered.tensors) {
    p.tensors.push_back(
        Filled(value.shape(), AccumulateType(value.dtype()), value.device(), begin));
  }
  for (const double begin : remembered.numbers) {
    p.numbers.push_back(Filled(Shape(), kFloat64, device, begin));
  }
  parameters_.push_back(std::move(p));
}

void Optimizer::Step(CallSite at) {
  Call call("Step", at);
  const auto has = [](const Parameter& p) { return static_cast<bool>(p.value.grad()); };
  if (std::none_of(parameters_.begin(), parameters_.end(), has)) {
    Fail("none of the ", parameters_.size(), " parameters has a gradient; call Backward() of a ",
         "loss that depends on them first");
  }
  NoGrad scope;
  std::vector<Tensor> changed;
  const auto change = [&](absl::Span<const Tensor> tensors) {
    changed.insert(changed.end(), tensors.begin(), tensors.end());
  };
  if (schedule_) {
    for (Shared& s : shared_) {
      s.rate.Assign(schedule_(s.step));
      s.step.Assign(s.step + 1);
      change({s.rate, s.step});
    }
  }
  for (Parameter& p : parameters_) {
    const Tensor gradient = p.value.grad();
    if (!gradient) continue;
    const DType wide = AccumulateType(p.value.dtype());
    const ParameterStep step{p.value.Cast(wide), gradient.Cast(wide), shared_[p.shared].rate,
                             p.tensors, p.numbers};
    p.value.Assign(Moved(options_, step).Cast(p.value.dtype()));
    p.value.ClearGrad();
    change({p.value});
    change(p.tensors);
    change(p.numbers);
  }
  if (internal::Trace::Current() == nullptr) Tensor::Realize(absl::MakeSpan(changed), at);
}

void Optimizer::SetRate(double rate, CallSite at) {
  Call call("SetRate", at);
  if (!(rate >= 0) || std::isinf(rate)) Fail("rate must be 0 or more and finite, not ", rate);
  CheckSettable();
  rate_ = rate;
  schedule_ = nullptr;
  for (Shared& s : shared_) s.rate.Assign(rate).Realize();
}

void Optimizer::SetRate(RateSchedule schedule, CallSite at) {
  Call call("SetRate", at);
  CheckSettable();
  if (!schedule) Fail("takes a schedule, not an empty one");
  schedule_ = std::move(schedule);
  for (Shared& s : shared_) {
    if (!s.step) s.step = Filled(Shape(), kFloat64, s.device, 0);
    s.step.Assign(0).Realize();
  }
}

double Optimizer::rate() const { return schedule_ ? schedule_(shared_[0].step).Item() : rate_; }

std::vector<Tensor> Optimizer::State() const {
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_) {
    out.insert(out.end(), p.tensors.begin(), p.tensors.end());
    out.insert(out.end(), p.numbers.begin(), p.numbers.end());
  }
  if (!schedule_) return out;
  for (const Shared& s : shared_) out.push_back(s.step);
  return out;
}

}  // namespace tessera
