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

#include <vector>

#include "graph/tensor.h"
#include "runtime/learning_rate.h"
#include "runtime/optimizer_options.h"

namespace tessera {

// Tensors of floats, which it marks with RequireGrad, and what it remembers of each: in the
// parameter's dtype, or f32 of narrower ones, on its device, spread as it is.
class Optimizer {
 public:
  Optimizer(std::vector<Tensor> parameters, OptimizerOptions options,
            CallSite at = CallSite::Here());

  // Assigns to each parameter that has a gradient, and clears that: the next Backward begins anew.
  // Computed at once; in a step that is being captured, at each call. An Error where none has one.
  void Step(CallSite at = CallSite::Here());

  // Of the steps from now on, those of captured steps as well.
  void SetRate(double rate, CallSite at = CallSite::Here());
  // From now on by a schedule, whose steps are counted from 0. It is part of what a captured step
  // does: set it before the capture, and no other rate after it.
  void SetRate(RateSchedule schedule, CallSite at = CallSite::Here());
  double rate() const;  // of the next step

  // What it remembers, always in the same order, last how many steps a schedule has made: to be
  // saved with the parameters, and assigned to when training goes on from there.
  std::vector<Tensor> State() const;

 private:
  // Numbers that are tensors, so that captured steps read them anew: of the parameters of a device.
  struct Shared {
    Device device;
    Tensor rate;
    Tensor step;  // of the schedule
  };
  struct Parameter {
    Tensor value;
    // The count of its steps is its own, too: means begin when it first has a gradient.
    std::vector<Tensor> tensors, numbers;
    size_t shared;
  };
  void Adopt(Tensor parameter);

  OptimizerOptions options_;
  double rate_;
  RateSchedule schedule_;
  std::vector<Shared> shared_;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
