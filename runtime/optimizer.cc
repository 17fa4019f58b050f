// An optimiser's groups, what it remembers of each parameter, and a step of all.
#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/kept_beside.h"
#include "runtime/step_rules.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Filled;
using internal::OfNumbers;
using internal::Show;

namespace {

void CheckSettable() {
  if (internal::Trace::Current() == nullptr) return;
  Fail("a captured step cannot set the rate, since that would run once; call it between steps, or ",
       "give it a schedule (runtime/learning_rate.h) before the first one");
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, OptimizerOptions options, CallSite at)
    : Optimizer({{std::move(parameters), std::move(options)}}, at) {}

Optimizer::Optimizer(std::vector<ParameterGroup> groups, CallSite at) {
  Call call("Optimizer", at);
  if (groups.empty()) Fail("is given no parameters; name the tensors that it shall change");
  std::vector<Tensor> all;
  for (const ParameterGroup& group : groups) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  internal::CheckParameters(all);
  for (ParameterGroup& group : groups) {
    CheckOptions(group.options);
    if (group.parameters.empty()) {
      Fail("is given no parameters in group ", groups_.size(), "; name the tensors that it shall ",
           "change");
    }
    groups_.push_back(
        {group.options, std::visit([](const auto& o) { return o.rate; }, group.options)});
    for (Tensor& p : group.parameters) Adopt(std::move(p), groups_.size() - 1);
  }
}

void Optimizer::Adopt(Tensor value, size_t group) {
  value.Realize();
  value.RequireGrad();
  const Device device = OfNumbers(value.device());
  const auto known = std::find_if(shared_.begin(), shared_.end(), [&](const Shared& s) {
    return s.device == device && s.group == group;
  });
  const auto shared = static_cast<size_t>(known - shared_.begin());
  if (known == shared_.end()) {
    shared_.push_back({group, device, Filled(Shape(), kFloat64, device, groups_[group].rate), {}});
  }
  Parameter p{value, {}, {}, shared};
  const Remembered remembered = WhatIsRemembered(groups_[group].options, value);
  const DType wide = AccumulateType(value.dtype());
  for (const double begin : remembered.tensors) {
    p.tensors.push_back(Filled(value.shape(), wide, value.device(), begin));
  }
  for (const int axis : remembered.means) {
    const Tensor like = value.Mean(axis, /*keepdim=*/true);
    p.tensors.push_back(Filled(like.shape(), wide, like.device(), 0));
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
  for (Shared& s : shared_) {
    const RateSchedule& schedule = groups_[s.group].schedule;
    if (!schedule) continue;
    s.rate.Assign(schedule(s.step));
    s.step.Assign(s.step + 1);
    change({s.rate, s.step});
  }
  for (Parameter& p : parameters_) {
    const Tensor gradient = p.value.grad();
    if (!gradient) continue;
    const DType wide = AccumulateType(p.value.dtype());
    const Shared& shared = shared_[p.shared];
    const ParameterStep step{p.value.Cast(wide), gradient.Cast(wide), shared.rate, p.tensors,
                             p.numbers};
    p.value.Assign(Moved(groups_[shared.group].options, step).Cast(p.value.dtype()));
    p.value.ClearGrad();
    change({p.value});
    change(p.tensors);
    change(p.numbers);
  }
  if (internal::Trace::Current() == nullptr) Tensor::Realize(absl::MakeSpan(changed), at);
}

void Optimizer::CheckGroup(size_t group) const {
  if (group >= groups_.size()) Fail("there is no group ", group, " of ", groups_.size());
}

void Optimizer::SetRate(double rate, CallSite at) {
  for (size_t i = 0; i < groups_.size(); ++i) SetRate(i, rate, at);
}

void Optimizer::SetRate(size_t group, double rate, CallSite at) {
  Call call("SetRate", at);
  CheckGroup(group);
  if (!(rate >= 0) || std::isinf(rate)) Fail("rate must be 0 or more and finite, not ", rate);
  CheckSettable();
  groups_[group].rate = rate;
  groups_[group].schedule = nullptr;
  for (Shared& s : shared_) {
    if (s.group == group) s.rate.Assign(rate).Realize();
  }
}

void Optimizer::SetRate(RateSchedule schedule, CallSite at) {
  for (size_t i = 0; i < groups_.size(); ++i) SetRate(i, schedule, at);
}

void Optimizer::SetRate(size_t group, RateSchedule schedule, CallSite at) {
  Call call("SetRate", at);
  CheckGroup(group);
  CheckSettable();
  if (!schedule) Fail("takes a schedule, not an empty one");
  groups_[group].schedule = std::move(schedule);
  for (Shared& s : shared_) {
    if (s.group != group) continue;
    if (!s.step) s.step = Filled(Shape(), kFloat64, s.device, 0);
    s.step.Assign(0).Realize();
  }
}

double Optimizer::rate(size_t group) const {
  Call call("rate", CallSite::Here());
  CheckGroup(group);
  const Group& g = groups_[group];
  if (!g.schedule) return g.rate;
  const auto of_group = std::find_if(shared_.begin(), shared_.end(),
                                     [&](const Shared& s) { return s.group == group; });
  return g.schedule(of_group->step).Item();
}

bool Optimizer::scheduled(size_t group) const {
  Call call("scheduled", CallSite::Here());
  CheckGroup(group);
  return static_cast<bool>(groups_[group].schedule);
}

std::vector<Tensor> Optimizer::State() const {
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_) {
    out.insert(out.end(), p.tensors.begin(), p.tensors.end());
    out.insert(out.end(), p.numbers.begin(), p.numbers.end());
  }
  for (const Shared& s : shared_) {
    if (groups_[s.group].schedule) out.push_back(s.step);
  }
  return out;
}

}  // namespace tessera
