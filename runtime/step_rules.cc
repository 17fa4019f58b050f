// The rules, one after another: what each checks, remembers and does.
#include "runtime/step_rules.h"

#include <cmath>

#include "graph/tensor_internal.h"

namespace tessera {

using internal::Fail;

namespace {

void CheckNotNegative(double x, const char* what) {
  if (!(x >= 0) || std::isinf(x)) Fail(what, " must be 0 or more and finite, not ", x);
}

void CheckShare(double x, const char* what) {
  if (!(x >= 0 && x < 1)) Fail(what, " must be at least 0 and less than 1, not ", x);
}

// 1 - beta^steps, exact where beta is near 1.
Tensor Correction(double beta, const Tensor& steps) {
  return beta == 0 ? steps.OnesLike() : -(steps * std::log(beta)).Expm1();
}

// The gradient with a decay that is coupled, and the parameter after one that is not.
Tensor Decaying(const ParameterStep& s, double weight_decay) {
  return weight_decay == 0 ? s.gradient : s.gradient + s.x * weight_decay;
}
Tensor Decayed(const ParameterStep& s, double weight_decay) {
  return weight_decay == 0 ? s.x : s.x - s.x * (s.rate.Cast(s.x.dtype()) * weight_decay);
}

// A mean, after x has entered it.
Tensor Followed(Tensor mean, const Tensor& x, double beta) {
  return mean.Assign(mean * beta + x * (1 - beta));
}

// ---- each rule: what is checked, what is remembered, a step

void Check(const SgdOptions& o) {
  CheckShare(o.momentum, "momentum");
  if (o.nesterov && o.momentum == 0) Fail("nesterov needs a momentum; it is 0");
}
Remembered Begin(const SgdOptions& o) {
  if (o.momentum == 0) return {};
  return {{0}, {}};
}
Tensor Step(const SgdOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay), rate = s.rate.Cast(s.x.dtype());
  if (o.momentum == 0) return s.x - rate * g;
  Tensor v = s.tensors[0];
  v.Assign(v * o.momentum + g);
  return s.x - rate * (o.nesterov ? g + v * o.momentum : v);
}

template <typename Options>
void CheckBetas(const Options& o) {
  CheckShare(o.beta1, "beta1");
  CheckShare(o.beta2, "beta2");
}

void Check(const AdamOptions& o) {
  CheckBetas(o);
  CheckNotNegative(o.eps, "eps");
}
Remembered Begin(const AdamOptions& o) {
  return {std::vector<double>(o.amsgrad ? 3 : 2, 0.0), {0}};
}
Tensor Step(const AdamOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.coupled ? o.weight_decay : 0);
  const Tensor kept = Decayed(s, o.coupled ? 0 : o.weight_decay);
  const Tensor m = Followed(s.tensors[0], g, o.beta1);
  Tensor v = Followed(s.tensors[1], g * g, o.beta2), steps = s.numbers[0];
  steps.Assign(steps + 1);
  if (o.amsgrad) {
    Tensor most = s.tensors[2];
    v = most.Assign(most.Maximum(v));
  }
  const Tensor by = (s.rate / Correction(o.beta1, steps)).Cast(s.x.dtype());
  const Tensor root = Correction(o.beta2, steps).Sqrt().Cast(s.x.dtype());
  return kept - by * m / (v.Sqrt() / root + o.eps);
}

void Check(const NadamOptions& o) {
  CheckBetas(o);
  CheckNotNegative(o.eps, "eps");
  CheckNotNegative(o.momentum_decay, "momentum_decay");
}
Remembered Begin(const NadamOptions&) { return {{0, 0}, {0, 1}}; }
Tensor Step(const NadamOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.decoupled ? 0 : o.weight_decay);
  const Tensor kept = Decayed(s, o.decoupled ? o.weight_decay : 0);
  Tensor steps = s.numbers[0], product = s.numbers[1];
  steps.Assign(steps + 1);
  const auto beta = [&](const Tensor& t) {  // of step t
    return (1 - (t * (o.momentum_decay * std::log(0.96))).Exp() * 0.5) * o.beta1;
  };
  const Tensor now = beta(steps), next = beta(steps + 1);
  product.Assign(product * now);
  const Tensor m = Followed(s.tensors[0], g, o.beta1);
  const Tensor v = Followed(s.tensors[1], g * g, o.beta2);
  const Tensor of_g = (s.rate * (1 - now) / (1 - product)).Cast(s.x.dtype());
  const Tensor of_m = (s.rate * next / (1 - product * next)).Cast(s.x.dtype());
  const Tensor root = Correction(o.beta2, steps).Sqrt().Cast(s.x.dtype());
  return kept - (of_g * g + of_m * m) / (v.Sqrt() / root + o.eps);
}

void Check(const AdamaxOptions& o) {
  CheckBetas(o);
  CheckNotNegative(o.eps, "eps");
}
Remembered Begin(const AdamaxOptions&) { return {{0, 0}, {0}}; }
Tensor Step(const AdamaxOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay), m = Followed(s.tensors[0], g, o.beta1);
  Tensor most = s.tensors[1], steps = s.numbers[0];
  most.Assign((most * o.beta2).Maximum(g.Abs() + o.eps));
  steps.Assign(steps + 1);
  return s.x - (s.rate / Correction(o.beta1, steps)).Cast(s.x.dtype()) * m / most;
}

void Check(const RmsPropOptions& o) {
  CheckShare(o.alpha, "alpha");
  CheckNotNegative(o.eps, "eps");
  CheckShare(o.momentum, "momentum");
}
Remembered Begin(const RmsPropOptions& o) {
  return {std::vector<double>(1 + (o.centered ? 1 : 0) + (o.momentum != 0 ? 1 : 0), 0.0), {}};
}
Tensor Step(const RmsPropOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay), rate = s.rate.Cast(s.x.dtype());
  Tensor v = Followed(s.tensors[0], g * g, o.alpha);
  if (o.centered) v = v - Followed(s.tensors[1], g, o.alpha).Square();
  const Tensor quotient = g / (v.Maximum(0).Sqrt() + o.eps);
  if (o.momentum == 0) return s.x - rate * quotient;
  Tensor velocity = s.tensors.back();
  velocity.Assign(velocity * o.momentum + quotient);
  return s.x - rate * velocity;
}

void Check(const AdagradOptions& o) {
  CheckNotNegative(o.rate_decay, "rate_decay");
  CheckNotNegative(o.eps, "eps");
  CheckNotNegative(o.initial, "initial");
}
Remembered Begin(const AdagradOptions& o) { return {{o.initial}, {0}}; }
Tensor Step(const AdagradOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay);
  Tensor sum = s.tensors[0], steps = s.numbers[0];
  const Tensor rate = s.rate / (steps * o.rate_decay + 1);  // before this one is counted
  sum.Assign(sum + g * g);
  steps.Assign(steps + 1);
  return s.x - rate.Cast(s.x.dtype()) * g / (sum.Sqrt() + o.eps);
}

void Check(const AdadeltaOptions& o) {
  CheckShare(o.rho, "rho");
  CheckNotNegative(o.eps, "eps");
}
Remembered Begin(const AdadeltaOptions&) { return {{0, 0}, {}}; }
Tensor Step(const AdadeltaOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay), v = Followed(s.tensors[0], g * g, o.rho);
  const Tensor d = g * (s.tensors[1] + o.eps).Sqrt() / (v + o.eps).Sqrt();
  Followed(s.tensors[1], d * d, o.rho);
  return s.x - s.rate.Cast(s.x.dtype()) * d;
}

void Check(const LionOptions& o) { CheckBetas(o); }
Remembered Begin(const LionOptions&) { return {{0}, {}}; }
Tensor Step(const LionOptions& o, const ParameterStep& s) {
  const Tensor& g = s.gradient;
  const Tensor way = (s.tensors[0] * o.beta1 + g * (1 - o.beta1)).Sign();
  Followed(s.tensors[0], g, o.beta2);
  return Decayed(s, o.weight_decay) - s.rate.Cast(s.x.dtype()) * way;
}

}  // namespace

void CheckOptions(const OptimizerOptions& options) {
  std::visit(
      [](const auto& o) {
        CheckNotNegative(o.rate, "rate");
        CheckNotNegative(o.weight_decay, "weight_decay");
        Check(o);
      },
      options);
}

Remembered WhatIsRemembered(const OptimizerOptions& options) {
  return std::visit([](const auto& o) { return Begin(o); }, options);
}

Tensor Moved(const OptimizerOptions& options, const ParameterStep& step) {
  return std::visit([&](const auto& o) { return Step(o, step); }, options);
}

}  // namespace tessera
