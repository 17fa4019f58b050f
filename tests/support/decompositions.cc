#include "tests/support/decompositions.h"

#include <cmath>

#include "tests/support/samples.h"

namespace tessera {

Tensor Wide(const Tensor& t) { return t.Cast(kFloat64).Contiguous(); }

Tensor Most(const Tensor& t) { return t.Abs().Max({-2, -1}); }

void ExpectAtMost(const Tensor& error, const Tensor& bound) {
  const std::vector<double> e = Wide(error).ToVector<double>(), b = Wide(bound).ToVector<double>();
  ASSERT_EQ(e.size(), b.size());
  for (size_t i = 0; i < e.size(); ++i) EXPECT_LE(e[i], b[i]) << "matrix " << i;
}

Tensor Size(const Tensor& x) { return x.Square().Sum({-2, -1}).Sqrt(); }

void ExpectOrthonormal(const Tensor& q, double precision) {
  const Tensor x = Wide(q);
  const Tensor error = x.Transpose().MatMul(x) - Tensor::Eye(x.size(-1), -1, kFloat64);
  ExpectAtMost(Most(error), Most(error).FullLike(precision));
}

double Precision(const Tensor& a) {
  return EpsilonOf(a.dtype()) * 8 * std::sqrt(a.size(-2) + a.size(-1));
}

void ExpectQr(const Tensor& a) {
  auto [q, r] = a.Qr();
  Compute(q, r);
  const double precision = Precision(a);
  const Tensor x = Wide(a);
  ExpectAtMost(Most(Wide(q).MatMul(Wide(r)) - x), Size(x) * precision);
  ExpectOrthonormal(q, precision);
  EXPECT_EQ(r.Tril(-1).Abs().Max().Item(), 0);
}

void ExpectEigh(const Tensor& a) {
  auto [values, vectors] = a.Eigh();
  Compute(values, vectors);
  const double precision = Precision(a);
  const Tensor x = Wide(a), v = Wide(vectors), s = Wide(values);
  ExpectAtMost(Most(x.MatMul(v) - v * s.Unsqueeze(-2)), Size(x) * precision);
  ExpectOrthonormal(v, precision);
  EXPECT_TRUE((values.Diff(1, -1) >= 0).All().Item());
}

void ExpectSvd(const Tensor& a) {
  auto [u, s, vt] = a.Svd();
  Compute(u, s, vt);
  const double precision = Precision(a);
  const Tensor x = Wide(a), t = Wide(vt), product = (Wide(u) * Wide(s).Unsqueeze(-2)).MatMul(t);
  ExpectAtMost(Most(product - x), Size(x) * precision);
  ExpectOrthonormal(u, precision);
  ExpectOrthonormal(t.Transpose(), precision);
  EXPECT_TRUE((s.Diff(1, -1) <= 0).All().Item());
  EXPECT_TRUE((s >= 0).All().Item());
}

}  // namespace tessera
