// What the tests of Tensor share: values by the reference evaluator, and errors by their message.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "graph/evaluate.h"
#include "graph/tensor.h"
#include "tests/testing.h"

namespace tessera {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

inline HostArray Host(const Tensor& t, const EvaluateOptions& options = {}) {
  auto out = Evaluate({t.uop()}, options);
  EXPECT_OK(out);
  return out.ok() ? std::move(out->front()) : HostArray{kFloat32, {}, {}};
}

inline std::vector<double> Values(const Tensor& t, const EvaluateOptions& options = {}) {
  const HostArray host = Host(t, options);
  std::vector<double> out;
  for (int64_t i = 0; i < host.elements(); ++i) out.push_back(host.AsDouble(i));
  return out;
}

inline std::vector<int64_t> Sizes(const Tensor& t) {
  std::vector<int64_t> out;
  for (int i = 0; i < t.rank(); ++i) out.push_back(t.size(i));
  return out;
}

// Each value within `tolerance` of the expected one, relative where it is large; NaN is equal to
// NaN.
inline void ExpectNear(const std::vector<double>& got, const std::vector<double>& expected,
                       double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) || std::isinf(expected[i])) {
      EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i])
          << "element " << i << ": " << got[i] << " is not " << expected[i];
    } else {
      EXPECT_NEAR(got[i], expected[i], tolerance * std::max(1.0, std::fabs(expected[i])))
          << "element " << i;
    }
  }
}

// Numbers of [low, high), others for every seed.
inline std::vector<double> Draw(int64_t n, uint32_t seed = 1, double low = -1, double high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> out(n);
  for (double& v : out) v = uniform(random);
  return out;
}

}  // namespace tessera

// The statement throws an Error whose message starts with `function` and contains `part`.
#define EXPECT_ERROR(statement, function, part)       \
  EXPECT_THAT(::tessera::ErrorOf([&] { statement; }), \
              ::testing::AllOf(::testing::StartsWith(function ": "), ::testing::HasSubstr(part)))
