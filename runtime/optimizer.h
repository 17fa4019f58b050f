// Optimisers: how tensors follow their gradients.
//
//   Optimizer adam({w, b}, AdamOptions{.rate = 1e-3});
//   Jit step([&](const Tensor& x, const Tensor& label) {
//     Tensor loss = x.Linear(w, b).CrossEntropy(label);
//     loss.Backward();
//     adam.Step();
//     return loss;
//   });
#pragma once

#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// x -= rate * v with v = momentum * v + g, or g + momentum * v where it is Nesterov's; of no
// momentum v = g. To g, the gradient, weight_decay * x is added first.
struct SgdOptions {
  double rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// x -= rate * m / (sqrt(v) + eps), with m and v the means of g and g^2 that decay by beta1 and
// beta2, corrected for having begun at 0. The weight decay is AdamW's, x *= 1 - rate *
// weight_decay, or, coupled, Adam's, added to g.
struct AdamOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool coupled = false;
};

// Tensors of floats, which it marks with RequireGrad, and what it remembers of each: in the
// parameter's dtype, or f32 of narrower ones, on its device, spread as it is.
class Optimizer {
 public:
  Optimizer(std::vector<Tensor> parameters, std::variant<SgdOptions, AdamOptions> options,
            CallSite at = CallSite::Here());

  // Assigns to each parameter that has a gradient, and clears that: the next Backward begins anew.
  // Computed at once; in a step that is being captured, at each call. An Error where none has one.
  void Step(CallSite at = CallSite::Here());

  // Of the steps from now on, those of captured steps as well.
  void SetRate(double rate, CallSite at = CallSite::Here());
  double rate() const { return rate_; }

  // What it remembers, always in the same order: to be saved with the parameters, and assigned to
  // when training goes on from there.
  std::vector<Tensor> State() const;

 private:
  // Numbers that are tensors, so that captured steps read them anew: of the parameters of a device.
  struct Shared {
    Device device;
    Tensor rate;
  };
  struct Parameter {
    Tensor value, first, second;  // the momentum, or both means; empty where not needed
    Tensor steps;                 // in which it had a gradient, as the means' correction asks
    size_t shared;
  };
  void Adopt(Tensor parameter);
  Tensor Moved(const Parameter& p, const Tensor& x, const Tensor& gradient);

  std::variant<SgdOptions, AdamOptions> options_;
  double rate_;
  std::vector<Shared> shared_;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
