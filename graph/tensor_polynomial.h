// Polynomials in f64, by Horner's rule, and what is made of them.
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

// m - ln(1 + m): near 0, where both are alike, by the series in m / (2 + m).
inline Tensor LessLog1p(const Tensor& m) {
  const Tensor near = m.Abs() < 0.1, small = Where(near, m, 0), far = Where(near, 1, m);
  const Tensor s = small / (small + 2), t = s * s;
  const Tensor rest = Polynomial(
      t, {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19});
  return Where(near, s * (small - t * rest), far - far.Log1p());
}

}  // namespace tessera::internal
