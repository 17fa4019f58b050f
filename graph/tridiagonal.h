// Symmetric matrices made tridiagonal, others bidiagonal, by reflections.
#pragma once

#include <vector>

#include "graph/reflections.h"

namespace tessera::internal {

// [..., N, N], N > 2, whose elements are up to about 1, is Q T Q^T.
class Tridiagonal {
 public:
  explicit Tridiagonal(const Tensor& matrix);
  Tensor diagonal, beside;                     // of T, [..., N] and [..., N - 1]
  Tensor Turned(const Tensor& vectors) const;  // Q times that

 private:
  std::vector<Reflections> reflections_;
};

// [..., N, N], N > 1, whose elements are up to about 1, is P B Q^T.
class Bidiagonal {
 public:
  explicit Bidiagonal(const Tensor& matrix);
  Tensor diagonal, beside;                   // of B, [..., N], and to the right of it, [..., N - 1]
  Tensor Of(const Tensor& m) const;          // B times that
  Tensor LeftTurned(const Tensor& m) const;  // P times that
  Tensor RightTurned(const Tensor& m) const;  // Q times that

 private:
  std::vector<Reflections> left_, right_;
};

}  // namespace tessera::internal
