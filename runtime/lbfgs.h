// Minimising by limited-memory BFGS, which asks for the loss as often as it needs.
//
//   Lbfgs lbfgs({w, b}, {.strong_wolfe = true});
//   for (int i = 0; i < 10; ++i) lbfgs.Step([&] { return x.Linear(w, b).MseLoss(y); });
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

struct LbfgsOptions {
  double rate = 1;
  int64_t iterations = 20;       // of a step, at most
  int64_t evaluations = 0;       // of the loss in a step, at most; 0: iterations * 5 / 4
  int64_t history = 100;         // of how many changes the curvature is estimated
  double least_gradient = 1e-7;  // where no element's magnitude is more, it is at a minimum
  double least_change = 1e-9;    // of an element, of the loss, or of that along the way
  // Whether each change goes as far as the strong Wolfe conditions ask; else it is the rate.
  bool strong_wolfe = false;
};

// Of tensors of floats, which it marks with RequireGrad; PyTorch's LBFGS. Each loss is computed at
// once: a step is no part of a captured one.
class Lbfgs {
 public:
  explicit Lbfgs(std::vector<Tensor> parameters, LbfgsOptions options = {},
                 CallSite at = CallSite::Here());

  // Moves the parameters; the loss where it began. Clears gradients. An Error where that loss has a
  // gradient that is not finite; where it comes to one, it stops.
  double Step(const std::function<Tensor()>& loss, CallSite at = CallSite::Here());

 private:
  using Vector = std::vector<Tensor>;  // a part for each parameter
  struct Point {
    double t = 0, loss = 0, slope = 0;  // along the direction
    Vector gradient;
  };
  Point At(double t, const Vector& from, const std::function<Tensor()>& loss);
  Point Evaluated(const std::function<Tensor()>& loss);
  void Remember(const Vector& gradient);
  void ChooseDirection(const Vector& gradient);
  Point Searched(double t, const Point& from, const Vector& start,
                 const std::function<Tensor()>& loss);

  LbfgsOptions options_;
  Vector parameters_, direction_, before_;  // before_: the gradient before the last change
  struct Change {
    Vector step, difference;  // of the parameters and of their gradients
    Tensor curvature;         // one over the product of both
  };
  std::vector<Change> changes_;
  double scale_ = 1, t_ = 0;
  int64_t iterations_ = 0, evaluations_ = 0;
};

}  // namespace tessera
