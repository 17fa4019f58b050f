// What decompositions of matrices share.
#pragma once

#include <functional>
#include <vector>

#include "graph/tensor.h"

namespace tessera::internal {

// Matrices [..., M, N] as wide floats whose last two axes lie whole on each place.
Tensor WholeMatrices(const Tensor& t);

// Matrices times powers of two, so that none of their squares is too large or too small; and the
// exponents [..., 1, 1] by which LdExp goes back.
struct Balanced {
  Tensor matrix, exponent;
};
Balanced Balance(const Tensor& matrix);

// Matrices with the derivative that f writes with them as constants.
using Matrices = std::vector<Tensor>;
Matrices WithDerivative(const Matrices& values, const std::function<Matrices(const Matrices&)>& f);

// Eigenvalues [..., 1, N] and vectors [..., N, N] of symmetric matrices, N > 1, by rotations.
Matrices JacobiPairs(const Tensor& matrix);

// Q [..., M, N] and R [..., N, N] of [..., M, N], M >= N > 0, by Householder's reflections.
Matrices HouseholderQr(const Tensor& matrix);

}  // namespace tessera::internal
