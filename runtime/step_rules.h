// The rules of runtime/optimizer_options.h: what each remembers of a parameter, and what becomes of
// one in a step.
#pragma once

#include <vector>

#include "graph/tensor.h"
#include "runtime/optimizer_options.h"

namespace tessera {

// An Error of the call under way for what is out of its range.
void CheckOptions(const OptimizerOptions& options);

// Where what is remembered begins: tensors like the parameter, and numbers, in f64; after the
// former a tensor of zeros like the parameter's mean over each of these axes, which keep extent 1.
struct Remembered {
  std::vector<double> tensors, numbers;
  std::vector<int> means = {};
};
Remembered WhatIsRemembered(const OptimizerOptions& options, const Tensor& parameter);

// A parameter and its gradient, in the dtype in which it is computed, and what is remembered of it.
struct ParameterStep {
  Tensor x, gradient;
  Tensor rate;  // f64
  std::vector<Tensor> tensors, numbers;
};
// The parameter after the step; what is remembered is assigned.
Tensor Moved(const OptimizerOptions& options, const ParameterStep& step);

}  // namespace tessera
