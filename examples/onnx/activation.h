// Activations that other ops name: recurrent networks and fused products.
#pragma once

#include <string>

#include "graph/tensor.h"

namespace tessera::onnx {

struct NamedActivation {
  const char* name;
  int numbers;         // how many of alpha and beta it has
  double alpha, beta;  // where they are not given
  Tensor (*fn)(const Tensor& x, double alpha, double beta);
};
// Without regard to case; null if there is none of that name.
const NamedActivation* FindActivation(const std::string& name);

}  // namespace tessera::onnx
