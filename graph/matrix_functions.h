// Functions of matrices, [..., N, N] unless they say otherwise, that are no members of Tensor: in
// f32 at least, integers as f32.
#pragma once

#include <optional>
#include <utility>

#include "graph/tensor.h"

namespace tessera {

// The sum of powers of x over factorials, of matrices of a known size; NaN where the largest sum of
// magnitudes in a column is above 65536.
Tensor MatrixExp(const Tensor& x, CallSite at = CallSite::Here());
// ln(Det): NaN where that is negative.
Tensor LogDet(const Tensor& x, CallSite at = CallSite::Here());

// Of [..., M, N], K = min(M, N): x = p l u, p [..., M, M] of ones that exchange rows, l [..., M, K]
// lower triangular with ones on its diagonal and nothing above 1, u [..., K, N] upper triangular.
// By elimination: the graph grows with K.
struct LuFactors {
  Tensor p, l, u;
};
LuFactors Lu(const Tensor& x, CallSite at = CallSite::Here());
// The X of p l u X = b, of square factors; b as in Tensor::Solve.
Tensor LuSolve(const LuFactors& factors, const Tensor& b, CallSite at = CallSite::Here());

struct TriangularOptions {
  bool upper = false;       // the triangle that is read
  bool left = true;         // X stands to the right of the matrix; else to the left: X a = b
  bool transposed = false;  // a^T in place of a
  bool unit = false;        // its diagonal counts as ones
};
// The X of a X = b; b [..., N, K] or, from the left, [N]; from the right [..., K, N] or [N].
Tensor SolveTriangular(const Tensor& a, const Tensor& b, const TriangularOptions& options,
                       CallSite at = CallSite::Here());

// The X of L L^T X = b, of a lower L that Cholesky gave; b as in Tensor::Solve. And of b = Eye.
Tensor CholeskySolve(const Tensor& l, const Tensor& b, CallSite at = CallSite::Here());
Tensor CholeskyInverse(const Tensor& l, CallSite at = CallSite::Here());

// The product of all of them, which the first and the last may be vectors of, in the order of the
// fewest multiplications; their extents are known.
Tensor MultiDot(absl::Span<const Tensor> matrices, CallSite at = CallSite::Here());

// Of [..., M, N]: singular values, descending; their sum, or by p: the largest and the smallest (2,
// -2), the largest and the smallest sum of magnitudes of columns (1, -1) and of rows (infinite).
// Or the root of the sum of squares, and the sum of singular values, by name. The largest of none
// is 0, the smallest an Error.
enum class MatrixNormKind : uint8_t { kFrobenius, kNuclear };
Tensor SvdVals(const Tensor& x, CallSite at = CallSite::Here());
Tensor NuclearNorm(const Tensor& x, CallSite at = CallSite::Here());
Tensor MatrixNorm(const Tensor& x, double p = 2, CallSite at = CallSite::Here());
Tensor MatrixNorm(const Tensor& x, MatrixNormKind kind, CallSite at = CallSite::Here());
// MatrixNorm of x times that of its inverse; infinite where there is none, 0 of no elements.
Tensor Cond(const Tensor& x, double p = 2, CallSite at = CallSite::Here());
Tensor Cond(const Tensor& x, MatrixNormKind kind, CallSite at = CallSite::Here());
// Tensor::Qr and Svd with square q [..., M, M], u and vt [..., N, N], and r [..., M, N]: with
// columns that lie beside the others, whose derivative is that of the space they span.
std::pair<Tensor, Tensor> QrComplete(const Tensor& x, CallSite at = CallSite::Here());
SingularValues SvdComplete(const Tensor& x, CallSite at = CallSite::Here());
// Eigenvalues of symmetric matrices, of which the lower triangle is read, ascending.
Tensor EigenValues(const Tensor& x, CallSite at = CallSite::Here());

// Which singular values count as 0: those up to `absolute`, and those up to `relative` times the
// largest, which is max(M, N) times the dtype's epsilon where neither is given.
struct RankOptions {
  std::optional<double> absolute = {}, relative = {};
  bool symmetric = false;  // of square matrices, of which the lower triangle is read
};
Tensor PInverse(const Tensor& x, const RankOptions& options, CallSite at = CallSite::Here());
Tensor MatrixRank(const Tensor& x, const RankOptions& options, CallSite at = CallSite::Here());

// The X whose TensorDot with a, over all of X, is b: a has the axes of b, then those of X, of as
// many elements; the given axes of a are moved to its end first.
Tensor TensorSolve(const Tensor& a, const Tensor& b, const Ints& axes = {},
                   CallSite at = CallSite::Here());
// The inverse by TensorDot over the first `axes` axes: it has those last.
Tensor TensorInverse(const Tensor& x, int axes = 2, CallSite at = CallSite::Here());
// The first N columns of the product of I - tau_k v_k v_k^T, of tau [..., K] and columns of
// [..., M, N], K <= N <= M: v_k has 1 at k, zeros before, and what is below the diagonal.
Tensor HouseholderProduct(const Tensor& x, const Tensor& tau, CallSite at = CallSite::Here());

}  // namespace tessera
