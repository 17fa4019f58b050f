// What an Optimizer does in a step: a rule, by the name of its options.
//
// x is a parameter, g its gradient, rate the step's; means of g and of g^2 begin at 0, and so does
// the count of steps t, which is each parameter's own. To g, weight_decay * x is added first; where
// the decay is decoupled x is instead made smaller by rate * weight_decay * x.
#pragma once

#include <optional>
#include <variant>

namespace tessera {

// x -= rate * v with v = momentum * v + g, or g + momentum * v where it is Nesterov's; of no
// momentum v = g.
struct SgdOptions {
  double rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// x -= rate * m / (sqrt(v) + eps), with m and v the means of g and g^2 that decay by beta1 and
// beta2, corrected for having begun at 0; amsgrad divides by the largest v so far. The weight decay
// is decoupled, as AdamW's, or, coupled, Adam's.
struct AdamOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool coupled = false;
  bool amsgrad = false;
};

// Adam with Nesterov's momentum: m is what it will be in the next step. beta1 grows towards its
// value, as 1 - 0.96^(t * momentum_decay) / 2 of it.
struct NadamOptions {
  double rate = 2e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
  double momentum_decay = 4e-3;
};

// Adam, but v is the largest |g| + eps so far, which decays by beta2.
struct AdamaxOptions {
  double rate = 2e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

// x -= rate * g / (sqrt(v) + eps), with v the mean of g^2 that decays by alpha; centered, of its
// distance from the mean of g. With a momentum, v = momentum * v + that quotient is taken instead.
struct RmsPropOptions {
  double rate = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

// x -= rate / (1 + (t - 1) * rate_decay) * g / (sqrt(s) + eps), with s the sum of g^2.
struct AdagradOptions {
  double rate = 1e-2;
  double rate_decay = 0;
  double weight_decay = 0;
  double eps = 1e-10;
  double initial = 0;  // of the sum
};

// x -= rate * d with d = g * sqrt(u + eps) / sqrt(v + eps), u and v the means of d^2 and g^2, which
// decay by rho.
struct AdadeltaOptions {
  double rate = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
};

// x -= rate * the sign of beta1 * m + (1 - beta1) * g, with m the mean of g that decays by beta2.
// The weight decay is decoupled.
struct LionOptions {
  double rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

// Adam, but where the mean v of g^2 is of too few steps to tell the spread of its root, x -= rate *
// m; from then on, by the share of that spread.
struct RadamOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
};

// Adam of a memory that is small: of g^2, where x has two axes or more, the means of rows and of
// columns, whose product it is taken for. They follow g^2 by t^decay; no element's is below eps1^2
// (none given: the epsilon of the dtype that it computes in, f32 of narrower ones). The rate is at
// most 1 / sqrt(t), times the root of the mean of x^2 or eps2; where the root of the mean square of
// the quotients is above the limit, they are made smaller until it is not. The weight decay is
// decoupled.
struct AdafactorOptions {
  double rate = 1e-2;
  double decay = -0.8;
  std::optional<double> eps1 = {};
  double eps2 = 1e-3;
  double limit = 1;
  double weight_decay = 0;
};

// x -= rate * |x| / |u| * u with Adam's u = m / (sqrt(v) + eps) + weight_decay * x, norms being of
// the whole parameter; where one of them is 0, of u itself.
struct LambOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
};

// x -= d * the sign of g: each element's d is rate at first, from then on times `more` where the
// sign of g is what it was, and times `less`, without a step, where it is not. No other rate is
// looked at.
struct RpropOptions {
  double rate = 1e-2;
  double less = 0.5, more = 1.2;
  double least = 1e-6, most = 50;
};

// Of matrices: x -= rate * sqrt(max(1, rows / columns)) * u, where u is m = momentum * m +
// (1 - momentum) * g, or Nesterov's, with all its singular values moved to about 1. The weight
// decay is decoupled.
struct MuonOptions {
  double rate = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
};

using OptimizerOptions =
    std::variant<SgdOptions, AdamOptions, NadamOptions, AdamaxOptions, RmsPropOptions,
                 AdagradOptions, AdadeltaOptions, LionOptions, RadamOptions, AdafactorOptions,
                 LambOptions, RpropOptions, MuonOptions>;

}  // namespace tessera
