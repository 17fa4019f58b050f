// Symmetric matrices made tridiagonal.
#include "graph/tridiagonal.h"

#include <algorithm>

#include "graph/elimination.h"
#include "graph/index_math.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kLeastShrink = 32;  // steps that are the same graph before it becomes smaller

}  // namespace

// A step reflects what is below the diagonal in the first column; the next is of the rows and
// columns after the first, which have moved up. Zeros come in at the end, and are left off when
// there are a fourth of them.
Tridiagonal::Tridiagonal(const Tensor& matrix) {
  const int64_t n = matrix.size(-1);
  std::vector<Tensor> all_rows, all_factors, diagonals, sides;
  Tensor m = matrix;
  for (int64_t done = 0; done < n;) {
    const int64_t left = n - done;
    const int64_t steps = left < 2 * kLeastShrink ? left : std::max(kLeastShrink, CeilDiv(n, 4));
    std::vector<Tensor> rows, factors;
    for (int64_t k = 0; k < steps; ++k) {
      const Tensor column = m.SliceAxis(-1, {0, 1});
      const Reflection r(MovedUp(column, -2));
      diagonals.push_back(column.SliceAxis(-2, {0, 1}).Contiguous());
      sides.push_back(r.to);
      rows.push_back(r.v.Transpose());
      factors.push_back(r.factor);
      const Tensor rest = MovedUp(MovedUp(m, -1), -2);
      const Tensor product = (r.factor * (rest * r.v.Transpose()).Sum(-1, true)).Contiguous();
      const Tensor share = (r.factor * (r.v * product).Sum(-2, true) * 0.5).Contiguous();
      const Tensor other = (product - share * r.v).Contiguous();
      m = (rest - r.v * other.Transpose() - other * r.v.Transpose()).Contiguous();
    }
    Pairs before(m.rank(), {0, 0});
    before.back() = {done + 1, 0};
    const Tensor stage = Skewed(Cat(rows, -2).Contiguous(), 1).Pad(before);
    all_rows.push_back(stage.SliceAxis(-1, {0, n}).Contiguous());
    all_factors.push_back(Cat(factors, -1).Contiguous());
    m = m.SliceAxis(-1, {0, left - steps}).SliceAxis(-2, {0, left - steps}).Contiguous();
    done += steps;
  }
  diagonal = Cat(diagonals, -1).Squeeze(-2).Contiguous();
  beside = Cat(sides, -1).Squeeze(-2).SliceAxis(-1, {0, n - 1}).Contiguous();
  reflections_ = Reflections::OfMany(Cat(all_rows, -2).Contiguous(), Cat(all_factors, -1).Contiguous());
}

Tensor Tridiagonal::Turned(const Tensor& vectors) const {
  Tensor turned = vectors;
  for (size_t i = reflections_.size(); i-- > 0;) {
    turned = reflections_[i].Of(turned).Contiguous();
  }
  return turned;
}

}  // namespace tessera::internal
