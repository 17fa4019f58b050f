// Decompositions by what they are: products that give the matrix, columns that are orthonormal.
#include <cmath>
#include <limits>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/decompositions.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

double Largest(const Tensor& t) { return t.Abs().Max().Item(); }

TEST(Decompose, RandomMatricesSlow) {
  uint64_t seed = 1;
  for (DType t : {kFloat32, kFloat64}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {1, 1}, {2, 2}, {3, 5, 5}, {2, 7, 3}, {4, 9}, {17, 16}}) {
      SCOPED_TRACE(t.ToString() + Shape(Dims(shape).extents()).ToString());
      const Tensor a = FractionsOf(shape, ++seed).Cast(t).Realize();
      ExpectQr(a);
      ExpectSvd(a);
      if (shape.back() != shape[shape.size() - 2]) continue;
      ExpectEigh((a + a.Transpose()).Realize());
    }
  }
}

// Matrices with those eigenvalues.
Tensor WithValues(const Tensor& values, uint64_t seed) {
  const int64_t n = values.size(0);
  const Tensor q = FractionsOf({n, n}, seed).Qr().first, a = (q * values).MatMul(q.Transpose());
  return ((a + a.Transpose()) * 0.5).Realize();
}

// Where Jacobi's rotations take longest: eigenvalues that are equal, or nearly, or far apart.
TEST(Decompose, HardMatricesSlow) {
  for (int64_t n : {3, 8, 16}) {
    const Tensor i = Tensor::Arange(n, kFloat64), ten = Tensor::Scalar(10.0, kFloat64);
    const Tensor two = Where(i < static_cast<double>(n) / 2, 1.0, 3.0).Cast(kFloat64);
    const std::vector<Tensor> matrices = {
        WithValues(two, 3),
        WithValues(two + i * 1e-8, 4),
        WithValues(Where(i.Mod(2) == 0, 1.0, -1.0), 5),
        WithValues(Where(i < 2, i + 1, 0), 6),
        WithValues(ten.Pow(i / static_cast<double>(n - 1) * 12 - 6), 7),
        Tensor::Zeros({n, n}, kFloat64),
        Tensor::Ones({n, n}, kFloat64) * 1e30,
        (i.Flip(0) - 2).Diag() * 1e-30,
        1 / (i + i.Unsqueeze(1) + 1)};
    for (DType t : {kFloat32, kFloat64}) {
      SCOPED_TRACE(std::to_string(n) + t.ToString());
      const Tensor a = Stack(matrices).Cast(t).To("CPU").Realize();
      ExpectQr(a);
      ExpectEigh(a);
      ExpectSvd(a);
    }
  }
}

TEST(Decompose, ReadsTheLowerTriangle) {
  const Tensor a = FractionsOf({4, 4}, 3), upper = Tensor::Ones({4, 4}, kFloat64).Triu(1);
  EXPECT_EQ(Largest((a + upper).Eigh().first - a.Eigh().first), 0);
}

TEST(Decompose, Dtypes) {
  const Tensor a = Tensor::From({{2, 1, 0}, {1, 3, 1}, {0, 1, 4}});
  for (DType t : {kFloat16, kBFloat16, kInt32}) {
    const DType want = t.IsFloat() ? t : kFloat32;
    const Tensor x = a.Cast(t);
    EXPECT_EQ(x.Qr().second.dtype(), want);
    EXPECT_EQ(x.Svd().s.dtype(), want);
    EXPECT_EQ(x.PInverse().dtype(), want);
    const auto [values, vectors] = x.Eigh();
    EXPECT_EQ(vectors.dtype(), want);
    EXPECT_NEAR(values.Select(0, 1).Item(), 3, t == kBFloat16 ? 2e-2 : 2e-3);
  }
}

TEST(Decompose, NothingAndNan) {
  const auto expect = [](const Tensor& t, const Shape& shape) {
    EXPECT_EQ(t.shape(), shape);
    EXPECT_EQ(t.ToVector<double>().size(), 0u);
  };
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 0}, {0, 0}}) {
    const Tensor a = Tensor::Zeros({2, m, n});
    expect(a.Qr().first, {2, m, 0});
    expect(a.Qr().second, {2, 0, n});
    expect(a.Svd().u, {2, m, 0});
    expect(a.Svd().s, {2, 0});
    expect(a.Svd().vt, {2, 0, n});
    expect(a.PInverse(), {2, n, m});
    EXPECT_EQ(a.MatrixRank().ToVector<int>(), (std::vector<int>{0, 0}));
    EXPECT_EQ(a.LstSq(Tensor::Zeros({2, m, 2})).ToVector<double>(), std::vector<double>(4 * n, 0));
  }
  expect(Tensor::Zeros({0, 0}).Eigh().first, {0});
  expect(Tensor::Zeros({0, 4, 4}).Eigh().second, {0, 4, 4});
  expect(Tensor::Zeros({0, 4, 3}).Svd().u, {0, 4, 3});
  for (double odd : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
    const Tensor a = Tensor::From({{1.0, 2.0, 3.0}, {2.0, odd, 4.0}, {3.0, 4.0, 1.0}}), x = a.Abs();
    for (const Tensor& t : {x.Eigh().first, x.Eigh().second, x.Svd().u, x.Svd().s, x.PInverse()}) {
      EXPECT_TRUE(t.IsNan().All().Item());
    }
    EXPECT_TRUE(x.Qr().second.IsNan().Any().Item());
  }
}

// ---- derivatives

using Loss = std::function<Tensor(const Tensor&)>;

// The first and the second derivative along a direction, against differences.
void ExpectDerivatives(const Tensor& a, const Loss& loss, double tolerance = 1e-6) {
  const Tensor along = FractionsOf({a.size(0), a.size(1)}, 77);
  const auto first = [&](const Tensor& x) { return (Grad(loss(x), {x})[0] * along).Sum(); };
  const double h = 1e-5;
  const Tensor above = (a + along * h).Realize(), below = (a - along * h).Realize();
  const double slope = (loss(above).Item() - loss(below).Item()) / (2 * h);
  EXPECT_NEAR(first(a).Item(), slope, tolerance * (1 + std::fabs(slope)));
  const double bend = (first(above).Item() - first(below).Item()) / (2 * h);
  const double second = (Grad(first(a), {a})[0] * along).Sum().Item();
  EXPECT_NEAR(second, bend, tolerance * (1 + std::fabs(bend)));
  EXPECT_NE(bend, 0);
}

TEST(DecomposeGradients, OfBothOrdersSlow) {
  const Tensor square = FractionsOf({4, 4}, 1).Realize(), tall = FractionsOf({5, 3}, 2).Realize(),
               wide = FractionsOf({3, 4}, 3).Realize();
  const Tensor w = FractionsOf({5, 5}, 4).Realize();
  const auto weighed = [&](const Tensor& t) {
    return (t * w.SliceAxis(0, {0, t.size(0)}).SliceAxis(1, {0, t.size(1)})).Sum();
  };
  for (const Tensor& a : {square, tall, wide}) {
    ExpectDerivatives(a, [&](const Tensor& x) {
      const auto [q, r] = x.Qr();
      return weighed(q) + weighed(r.Square());
    });
    ExpectDerivatives(a, [&](const Tensor& x) { return (x.Svd().s.Square() * 0.5).Exp().Sum(); });
    ExpectDerivatives(a, [&](const Tensor& x) {
      const auto [u, s, vt] = x.Svd();
      return weighed(u.Square()) + weighed(vt.Square()) + weighed((u * s.Log()).MatMul(vt));
    });
    ExpectDerivatives(
        a, [&](const Tensor& x) { return weighed(x.PInverse().Square()); }, 1e-5);
  }
  ExpectDerivatives(square, [&](const Tensor& x) {
    const auto [values, vectors] = x.Eigh();
    return weighed(vectors.Square()) + values.Exp().Sum();
  });
  const Tensor large = (FractionsOf({70, 70}, 5) + Tensor::Eye(70, -1, kFloat64) * 6).Realize();
  const Tensor sides = FractionsOf({70, 2}, 6).Realize();
  for (const Tensor& a : {square, large}) {
    const Tensor b = sides.SliceAxis(0, {0, a.size(0)});
    ExpectDerivatives(
        a, [&](const Tensor& x) { return x.Inverse().Sin().Sum(); }, 1e-5);
    ExpectDerivatives(
        a,
        [&](const Tensor& x) {
          return x.Solve(b * x.SliceAxis(1, {0, 2})).Square().Sum();
        },
        1e-5);
  }
}

// Functions of eigenvalues that are equal are smooth if they are symmetric, and no vectors are
// needed; what depends on vectors that are not unique is seen to be wrong.
TEST(DecomposeGradients, WhereValuesCoincide) {
  const Tensor eye = (Tensor::Eye(3, -1, kFloat64) * 2).To("CPU").Realize();
  const Tensor of_values = Grad(eye.Eigh().first.Log().Sum(), {eye})[0];
  EXPECT_EQ(Largest(of_values - eye / 4), 0);
  const Tensor of_singular = Grad(eye.Svd().s.Square().Sum(), {eye})[0];
  EXPECT_LE(Largest(of_singular - eye * 2), 1e-15);
  const Tensor inverse = Grad((eye.PInverse() * FractionsOf({3, 3}, 5)).Sum(), {eye})[0];
  EXPECT_LE(Largest(inverse + FractionsOf({3, 3}, 5) / 4), 1e-15);
  const auto [values, vectors] = eye.Eigh();
  const Tensor of_vectors = Grad((vectors * FractionsOf({3, 3}, 6)).Sum(), {eye})[0];
  EXPECT_FALSE((of_vectors.Abs() < 1e100).All().Item());
}

TEST(Decompose, InAStep) {
  Jit step([](const Tensor& x) {
    const auto [values, vectors] = x.Eigh();
    return std::vector<Tensor>{values, Grad(values.Exp().Sum(), {x})[0]};
  });
  for (uint64_t seed : {1, 2, 3}) {
    const Tensor x = FractionsOf({4, 4}, seed);
    const std::vector<Tensor> got = step({x});
    EXPECT_EQ(got[0].ToVector<double>(), x.Eigh().first.ToVector<double>());
    EXPECT_LE(Largest(got[1] - Grad(x.Eigh().first.Exp().Sum(), {x})[0]), 1e-14);
  }
}

}  // namespace
}  // namespace tessera
