// Dot products of bytes: the prelude's function, and the programs that use it.
#include "codegen/byte_dots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "runtime/jit.h"
#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

constexpr int64_t kLanes = 16 * 6;  // of all vectors of a case

// Sixteen sums a call of the kernel, by vectors of so many.
std::string DotKernel(int lanes, absl::string_view a, absl::string_view b,
                      absl::string_view function = "rt_dot4") {
  const auto load = [&](absl::string_view type, int buffer, int n, absl::string_view at) {
    return absl::StrCat("rt_load<", type, ", ", n, ">((const ", type, "*)rt_buffers[", buffer,
                        "], ", at, ")");
  };
  const std::string body =
      absl::StrCat("RT_KERNEL(test) {\n  for (rt_i64 i = 0; i < ", kLanes, "; i += ", lanes,
                   ") {\n    rt_store<", lanes, ">((rt_i32*)rt_buffers[3], i, ", function, "(",
                   load(a, 0, 4 * lanes, "4 * i"), ", ", load(b, 1, 4 * lanes, "4 * i"), ", ",
                   load("rt_i32", 2, lanes, "i"), "));\n  }\n}\n");
  return absl::StrCat(PreludeFor(body), body);
}

TEST(ByteDots, SumsOfFourProductsOnEveryChip) {
  std::mt19937 rng(7);
  std::vector<uint8_t> a(4 * kLanes), b(4 * kLanes);
  std::vector<int32_t> sums(kLanes), got(kLanes);
  const uint8_t edges[] = {0, 1, 127, 128, 129, 255};
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = i < a.size() / 2 ? edges[rng() % 6] : static_cast<uint8_t>(rng());
    b[i] = i < b.size() / 2 ? edges[rng() % 6] : static_cast<uint8_t>(rng());
  }
  for (int32_t& s : sums) s = static_cast<int32_t>(rng());
  sums[0] = INT32_MAX;  // wraps
  sums[1] = INT32_MIN;
  std::fill(&a[0], &a[4], 127), std::fill(&b[0], &b[4], 127);
  std::fill(&a[4], &a[8], 127), std::fill(&b[4], &b[8], 128);
  const auto value = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte);
  };
  for (const auto& [chip, target] : ChipsOfThisMachine()) {
    for (const int lanes : {4, 8, 16}) {
      for (const int signs : {0, 1, 2, 3}) {
        const bool sa = signs & 1, sb = signs & 2;
        const std::string text = DotKernel(lanes, sa ? "rt_i8" : "rt_u8", sb ? "rt_i8" : "rt_u8");
        ASSERT_OK_AND_ASSIGN(const CpuKernelPtr kernel, GetKernel(text, "test", target));
        void* buffers[] = {a.data(), b.data(), sums.data(), got.data()};
        kernel->fn(buffers, nullptr, nullptr, 0, 1);
        for (int64_t i = 0; i < kLanes; ++i) {
          uint32_t want = static_cast<uint32_t>(sums[i]);
          for (int64_t k = 4 * i; k < 4 * i + 4; ++k) {
            want += static_cast<uint32_t>(value(a[k], sa) * value(b[k], sb));
          }
          ASSERT_EQ(got[i], static_cast<int32_t>(want))
              << chip << ", " << lanes << " lanes, signs " << signs << ", lane " << i;
        }
      }
    }
  }
}

// Bytes of one kind, from the smallest to the largest.
struct Bytes {
  const char* type;
  int least, most;
};

TEST(ByteDots, SumsWhosePairsFitIn16BitsOnEveryChip) {
  std::mt19937 rng(8);
  const std::pair<Bytes, Bytes> cases[] = {{{"rt_u8", 0, 127}, {"rt_i8", -128, 127}},
                                           {{"rt_u8", 0, 255}, {"rt_i8", -64, 64}},
                                           {{"rt_i8", -128, 127}, {"rt_i8", -127, 127}},
                                           {{"rt_i8", -8, 7}, {"rt_i8", -127, 127}}};
  std::vector<int32_t> sums(kLanes), got(kLanes);
  for (int32_t& s : sums) s = static_cast<int32_t>(rng());
  for (const auto& [of_a, of_b] : cases) {
    std::vector<int> a(4 * kLanes), b(4 * kLanes);
    std::vector<uint8_t> bytes_a, bytes_b;
    const auto fill = [&](const Bytes& kind, std::vector<int>& values,
                          std::vector<uint8_t>& bytes) {
      for (int& v : values) {
        const int edges[] = {kind.least, kind.most, std::max(kind.least, -1), 0};
        v = rng() % 2 ? edges[rng() % 4]
                      : kind.least + static_cast<int>(rng() % (kind.most - kind.least + 1));
        bytes.push_back(static_cast<uint8_t>(v));
      }
    };
    fill(of_a, a, bytes_a);
    fill(of_b, b, bytes_b);
    for (const auto& [chip, target] : ChipsOfThisMachine()) {
      for (const int lanes : {4, 8, 16}) {
        const std::string text = DotKernel(lanes, of_a.type, of_b.type, "rt_dot4_small");
        ASSERT_OK_AND_ASSIGN(const CpuKernelPtr kernel, GetKernel(text, "test", target));
        void* buffers[] = {bytes_a.data(), bytes_b.data(), sums.data(), got.data()};
        kernel->fn(buffers, nullptr, nullptr, 0, 1);
        for (int64_t i = 0; i < kLanes; ++i) {
          uint32_t want = static_cast<uint32_t>(sums[i]);
          for (int64_t k = 4 * i; k < 4 * i + 4; ++k) want += static_cast<uint32_t>(a[k] * b[k]);
          ASSERT_EQ(got[i], static_cast<int32_t>(want))
              << chip << ", " << lanes << " lanes of " << of_a.type << " to " << of_a.most;
        }
      }
    }
  }
}

Target ChipWithDots() {
  Target t = SmallChip();
  t.features = "+avx2,+avxvnni";
  return t;
}

// [1, n] of blocks of 32: dot products of weights, times a scale of each block.
Tensor Scaled(const Tensor& x, const Tensor& weights) {
  const Tensor scales = Tensor::Empty({weights.size(0), weights.size(1)});
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * weights.Cast(kInt32)).Sum({-1});
  return (dots.Cast(kFloat32) * scales).Sum({-1});
}

int LoadsOf(const UOp& program, DType element, bool vectors) {
  int count = 0;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kLoad) || s.size() < 2 || !(s.dtype().Scalar() == element)) continue;
    count += vectors == (s.dtype().lanes() > 1);
  }
  return count;
}

TEST(ByteDots, BlocksAreScaledWhereTheyAreSummed) {
  const Tensor x = Tensor::Empty({1, 8, 32}, kInt8), w = Tensor::Empty({64, 8, 32}, kInt8);
  const UOp program = ProgramOf(Scaled(x, w), ChipWithDots());
  // Of four columns one dot product, and one of what they have in common: the sum of x.
  EXPECT_EQ(Count(program, Op::kMma), 4 + 1);
  EXPECT_EQ(Count(program, Op::kFold), 4);  // once a column, not once a block
  EXPECT_EQ(LoadsOf(program, kInt8, true), 4 + 1);
  EXPECT_EQ(LoadsOf(program, kInt8, false), 0);
}

// Short rows that a block looks up in a table are loaded as vectors, and multiplied all at once.
TEST(ByteDots, RowsOfATableAreOneVector) {
  for (const int64_t row : {4, 8}) {
    const int64_t rows = 32 / row;
    const Tensor x = Tensor::Empty({1, 8, rows, row}, kInt8),
                 table = Tensor::Empty({256, row}, kInt8);
    const Tensor w = table.Take(Tensor::Empty({64, 8, rows}, kUInt8));
    const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-2, -1});
    const Tensor y = (dots.Cast(kFloat32) * Tensor::Empty({64, 8})).Sum({-1});
    const UOp program = ProgramOf(y, ChipWithDots());
    EXPECT_EQ(Count(program, Op::kMma), 4 + 1);
    EXPECT_EQ(Count(program, Op::kFold), 4);
    EXPECT_EQ(LoadsOf(program, kInt8, true), 4 * rows + 1);
    EXPECT_EQ(LoadsOf(program, kInt8, false), 0);
  }
}

// Bits of a byte beside a row's own index, and the rows of one sign byte for each two.
TEST(ByteDots, RowsOfFourInPairs) {
  const Tensor x = Tensor::Empty({1, 8, 4, 2, 4}, kInt8), table = Tensor::Empty({512, 4}, kInt8);
  const Tensor bit = (Tensor::Empty({64, 8, 1}, kUInt8) >> Tensor::Arange(8, kUInt8)) & 1;
  const Tensor index = Tensor::Empty({64, 8, 8}, kUInt8).Cast(kInt32) + bit.Cast(kInt32) * 256;
  const Tensor w = table.Take(index).Unflatten(2, {4, 2});
  const Tensor signs = Tensor::Empty({64, 8, 4, 1, 1}, kInt8);
  const Tensor products = x.Unsqueeze(1).Cast(kInt32) * (w ^ signs).Cast(kInt32);
  const Tensor dots = products.Sum({-3, -2, -1}).Cast(kFloat32);
  const UOp program = ProgramOf((dots * Tensor::Empty({64, 8})).Sum({-1}), ChipWithDots());
  EXPECT_EQ(Count(program, Op::kMma), 4 + 1);
  EXPECT_EQ(Count(program, Op::kFold), 4);
}

// Of several rows what a column takes is unpacked once; the rows go by, each for both columns.
TEST(ByteDots, RowsShareColumns) {
  const Tensor x = Tensor::Empty({8, 8, 32}, kInt8), bytes = Tensor::Empty({64, 8, 16}, kUInt8);
  const Tensor fields = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-2).Cast(kInt8) - 8;
  Target chip = ChipWithDots();
  chip.vector_registers = 32;
  const UOp program = ProgramOf(Scaled(x, fields), chip);
  std::vector<UOp> rows;  // of the innermost loop
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kRange)) rows.clear();
    if (s.is(Op::kMma)) rows.emplace_back(s.src(0).is(Op::kLoad) ? s.src(0) : s.src(1));
  }
  ASSERT_EQ(rows.size(), 2u * 2 * 8);  // low and high fields
  for (size_t i = 0; i < rows.size(); i += 4) {
    EXPECT_TRUE(rows[i] == rows[i + 2] || rows[i] == rows[i + 3]) << i;
  }
  EXPECT_EQ(LoadsOf(program, kUInt8, true), 2);
}

// Fields of a byte less a constant are not negative once the constant is added again: they are
// what is multiplied, and nothing is spent on making them so.
TEST(ByteDots, FieldsOfBytesAreMultipliedAsTheyAre) {
  const Tensor x = Tensor::Empty({1, 8, 32}, kInt8), bytes = Tensor::Empty({64, 8, 16}, kUInt8);
  const Tensor fields = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-2).Cast(kInt8) - 8;
  const UOp program = ProgramOf(Scaled(x, fields), ChipWithDots());
  EXPECT_EQ(Count(program, Op::kMma), 2 * (4 + 1));
  EXPECT_EQ(LoadsOf(program, kUInt8, false), 0);
  for (const UOp& s : program.srcs()) {
    EXPECT_FALSE(s.dtype().lanes() > 8 && (s.is(Op::kAdd) || s.is(Op::kSub) || s.is(Op::kWhere)));
  }
}

// Columns that lie in panels are read as they lie, a vector of lanes for each four steps, by rows
// side by side, and nothing of them is added up across lanes.
TEST(ByteDots, PanelsAreReadInPlace) {
  const Tensor panels = Tensor::Empty({64, 8, 8, 16, 4}, kInt8);
  const Tensor w = panels.Permute({0, 3, 1, 2, 4}).Reshape({1024, 8, 32});
  Target chip = ChipWithDots();
  chip.vector_registers = 32;
  for (const int64_t rows : {1, 4}) {
    const UOp program = ProgramOf(Scaled(Tensor::Empty({rows, 8, 32}, kInt8), w), chip);
    const int vectors = 16 * 4 / chip.vector_bytes;
    // 8 times four steps of each row and vector, and once the sums of rows.
    EXPECT_EQ(Count(program, Op::kMma), 8 * rows * vectors + 1);
    EXPECT_EQ(Count(program, Op::kFold), 1);
    EXPECT_EQ(LoadsOf(program, kInt8, false), 0);
  }
}

// What is added in each block besides is summed in the same kernel, by lanes of its own.
TEST(ByteDots, OffsetsOfBlocksAreAddedInTheSameKernel) {
  const Tensor x = Tensor::Empty({1, 8, 32}, kInt8), w = Tensor::Empty({64, 8, 32}, kInt8);
  const Tensor offsets = Tensor::Empty({64, 8}), sums = Tensor::Empty({1, 1, 8});
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-1}).Cast(kFloat32);
  const Tensor y = (dots * Tensor::Empty({64, 8}) + sums * offsets).Sum({-1});
  const UOp program = ProgramOf(y, ChipWithDots());
  EXPECT_EQ(Count(program, Op::kMma), 4 + 1);
  EXPECT_EQ(Count(program, Op::kFold), 2 * 4);
  EXPECT_EQ(LoadsOf(program, kInt8, false), 0);
}

// Scales that are fields of a word are taken from it in lanes, all of them at once: the copies that
// a loop makes of its blocks take theirs from one vector.
TEST(ByteDots, PackedScalesAreUnpackedInLanes) {
  const Tensor x = Tensor::Empty({1, 8, 4, 16}, kInt8), w = Tensor::Empty({64, 8, 4, 16}, kInt8);
  const Tensor words = Tensor::Empty({64, 8, 1}, kUInt32);
  const Tensor scales = ((words >> (Tensor::Arange(4, kUInt32) * 8)) & 63).Cast(kFloat32);
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-1}).Cast(kFloat32);
  const UOp program = ProgramOf((dots * scales).Sum({-2, -1}), ChipWithDots());
  EXPECT_EQ(LoadsOf(program, kInt8, false), 0);
  int shifts = 0;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kShr)) continue;
    ++shifts;
    EXPECT_EQ(s.dtype().lanes(), 4);
  }
  EXPECT_EQ(shifts, 4);  // one a column
  EXPECT_EQ(Count(program, Op::kMma), 2 * (4 + 1));
}

// Blocks that all fit lanes leave no loop over them: one of a single step would cut the kernel's.
TEST(ByteDots, BlocksInLanesAreNoLoop) {
  const Tensor x = Tensor::Empty({1, 8, 2, 16}, kInt8), w = Tensor::Empty({64, 8, 2, 16}, kInt8);
  const Tensor scales = Tensor::Empty({64, 8, 2});
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-1}).Cast(kFloat32);
  const UOp program = ProgramOf((dots * scales).Sum({-2, -1}), ChipWithDots());
  EXPECT_EQ(Count(program, Op::kMma), 4 + 1);
  EXPECT_EQ(Count(program, Op::kRange), 2);  // columns and blocks of two
  for (const UOp& s : program.srcs()) EXPECT_FALSE(s.is(Op::kRange) && s.src(1).IsConst(1));
}

// Copies of blocks that are only summed take few registers, where much is done for each.
TEST(ByteDots, CopiesShareSums) {
  const Tensor x = Tensor::Empty({1, 8, 8, 16}, kInt8),
               bytes = Tensor::Empty({64, 8, 4, 16}, kUInt8);
  const Tensor fields = Stack({bytes & 15, bytes >> 4}, -2).Flatten(-3, -2).Cast(kInt8) - 8;
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * fields.Cast(kInt32)).Sum({-1});
  const Tensor scales = Tensor::Empty({64, 8, 8});
  const UOp program = ProgramOf((dots.Cast(kFloat32) * scales).Sum({-2, -1}), ChipWithDots());
  EXPECT_EQ(Count(program, Op::kReg), 4);  // one a column
}

// What is not negative needs no correction; nor does a chip whose products take any signs.
TEST(ByteDots, CorrectsOnlyWhatTheChipCannot) {
  const Tensor w = Tensor::Empty({64, 8, 32}, kInt8);
  const Tensor x = Tensor::Empty({1, 8, 32}, kInt8), positive = Tensor::Empty({1, 8, 32}, kUInt8);
  EXPECT_EQ(Count(ProgramOf(Scaled(positive, w), ChipWithDots()), Op::kMma), 4);
  EXPECT_EQ(Count(ProgramOf(Scaled(x, w), SmallChip()), Op::kMma), 4);
}

// A block whose products might not be numbers of f32 is summed first.
TEST(ByteDots, LargeBlocksAreNotScaledInParts) {
  const Tensor x = Tensor::Empty({1, 2, 2048}, kInt8), w = Tensor::Empty({64, 2, 2048}, kInt8);
  EXPECT_EQ(Count(ProgramOf(Scaled(x, w), ChipWithDots()), Op::kMma), 0);
}

// Panels for many rows are filled by squares that turn in registers: no store is of four bytes.
TEST(ByteDots, PanelsAreFilledByWholeVectors) {
  const Tensor x = Tensor::Empty({32, 8, 32}, kInt8), w = Tensor::Empty({64, 8, 32}, kInt8);
  const UOp program = ProgramOf(Scaled(x, w), ChipWithDots());
  int stores = 0;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kPut) || !(s.src(2).dtype().Scalar() == kUInt8)) continue;
    EXPECT_EQ(s.src(2).dtype().lanes(), 32);
    ++stores;
  }
  EXPECT_EQ(stores, 8);
}

TEST(ByteDots, ProductsOfMatricesInIntegers) {
  const Tensor x = Tensor::Empty({1, 256}, kUInt8), w = Tensor::Empty({64, 256}, kInt8);
  const Tensor sums = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-1});
  const UOp program = ProgramOf(sums, ChipWithDots());
  EXPECT_GT(Count(program, Op::kMma), 0);
  EXPECT_EQ(Count(program, Op::kFold), 4);
}

}  // namespace
}  // namespace tessera
