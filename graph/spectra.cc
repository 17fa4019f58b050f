// Eigenvalues and vectors of symmetric tridiagonal matrices, from those of their parts.
#include "graph/spectra.h"

#include <cmath>

#include "graph/index_math.h"
#include "graph/repeat.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {
namespace {

constexpr int64_t kLeastPart = 4;  // of which rotations find the vectors
// What takes equal numbers of about 1 apart, and the least rho; the least square in z.
constexpr double kApart = 0x1p-104, kLeastSquare = 0x1p-120;
constexpr double kLeastSeen = 0x1p-80;  // what comes of these is less

constexpr int64_t BitsOf(int exponent) { return int64_t{1023 + exponent} << 52; }

// Where an eigenvalue is: at some distance from an element of the diagonal. All that is known of
// them is one tensor, which each step makes anew: so nothing of two steps is alike, and what each
// has of all pairs, being cheap, is nowhere stored.
struct Located {
  Tensor all;  // [..., P, 3, n]

  Tensor From() const { return all.SliceAxis(-2, {0, 1}); }
  Tensor FromStep() const { return all.SliceAxis(-2, {1, 2}); }
  Tensor Offset() const { return all.SliceAxis(-2, {2, 3}); }
  Located With(const Tensor& offset) const {
    return {Where(Tensor::Arange(3).Unsqueeze(-1) == 2, offset, all).Contiguous()};
  }
};

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
    const Tensor place = before.Cast(kInt32).Sum(-1, /*keepdim=*/true).Contiguous();
    is_at_ = (place == i).Contiguous();
    step_ = Steps(place).Contiguous();
    sorted_ = Where(is_at_, own_, 0).Sum(-2, /*keepdim=*/true).Contiguous();
    Solve(type);
  }

  // [..., P, n] from `first` on, and what joins vectors, [..., P, n, n].
  Tensor Values(int64_t first) const {
    const Tensor offset = found_.Offset();
    const Tensor values = found_.From() + Where(offset.Abs() < kLeastSeen, 0, offset);
    return values.Squeeze(-2).SliceAxis(-1, {first, n_}).Contiguous();
  }
  // Of the z that has exactly these eigenvalues: so vectors are orthonormal however near values
  // are.
  Tensor Vectors(int64_t first, DType type) const {
    const Tensor beyond = -Less(found_, found_.Offset());
    const Tensor apart = (sorted_ - own_) + (Steps(Tensor::Arange(n_)) - step_);
    const Tensor ratios = beyond / Where(is_at_, 1, apart);
    const Tensor product = ratios.Prod(-1, /*keepdim=*/true).Abs().Sqrt();
    const Tensor z = Where(negative_, -product, product).Contiguous();
    const Tensor all = (z / beyond.SliceAxis(-1, {first, n_})).Contiguous();
    return (all * all.Square().Sum(-2, /*keepdim=*/true).Rsqrt()).Cast(type).Contiguous();
  }

 private:
  static Tensor Steps(const Tensor& places) { return places.Cast(kFloat64) * kApart; }

  // The elements of the diagonal less what is at an offset.
  Tensor Less(const Located& at, const Tensor& offset) const {
    return (own_ - at.From()) + ((step_ - at.FromStep()) - offset);
  }
  // The function whose zeros are the eigenvalues; and that and its slope, [..., P, 2, n].
  Tensor At(const Located& at, const Tensor& offset) const {
    return rho_ * (squares_ / Less(at, offset)).Sum(-2, /*keepdim=*/true) + 1;
  }
  Tensor WithSlope(const Located& at) const {
    const Tensor less = Less(at, at.Offset()).Unsqueeze(-3);
    const Tensor is_slope = (Tensor::Arange(2) == 1).Unsqueeze(-1).Unsqueeze(-1);
    const Tensor terms = squares_.Unsqueeze(-3) / (less * Where(is_slope, less, 1));
    const Tensor sums = rho_ * terms.Sum(-2);
    return Where(Tensor::Arange(2).Unsqueeze(-1) == 0, sums + 1, sums).Contiguous();
  }

  // Each is found as a distance from the nearer of its neighbours, every digit of which counts.
  // Distances are halved as the bits of their floats, so that they may be of any size, until they
  // are known to a 32nd. As no element is nearer, Newton's steps square relative errors from there.
  void Solve(DType type) {
    const Tensor i = Tensor::Arange(n_);
    const Tensor next = Cat({sorted_.SliceAxis(-1, {1, n_}), sorted_.SliceAxis(-1, {0, 1})}, -1);
    const Tensor middle = (next - sorted_ + kApart) * 0.5;
    const Tensor half = Where(i == n_ - 1, rho_ * 4, middle).Contiguous();
    const auto located = [&](const Tensor& from, const Tensor& place, const Tensor& offset) {
      return Located{Cat({from, Steps(place).Expand(from.shape()), offset}, -2).Contiguous()};
    };
    const Tensor ahead = At(located(sorted_, i, half), half);
    const Tensor below = ((ahead < 0) & (i < n_ - 1)).Contiguous();
    const Tensor sign = Where(below, -1.0, 1.0).Cast(kFloat64).Contiguous();
    const Tensor first = Tensor::Scalar(BitsOf(-240), kInt64).Bitcast(kFloat64);
    found_ = located(Where(below, next, sorted_), below.Cast(kInt32) + i, first * sign);
    const Tensor one = Tensor::Scalar(int64_t{1}, kInt64);
    const Tensor bits = (one << (Tensor::Arange(kHalvings).Cast(kInt64) + kLeastBit)).Contiguous();
    const auto raised = [&](const Located& at, const Tensor& bit) {
      return (at.Offset().Abs().Bitcast(kInt64) + bit).Bitcast(kFloat64);
    };
    const auto halve = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Located at{in[0]};
      const Tensor tried = raised(at, in[1]);
      const Tensor value = At(at, tried.Minimum(half) * sign);
      const Tensor beyond = (value * sign < 0) & (tried <= half);
      return {at.With(Where(beyond, tried * sign, at.Offset())).all};
    };
    found_ = {Repeat(kHalvings, {found_.all}, {bits.Flip(0)}, halve).carried[0]};
    const Tensor least = found_.Offset().Abs().Contiguous();
    const Tensor most = raised(found_, bits.SliceAxis(0, {0, 1})).Contiguous();
    found_ = found_.With((least + most) * 0.5 * sign);
    for (int step = 0; step < (type == kFloat64 ? 4 : 3); ++step) {
      const Tensor both = WithSlope(found_);
      const Tensor share = both.SliceAxis(-2, {0, 1}) / both.SliceAxis(-2, {1, 2});
      const Tensor distance = (found_.Offset() - share) * sign;
      found_ = found_.With(distance.Maximum(least).Minimum(most) * sign);
    }
  }

  // Exponents of two from -240 on, and fractions of four bits.
  static constexpr int kLeastBit = 48, kHalvings = 12;

  int64_t n_;
  Tensor own_, step_, squares_, negative_;  // [..., P, n, 1]
  Tensor is_at_;                            // [..., P, n, n]: whose place is which
  Tensor sorted_;                           // [..., P, 1, n]
  Tensor rho_;                              // [..., P, 1, 1]
  Located found_;
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
  const auto in_parts = [&](const Tensor& t) {
    return t.Unflatten(-1, {parts, size}).Contiguous();
  };
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
  const int64_t begin = parts == 1 ? first : 0, end = begin + n - first;
  return {values.Select(-2, 0).SliceAxis(-1, {begin, end}),
          vectors.Select(-3, 0).SliceAxis(-2, {0, n}).SliceAxis(-1, {begin, end})};
}

}  // namespace tessera::internal
