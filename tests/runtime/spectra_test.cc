// Decompositions of matrices that are taken in parts: as in decompose_test.cc, by what they are.
#include "graph/spectra.h"

#include <cmath>
#include <limits>

#include "graph/elimination.h"
#include "graph/grad.h"
#include "graph/tridiagonal.h"
#include "tests/support/check.h"
#include "tests/support/decompositions.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

// Values of which matrices are hard: equal ones, nearly equal ones, of both signs, few that are not
// 0, far apart, of three sizes.
Tensor HardValues(int64_t n) {
  const Tensor i = Tensor::Arange(n, kFloat64), ten = Tensor::Scalar(10.0, kFloat64);
  const Tensor two = Where(i < static_cast<double>(n) / 2, 1.0, 3.0).Cast(kFloat64);
  const Tensor third = i.Mod(3);
  return Stack({two, two + i * 1e-8, Where(i.Mod(2) == 0, 1.0, -1.0).Cast(kFloat64),
                Where(i < 2, i + 1, 0), ten.Pow(i / static_cast<double>(n - 1) * 7 - 7),
                ten.Pow(i / static_cast<double>(n - 1) * 30 - 15),
                Where(third == 0, 1.0, Where(third == 1, 1e-7, -1e-14)).Cast(kFloat64)});
}

// [B, M, N] with those, and some that have a form.
Tensor HardMatrices(int64_t m, int64_t n, bool symmetric) {
  const int64_t k = std::min(m, n);
  const Tensor values = HardValues(k), i = Tensor::Arange(k, kFloat64),
               drawn = FractionsOf({m, n}, 5);
  const Tensor left = FractionsOf({m, k}, 3).Qr().first.Realize();
  const Tensor right = symmetric ? left : FractionsOf({n, k}, 4).Qr().first.Realize();
  const Tensor spread = (left * values.Unsqueeze(-2)).MatMul(right.Transpose());
  const Tensor scales = Tensor::Scalar(2.0, kFloat64).Pow(Tensor::Arange(n, kFloat64) * -1.5);
  std::vector<Tensor> all = {
      drawn,
      drawn.ZerosLike(),
      drawn.OnesLike() * 1e30,
      drawn * 1e-30,
      drawn.Triu(),
      Tensor::Eye(m, n, kFloat64),
      symmetric ? drawn * scales * scales.Unsqueeze(1) : drawn * scales,
      1 / (Tensor::Arange(n, kFloat64) + Tensor::Arange(m, kFloat64).Unsqueeze(1) + 1)};
  const Tensor both = Cat({spread, Stack(all)}, 0).Realize();
  return symmetric ? ((both + both.Transpose()) * 0.5).Realize() : both;
}

struct Case {
  int64_t m, n;
  DType type;
};

void ExpectOfHard(const std::vector<Case>& cases, bool symmetric,
                  const std::function<void(const Tensor&)>& expect) {
  for (const auto& [m, n, type] : cases) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + type.ToString());
    expect(HardMatrices(m, n, symmetric).Cast(type).Realize());
  }
}

TEST(Parts, QrSlow) {
  ExpectOfHard({{65, 65, kFloat32}, {70, 33, kFloat64}, {34, 50, kFloat32}}, false, ExpectQr);
}

// So many columns that what is left becomes smaller; some depend on others.
TEST(Parts, QrOfManyColumnsSlow) {
  const Tensor a = FractionsOf({261, 258}, 1);
  const Tensor tied = Where(Tensor::Arange(258) % 3 == 1, a.Roll(1, -1), a);
  ExpectQr(Stack({a, tied}).Cast(kFloat32).Realize());
  ExpectQr(FractionsOf({1, 145, 145}, 2).Realize());  // ten times 15 are more
}

TEST(Parts, EighSlow) {
  ExpectOfHard({{25, 25, kFloat32}, {66, 66, kFloat32}, {67, 67, kFloat64}}, true, ExpectEigh);
}

TEST(Parts, SvdSlow) {
  ExpectOfHard({{50, 41, kFloat32}, {42, 45, kFloat32}, {66, 66, kFloat64}}, false, ExpectSvd);
}

TEST(Parts, QrHasTheSignsOfSteps) {
  // What is a triangle already is left as it is; else the diagonal is of the other sign.
  const Tensor triangle =
      (FractionsOf({40, 40}, 1) + Tensor::Eye(40, -1, kFloat64)).Triu().Realize();
  auto [q, r] = triangle.Qr();
  Compute(q, r);
  EXPECT_EQ((r - triangle).Abs().Max().Item(), 0);
  EXPECT_EQ((q - Tensor::Eye(40, -1, kFloat64)).Abs().Max().Item(), 0);
  const Tensor steep = (FractionsOf({40, 40}, 2) + Tensor::Eye(40, -1, kFloat64) * 50).Realize();
  const Tensor signs = steep.Qr().second.Diagonal(0, -2, -1).Sign();
  std::vector<int> want(40, -1);
  want.back() = 1;  // of one element there is no reflection
  EXPECT_EQ(signs.ToVector<int>(), want);
}

TEST(Parts, NanStaysInItsMatrixSlow) {
  const Tensor i = Tensor::Arange(3).Unsqueeze(-1).Unsqueeze(-1);
  for (double odd : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
    const Tensor at = Tensor::Arange(45), corner = (at == 7) & (at.Unsqueeze(1) == 7);
    const Tensor a =
        Where((i == 1) & corner, odd, FractionsOf({3, 45, 45}, 9)).Cast(kFloat32).Realize();
    auto [values, vectors] = a.Eigh();
    auto [u, s, vt] = a.Svd();
    Compute(values, vectors, u, s, vt);
    for (const Tensor& t : {values.Unsqueeze(-1), vectors, u, s.Unsqueeze(-1), vt}) {
      EXPECT_EQ(t.IsNan().All({-2, -1}).ToVector<int>(), (std::vector<int>{0, 1, 0}));
      EXPECT_EQ(t.IsNan().Any({-2, -1}).ToVector<int>(), (std::vector<int>{0, 1, 0}));
    }
  }
}

// Along a direction, against differences.
void ExpectDerivative(const Tensor& a, const std::function<Tensor(const Tensor&)>& loss) {
  const Tensor along = FractionsOf({a.size(0), a.size(1)}, 77);
  const double h = 1e-6;
  const double slope =
      (loss((a + along * h).Realize()).Item() - loss((a - along * h).Realize()).Item()) / (2 * h);
  EXPECT_NEAR((Grad(loss(a), {a})[0] * along).Sum().Item(), slope, 1e-5 * (1 + std::fabs(slope)));
  EXPECT_GT(std::fabs(slope), 1e-3);
}

TEST(Parts, DerivativesSlow) {
  const Tensor a = FractionsOf({45, 45}, 3).Realize(), w = FractionsOf({45, 45}, 4).Realize();
  ExpectDerivative(a, [&](const Tensor& x) {
    const auto [q, r] = x.Qr();
    return (q * w).Sum() + (r * w).Square().Sum();
  });
  ExpectDerivative(a, [&](const Tensor& x) { return x.Eigh().first.Exp().Sum(); });
  ExpectDerivative(a, [&](const Tensor& x) {
    const auto [u, s, vt] = x.Svd();
    return (u * (s + 1).Log()).MatMul(vt).Square().Mul(w).Sum();
  });
}

// ---- tridiagonal matrices

Tensor Filled(const Tensor& diagonal, const Tensor& beside) {
  const Tensor upper = beside.Pad({{0, 0}, {0, 1}}).DiagEmbed().Roll(1, -1);
  return diagonal.DiagEmbed() + upper + upper.Transpose();
}

// Wilkinson's, whose largest come in pairs that differ by rounding; sixteen rows of it many times,
// joined by little; a path; rounding beside ones; graded both ways; what parts in two; and none.
TEST(Parts, TridiagonalSlow) {
  const int64_t n = 75;
  const Tensor i = Tensor::Arange(n, kFloat64), j = i.SliceAxis(0, {0, n - 1}), one = j.OnesLike();
  const Tensor ten = Tensor::Scalar(10.0, kFloat64), drawn = FractionsOf({n}, 1);
  const auto graded = [&](const Tensor& k) { return ten.Pow(k * (-16.0 / n)); };
  const Tensor wilkinson = (i - 37).Abs();
  const Tensor diagonal = Stack({wilkinson, (i.Mod(15) - 7).Abs(), i.OnesLike() * 2, i.OnesLike(),
                                 graded(i), graded(i).Flip(0), drawn, i.ZerosLike(), i.ZerosLike()})
                              .Realize();
  const Tensor beside =
      Stack({one, Where(j.Mod(15) == 14, 1e-9, 1.0).Cast(kFloat64), -one, one * 1e-17, graded(j),
             graded(j).Flip(0), Where(j.Mod(2) == 0, 0, drawn.SliceAxis(0, {1, n})),
             drawn.SliceAxis(0, {1, n}), j.ZerosLike()})
          .Realize();
  const Tensor full = Filled(diagonal, beside).Realize(), size = Size(full);
  for (DType t : {kFloat32, kFloat64}) {
    const double precision = EpsilonOf(t) * 30;
    internal::Matrices all = internal::TridiagonalPairs(diagonal, beside, t);
    Tensor::Realize(absl::MakeSpan(all));
    const Tensor v = Wide(all[1]);
    ExpectAtMost(Most(full.MatMul(v) - v * all[0].Unsqueeze(-2)), size * precision);
    ExpectOrthonormal(v, precision);
    EXPECT_TRUE((all[0].Diff(1, -1) >= 0).All().Item());
    internal::Matrices some = internal::TridiagonalPairs(diagonal, beside, t, 30);
    Tensor::Realize(absl::MakeSpan(some));
    EXPECT_EQ((some[0] - all[0].SliceAxis(-1, {30, n})).Abs().Max().Item(), 0);
    const Tensor few = all[1].SliceAxis(-1, {30, n});
    EXPECT_LE((some[1] - few).Abs().Max().Item(), precision);
    // A path's are known.
    const Tensor path = 2 - 2 * ((i + 1) * (std::acos(-1) / (n + 1))).Cos();
    EXPECT_LE((all[0].Select(0, 2) - path).Abs().Max().Item(), precision);
  }
}

// Of one part, and of two that fill four rows and a fifth.
TEST(Parts, SmallTridiagonalSlow) {
  for (int64_t n : {2, 5, 9}) {
    const Tensor diagonal = FractionsOf({1, n}, 1).Realize(),
                 beside = FractionsOf({1, n - 1}, 2).Realize();
    const Tensor full = Filled(diagonal, beside).Realize();
    for (int64_t first : {int64_t{0}, n / 2}) {
      internal::Matrices some = internal::TridiagonalPairs(diagonal, beside, kFloat64, first);
      Tensor::Realize(absl::MakeSpan(some));
      EXPECT_EQ(some[0].size(-1), n - first);
      ExpectOrthonormal(some[1], 1e-14);
      EXPECT_LE((full.MatMul(some[1]) - some[1] * some[0].Unsqueeze(-2)).Abs().Max().Item(), 1e-14);
    }
  }
}

TEST(Parts, ReducedMatrices) {
  const Tensor a = FractionsOf({2, 70, 70}, 3).Realize(), symmetric = (a + a.Transpose()).Realize();
  internal::Tridiagonal t(symmetric);
  Tensor q = t.Turned(Tensor::Eye(70, -1, kFloat64).Expand(a.shape()).Contiguous());
  Compute(t.diagonal, t.beside, q);
  const Tensor middle = Filled(t.diagonal, t.beside);
  ExpectOrthonormal(q, 1e-14);
  EXPECT_LE((q.MatMul(middle).MatMul(q.Transpose()) - symmetric).Abs().Max().Item(), 1e-13);
  internal::Bidiagonal b(a);
  const Tensor one = Tensor::Eye(70, -1, kFloat64).Expand(a.shape()).Contiguous();
  Tensor p = b.LeftTurned(one), r = b.RightTurned(one);
  Compute(b.diagonal, b.beside, p, r);
  ExpectOrthonormal(p, 1e-14);
  ExpectOrthonormal(r, 1e-14);
  EXPECT_LE((p.MatMul(b.Of(r.Transpose())) - a).Abs().Max().Item(), 1e-13);
  EXPECT_EQ((b.Of(one).Triu() - b.Of(one)).Abs().Max().Item(), 0);
}

TEST(Parts, Skewed) {
  const Tensor t = Tensor::From({{1, 2, 3}, {4, 5, 0}, {6, 0, 0}});
  EXPECT_EQ(internal::Skewed(t, 1).ToVector<int>(), (std::vector<int>{1, 2, 3, 0, 4, 5, 0, 0, 6}));
  EXPECT_EQ(internal::MovedBy(t, 0, 1).ToVector<int>(),
            (std::vector<int>{0, 0, 0, 1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(internal::MovedBy(t, -1, -2).ToVector<int>(),
            (std::vector<int>{3, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace tessera
