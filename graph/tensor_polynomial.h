// Polynomials in f64, by Horner's rule.
#pragma once

#include "absl/types/span.h"
#include "graph/tensor.h"

namespace tessera::internal {

// Coefficients from the constant on.
inline Tensor Polynomial(const Tensor& x, absl::Span<const double> coefficients) {
  Tensor sum;
  for (size_t i = coefficients.size(); i-- > 0;) {
    sum = sum ? sum * x + coefficients[i] : Tensor::Full({}, coefficients[i], kFloat64);
  }
  return sum;
}

}  // namespace tessera::internal
