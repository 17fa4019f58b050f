// Householder's reflections, and many of them as a few products.
//
// What reflects one column after another is written so that all steps are the same graph: after
// each, rows and columns move up. W reflections are I - V T V^T: T is the inverse of an upper
// triangle, what is above the diagonal of V^T V and the inverses of the factors on it.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace tessera::internal {

// Rows of t, each of which goes `by` elements further right than the one above. What would come in
// is what leaves the row above at its end, and must be zeros.
Tensor Skewed(const Tensor& t, int64_t by);

// The reflection I - factor v v^T that takes a column [..., M, 1] to a multiple of the first axis.
// Of a column that is one already there is none, as LAPACK has it: v is 0, the factor 1. Columns
// are expected with elements up to about 1; what is less than epsilon^2 of that counts as nothing,
// as its squares have lost digits.
struct Reflection {
  Tensor v, factor;  // [..., M, 1], [..., 1, 1]
  Tensor to;         // [..., 1, 1], what the first element becomes

  explicit Reflection(const Tensor& column);
  Tensor Of(const Tensor& m) const;
};

constexpr int64_t kMostReflections = 16;  // that become products

// The product of W reflections, the first of which is done last.
class Reflections {
 public:
  // Of rows [..., W, M], each v^T, and factors [..., 1, W].
  Reflections(const Tensor& rows, const Tensor& factors);
  // The same of many, as some after others.
  static std::vector<Reflections> OfMany(const Tensor& rows, const Tensor& factors);
  int64_t size() const { return rows_.size(-1); }  // of what they reflect
  Tensor Of(const Tensor& m) const { return Applied(t_, m); }
  Tensor Undone(const Tensor& m) const { return Applied(t_.Transpose(), m); }

 private:
  Reflections() = default;
  Tensor Applied(const Tensor& middle, const Tensor& m) const;

  Tensor rows_, t_;  // [..., W, M], [..., W, W]
};

}  // namespace tessera::internal
