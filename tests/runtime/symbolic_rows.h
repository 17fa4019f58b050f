// Rows of which a variable says how many there are, for tests on one place and on many.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {

inline constexpr int64_t kMost = 7;

// [kMost, 4], of small fractions.
inline Tensor Rows() {
  const std::vector<double> v = Fractions(kMost * 4, 3);
  std::vector<float> f;
  for (double x : v) f.push_back(static_cast<float>(std::round(x * 64) / 16));
  return Tensor::From(f, {kMost, 4}, "CPU");
}

// On every place that has a part of x.
inline Tensor Beside(const Tensor& x, const Tensor& t) {
  return t.To(x.device().is_sharding() ? Device(Sharding(x.device().sharding().mesh()))
                                       : x.device());
}

inline void ExpectNear(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const auto a = got.ToVector<double>(), b = want.ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(b[i]))) << what << ", element " << i;
  }
}

}  // namespace tessera
