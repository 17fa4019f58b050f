// Symmetric matrices made tridiagonal, others bidiagonal, by reflections.
#include "graph/tridiagonal.h"

#include <algorithm>

#include "graph/elimination.h"
#include "graph/index_math.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kLeastShrink = 32;

// A step reflects what the first row and column have; then those after them move up, so that many
// steps are the same graph. Zeros come in at the end. They are left off four times: so the numbers
// of distinct kernels and of zeros that are read both stay small.
int64_t StepsBeforeShrinking(int64_t n, int64_t left) {
  return left < 2 * kLeastShrink ? left : std::max(kLeastShrink, CeilDiv(n, 4));
}

// Reflections in the order of their steps, those of the first one of elements from `first` on.
class Steps {
 public:
  Steps(int64_t size, int64_t first) : size_(size), at_(first) {}
  void Add(const Reflection& r) {
    v_.push_back(r.v.Transpose());
    factors_.push_back(r.factor);
  }
  void Shrink() {
    const Tensor skewed = Skewed(Cat(v_, -2).Contiguous(), 1);
    Pairs before(skewed.rank(), {0, 0});
    before.back() = {at_, 0};
    rows_.push_back(skewed.Pad(before).SliceAxis(-1, {0, size_}).Contiguous());
    at_ += static_cast<int64_t>(v_.size());
    v_.clear();
  }
  std::vector<Reflections> All() const {
    return Reflections::OfMany(Cat(rows_, -2).Contiguous(), Cat(factors_, -1).Contiguous());
  }

 private:
  int64_t size_, at_;
  std::vector<Tensor> v_, factors_, rows_;
};

Tensor AsVector(const std::vector<Tensor>& numbers, int64_t n) {
  return Cat(numbers, -1).Squeeze(-2).SliceAxis(-1, {0, n}).Contiguous();
}

Tensor Turned(const std::vector<Reflections>& reflections, Tensor m) {
  for (size_t i = reflections.size(); i-- > 0;) m = reflections[i].Of(m).Contiguous();
  return m;
}

Tensor Corner(const Tensor& m, int64_t n) {
  return m.SliceAxis(-1, {0, n}).SliceAxis(-2, {0, n}).Contiguous();
}

}  // namespace

// With p = f M v - (f / 2) (v . f M v) v, reflecting rows and columns takes v p^T + p v^T off M.
Tridiagonal::Tridiagonal(const Tensor& matrix) {
  const int64_t n = matrix.size(-1);
  std::vector<Tensor> on_diagonal, off_diagonal;
  Steps all(n, 1);
  Tensor m = matrix;
  for (int64_t left = n; left > 0;) {
    const int64_t steps = StepsBeforeShrinking(n, left);
    for (int64_t k = 0; k < steps; ++k) {
      const Tensor column = m.SliceAxis(-1, {0, 1});
      const Reflection r(MovedUp(column, -2));
      all.Add(r);
      on_diagonal.push_back(column.SliceAxis(-2, {0, 1}).Contiguous());
      off_diagonal.push_back(r.to);
      const Tensor rest = MovedUp(MovedUp(m, -1), -2);
      const Tensor product = (r.factor * (rest * r.v.Transpose()).Sum(-1, true)).Contiguous();
      const Tensor share = (r.factor * (r.v * product).Sum(-2, true) * 0.5).Contiguous();
      const Tensor p = (product - share * r.v).Contiguous();
      m = (rest - r.v * p.Transpose() - p * r.v.Transpose()).Contiguous();
    }
    left -= steps;
    all.Shrink();
    m = Corner(m, left);
  }
  diagonal = AsVector(on_diagonal, n);
  beside = AsVector(off_diagonal, n - 1);
  reflections_ = all.All();
}

Tensor Tridiagonal::Turned(const Tensor& vectors) const {
  return internal::Turned(reflections_, vectors);
}

Bidiagonal::Bidiagonal(const Tensor& matrix) {
  const int64_t n = matrix.size(-1);
  std::vector<Tensor> on_diagonal, off_diagonal;
  Steps of_columns(n, 0), of_rows(n, 1);
  Tensor m = matrix;
  for (int64_t left = n; left > 0;) {
    const int64_t steps = StepsBeforeShrinking(n, left);
    for (int64_t k = 0; k < steps; ++k) {
      const Reflection down(m.SliceAxis(-1, {0, 1}));
      of_columns.Add(down);
      on_diagonal.push_back(down.to);
      const Tensor row = (down.factor * (down.v * m).Sum(-2, true)).Contiguous();
      const Tensor first =
          MovedUp(m.SliceAxis(-2, {0, 1}) - down.v.SliceAxis(-2, {0, 1}) * row, -1);
      const Reflection across(first.Transpose());
      of_rows.Add(across);
      off_diagonal.push_back(across.to);
      const Tensor rest = MovedUp(MovedUp(m - down.v * row, -1), -2), v = across.v.Transpose();
      const Tensor column = (across.factor * (rest * v).Sum(-1, true)).Contiguous();
      m = (rest - column * v).Contiguous();
    }
    left -= steps;
    of_columns.Shrink();
    of_rows.Shrink();
    m = Corner(m, left);
  }
  diagonal = AsVector(on_diagonal, n);
  beside = AsVector(off_diagonal, n - 1);
  left_ = of_columns.All();
  right_ = of_rows.All();
}

Tensor Bidiagonal::Of(const Tensor& m) const {
  Pairs after(diagonal.rank(), {0, 0});
  after.back() = {0, 1};
  return diagonal.Unsqueeze(-1) * m + beside.Pad(after).Unsqueeze(-1) * MovedUp(m, -2);
}

Tensor Bidiagonal::LeftTurned(const Tensor& m) const { return Turned(left_, m); }
Tensor Bidiagonal::RightTurned(const Tensor& m) const { return Turned(right_, m); }

}  // namespace tessera::internal
