// Reductions down the columns of matrices that no near cache holds, against plain loops.
#include <cmath>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "tests/support/check.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Small integers: any order of summation gives the same bits.
Tensor Integers(const Dims& shape, DType dtype = kFloat32) {
  return Tensor::RandInt(-4, 5, shape).Cast(dtype).Realize();
}

TEST(FarRows, ProductsOfFewRows) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  struct Size {
    int64_t m, k, n;
  };
  // Rows that no number of 8 to 16 divides, of which some are left over; pieces of columns that end
  // within a vector.
  for (const Size& s :
       {Size{1, 512, 2048}, Size{2, 330, 1700}, Size{3, 96, 6000}, Size{8, 240, 1500},
        Size{16, 272, 2000}, Size{1, 1021, 700}, Size{5, 64, 9001}}) {
    const Tensor a = Integers({s.m, s.k}), b = Integers({s.k, s.n}), bias = Integers({s.n});
    const std::vector<float> x = a.ToVector<float>(), y = b.ToVector<float>(),
                             z = bias.ToVector<float>(),
                             got = (a.MatMul(b) + bias).Relu().ToVector<float>();
    for (int64_t i = 0; i < s.m; ++i) {
      std::vector<float> want(z);
      for (int64_t l = 0; l < s.k; ++l) {
        for (int64_t j = 0; j < s.n; ++j) want[j] += x[i * s.k + l] * y[l * s.n + j];
      }
      for (int64_t j = 0; j < s.n; ++j) {
        ASSERT_EQ(got[i * s.n + j], std::max(want[j], 0.0f))
            << s.m << "x" << s.k << "x" << s.n << " at " << i << "," << j;
      }
    }
  }
}

TEST(FarRows, EveryReductionAndDtypeSlow) {
  for (const DType dtype : {kFloat64, kFloat16, kBFloat16, kInt8, kInt64}) {
    SCOPED_TRACE(dtype.ToString());
    const Tensor x = Integers({320, 4096 / dtype.bytes()}, dtype);  // 1.25 MiB
    EXPECT_REFERENCE(x.Sum({0}));
    EXPECT_REFERENCE((x * x).Max({0}));
  }
}

// What the groups of rows give is reduced in blocks of its own.
TEST(FarRows, MoreRowsThanScratchHolds) {
  for (const int64_t rows : {65536, 16 * 4099, 65537}) {
    const Tensor x = Integers({rows, 128});
    const std::vector<float> v = x.ToVector<float>(), got = (x + 1).Sum({0}).ToVector<float>();
    for (int64_t j = 0; j < 128; ++j) {
      float want = 0;
      for (int64_t i = 0; i < rows; ++i) want += v[i * 128 + j] + 1;
      ASSERT_EQ(got[j], want) << rows << ", " << j;
    }
  }
}

TEST(FarRows, BatchesAndSpecialValuesSlow) {
  EXPECT_REFERENCE(Integers({3, 240, 500}).Sum({1}));
  EXPECT_REFERENCE(Integers({240, 3, 500}).Sum({0}));
  EXPECT_REFERENCE(Integers({2, 2, 240}).MatMul(Integers({2, 240, 800})));
  const float nan = std::nanf(""), inf = INFINITY;
  Tensor x = Tensor::Full({400, 720}, -0.0f, kFloat32, "CPU").Contiguous().Realize();
  x[3].Slice({{0, 3}}).Assign(Tensor::From({nan, inf, -inf}));
  x[390].Slice({{1, 4}}).Assign(Tensor::From({-inf, 2.0f, nan}));
  for (const Tensor& t : {x.Sum({0}), x.Max({0}), x.Prod({0})}) EXPECT_REFERENCE(t);
}

}  // namespace
}  // namespace tessera
