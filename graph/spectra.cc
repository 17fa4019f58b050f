// Eigenvalues and vectors of symmetric tridiagonal matrices, from those of their parts.
#include "graph/spectra.h"

#include <cmath>

#include "graph/index_math.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kLeastPart = 8;  // of which rotations find the vectors
// What takes equal numbers of about 1 apart, and the least rho; the least square in z.
constexpr double kApart = 0x1p-104, kLeastSquare = 0x1p-120;
constexpr double kLeastSeen = 0x1p-80;  // what comes of these is less

// Joined are pairs of parts: [..., P, n] has what there was of two parts of n / 2.
class Joined {
 public:
  Joined(const Tensor& values, const Tensor& z, const Tensor& rho, DType type)
      : n_(values.size(-1)) {
    own_ = values.Unsqueeze(-1).Contiguous();
    rho_ = rho.Maximum(kApart).Unsqueeze(-1).Unsqueeze(-1).Contiguous();
    negative_ = (z < 0).Unsqueeze(-1);
    squares_ = z.Square().Maximum(kLeastSquare).Unsqueeze(-1).Contiguous();
    const Tensor i = Tensor::Arange(n_), others = values.Unsqueeze(-2);
    const Tensor before = (others < own_) | ((others == own_) & (i < i.Unsqueeze(-1)));
    place_ = before.Cast(kInt32).Sum(-1, /*keepdim=*/true).Contiguous();
    sorted_ = Where(place_ == i, own_, 0).Sum(-2, /*keepdim=*/true).Contiguous();
    Solve(type);
  }

  // [..., P, n] from `first` on, and what joins vectors, [..., P, n, n].
  Tensor Values(int64_t first) const {
    const Tensor seen = Where(offset_.Abs() < kLeastSeen, 0, offset_);
    return (from_ + seen).Squeeze(-2).SliceAxis(-1, {first, n_}).Contiguous();
  }
  // Of the z that has exactly these eigenvalues: so vectors are orthonormal however near values are.
  Tensor Vectors(int64_t first, DType type) const {
    const Tensor i = Tensor::Arange(n_), own = place_ == i;
    const Tensor apart = Where(own, 1, (sorted_ - own_) + Steps(i - place_));
    const Tensor product = (Beyond() / apart).Prod(-1, /*keepdim=*/true).Abs().Sqrt();
    const Tensor z = Where(negative_, -product, product).Contiguous();
    const Tensor all = (z / Beyond().SliceAxis(-1, {first, n_})).Contiguous();
    return (all * all.Square().Sum(-2, /*keepdim=*/true).Rsqrt()).Cast(type).Contiguous();
  }

 private:
  static Tensor Steps(const Tensor& places) { return places.Cast(kFloat64) * kApart; }

  // Eigenvalues less the elements of the diagonal.
  Tensor Beyond() const { return (from_ - own_) + (Steps(from_place_ - place_) + offset_); }

  // The function whose zeros they are, at distances from some of the sorted elements.
  Tensor At(const Tensor& from, const Tensor& from_place, const Tensor& offset) const {
    const Tensor distance = (own_ - from) + (Steps(place_ - from_place) - offset);
    return rho_ * (squares_ / distance).Sum(-2, /*keepdim=*/true) + 1;
  }

  // Each is found as a distance from the nearer of its neighbours, every digit of which counts.
  // Distances are halved as the bits of their floats, so that they may be of any size.
  void Solve(DType type) {
    const Tensor i = Tensor::Arange(n_), last = i == n_ - 1;
    const Tensor next = Cat({sorted_.SliceAxis(-1, {1, n_}), sorted_.SliceAxis(-1, {0, 1})}, -1);
    const Tensor half = Where(last, rho_ * 4, (next - sorted_ + kApart) * 0.5).Contiguous();
    const Tensor below = ((At(sorted_, i, half) < 0) & (i < n_ - 1)).Contiguous();
    from_ = Where(below, next, sorted_).Contiguous();
    from_place_ = (below.Cast(kInt32) + i).Contiguous();
    const Tensor sign = Where(below, -1.0, 1.0).Cast(kFloat64).Contiguous();
    Tensor bits = half.ZerosLike(kInt64).Contiguous();
    for (int bit = 61; bit >= (type == kFloat64 ? 0 : 20); --bit) {
      const Tensor tried = bits + Tensor::Scalar(int64_t{1} << bit, kInt64);
      const Tensor distance = tried.Bitcast(kFloat64), inside = distance.Minimum(half);
      const Tensor beyond = At(from_, from_place_, inside * sign) * sign < 0;
      bits = Where(beyond & (distance <= half), tried, bits).Contiguous();
    }
    offset_ = (bits.Maximum(1).Bitcast(kFloat64) * sign).Contiguous();
  }

  int64_t n_;
  Tensor own_, place_, squares_, negative_;    // [..., P, n, 1]
  Tensor sorted_, from_, from_place_, offset_;  // [..., P, 1, n]
  Tensor rho_;                                  // [..., P, 1, 1]
};

// Square parts along the diagonal.
Tensor Parts(const Tensor& diagonal, const Tensor& beside) {
  const Tensor i = Tensor::Arange(diagonal.size(-1)), row = i.Unsqueeze(-1);
  const Tensor upper = Where(i == row + 1, beside.Unsqueeze(-1), 0);
  return (Where(i == row, diagonal.Unsqueeze(-1), upper) + upper.Transpose()).Contiguous();
}

}  // namespace

Matrices TridiagonalPairs(const Tensor& diagonal, const Tensor& beside, DType type, int64_t first) {
  const int64_t n = diagonal.size(-1);
  int64_t parts = 1;
  while (n >= parts * 2 * kLeastPart) parts *= 2;
  const int64_t size = CeilDiv(n, parts), even = size * parts;
  // Beyond the end is a diagonal whose values come last.
  const auto filled = [&](const Tensor& t, const Operand& with) {
    Pairs pairs(t.rank(), {0, 0});
    pairs.back() = {0, even - t.size(-1)};
    return Where(Tensor::Arange(even) < t.size(-1), t.Pad(pairs), with).Contiguous();
  };
  const Tensor next = filled(beside, 0), size_of = next.Abs();
  const Tensor most = diagonal.Abs().Max(-1, true) + size_of.Max(-1, true) * 2;
  // The last of each part, and the first of the one after it, without what joins them.
  const Tensor at_end = Tensor::Arange(even) % size == size - 1;
  const Tensor taken = Where(at_end, size_of, 0).Contiguous();
  Tensor d = filled(diagonal, most * 2 + 1) - taken - taken.Roll(1, -1);
  const auto in_parts = [&](const Tensor& t) { return t.Unflatten(-1, {parts, size}).Contiguous(); };
  Matrices pairs = JacobiPairs(Parts(in_parts(d), in_parts(Where(at_end, 0, next))));
  Tensor values = pairs[0].Squeeze(-2), vectors = pairs[1].Cast(type).Contiguous();
  Tensor joints = in_parts(next).Select(-1, size - 1).Contiguous();  // the last joins nothing
  for (int64_t p = parts / 2, h = size; p > 0; p /= 2, h *= 2) {
    const Tensor joint = joints.Unflatten(-1, {p, 2}).Select(-1, 0).Contiguous();
    joints = joints.Unflatten(-1, {p, 2}).Select(-1, 1).Contiguous();
    const Tensor both = vectors.Unflatten(-3, {p, 2});
    const Tensor upper = both.Select(-3, 0).Select(-2, h - 1).Cast(kFloat64);
    const Tensor lower = both.Select(-3, 1).Select(-2, 0).Cast(kFloat64);
    const Tensor z = Cat({upper, Where(joint.Unsqueeze(-1) < 0, -lower, lower)}, -1);
    const Joined joined(values.Unflatten(-2, {p, 2}).Flatten(-2).Contiguous(), z.Contiguous(),
                        joint.Abs(), type);
    const int64_t from = p == 1 ? first : 0;
    const Tensor turn = joined.Vectors(from, type).Unflatten(-2, {2, h});
    vectors = both.MatMul(turn).Flatten(-3, -2).Contiguous();
    values = joined.Values(from);
  }
  const int64_t count = n - first;
  return {values.Select(-2, 0).SliceAxis(-1, {0, count}),
          vectors.Select(-3, 0).SliceAxis(-2, {0, n}).SliceAxis(-1, {0, count})};
}

}  // namespace tessera::internal
