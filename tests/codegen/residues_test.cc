// Loops over values that lie between one another: vectors, whatever is left of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "graph/grad.h"
#include "tests/codegen/kernels.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

Target WideChip() {
  Target t = SmallChip();
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.features = "+avx512f,+avx512bw,+avx512vl";
  return t;
}

// So many values, put between one another along the last axis, of which the first and the last few
// elements are left out.
Tensor Between(const std::vector<Tensor>& values, int64_t before, int64_t after) {
  const Tensor all = Stack(values, -1).Flatten(-2, -1);
  return all.SliceAxis(-1, {before, all.size(-1) - after});
}

Tensor Drawn(const Dims& shape, DType dtype, uint32_t seed) {
  std::vector<double> numbers = Draw(Tensor::Empty(shape).elements(), seed);
  numbers[numbers.size() / 3] = kNan;
  numbers[numbers.size() / 2] = -kInf;
  numbers[numbers.size() - 1] = -0.0;
  return Tensor::From(numbers, shape).Cast(dtype).Realize();
}

TEST(Residues, WhatLiesBetweenIsStoredAsVectors) {
  for (const int64_t count : {2, 3, 5}) {
    std::vector<Tensor> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(Tensor::Empty({8, 64}));
    const UOp program = ProgramOf(Between(values, 0, 1), WideChip());
    int64_t vectors = 0;
    for (const UOp& s : program.srcs()) {
      if (s.is(Op::kPut)) vectors += s.src(2).dtype().lanes() == 16;
    }
    EXPECT_EQ(vectors % count, 0);
    EXPECT_GE(vectors, count);
  }
}

TEST(Residues, Values) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt8}) {
    for (const int64_t count : {2, 3, 4, 7}) {
      std::vector<Tensor> values;
      const int64_t n = 9 + std::rand() % 40;
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(Drawn({3, n}, kFloat32, std::rand()).Clip(-4, 4).Cast(dtype));
      }
      const int64_t before = std::rand() % count, after = std::rand() % (2 * count);
      EXPECT_REFERENCE(Between(values, 0, 0), Between(values, before, after));
    }
  }
}

// Rows and columns of images that strides took apart, with a border of their own each.
TEST(Residues, OfTwoAxes) {
  for (const int64_t by : {2, 3}) {
    const Tensor x = Drawn({2, 3, 7, 13}, kFloat32, by);
    const auto repeated = [&](int axis) {
      return x.RepeatInterleave(by, axis).Pad({{0, 0}, {0, 0}, {1, 2}, {3, 1}});
    };
    EXPECT_REFERENCE(repeated(2).Neg(), repeated(3).Neg(),
                     x.RepeatInterleave(by, 2).RepeatInterleave(by, 3).SliceAxis(3, {1, 12 * by}));
  }
}

// Each place reads what it reduces as well.
TEST(Residues, OfWhatIsReducedOverThePlaces) {
  for (const int64_t by : {2, 3, 4}) {
    const Tensor x = Drawn({5, 33, by}, kFloat32, 7);
    EXPECT_REFERENCE((x - x.Sum({2}, true)).Flatten(1, 2), (x * x.Max({2}, true)).Flatten(1, 2));
  }
}

TEST(Strided, ElementsAFewApart) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt8, kInt32}) {
    const int64_t n = 97 + std::rand() % 30;
    const Tensor x = Drawn({4, n}, kFloat32, std::rand()).Clip(-4, 4).Cast(dtype);
    for (const int64_t by : {2, 3, 4, 5}) {
      const Tensor every = x.SliceAxis(1, Slice{by - 1, n, by});
      EXPECT_REFERENCE(every + every, every.Flip({1}) + every,
                       every.Pad({{1, 0}, {2, 3}}).Cast(kFloat32) * 2);
    }
  }
}

TEST(Strided, AreLoadedAsVectors) {
  for (const int64_t by : {3, 4}) {
    const Tensor x = Tensor::Empty({8, 64 * by});
    const UOp program = ProgramOf(x.SliceAxis(1, Slice{0, 64 * by, by}).Exp(), WideChip());
    for (const UOp& s : program.srcs()) {
      if (s.is(Op::kLoad) && s.size() > 1) {
        EXPECT_EQ(s.dtype().lanes(), 16);
      }
    }
  }
}

// Of rows of a few vectors what is left is one more, of which the lanes beyond are masked.
TEST(Masked, ReductionsOfShortRowsHaveNoSingleElements) {
  const UOp program = ProgramOf(Tensor::Empty({512, 31}).Square().Sum({1}), WideChip());
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kLoad) && s.size() > 1) {
      EXPECT_EQ(s.dtype().lanes(), 16);
    }
  }
}

TEST(Masked, Values) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt8}) {
    for (const int64_t n : {9, 15, 18, 31, 47}) {
      const Tensor x = Drawn({37, n}, kFloat32, std::rand()).Clip(-4, 4).Cast(dtype),
                   w = Drawn({n}, kFloat32, std::rand()).Clip(0.5, 2).Cast(dtype);
      EXPECT_REFERENCE(x.Sum({1}), x.Max({1}), x.Min({1}), (x * w).Sum({1}), (x + w).Max({1}));
      if (!dtype.IsFloat()) continue;
      const Tensor y = Drawn({37, n}, dtype, std::rand());
      EXPECT_REFERENCE(y.Sum({1}), y.Max({1}), (y.Abs() + 1).Prod({1}), (1 / w + y).Sum({1}),
                       y.Square().Pad({{0, 0}, {2, 1}}).Sum({1}));
    }
  }
}

}  // namespace
}  // namespace tessera
