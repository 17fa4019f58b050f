// Sums of many floats are as exact as sums of few: of what lies in memory, is repeated, counted,
// looked up or strided. And nothing is lost where blocks of them end.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "graph/tensor.h"
#include "runtime/capture.h"
#include "tests/support/gpu.h"
#include "tests/testing.h"

namespace tessera {
namespace {

constexpr int64_t kMany = (1 << 23) + 4099;
constexpr float kTenth = 0.1f;

Tensor Tenths(const Dims& shape, const Place& place = Place("CPU", 0)) {
  return Tensor::Full(shape, kTenth).To(place).Contiguous().Realize();
}

// By how much of it a sum differs from what it should be.
double Off(const Tensor& sum, double exact) {
  return std::fabs(sum.To("CPU").Cast(kFloat64).Item<double>() - exact) / std::fabs(exact);
}

TEST(LongSums, AreExactToTheirLastDigits) {
  const double tenth = kTenth;
  const Tensor x = Tenths({kMany}), one = Tenths({1}), table = Tenths({1000});
  const Tensor index = (Tensor::Arange(kMany) % 1000).Realize();
  const std::vector<std::tuple<const char*, Tensor, double>> sums = {
      {"memory", x.Sum(), tenth * kMany},
      {"mean", x.Mean(), tenth},
      {"product", x.Dot(x), tenth * tenth * kMany},
      {"repeated", one.Expand({kMany}).Sum(), tenth * kMany},
      {"counted", Tensor::Arange(kMany).Cast(kFloat32).Sum(), kMany * (kMany - 1) / 2.0},
      {"looked up", table.Take(index, 0).Sum(), tenth * kMany},
      {"strided", Tenths({kMany / 8, 8}).SliceAxis(1, {3, 4}).Sum(), tenth * (kMany / 8)},
      {"down", Tenths({kMany / 4, 4}).Sum(0).Max(), tenth * (kMany / 4)},
      {"pairs", Tenths({kMany / 2, 2}).Sum(1).Cast(kFloat32).Sum(), tenth * (kMany / 2 * 2)},
  };
  for (const auto& [name, sum, exact] : sums) EXPECT_LT(Off(sum, exact), 4e-6) << name;
}

// Products of matrices keep as many sums as there are registers, each of them in long blocks.
TEST(LongSums, OfProductsOfMatrices) {
  for (int64_t steps : {4096, 65536}) {
    const Tensor a = Tensor::Rand({48, steps}).Realize(), b = Tensor::Rand({steps, 48}).Realize();
    const Tensor exact = a.Cast(kFloat64).MatMul(b.Cast(kFloat64));
    const Tensor off = (a.MatMul(b).Cast(kFloat64) - exact).Abs() / exact;
    EXPECT_LT(off.Max().Item<double>(), 3e-6) << steps;
    EXPECT_LT(off.Mean().Item<double>(), 4e-7) << steps;
  }
}

TEST(LongSums, OfOnesDoNotStop) {
  const int64_t n = (1 << 25) + 6;  // a sum of ones that takes them one by one stops at 2^24
  EXPECT_LT(Off(Tenths({1}).Expand({n}).Ceil().Sum(), static_cast<double>(n)), 1e-7);
}

// Small integers: exact, whatever the order.
TEST(LongSums, EndWhereTheirLengthSays) {
  const Tensor x = (Tensor::Arange(1 << 20) % 9 - 4).Cast(kFloat32).Realize();
  const Variable n("long_sums_n", 0, 1 << 20);
  const Tensor part = x.SliceAxis(0, {0, n});
  const Tensor sum_of = part.Sum();
  const Tensor both = Stack({sum_of, (part * part).Sum(), part.Max() + sum_of});
  for (const int64_t count : {1, 127, 1024, 1025, 16384, 131071, 131072, 131073, 1 << 20}) {
    double sum = 0, squares = 0, most = -4;
    for (int64_t i = 0; i < count; ++i) {
      const double v = static_cast<double>(i % 9 - 4);
      sum += v, squares += v * v, most = std::max(most, v);
    }
    EXPECT_EQ(Realize({both}, {{"long_sums_n", count}})[0].ToVector<double>(),
              (std::vector<double>{sum, squares, most + sum}))
        << count;
  }
  EXPECT_EQ(Realize({part.Sum()}, {{"long_sums_n", 0}})[0].Item(), 0);
}

TEST(LongSums, OnGpus) {
  constexpr int64_t kRows = 20000;
  const Tensor x = Tenths({kRows, 3}, Gpu());
  EXPECT_LT(Off(x.Sum(0).Max(), double{kTenth} * kRows), 4e-6);
  EXPECT_LT(Off(x.Sum(), double{kTenth} * kRows * 3), 4e-6);
}

}  // namespace
}  // namespace tessera
