// Loops over values that lie between one another: vectors, whatever is left of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "graph/grad.h"
#include "tests/codegen/kernels.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;

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

int64_t WholeVectors(const UOp& program, Op op) {
  const std::vector<int> lanes = LanesOf(program, op);
  return std::count(lanes.begin(), lanes.end(), 16);
}

TEST(Residues, WhatLiesBetweenIsStoredAsVectors) {
  for (const int64_t count : {2, 3, 5}) {
    std::vector<Tensor> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(Tensor::Empty({8, 64}));
    const UOp program = ProgramOf(Between(values, 0, 1), WideChip());
    const int64_t vectors = WholeVectors(program, Op::kPut);
    EXPECT_EQ(vectors % count, 0);
    EXPECT_GE(vectors, count);
  }
}

// What is repeated often has lanes along its repetitions.
TEST(Residues, ManyPlacesAreLanes) {
  for (const int64_t by : {16, 64}) {
    const Tensor repeated = Tensor::Empty({8, 64}).RepeatInterleave(by, 1).Pad({{0, 0}, {1, 2}});
    EXPECT_EQ(WholeVectors(ProgramOf(repeated * 2, WideChip()), Op::kPut), by / 16);
  }
}

TEST(Residues, Values) {
  std::mt19937 random(1);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt8}) {
    for (const int64_t count : {2, 3, 4, 7, 9, 33}) {
      std::vector<Tensor> values;
      const int64_t n = 9 + random() % 40;
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(Drawn({3, n}, kFloat32, random()).Clip(-4, 4).Cast(dtype));
      }
      const int64_t before = random() % count, after = random() % (2 * count);
      EXPECT_REFERENCE(Between(values, 0, 0), Between(values, before, after));
    }
  }
}

// Rows and columns of images that strides took apart, with a border of their own each.
TEST(Residues, OfTwoAxes) {
  for (const int64_t by : {2, 3, 20}) {
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
  for (const int64_t by : {2, 3, 4, 17}) {
    const Tensor x = Drawn({5, 33, by}, kFloat32, 7);
    EXPECT_REFERENCE((x - x.Sum({2}, true)).Flatten(1, 2), (x * x.Max({2}, true)).Flatten(1, 2));
  }
}

TEST(Strided, ElementsAFewApart) {
  std::mt19937 random(2);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt8, kInt32}) {
    const int64_t n = 97 + random() % 30;
    const Tensor x = Drawn({4, n}, kFloat32, random()).Clip(-4, 4).Cast(dtype);
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
    EXPECT_THAT(LanesOf(program, Op::kLoad), AllOf(Not(IsEmpty()), Each(16)));
  }
}

// Of rows of a few vectors what is left is one more, of which the lanes beyond are masked.
TEST(Masked, ReductionsOfShortRowsHaveNoSingleElements) {
  const UOp program = ProgramOf(Tensor::Empty({512, 31}).Square().Sum({1}), WideChip());
  EXPECT_THAT(LanesOf(program, Op::kLoad), AllOf(Not(IsEmpty()), Each(16)));
}

// Long chains of arithmetic, which are computed of several vectors side by side, and what is left.
TEST(Lockstep, Values) {
  std::mt19937 random(7);
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    for (const int64_t n : {31, 32, 48, 64, 255, 256, 297}) {
      const Tensor x = Drawn({5, n}, dtype, random());
      EXPECT_REFERENCE(x.Exp(), x.Tanh(), x.Softmax(), x.Sin().Sum({1}), x.T().Exp(),
                       (x.Exp() + 1).Log(), x.Exp().Pad({{0, 0}, {2, 1}}), x.Erf().Max({1}));
    }
  }
}

TEST(Masked, Values) {
  std::mt19937 random(3);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt8}) {
    for (const int64_t n : {9, 15, 18, 31, 47}) {
      const Tensor x = Drawn({37, n}, kFloat32, random()).Clip(-4, 4).Cast(dtype),
                   w = Drawn({n}, kFloat32, random()).Clip(0.5, 2).Cast(dtype);
      EXPECT_REFERENCE(x.Sum({1}), x.Max({1}), x.Min({1}), (x * w).Sum({1}), (x + w).Max({1}));
      if (!dtype.IsFloat()) continue;
      const Tensor y = Drawn({37, n}, dtype, random());
      EXPECT_REFERENCE(y.Sum({1}), y.Max({1}), (y.Abs() + 1).Prod({1}), (1 / w + y).Sum({1}),
                       y.Square().Pad({{0, 0}, {2, 1}}).Sum({1}));
    }
  }
}

}  // namespace
}  // namespace tessera
