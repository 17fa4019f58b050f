// Products of bf16 in pairs of steps: the prelude's function, and the programs that use it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

constexpr int64_t kSums = 32;  // of all vectors of a case

std::string PairKernel(int lanes) {
  const auto load = [&](absl::string_view type, int buffer, int n, absl::string_view at) {
    return absl::StrCat("rt_load<", type, ", ", n, ">((const ", type, "*)rt_buffers[", buffer,
                        "], ", at, ")");
  };
  const std::string body = absl::StrCat(
      "RT_KERNEL(test) {\n  for (rt_i64 i = 0; i < ", kSums, "; i += ", lanes, ") {\n    rt_store<",
      lanes, ">((rt_f32*)rt_buffers[3], i, rt_dot2(", load("rt_bf16", 0, 2 * lanes, "2 * i"), ", ",
      load("rt_bf16", 1, 2 * lanes, "2 * i"), ", ", load("rt_f32", 2, lanes, "i"), "));\n  }\n}\n");
  return absl::StrCat(PreludeFor(body), body);
}

uint16_t Bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  return static_cast<uint16_t>(u >> 16);
}

TEST(PairDots, SumsOfTwoProductsOnEveryChip) {
  std::mt19937 rng(5);
  std::vector<uint16_t> a(2 * kSums), b(2 * kSums);
  std::vector<float> sums(kSums), got(kSums), want(kSums);
  const auto number = [&] { return static_cast<float>(static_cast<int>(rng() % 255) - 127); };
  for (int64_t i = 0; i < kSums; ++i) {
    want[i] = sums[i] = number() * 16;
    for (int64_t k = 2 * i; k < 2 * i + 2; ++k) {
      const float x = number(), y = number() / 8;
      a[k] = Bits(x);
      b[k] = Bits(y);
      want[i] += x * y;
    }
  }
  // A sum is what IEEE 754 says of infinities, of what is no number, and of -0.
  const auto special = [&](int64_t i, float x0, float x1, float y, float sum, float expected) {
    a[2 * i] = Bits(x0), a[2 * i + 1] = Bits(x1);
    b[2 * i] = b[2 * i + 1] = Bits(y);
    sums[i] = sum;
    want[i] = expected;
  };
  special(3, INFINITY, 1, 2, 5, INFINITY);
  special(4, INFINITY, -INFINITY, 1, 0, NAN);
  special(9, 1, INFINITY, 0, 1, NAN);
  special(17, NAN, 1, 1, 1, NAN);
  special(20, -0.0f, -0.0f, 1, -0.0f, -0.0f);
  special(30, 1, 1, 1, -INFINITY, -INFINITY);
  std::vector<Target> chips = {HostTarget()};
#if defined(__x86_64__)
  for (const auto& [arch, needs] :
       {std::pair{"x86-64", "+sse2"}, {"x86-64-v3", "+avx2"}, {"x86-64-v4", "+avx512bw"}}) {
    if (!absl::StrContains(HostTarget().features, needs)) continue;
    chips.push_back(HostTarget());
    chips.back().arch = arch;
    chips.back().features.clear();
  }
#endif
  for (const Target& chip : chips) {
    for (const int lanes : {4, 8, 16}) {
      ASSERT_OK_AND_ASSIGN(const CpuKernelPtr kernel, GetKernel(PairKernel(lanes), "test", chip));
      void* buffers[] = {a.data(), b.data(), sums.data(), got.data()};
      kernel->fn(buffers, nullptr, nullptr, 0, 1);
      for (int64_t i = 0; i < kSums; ++i) {
        SCOPED_TRACE(absl::StrCat(chip.arch, ", ", lanes, " lanes, lane ", i));
        EXPECT_EQ(std::isnan(got[i]), std::isnan(want[i]));
        if (std::isnan(want[i])) continue;
        EXPECT_EQ(got[i], want[i]);
        EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i]));
      }
    }
  }
}

// Stores of single elements to scratch.
int ScalarPuts(const UOp& program) {
  int count = 0;
  for (const UOp& s : program.srcs()) {
    count += s.is(Op::kPut) && s.src(0).is(Op::kScratch) && s.src(2).dtype().lanes() == 1;
  }
  return count;
}

// Sixteen sums of a tile take a pair of steps each, and columns are packed by vectors, whichever
// way they lie in memory: two rows in turn, or squares of pairs.
TEST(PairDots, TilesTakeTwoStepsAtATime) {
  const Tensor a = NarrowInput({64, 64}), b = NarrowInput({64, 96}), turned = NarrowInput({96, 64});
  for (const Tensor& y : {a.MatMul(b), a.MatMul(turned.T())}) {
    const UOp program = ProgramOf(y, ChipWithPairs());
    EXPECT_EQ(Count(program, Op::kMma), 16);
    EXPECT_EQ(Count(program, Op::kFma), 0);
    EXPECT_EQ(ScalarPuts(program), 0);
  }
}

TEST(PairDots, AStepThatIsLeftOverIsAddedByItself) {
  const UOp program =
      ProgramOf(NarrowInput({64, 63}).MatMul(NarrowInput({63, 32})), ChipWithPairs());
  EXPECT_EQ(Count(program, Op::kMma), 16);
  EXPECT_GT(Count(program, Op::kMul), 0);
}

// The left operand, too, lies in pairs where it is turned.
TEST(PairDots, LeftOperandsThatAreTurnedStayNarrow) {
  const UOp program =
      ProgramOf(NarrowInput({64, 128}).T().MatMul(NarrowInput({64, 96})), ChipWithPairs());
  EXPECT_EQ(Count(program, Op::kMma), 16);
  for (const UOp& s : program.srcs()) {
    EXPECT_TRUE(!s.is(Op::kScratch) || s.dtype() == kBFloat16);
  }
}

TEST(PairDots, OnlyOfBf16WhereTheChipHasThem) {
  const auto dots = [](DType dtype, const Target& target) {
    return Count(
        ProgramOf(NarrowInput({64, 64}, dtype).MatMul(NarrowInput({64, 96}, dtype)), target),
        Op::kMma);
  };
  EXPECT_EQ(dots(kBFloat16, SmallChip()), 0);
  EXPECT_EQ(dots(kFloat16, ChipWithPairs()), 0);
  EXPECT_EQ(dots(kFloat32, ChipWithPairs()), 0);
}

// What a pair of a row is read with is four bytes: the next row is not asked for at every step.
TEST(PairDots, RowsAreNotFetchedAhead) {
  const UOp program =
      ProgramOf(NarrowInput({1024, 2048}).MatMul(NarrowInput({2048, 64})), ChipWithPairs());
  EXPECT_EQ(Count(program, Op::kMma), 16);
  EXPECT_EQ(Count(program, Op::kPrefetch), 0);
}

}  // namespace
}  // namespace tessera
