// Reductions in two steps, on CPUs and on the simulated GPU: lengths that nothing divides, several
// axes, what is computed first, special values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "tests/testing.h"

namespace tessera {
namespace {

constexpr int64_t kPrime = 200003;

// Small integers: any order of summation gives the same number.
std::vector<float> Draw(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(static_cast<int>(random() % 9) - 4);
  return out;
}

Tensor On(const char* place, const std::vector<float>& values, const Dims& dims) {
  return Tensor::FromBytes(values.data(), dims, kFloat32, "CPU").To(place).Realize();
}

std::vector<double> Computed(const Tensor& t) {
  return t.To("CPU").Cast(kFloat64).ToVector<double>();
}

class SplitReductions : public testing::TestWithParam<const char*> {};

TEST_P(SplitReductions, OfPrimeLengths) {
  std::vector<float> x = Draw(kPrime, 1);
  x[kPrime - 1] = 77;  // in what is left over
  x[12345] = -78;
  const Tensor t = On(GetParam(), x, {kPrime});
  double sum = 0, squares = 0;
  for (float v : x) sum += v, squares += v * v;
  EXPECT_EQ(Computed(t.Sum()), std::vector<double>{sum});
  EXPECT_EQ(Computed((t * t).Sum() + 1), std::vector<double>{squares + 1});
  EXPECT_EQ(Computed(t.Max()), std::vector<double>{77});
  EXPECT_EQ(Computed(t.Min()), std::vector<double>{-78});
  EXPECT_EQ(Computed((t > 76).Any()), std::vector<double>{1});
  EXPECT_EQ(Computed((t < 77).All()), std::vector<double>{0});
  EXPECT_EQ(Computed(t.Cast(kInt32).Sum()), std::vector<double>{sum});
  EXPECT_EQ(Computed(Where(t == 77, -1, 1).Cast(kFloat32).Prod()), std::vector<double>{-1});
}

TEST_P(SplitReductions, OfSeveralAxes) {
  constexpr int64_t kRows = 401, kColumns = 503;
  const std::vector<float> x = Draw(kRows * kColumns, 2);
  const Tensor t = On(GetParam(), x, {kRows, kColumns});
  double sum = 0;
  for (float v : x) sum += v;
  EXPECT_EQ(Computed(t.Sum()), std::vector<double>{sum});
  EXPECT_EQ(Computed(t.T().Sum()), std::vector<double>{sum});
  EXPECT_EQ(Computed((t.Reshape({kColumns, kRows}) * 2).Sum()), std::vector<double>{2 * sum});
  // Few results, along either axis.
  const Tensor wide = On(GetParam(), Draw(3 * 70001, 3), {3, 70001});
  const std::vector<double> all = Computed(wide);
  std::vector<double> rows(3, 0);
  for (size_t i = 0; i < all.size(); ++i) rows[i / 70001] += all[i];
  EXPECT_EQ(Computed(wide.Sum({1})), rows);
  EXPECT_EQ(Computed(wide.T().Contiguous().Sum({0})), rows);
}

// Rows that are shorter than a core's vectors, of any number.
TEST_P(SplitReductions, OfShortRows) {
  for (const int64_t n : {int64_t{8192}, int64_t{9973}}) {
    constexpr int64_t kBatch = 2, kColumns = 5;
    const std::vector<float> x = Draw(kBatch * n * kColumns, 4);
    std::vector<double> sums(kBatch * kColumns, 1), most(kBatch * kColumns, -9);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t at = i / (n * kColumns) * kColumns + i % kColumns;
      sums[at] += 2 * x[i];
      most[at] = std::max<double>(most[at], x[i]);
    }
    const Tensor t = On(GetParam(), x, {kBatch, n, kColumns});
    EXPECT_EQ(Computed((t * 2).Sum({1}) + 1), sums);
    EXPECT_EQ(Computed(t.Cast(kInt16).Max({1})), most);
  }
}

// Products whose sums are so long that every chip divides them, or would if anything did.
TEST_P(SplitReductions, OfProductsSlow) {
  constexpr int64_t kRows = 17, kColumns = 40;
  for (const int64_t n : {1 << 16, 11 * 5003, 65537}) {
    const std::vector<float> x = Draw(kRows * n, 5), y = Draw(n * kColumns, 6);
    std::vector<double> want(kRows * kColumns);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t j = 0; j < kColumns; ++j) {
          want[i * kColumns + j] += x[i * n + k] * y[k * kColumns + j];
        }
      }
    }
    const Tensor a = On(GetParam(), x, {kRows, n}), b = On(GetParam(), y, {n, kColumns});
    EXPECT_EQ(Computed(a.MatMul(b)), want) << n;
    EXPECT_EQ(Computed((-a).MatMul(b.T().Contiguous().T()) * 2 + 1),
              Computed(1 - 2 * a.MatMul(b).Realize()))
        << n;
    const auto narrow = [](const Tensor& t) { return t.Cast(kBFloat16).Realize(); };
    EXPECT_EQ(Computed(narrow(a).Cast(kFloat32).MatMul(narrow(b).Cast(kFloat32))), want) << n;
  }
}

// The gradient of a convolution by its weight sums over all samples and places.
TEST_P(SplitReductions, OfWindows) {
  constexpr int64_t kSamples = 8, kIn = 3, kOut = 17, kSide = 48;
  const std::vector<float> x = Draw(kSamples * kIn * kSide * kSide, 7);
  const std::vector<float> g = Draw(kSamples * kOut * kSide * kSide, 8);
  const auto at = [](const std::vector<float>& v, int64_t plane, int64_t row, int64_t column) {
    const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
    return inside ? v[(plane * kSide + row) * kSide + column] : 0;
  };
  std::vector<double> want;
  for (int64_t i = 0; i < kOut * kIn * 9; ++i) {
    const int64_t out = i / (kIn * 9), in = i / 9 % kIn, down = i / 3 % 3 - 1, right = i % 3 - 1;
    double sum = 0;
    for (int64_t p = 0; p < kSamples * kSide * kSide; ++p) {
      const int64_t n = p / (kSide * kSide), row = p / kSide % kSide, column = p % kSide;
      sum += at(g, n * kOut + out, row, column) * at(x, n * kIn + in, row + down, column + right);
    }
    want.push_back(sum);
  }
  const Tensor image = On(GetParam(), x, {kSamples, kIn, kSide, kSide});
  const Tensor of_result = On(GetParam(), g, {kSamples, kOut, kSide, kSide});
  const Tensor weight = Tensor::Zeros({kOut, kIn, 3, 3}, kFloat32, image.device()).Realize();
  ConvOptions options;
  options.padding = {1, 1};
  const Tensor y = image.Conv2d(weight, options);
  EXPECT_EQ(Computed(Grad((y * of_result).Sum(), {weight})[0]), want);
}

TEST_P(SplitReductions, SpecialValuesArrive) {
  for (const int64_t at : {int64_t{0}, kPrime / 2, kPrime - 1}) {
    std::vector<float> x(kPrime, -3);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    const Tensor t = On(GetParam(), x, {kPrime});
    EXPECT_TRUE(std::isnan(Computed(t.Max())[0])) << at;
    EXPECT_TRUE(std::isnan(Computed(t.Sum())[0])) << at;
    x[at] = -std::numeric_limits<float>::infinity();
    const Tensor low = On(GetParam(), x, {kPrime});
    EXPECT_EQ(Computed(low.Max())[0], -3) << at;
    EXPECT_EQ(Computed(low.Sum())[0], -INFINITY) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, SplitReductions, testing::Values("CPU", "SIM"));

}  // namespace
}  // namespace tessera
