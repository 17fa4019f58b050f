// Composed functions of tensors without elements, and of single numbers.
#include <cmath>

#include "graph/index_functions.h"
#include "graph/matrix_functions.h"
#include "graph/network_functions.h"
#include "graph/statistics.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

TEST(CompositeEmpty, ShapesAndValues) {
  const auto expect = [](Tensor t, const Shape& shape, const std::vector<double>& values = {}) {
    EXPECT_EQ(t.shape(), shape);
    EXPECT_EQ(t.ToVector<double>(), values);
  };
  expect(Tensor::Zeros({0}).Norm(), {}, {0});
  expect(Tensor::Zeros({0, 3}).Sort(0).values, {0, 3});
  expect(Tensor::Zeros({2, 0}).CumMax(1).indices, {2, 0});
  expect(Tensor::Scalar(2.0).Sort().values, {}, {2});
  expect(Tensor::Zeros({0, 2, 4}).MaxPool({}), {0, 2, 2});
  expect(Tensor::Zeros({0, 2, 4}).Conv1d(Tensor::Zeros({3, 2, 2}), {}), {0, 3, 3});
  expect(Tensor::Zeros({2, 3}).GatherND(Tensor::Zeros({0, 1}, kInt32)), {0, 3});
  expect(Tensor::Ones({1, 3}).ScatterND(Tensor::Zeros({0, 1}, kInt32), Tensor::Zeros({0, 3})),
         {1, 3}, {1, 1, 1});
  expect(Tensor::Permutation(0), {0});
  expect(Tensor::Zeros({0}).Shuffle(), {0});
  expect(Tensor::Zeros({1, 2, 0}).GroupNorm(1), {1, 2, 0});
  expect(Tensor::Zeros({1, 2, 3}).Resize({0}), {1, 2, 0});
  expect(Tensor::Zeros({0, 0}).Diagonal(), {0});
  expect(Tensor::Zeros({0}).Diag(), {0, 0});
  expect(Tensor::Zeros({2, 0}, kInt32).BinCount(3), {3}, {0, 0, 0});
  expect(Tensor::Zeros({0}).Vander(2), {0, 2});
  expect(Tensor::Zeros({2, 1, 4, 4}).GridSample(Tensor::Zeros({2, 0, 3, 2})), {2, 1, 0, 3});
  expect(Einsum("i,i->", {Tensor::Zeros({0}), Tensor::Zeros({0})}), {}, {0});
  expect(Tensor::Zeros({0, 3}).Multinomial(2), {0, 2});
  expect(Tensor::Zeros({0, 3}).MseLoss(Tensor::Zeros({0, 3}), LossReduction::kSum), {}, {0});
  expect(Tensor::Scalar(1.0).Dropout(0), {}, {1});
  expect(Tensor::Scalar(3.0).Atan2(0), {}, {static_cast<double>(std::atan2(3.0f, 0.0f))});
}

// Beside those of tests/runtime/axis_of_scalar_test.cc: what NumPy and PyTorch give.
TEST(CompositeEmpty, OfNothingAlongAnAxis) {
  const auto expect = [](Tensor t, const Shape& shape, const std::vector<double>& values = {}) {
    EXPECT_EQ(t.shape(), shape);
    EXPECT_EQ(t.ToVector<double>(), values);
  };
  const Tensor none = Tensor::Zeros({3, 0}), rows = Tensor::Zeros({0, 3});
  expect(none.Trapezoid(), {3}, {0, 0, 0});
  expect(rows.Trapezoid(1, 0), {3}, {0, 0, 0});
  expect(none.CumTrapezoid(), {3, 0});
  expect(none.CDist(none, INFINITY), {3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0});
  expect(none.Norm(-1, 1), {3}, {INFINITY, INFINITY, INFINITY});
  expect(Tensor::From({INFINITY, -INFINITY}).Norm(-2), {}, {INFINITY});
  expect(Tensor::From({0.0, 3.0}).Norm(-2), {}, {0});
  expect(none.LocalResponseNorm(2), {3, 0});
  expect(Tensor::Zeros({1, 0, 3}).InstanceNorm(), {1, 0, 3});
  expect(Tensor::Zeros({1, 2, 4}).AdaptiveAvgPool({0}), {1, 2, 0});
  expect(Tensor::Zeros({1, 2, 4}).AdaptiveMaxPool({0}), {1, 2, 0});
  expect(Tensor::Zeros({1, 2, 1}).ConvTranspose(Tensor::Zeros({2, 3, 2}),
                                                {.stride = {2}, .padding = {1}}),
         {1, 3, 0});
  const Tensor no_features = Tensor::Zeros({2, 0});
  expect(no_features.ScaledDotProductAttention(no_features, Tensor::Ones({2, 1}) * 5), {2, 1},
         {5, 5});
  // Only the axis counts, and not what else is empty.
  expect(none.Unflatten(0, {1, -1}), {1, 3, 0});
  EXPECT_ERROR(none.Unflatten(0, {1, 1}), "Unflatten", "cannot make [1, 1] of axis 0 of f32[3, 0]");
  EXPECT_ERROR(none.Unflatten(0, {2, -1}), "Unflatten", "do not divide evenly");
}

TEST(CompositeEmpty, OfFreeFunctions) {
  const auto expect = [](Tensor t, const Shape& shape, const std::vector<double>& values = {}) {
    EXPECT_EQ(t.shape(), shape);
    EXPECT_EQ(t.ToVector<double>(), values);
  };
  const Tensor none = Tensor::Zeros({0}), whole = Tensor::Zeros({0}, kInt32);
  expect(Histogram(none, Tensor::From({0., 1., 2.})), {2}, {0, 0});
  expect(PutFlat(Tensor::From({1., 2.}), whole, none), {2}, {1, 2});
  expect(PutFlat(none, whole, none, true), {0});
  expect(TakeAlong(Tensor::Zeros({0, 2}), Tensor::Zeros({0, 1}, kInt32), 1), {0, 1});
  expect(IndexReduce(Tensor::From({3.}), 0, whole, none, ScatterMode::kMean, false), {1}, {3});
  expect(RepeatInterleave(none, whole, 0, 0), {0});
  expect(SegmentReduce(none, whole, 0), {0});
  expect(DiagonalScatter(Tensor::Zeros({2, 0}), none), {2, 0});
  expect(TensorSolve(Tensor::Full({1, 1}, 2.), Tensor::From({6.})), {1}, {3});
  expect(TensorInverse(Tensor::Full({1, 1}, 2.), 1), {1, 1}, {0.5});
  expect(HouseholderProduct(Tensor::Zeros({1, 1}), Tensor::From({2.})), {1, 1}, {-1});
  expect(SolveTriangular(Tensor::Full({1, 1}, 5.), Tensor::From({3.}), {.unit = true}), {1}, {3});
  expect(FractionalMaxPool(Tensor::Ones({1, 1, 1}), {1}, {1}).values, {1, 1, 1}, {1});
  expect(AdaptiveMaxPoolWithIndices(Tensor::Zeros({0, 2, 4}), {2}).indices, {0, 2, 2});
}

TEST(CompositeEmpty, OfOneNumber) {
  const auto expect = [](Tensor t, const Shape& shape, const std::vector<double>& values = {}) {
    EXPECT_EQ(t.shape(), shape);
    EXPECT_EQ(t.ToVector<double>(), values);
  };
  const Tensor three = Tensor::Scalar(3.0), zero = Tensor::Scalar(0, kInt32);
  expect(three.CosineSimilarity(three * -2, 0), {}, {-1});
  expect(three.Shuffle(), {}, {3});
  expect(three.Gather(0, Tensor::From({0, 0})), {2}, {3, 3});
  expect(Tensor::From({4.0, 5.0}).Gather(0, zero + 1), {}, {5});
  expect(three.Cov(0), {}, {0});
  EXPECT_TRUE(std::isnan(three.CorrCoef().Item()));
  expect(three.Convolve(three), {1}, {9});
  expect(three.Convolve(Tensor::From({1.0, 2.0})), {2}, {3, 6});
  expect(three.Diff(0), {}, {3});
  EXPECT_ERROR(Cat({three, three}), "Cat", "use Stack");
}

}  // namespace
}  // namespace tessera
