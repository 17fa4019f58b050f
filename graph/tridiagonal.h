// Symmetric matrices made tridiagonal.
#pragma once

#include <vector>

#include "graph/reflections.h"

namespace tessera::internal {

// [..., N, N], N > 2, whose elements are up to about 1, is Q T Q^T.
class Tridiagonal {
 public:
  explicit Tridiagonal(const Tensor& matrix);
  Tensor diagonal, beside;  // of T, [..., N] and [..., N - 1]
  Tensor Turned(const Tensor& vectors) const;  // Q times that

 private:
  std::vector<Reflections> reflections_;
};

}  // namespace tessera::internal
