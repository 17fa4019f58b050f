// The rules, one after another: what each checks, remembers and does.
#include "runtime/step_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor_internal.h"

namespace tessera {

using internal::Fail;
using internal::Show;

namespace {

constexpr int kOrthogonalSteps = 5;  // of Muon

double EpsilonOf(DType type) {
  return type == kFloat64 ? std::numeric_limits<double>::epsilon()
                          : std::numeric_limits<float>::epsilon();
}

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
Remembered Begin(const SgdOptions& o, const Tensor&) {
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
Remembered Begin(const AdamOptions& o, const Tensor&) {
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
Remembered Begin(const NadamOptions&, const Tensor&) { return {{0, 0}, {0, 1}}; }
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
Remembered Begin(const AdamaxOptions&, const Tensor&) { return {{0, 0}, {0}}; }
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
Remembered Begin(const RmsPropOptions& o, const Tensor&) {
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
Remembered Begin(const AdagradOptions& o, const Tensor&) { return {{o.initial}, {0}}; }
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
Remembered Begin(const AdadeltaOptions&, const Tensor&) { return {{0, 0}, {}}; }
Tensor Step(const AdadeltaOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.weight_decay), v = Followed(s.tensors[0], g * g, o.rho);
  const Tensor d = g * (s.tensors[1] + o.eps).Sqrt() / (v + o.eps).Sqrt();
  Followed(s.tensors[1], d * d, o.rho);
  return s.x - s.rate.Cast(s.x.dtype()) * d;
}

void Check(const LionOptions& o) { CheckBetas(o); }
Remembered Begin(const LionOptions&, const Tensor&) { return {{0}, {}}; }
Tensor Step(const LionOptions& o, const ParameterStep& s) {
  const Tensor& g = s.gradient;
  const Tensor way = (s.tensors[0] * o.beta1 + g * (1 - o.beta1)).Sign();
  Followed(s.tensors[0], g, o.beta2);
  return Decayed(s, o.weight_decay) - s.rate.Cast(s.x.dtype()) * way;
}

void Check(const RadamOptions& o) {
  CheckBetas(o);
  CheckNotNegative(o.eps, "eps");
}
Remembered Begin(const RadamOptions&, const Tensor&) { return {{0, 0}, {0}}; }
Tensor Step(const RadamOptions& o, const ParameterStep& s) {
  const Tensor g = Decaying(s, o.decoupled ? 0 : o.weight_decay);
  const Tensor kept = Decayed(s, o.decoupled ? o.weight_decay : 0);
  const Tensor m = Followed(s.tensors[0], g, o.beta1);
  const Tensor v = Followed(s.tensors[1], g * g, o.beta2);
  Tensor steps = s.numbers[0];
  steps.Assign(steps + 1);
  const double most = 2 / (1 - o.beta2) - 1;
  const Tensor share = Correction(o.beta2, steps);
  const Tensor length = most - steps * 2 * (1 - share) / share, many = length > 5;
  const Tensor ratio = (length - 4) * (length - 2) * (most / ((most - 4) * (most - 2))) / length;
  const Tensor rectified = (Where(many, ratio, 1) * share).Sqrt().Cast(s.x.dtype());
  const Tensor by = (s.rate / Correction(o.beta1, steps)).Cast(s.x.dtype());
  return kept - by * m * Where(many, rectified / (v.Sqrt() + o.eps), 1);
}

// The root of the mean of squares.
Tensor RootMeanSquare(const Tensor& x) { return x.Square().Mean().Sqrt(); }

void Check(const AdafactorOptions& o) {
  CheckNotNegative(o.eps1.value_or(0), "eps1");
  CheckNotNegative(o.eps2, "eps2");
  if (!(o.decay <= 0)) Fail("decay must be 0 or less, not ", o.decay);
  if (!(o.limit > 0)) Fail("limit must be above 0, not ", o.limit);
}
Remembered Begin(const AdafactorOptions&, const Tensor& parameter) {
  const int rank = parameter.rank();
  if (rank < 2) return {{0}, {0}};
  return {{}, {0}, {rank - 1, rank - 2}};
}
Tensor Step(const AdafactorOptions& o, const ParameterStep& s) {
  const Tensor &x = s.x, g = s.gradient, squares = g * g;
  const DType type = x.dtype();
  Tensor steps = s.numbers[0];
  steps.Assign(steps + 1);
  const Tensor enters = (steps.Log() * o.decay).Exp().Cast(type);
  const auto followed = [&](Tensor mean, const Tensor& of) {
    return mean.Assign(mean.Lerp(of, enters));
  };
  const double eps1 = o.eps1.value_or(EpsilonOf(type));
  Tensor v;
  if (x.rank() < 2) {
    v = followed(s.tensors[0], squares);
  } else {
    const Tensor rows = followed(s.tensors[0], squares.Mean(-1, /*keepdim=*/true));
    const Tensor columns = followed(s.tensors[1], squares.Mean(-2, /*keepdim=*/true));
    v = rows * columns / rows.Mean(-2, /*keepdim=*/true).Maximum(eps1);
  }
  const Tensor u = g * v.Maximum(eps1 * eps1).Rsqrt();
  const Tensor rate = s.rate.Minimum(steps.Rsqrt()).Cast(type) * RootMeanSquare(x).Maximum(o.eps2);
  return Decayed(s, o.weight_decay) - rate / (RootMeanSquare(u) / o.limit).Maximum(1) * u;
}

void Check(const LambOptions& o) {
  CheckBetas(o);
  CheckNotNegative(o.eps, "eps");
}
Remembered Begin(const LambOptions&, const Tensor&) { return {{0, 0}, {0}}; }
Tensor Step(const LambOptions& o, const ParameterStep& s) {
  const Tensor &x = s.x, m = Followed(s.tensors[0], s.gradient, o.beta1);
  const Tensor v = Followed(s.tensors[1], s.gradient.Square(), o.beta2);
  Tensor steps = s.numbers[0];
  steps.Assign(steps + 1);
  const DType type = x.dtype();
  const Tensor mean = m / Correction(o.beta1, steps).Cast(type);
  const Tensor root = (v / Correction(o.beta2, steps).Cast(type)).Sqrt();
  const Tensor u = mean / (root + o.eps) + x * o.weight_decay;
  const Tensor of_x = x.Norm(), of_u = u.Norm();
  const Tensor trusted = Where((of_x > 0) & (of_u > 0), of_x / of_u, 1);
  return x - s.rate.Cast(type) * trusted * u;
}

void Check(const RpropOptions& o) {
  if (!(o.less > 0 && o.less < 1)) Fail("less must be between 0 and 1, not ", o.less);
  if (!(o.more > 1) || std::isinf(o.more)) Fail("more must be above 1 and finite, not ", o.more);
  CheckNotNegative(o.least, "least");
  if (!(o.most >= o.least)) Fail("most must be no less than least, not ", o.most);
}
Remembered Begin(const RpropOptions& o, const Tensor&) { return {{0, o.rate}, {}}; }
Tensor Step(const RpropOptions& o, const ParameterStep& s) {
  Tensor before = s.tensors[0], by = s.tensors[1];
  const Tensor way = (s.gradient * before).Sign();
  const Tensor next = Where(way > 0, by * o.more, Where(way < 0, by * o.less, by));
  by.Assign(next.Maximum(o.least).Minimum(o.most));
  const Tensor g = before.Assign(Where(way < 0, 0, s.gradient));
  return s.x - g.Sign() * by;
}

void Check(const MuonOptions& o) { CheckShare(o.momentum, "momentum"); }
Remembered Begin(const MuonOptions&, const Tensor& parameter) {
  if (parameter.rank() != 2) {
    Fail("Muon takes matrices, not ", Show(parameter), "; put it in a group with another rule");
  }
  return {{0}, {}};
}
Tensor Step(const MuonOptions& o, const ParameterStep& s) {
  const Tensor v = Followed(s.tensors[0], s.gradient, o.momentum);
  const int64_t rows = s.x.size(0), columns = s.x.size(1);
  Tensor u = o.nesterov ? s.gradient.Lerp(v, o.momentum) : v;
  if (rows > columns) u = u.T();
  u = u / u.Norm().Maximum(1e-7);
  for (int i = 0; i < kOrthogonalSteps; ++i) {  // Newton and Schulz's, of singular values to near 1
    const Tensor square = u.MatMul(u.T());
    const Tensor by = square * -4.775 + square.MatMul(square) * 2.0315;
    u = (u * 3.4445 + by.MatMul(u)).Contiguous();
  }
  if (rows > columns) u = u.T();
  const double longer = std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns));
  return Decayed(s, o.weight_decay) - s.rate.Cast(s.x.dtype()) * std::sqrt(longer) * u;
}

}  // namespace

void CheckOptions(const OptimizerOptions& options) {
  std::visit(
      [](const auto& o) {
        CheckNotNegative(o.rate, "rate");
        if constexpr (requires { o.weight_decay; }) {
          CheckNotNegative(o.weight_decay, "weight_decay");
        }
        Check(o);
      },
      options);
}

Remembered WhatIsRemembered(const OptimizerOptions& options, const Tensor& parameter) {
  return std::visit([&](const auto& o) { return Begin(o, parameter); }, options);
}

Tensor Moved(const OptimizerOptions& options, const ParameterStep& step) {
  return std::visit([&](const auto& o) { return Step(o, step); }, options);
}

}  // namespace tessera
