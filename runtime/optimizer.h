// Optimisers: how tensors follow their gradients.
//
//   Optimizer adam({w, b}, AdamOptions{.rate = 1e-3});
//   Jit step([&](const Tensor& x, const Tensor& label) {
//     Tensor loss = x.Linear(w, b).CrossEntropy(label);
//     loss.Backward();
//     adam.Step();
//     return loss;
//   });
//
// Groups of parameters may each follow a rule of their own: here biases do not decay.
//
//   Optimizer adam({{{w1, w2}, AdamOptions{.weight_decay = 0.1}}, {{b1, b2}, AdamOptions{}}});
#pragma once

#include <vector>

#include "graph/tensor.h"
#include "runtime/learning_rate.h"
#include "runtime/optimizer_options.h"

namespace tessera {

struct ParameterGroup {
  std::vector<Tensor> parameters;
  OptimizerOptions options;
};

// Tensors of floats, which it marks with RequireGrad, and what it remembers of each: in the
// parameter's dtype, or f32 of narrower ones, on its device, spread as it is.
class Optimizer {
 public:
  Optimizer(std::vector<Tensor> parameters, OptimizerOptions options,
            CallSite at = CallSite::Here());
  explicit Optimizer(std::vector<ParameterGroup> groups, CallSite at = CallSite::Here());

  // Assigns to each parameter that has a gradient, and clears that: the next Backward begins anew.
  // Computed at once; in a step that is being captured, at each call. An Error where none has one.
  void Step(CallSite at = CallSite::Here());

  // Of the steps from now on, those of captured steps as well: of all groups, or of one, from 0.
  void SetRate(double rate, CallSite at = CallSite::Here());
  void SetRate(size_t group, double rate, CallSite at = CallSite::Here());
  // From now on by a schedule, whose steps are counted from 0. It is part of what a captured step
  // does: set it before the capture, and no other rate after it.
  void SetRate(RateSchedule schedule, CallSite at = CallSite::Here());
  void SetRate(size_t group, RateSchedule schedule, CallSite at = CallSite::Here());
  double rate(size_t group = 0) const;  // of the next step
  bool scheduled(size_t group = 0) const;
  size_t groups() const { return groups_.size(); }

  // What it remembers, always in the same order, last how many steps a schedule has made: to be
  // saved with the parameters, and assigned to when training goes on from there.
  std::vector<Tensor> State() const;

 private:
  struct Group {
    OptimizerOptions options;
    double rate;
    RateSchedule schedule = {};
  };
  // Numbers that are tensors, so that captured steps read them anew: of a group's parameters on a
  // device.
  struct Shared {
    size_t group;
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
  void Adopt(Tensor parameter, size_t group);
  void CheckGroup(size_t group) const;

  std::vector<Group> groups_;
  std::vector<Shared> shared_;
  std::vector<Parameter> parameters_;
};

}  // namespace tessera
