// Symmetric matrices made tridiagonal, others bidiagonal, by reflections.
#include "graph/tridiagonal.h"

#include <algorithm>

#include "graph/elimination.h"
#include "graph/index_math.h"
#include "graph/repeat.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kLeastShrink = 32;

// A step reflects what the first row and column have; then those after them move up, so that steps
// are the same graph, and a loop. Zeros come in at the end. They are left off four times: so the
// numbers of distinct kernels and of zeros that are read both stay small.
int64_t StepsBeforeShrinking(int64_t n, int64_t left) {
  return left < 2 * kLeastShrink ? left : std::max(kLeastShrink, CeilDiv(n, 4));
}

// Reflections in the order of their steps, those of the first one of elements from `first` on.
class Steps {
 public:
  Steps(int64_t size, int64_t first) : size_(size), at_(first) {}
  // Of some steps, after which what is left shrinks: v^T of each, and factors, stacked.
  void Add(const Tensor& v, const Tensor& factors) {
    const Tensor skewed = Skewed(JoinedAlong(v, -2).Contiguous(), 1);
    Pairs before(skewed.rank(), {0, 0});
    before.back() = {at_, 0};
    rows_.push_back(skewed.Pad(before).SliceAxis(-1, {0, size_}).Contiguous());
    factors_.push_back(JoinedAlong(factors, -1));
    at_ += v.size(0);
  }
  std::vector<Reflections> All() const {
    return Reflections::OfMany(Cat(rows_, -2).Contiguous(), Cat(factors_, -1).Contiguous());
  }

 private:
  int64_t size_, at_;
  std::vector<Tensor> factors_, rows_;
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
    const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor column = in[0].SliceAxis(-1, {0, 1});
      const Reflection r(MovedUp(column, -2));
      const Tensor rest = MovedUp(MovedUp(in[0], -1), -2);
      const Tensor product = (r.factor * (rest * r.v.Transpose()).Sum(-1, true)).Contiguous();
      const Tensor share = (r.factor * (r.v * product).Sum(-2, true) * 0.5).Contiguous();
      const Tensor p = (product - share * r.v).Contiguous();
      return {(rest - r.v * p.Transpose() - p * r.v.Transpose()).Contiguous(), r.v.Transpose(),
              r.factor, column.SliceAxis(-2, {0, 1}), r.to};
    };
    const Looped done = Repeat(steps, {m}, {}, step);
    all.Add(done.stacked[0], done.stacked[1]);
    on_diagonal.push_back(JoinedAlong(done.stacked[2], -1));
    off_diagonal.push_back(JoinedAlong(done.stacked[3], -1));
    left -= steps;
    m = Corner(done.carried[0], left);
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
    const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor& m = in[0];
      const Reflection down(m.SliceAxis(-1, {0, 1}));
      const Tensor row = (down.factor * (down.v * m).Sum(-2, true)).Contiguous();
      const Tensor first =
          MovedUp(m.SliceAxis(-2, {0, 1}) - down.v.SliceAxis(-2, {0, 1}) * row, -1);
      const Reflection across(first.Transpose());
      const Tensor rest = MovedUp(MovedUp(m - down.v * row, -1), -2), v = across.v.Transpose();
      const Tensor column = (across.factor * (rest * v).Sum(-1, true)).Contiguous();
      return {(rest - column * v).Contiguous(),
              down.v.Transpose(),
              down.factor,
              v,
              across.factor,
              down.to,
              across.to};
    };
    const Looped done = Repeat(steps, {m}, {}, step);
    of_columns.Add(done.stacked[0], done.stacked[1]);
    of_rows.Add(done.stacked[2], done.stacked[3]);
    on_diagonal.push_back(JoinedAlong(done.stacked[4], -1));
    off_diagonal.push_back(JoinedAlong(done.stacked[5], -1));
    left -= steps;
    m = Corner(done.carried[0], left);
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
