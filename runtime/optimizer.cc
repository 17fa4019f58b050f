#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

void CheckNotNegative(double x, const char* what) {
  if (!(x >= 0) || std::isinf(x)) Fail(what, " must be 0 or more and finite, not ", x);
}

void CheckShare(double x, const char* what) {
  if (!(x >= 0 && x < 1)) Fail(what, " must be at least 0 and less than 1, not ", x);
}

void Check(const SgdOptions& o) {
  CheckNotNegative(o.rate, "rate");
  CheckNotNegative(o.weight_decay, "weight_decay");
  CheckShare(o.momentum, "momentum");
  if (o.nesterov && o.momentum == 0) Fail("nesterov needs a momentum; it is 0");
}

void Check(const AdamOptions& o) {
  CheckNotNegative(o.rate, "rate");
  CheckNotNegative(o.weight_decay, "weight_decay");
  CheckNotNegative(o.eps, "eps");
  CheckShare(o.beta1, "beta1");
  CheckShare(o.beta2, "beta2");
}

// Where numbers for tensors of a device lie: on each of its places.
Device OfNumbers(Device device) {
  return device.is_sharding() ? Device(Sharding(device.sharding().mesh())) : device;
}

// Memory of its own from the start, which the first step need not copy.
Tensor Filled(const Shape& shape, DType dtype, Device device, double x) {
  return Tensor::Empty(Dims(shape.ToExtents()), dtype, device).Assign(x).Realize();
}

// 1 - beta^steps, exact where beta is near 1.
Tensor Correction(double beta, const Tensor& steps) {
  return beta == 0 ? steps.OnesLike() : -(steps * std::log(beta)).Expm1();
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, std::variant<SgdOptions, AdamOptions> options,
                     CallSite at)
    : options_(options), rate_(std::visit([](const auto& o) { return o.rate; }, options)) {
  Call call("Optimizer", at);
  std::visit([](const auto& o) { Check(o); }, options_);
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
    shared_.push_back({device, Filled(Shape(), kFloat64, device, rate_)});
  }
  const auto zeros = [&] {
    return Filled(value.shape(), AccumulateType(value.dtype()), value.device(), 0);
  };
  const auto* sgd = std::get_if<SgdOptions>(&options_);
  Parameter p{value, {}, {}, {}, shared};
  if (sgd == nullptr || sgd->momentum != 0) p.first = zeros();
  if (sgd == nullptr) {
    p.second = zeros();
    p.steps = Filled(Shape(), kFloat64, device, 0);
  }
  parameters_.push_back(std::move(p));
}

// What becomes of x; what is remembered is assigned on the way.
Tensor Optimizer::Moved(const Parameter& p, const Tensor& x, const Tensor& gradient) {
  const Shared& s = shared_[p.shared];
  const Tensor rate = s.rate.Cast(x.dtype());
  Tensor first = p.first, second = p.second, steps = p.steps;  // the same tensors
  if (const auto* o = std::get_if<SgdOptions>(&options_)) {
    const Tensor g = o->weight_decay == 0 ? gradient : gradient + x * o->weight_decay;
    if (o->momentum == 0) return x - rate * g;
    first.Assign(first * o->momentum + g);
    return x - rate * (o->nesterov ? g + first * o->momentum : first);
  }
  const auto& o = std::get<AdamOptions>(options_);
  const bool decays = o.weight_decay != 0;
  const Tensor g = decays && o.coupled ? gradient + x * o.weight_decay : gradient;
  const Tensor kept = decays && !o.coupled ? x - x * (rate * o.weight_decay) : x;
  first.Assign(first * o.beta1 + g * (1 - o.beta1));
  second.Assign(second * o.beta2 + g * g * (1 - o.beta2));
  steps.Assign(steps + 1);
  const Tensor by = (s.rate / Correction(o.beta1, steps)).Cast(x.dtype());
  const Tensor root = Correction(o.beta2, steps).Sqrt().Cast(x.dtype());
  return kept - by * first / (second.Sqrt() / root + o.eps);
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
  for (Parameter& p : parameters_) {
    const Tensor gradient = p.value.grad();
    if (!gradient) continue;
    const DType wide = AccumulateType(p.value.dtype());
    p.value.Assign(Moved(p, p.value.Cast(wide), gradient.Cast(wide)).Cast(p.value.dtype()));
    p.value.ClearGrad();
    for (const Tensor& t : {p.value, p.first, p.second, p.steps}) {
      if (t) changed.push_back(t);
    }
  }
  if (internal::Trace::Current() == nullptr) Tensor::Realize(absl::MakeSpan(changed), at);
}

void Optimizer::SetRate(double rate, CallSite at) {
  Call call("SetRate", at);
  CheckNotNegative(rate, "rate");
  rate_ = rate;
  for (Shared& s : shared_) s.rate.Assign(rate).Realize();
}

std::vector<Tensor> Optimizer::State() const {
  std::vector<Tensor> out;
  for (const Parameter& p : parameters_) {
    for (const Tensor& t : {p.first, p.second, p.steps}) {
      if (t) out.push_back(t);
    }
  }
  return out;
}

}  // namespace tessera
