// Square matrices by elimination.
//
// There is a step for each row. After each step rows and columns move up, so that all steps are the
// same graph, and a loop. Larger matrices are taken in parts
// until such steps are few; what parts do to one another are products.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "graph/tensor.h"

namespace tessera::internal {

// An Error unless t is square matrices; and their rows, known or an Error.
void CheckSquare(const Tensor& t);
int64_t SquareSize(const Tensor& t);

// The elements of an axis further on by as many, or back; those that come in are zeros.
Tensor MovedBy(const Tensor& t, int axis, int64_t by);
inline Tensor MovedUp(const Tensor& t, int axis) { return MovedBy(t, axis, -1); }

// What lower triangles make of right sides [..., N, K]. Of more sides than rows by their inverses,
// which takes less, where it does not matter that what is infinite spreads over all rows.
enum class Sides { kStepByStep, kByInverse };
Tensor SolvedLower(const Tensor& lower, const Tensor& sides, Sides how);

// Cholesky's factor of [..., N, N], N > 0.
Tensor LowerFactor(const Tensor& matrix);

// What becomes of right sides [..., N, K] when the matrices beside them are the identity.
Tensor Solved(const Tensor& matrix, const Tensor& sides);
Tensor Inverted(const Tensor& matrix);

// Elimination, some columns at a time: what they do to the columns after them are products. The
// rows of the largest pivots come first.
class Elimination {
 public:
  // Of [..., N, N + K], N > 0: the rest are right sides. Or by so many of the first columns alone,
  // 0 < pivots <= N: rows that are none of their pivots' come last.
  explicit Elimination(const Tensor& matrix, std::optional<int64_t> pivots = {});
  // The right sides, if there are any, when the matrix has become the identity.
  Tensor Solved() const;
  // The pivots [..., N]; and 1, or -1 where the rows are in an order of odd exchanges.
  std::pair<Tensor, Tensor> Pivots() const;
  // Which row of the matrix is which of the triangles, [..., N], and these, of as many columns and
  // rows as there are pivots: ones are on the diagonal of the lower one.
  const Tensor& at_row() const { return at_row_; }
  Tensor Lower() const;
  Tensor Upper() const;

 private:
  std::vector<Tensor> shares_;            // [..., N, W]: what each row has of the pivots' rows
  std::vector<Tensor> corners_, across_;  // of the upper triangle, and what is to the right of it
  Tensor at_row_;
};

}  // namespace tessera::internal
