// What decompositions of matrices share.
#pragma once

#include <functional>
#include <optional>
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

// Orthonormal columns [..., M, M - K] to which those of q [..., M, K] are orthogonal. Turning them
// among themselves has no derivative.
Tensor Complement(const Tensor& q);

// What singular values must be above to count: both numbers, of which the second is times the
// largest value; max(M, N) times the epsilon if there is neither.
struct Tolerance {
  std::optional<double> absolute = {}, relative = {};
};
// As Tensor::PInverse and MatrixRank.
Tensor PseudoInverse(const Tensor& x, const Tolerance& tolerance);
Tensor RankOf(const Tensor& x, const Tolerance& tolerance);

}  // namespace tessera::internal
