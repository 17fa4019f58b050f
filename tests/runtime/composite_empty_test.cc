// Composed functions of tensors without elements, and of single numbers.
#include <cmath>

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

}  // namespace
}  // namespace tessera
