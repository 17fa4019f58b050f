// Rows shorter than a vector: lanes along them, all but some masked, or across them.
#include <cmath>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "tests/support/check.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// What each row gives: reduced, and put beside its elements again.
std::vector<Tensor> OfRows(const Tensor& x) {
  const Axes last = {-1};
  std::vector<Tensor> out = {x.Sum(last), x.Max(last), x.ArgMax(-1), x.CumSum(-1),
                             x + x.Max(last, true)};
  if (!x.dtype().IsFloat()) return out;
  for (const Tensor& t : {x.Softmax(), x.LogSoftmax(), x.Exp() + x.Exp().Sum(last, true),
                          x / (x * x).Sum(last, true).Sqrt(), x.LayerNorm()}) {
    out.push_back(t);
  }
  return out;
}

void CheckRows(DType dtype, const std::vector<int64_t>& extents) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const int64_t n : extents) {
    SCOPED_TRACE(dtype.ToString() + ", " + std::to_string(n));
    const Tensor x = (Tensor::Rand({67, n}) * 100 - 50).Cast(dtype).Realize();
    for (const Tensor& t : OfRows(x)) EXPECT_REFERENCE(t);
  }
}

TEST(ShortRows, OfFloats) { CheckRows(kFloat32, {3, 6, 11, 17}); }
TEST(ShortRows, OfBytes) { CheckRows(kInt8, {4, 7, 9, 31}); }

TEST(ShortRows, EveryExtentSlow) {
  CheckRows(kFloat32, {2, 4, 5, 7, 8, 9, 10, 12, 13, 15, 16, 20});
}
TEST(ShortRows, EveryDtypeSlow) {
  for (const DType dtype : {kFloat64, kFloat16, kInt64}) CheckRows(dtype, {3, 4, 5, 7, 8, 13});
}

TEST(ShortRows, SpecialValues) {
  const float nan = std::nanf(""), inf = INFINITY;
  for (const int64_t n : {3, 5, 8, 11}) {
    SCOPED_TRACE(n);
    Tensor x = Tensor::Full({40, n}, -0.0f, kFloat32, "CPU").Contiguous().Realize();
    x[3][n - 1].Assign(nan);
    x[4][0].Assign(-inf);
    x[5][1].Assign(inf);
    x[6].Assign(-inf);
    x[39][n - 2].Assign(nan);
    for (const Tensor& t : OfRows(x)) EXPECT_REFERENCE(t);
  }
}

// Rows of other tensors beside them, and what is written to what is read.
TEST(ShortRows, InPlaceAndBetweenOthers) {
  for (const int64_t n : {5, 10, 13}) {
    SCOPED_TRACE(n);
    const Tensor x = Tensor::RandN({33, n + 3}).Realize();
    EXPECT_REFERENCE(x.Slice({{}, Slice{1, n + 1}}).Softmax());
    EXPECT_REFERENCE(x.Slice({{}, Slice{0, n}}).Softmax() * Tensor::RandN({n}).Realize());
    EXPECT_REFERENCE(x.Transpose().Softmax(0).Contiguous());
    Tensor y = x.Slice({{}, Slice{0, n}}).Contiguous().Realize();
    const Tensor want = y.Softmax();
    const std::vector<float> expected = want.ToVector<float>();
    y.Assign(y.Softmax());
    EXPECT_EQ(y.ToVector<float>(), expected);
    // Into columns of a wider one, whose others stay.
    Tensor wide = x.Contiguous().Realize();
    const std::vector<float> before = wide.ToVector<float>();
    wide.Slice({{}, Slice{1, n + 1}}).Assign(Tensor::From(expected, {33, n}));
    wide.Slice({{}, Slice{1, n + 1}}).Assign(wide.Slice({{}, Slice{1, n + 1}}).Softmax());
    const std::vector<float> after = wide.ToVector<float>();
    for (int64_t r = 0; r < 33; ++r) {
      for (const int64_t c : {int64_t{0}, n + 1, n + 2}) {
        EXPECT_EQ(after[r * (n + 3) + c], before[r * (n + 3) + c]) << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
