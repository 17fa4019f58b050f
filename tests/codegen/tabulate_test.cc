// Functions of four bits: looked up where that pays, and what they are either way.
#include <gtest/gtest.h>

#include <random>

#include "codegen/prelude.h"
#include "runtime/jit.h"
#include "runtime/runtime.h"
#include "tests/codegen/kernels.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

// A number for each value of four bits, chosen bit by bit.
Tensor Chosen(const Tensor& bits, const std::vector<int>& numbers, DType dtype) {
  std::vector<Tensor> left;
  for (const int n : numbers) left.push_back(Tensor::Full({}, n, dtype));
  for (int bit = 1; left.size() > 1; bit *= 2) {
    std::vector<Tensor> half;
    for (size_t i = 0; i < left.size(); i += 2) {
      half.push_back(Where((bits & bit) != 0, left[i + 1], left[i]));
    }
    left = std::move(half);
  }
  return left[0];
}

const std::vector<int> kSquares = {0, 1, 4, 9, 16, 25, 36, 49, -64, -81, -100, -121, 7, 6, 5, 4};

Target Wide() {
  Target t = SmallChip();
  t.vector_bytes = 64;
  t.vector_registers = 32;
  return t;
}

TEST(Tabulate, WhatDependsOnFourBits) {
  const Tensor x = Tensor::Empty({4096}, kUInt8);
  const auto tables = [](const Tensor& y, const Target& target) {
    return Count(ProgramOf(y, target), Op::kTable);
  };
  const Tensor bytes = Chosen(x, kSquares, kInt8);
  EXPECT_GT(tables(bytes, Wide()), 0);
  EXPECT_EQ(Count(ProgramOf(bytes, Wide()), Op::kWhere), 0);
  EXPECT_GT(tables(bytes, SmallChip()), 0);
  EXPECT_GT(tables(Chosen(x >> 4, kSquares, kInt8), SmallChip()), 0);
  // What follows is in the table as well.
  const UOp program = ProgramOf((bytes.Cast(kFloat32) * 0.5).Abs() - 1, Wide());
  EXPECT_GT(Count(program, Op::kTable), 0);
  EXPECT_EQ(Count(program, Op::kAbs), 0);
  // But not what is rounded in its own way.
  EXPECT_GT(Count(ProgramOf(bytes.Cast(kFloat32).Exp(), Wide()), Op::kExp), 0);
  Target narrow = SmallChip();
  narrow.vector_bytes = 16;
  EXPECT_EQ(tables(bytes, narrow), 0);
  EXPECT_EQ(tables(bytes.Cast(kFloat32), SmallChip()), tables(bytes, SmallChip()));
  EXPECT_EQ(tables((x & 15).Cast(kFloat32) - 8, Wide()), 0) << "few ops are as fast";
  EXPECT_EQ(tables(Chosen(x, kSquares, kInt16), Wide()), 0) << "no table of 16 bits";
}

TEST(Tabulate, NotOfMoreThanOneIndexOrMoreBits) {
  const Tensor x = Tensor::Empty({4096}, kUInt8), y = Tensor::Empty({4096}, kUInt8);
  const auto where = [](const Tensor& bit) {
    return Where((bit & 1) != 0, Tensor::Full({}, 3, kInt8), Tensor::Full({}, 5, kInt8));
  };
  const Tensor of_two = where(x) * where(y) + 1;
  EXPECT_EQ(Count(ProgramOf(of_two, Wide()), Op::kTable), 0);
  const Tensor of_five_bits = (((x & 31) ^ 3) | 64) * 7 - 1;
  EXPECT_EQ(Count(ProgramOf(of_five_bits, Wide()), Op::kTable), 0);
}

// On this machine, whatever it has, of every byte and of random functions.
TEST(Tabulate, ValuesAreThoseOfTheOps) {
  std::mt19937 rng(5);
  std::vector<int> all(1000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i % 256);
  const Tensor x = Tensor::From(all).Cast(kUInt8).Realize();
  for (int repeat = 0; repeat < 12; ++repeat) {
    std::vector<int> numbers(16);
    for (int& n : numbers) n = static_cast<int>(rng() % 256) - 128;
    const int shift = repeat % 3 == 0 ? 4 : 0;
    const DType dtype = repeat % 2 == 0 ? kInt8 : kFloat32;
    const Tensor chosen = Chosen(x >> shift, numbers, dtype);
    const double scale = 1 + repeat;
    const std::vector<double> got = chosen.ToVector<double>(),
                              more = ((chosen.Cast(kFloat32) * scale).Abs() - 1).ToVector<double>();
    for (size_t i = 0; i < all.size(); ++i) {
      const int n = numbers[all[i] >> shift & 15];
      ASSERT_EQ(got[i], n) << i;
      ASSERT_EQ(more[i], std::fabs(n * scale) - 1) << i;
    }
  }
}

template <typename T>
void CheckTables(const std::string& chip, const Target& target, const char* type,
                 const char* index_type) {
  using Index = std::make_unsigned_t<T>;
  constexpr int kMost = 128;
  std::mt19937 rng(9);
  for (int lanes = 2; lanes <= kMost; lanes *= 2) {
    SCOPED_TRACE(absl::StrCat(chip, ", ", type, " x ", lanes));
    const auto load = [](absl::string_view t, int n, int buffer) {
      return absl::StrCat("rt_load<", t, ", ", n, ">((const ", t, "*)rt_buffers[", buffer, "], 0)");
    };
    const std::string body = absl::StrCat("RT_KERNEL(test) {\n  rt_store<", lanes, ">((", type,
                                          "*)rt_buffers[2], 0, rt_table(", load(type, 16, 0), ", ",
                                          load(index_type, lanes, 1), "));\n}\n");
    ASSERT_OK_AND_ASSIGN(const CpuKernelPtr kernel,
                         GetKernel(absl::StrCat(PreludeFor(body), body), "test", target));
    std::vector<T> table(16), out(kMost);
    std::vector<Index> index(kMost);
    for (T& t : table) t = static_cast<T>(rng());
    for (Index& i : index) i = static_cast<Index>(rng());
    void* buffers[] = {table.data(), index.data(), out.data()};
    kernel->fn(buffers, nullptr, nullptr, 0, 1);
    for (int i = 0; i < lanes; ++i) ASSERT_EQ(out[i], table[index[i] & 15]) << i;
  }
}

TEST(Tabulate, LookupsOnEveryChip) {
  for (const auto& [chip, target] : ChipsOfThisMachine()) {
    CheckTables<int8_t>(chip, target, "rt_i8", "rt_u8");
    CheckTables<int32_t>(chip, target, "rt_i32", "rt_u32");
  }
}

}  // namespace
}  // namespace tessera
