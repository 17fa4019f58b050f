// Functions of matrices [..., N, N] that are no members of Tensor: in f32 at least, integers as
// f32.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// The sum of powers of x over factorials, of matrices of a known size; NaN where the largest sum of
// magnitudes in a column is above 65536.
Tensor MatrixExp(const Tensor& x, CallSite at = CallSite::Here());
// ln(Det): NaN where that is negative.
Tensor LogDet(const Tensor& x, CallSite at = CallSite::Here());

// x = p l u, p of ones that exchange rows, l lower triangular with ones on its diagonal and nothing
// above 1, u upper triangular. By elimination: the graph grows with N.
struct LuFactors {
  Tensor p, l, u;
};
LuFactors Lu(const Tensor& x, CallSite at = CallSite::Here());

// The X of L L^T X = b, of a lower L that Cholesky gave; b as in Tensor::Solve. And of b = Eye.
Tensor CholeskySolve(const Tensor& l, const Tensor& b, CallSite at = CallSite::Here());
Tensor CholeskyInverse(const Tensor& l, CallSite at = CallSite::Here());

// The product of all of them, which the first and the last may be vectors of, in the order of the
// fewest multiplications; their extents are known.
Tensor MultiDot(absl::Span<const Tensor> matrices, CallSite at = CallSite::Here());

// Of [..., M, N]: singular values, descending; their sum, or by p: the largest and the smallest (2,
// -2), the largest and the smallest sum of magnitudes of columns (1, -1) and of rows (infinite).
Tensor SvdVals(const Tensor& x, CallSite at = CallSite::Here());
Tensor NuclearNorm(const Tensor& x, CallSite at = CallSite::Here());
Tensor MatrixNorm(const Tensor& x, double p = 2, CallSite at = CallSite::Here());
// MatrixNorm of x times that of its inverse; infinite where there is none.
Tensor Cond(const Tensor& x, double p = 2, CallSite at = CallSite::Here());

}  // namespace tessera
