// Eigenvalues and vectors of symmetric tridiagonal matrices, from those of their parts.
//
// Without one pair of its elements off the diagonal a matrix is two; that pair is an outer product.
// In terms of the vectors of the two, the matrix is a diagonal plus rho z z^T, whose eigenvalues
// lie one by one between the elements d of the diagonal, at the zeros of 1 + rho sum z^2 / (d - x).
// All of them are looked for at once, in a fixed number of steps; what joins the vectors is a
// product of matrices (Cuppen; Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995). Nothing is
// left out where elements of d are equal or elements of z are 0: the former are taken apart by an
// amount that is nothing beside their rounding, in numbers that differences see and values do not,
// the latter get a size of which the same is true.
//
// Why so: rotations take as many rounds as there are rows, a dozen times, each of which writes the
// whole matrix; here a logarithm of rounds of some thirty kernels, of which one multiplies. What
// makes matrices tridiagonal is half of the time, a step a row.
#pragma once

#include "graph/tensor_decompose.h"

namespace tessera::internal {

// Of f64 diagonals [..., N] and elements beside them [..., N - 1], N > 1, which are up to about N:
// the values [..., n] ascending, from `first` on, and vectors [..., N, n] in a dtype, whose
// precision both have.
Matrices TridiagonalPairs(const Tensor& diagonal, const Tensor& beside, DType type,
                          int64_t first = 0);

}  // namespace tessera::internal
