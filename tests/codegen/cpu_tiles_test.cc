// Products by a CPU's matrix unit: the prelude's functions, and programs in tiles.
#include "codegen/cpu_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "codegen/tile_numbers.h"
#include "graph/panel.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tests/codegen/kernels.h"
#include "tests/support/tile_emulator.h"

namespace tessera {
namespace {

constexpr int kSide = 16;

uint16_t Bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  return static_cast<uint16_t>(u >> 16);
}

// Takes up two products of tiles, the rows of a `stride` elements apart, in what buffer 2 holds.
std::string TileKernel(const std::string& a, const std::string& b, const std::string& sum,
                       int stride) {
  const int row = 64 / (a == "rt_bf16" ? 2 : 1);
  const std::string body = absl::StrCat(
      "RT_KERNEL(test) {\n  const rt_tiles tiles;\n  const ", a, "* b0 = (const ", a,
      "*)rt_buffers[0];\n  const ", b, "* b1 = (const ", b, "*)rt_buffers[1];\n  ", sum, "* b2 = (",
      sum, "*)rt_buffers[2];\n  auto sum = rt_tile_load<0, ", sum, ">(b2, 0, 16);\n",
      "  for (rt_i64 i = 0; i < 2; ++i) {\n    const auto x = rt_tile_load<1, ", a, ">(b0, i * ",
      row, ", ", stride, ");\n    const auto y = rt_tile_load<2, ", b, ">(b1, i * ", row * kSide,
      ", ", row, ");\n    const auto now = rt_tile_dot(x, y, sum);\n    sum = now;\n  }\n",
      "  rt_tile_store(b2, 0, sum);\n}\n");
  return absl::StrCat(PreludeFor(body), body);
}

class CpuTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!CanEmulateTiles()) GTEST_SKIP() << "tiles are instructions of x86-64";
  }
  const EmulateTiles emulate_;
};

TEST_F(CpuTiles, ProductsOfBf16) {
  constexpr int kSteps = 64;
  std::mt19937 rng(3);
  const auto number = [&] { return static_cast<float>(static_cast<int>(rng() % 63) - 31); };
  std::vector<uint16_t> a(kSide * kSteps), b(kSteps * kSide);
  std::vector<float> sums(kSide * kSide), want(kSide * kSide);
  for (uint16_t& x : a) x = Bits(number());
  for (uint16_t& x : b) x = Bits(number() / 4);
  for (float& x : sums) x = number();
  a[3 * kSteps + 5] = Bits(INFINITY);
  a[7 * kSteps] = Bits(NAN);
  for (int r = 0; r < kSide; ++r) {
    for (int c = 0; c < kSide; ++c) {
      float sum = sums[r * kSide + c];
      for (int k = 0; k < kSteps; ++k) {
        const auto wide = [](uint16_t bits) {
          const uint32_t u = static_cast<uint32_t>(bits) << 16;
          float f;
          std::memcpy(&f, &u, sizeof(f));
          return f;
        };
        sum += wide(a[r * kSteps + k]) * wide(b[k / 2 * 2 * kSide + 2 * c + k % 2]);
      }
      want[r * kSide + c] = sum;
    }
  }
  ASSERT_OK_AND_ASSIGN(
      const CpuKernelPtr kernel,
      GetKernel(TileKernel("rt_bf16", "rt_bf16", "rt_f32", kSteps), "test", HostWithTiles()));
  void* buffers[] = {a.data(), b.data(), sums.data()};
  kernel->fn(buffers, nullptr, nullptr, 0, 1);
  for (int i = 0; i < kSide * kSide; ++i) {
    SCOPED_TRACE(absl::StrCat("element ", i));
    EXPECT_EQ(std::isnan(sums[i]), std::isnan(want[i]));
    if (std::isnan(want[i])) continue;
    EXPECT_EQ(sums[i], want[i]);
  }
}

TEST_F(CpuTiles, ProductsOfBytesOfAnySigns) {
  constexpr int kSteps = 128;
  std::mt19937 rng(4);
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      std::vector<uint8_t> a(kSide * kSteps), b(kSteps * kSide);
      std::vector<uint32_t> sums(kSide * kSide), want(kSide * kSide);
      for (uint8_t& x : a) x = static_cast<uint8_t>(rng());
      for (uint8_t& x : b) x = static_cast<uint8_t>(rng());
      for (uint32_t& x : sums) x = static_cast<uint32_t>(rng());
      const auto wide = [](uint8_t byte, bool is_signed) {
        return is_signed ? static_cast<int8_t>(byte) : static_cast<int>(byte);
      };
      for (int i = 0; i < kSide * kSide; ++i) {
        want[i] = sums[i];
        for (int k = 0; k < kSteps; ++k) {
          want[i] +=
              static_cast<uint32_t>(wide(a[i / kSide * kSteps + k], a_signed) *
                                    wide(b[k / 4 * 4 * kSide + i % kSide * 4 + k % 4], b_signed));
        }
      }
      const std::string text =
          TileKernel(a_signed ? "rt_i8" : "rt_u8", b_signed ? "rt_i8" : "rt_u8", "rt_i32", kSteps);
      ASSERT_OK_AND_ASSIGN(const CpuKernelPtr kernel, GetKernel(text, "test", HostWithTiles()));
      void* buffers[] = {a.data(), b.data(), sums.data()};
      kernel->fn(buffers, nullptr, nullptr, 0, 1);
      EXPECT_EQ(sums, want) << a_signed << b_signed;
    }
  }
}

// How many FRAGMENTs of a program read what a kernel is given.
int FragmentsOfParams(const UOp& program) {
  int count = 0;
  for (const UOp& s : program.srcs()) count += s.is(Op::kFragment) && s.src(0).is(Op::kParam);
  return count;
}

TEST(CpuTilePrograms, SquaresOfFour) {
  const UOp program =
      ProgramOf(NarrowInput({64, 64}).MatMul(NarrowInput({64, 96})), ChipWithTiles());
  EXPECT_EQ(Count(program, Op::kMma), 4);
  EXPECT_EQ(Count(program, Op::kFragment), 4);
  EXPECT_EQ(Count(program, Op::kFma), 0);
}

TEST(CpuTilePrograms, OddSidesHavePanelsOfTheirOwn) {
  // 32 columns and 8, whose sums take up one tile of columns.
  const UOp program =
      ProgramOf(NarrowInput({50, 70}).MatMul(NarrowInput({70, 40})), ChipWithTiles());
  EXPECT_EQ(Count(program, Op::kMma), 6);
  EXPECT_EQ(Count(program, Op::kFma), 0);
}

// In a panel that is padding, or of another dtype before it was cast, the product is another one.
TEST(CpuTilePrograms, PanelsThatAreOthersAreByVectors) {
  const auto product = [](const Tensor& a, const Tensor& b, DType sums) {
    return ProgramOf(a.Cast(sums).MatMul(b.Cast(sums)), ChipWithTiles());
  };
  const Tensor halves = NarrowInput({64, 64}), bytes = NarrowInput({64, 64}, kInt8);
  const auto after = [](const Tensor& t) { return t.Pad({{0, 0}, {0, 16}}); };
  const auto before = [](const Tensor& t) { return t.Pad({{0, 0}, {32, 0}}); };
  const Tensor flags = NarrowInput({64, 16}, kBool).Cast(kInt8);
  const Tensor mixed = Cat({NarrowInput({64, 32}, kInt8), flags}, 1);
  for (const UOp& program : {product(halves, after(NarrowInput({64, 32})), kFloat32),
                             product(halves, before(NarrowInput({64, 16})), kFloat32),
                             product(bytes, after(NarrowInput({64, 32}, kInt8)), kInt32),
                             product(bytes, mixed, kInt32)}) {
    for (const UOp& s : program.srcs()) EXPECT_FALSE(IsTile(s.dtype()));
  }
  // Where some of a panel's columns are padding it is the same product.
  EXPECT_EQ(Count(product(halves, after(NarrowInput({64, 48})), kFloat32), Op::kMma), 4);
}

TEST(CpuTilePrograms, LongSumsInPartsOfTheInnermostCache) {
  // Two thirds of 32 KiB hold 10 steps of 2 KiB: 22 of them are 8, 8 and 6.
  const UOp program =
      ProgramOf(NarrowInput({128, 704}).MatMul(NarrowInput({704, 96})), ChipWithTiles());
  EXPECT_EQ(Count(program, Op::kMma), 12);
  // One row of squares reads a panel once.
  const UOp few = ProgramOf(NarrowInput({32, 640}).MatMul(NarrowInput({640, 96})), ChipWithTiles());
  EXPECT_EQ(Count(few, Op::kMma), 4);
}

TEST(CpuTilePrograms, BytesOfAnySigns) {
  for (const DType a : {kInt8, kUInt8}) {
    for (const DType b : {kInt8, kUInt8}) {
      const Tensor x = NarrowInput({64, 128}, a).Cast(kInt32),
                   y = NarrowInput({128, 96}, b).Cast(kInt32);
      const UOp program = ProgramOf(x.MatMul(y), ChipWithTiles());
      EXPECT_EQ(Count(program, Op::kMma), 4) << a.ToString() << " by " << b.ToString();
      EXPECT_EQ(Count(program, Op::kFma), 0);
    }
  }
}

// A product whose panels are laid out by a kernel before it.
UOp ProductOfPanels() {
  const std::vector<PlanKernel> kernels =
      KernelsOf(NarrowInput({2048, 1024}).MatMul(NarrowInput({1024, 2048})), ChipWithTiles());
  EXPECT_EQ(kernels.size(), 2u);
  const absl::StatusOr<Program> program =
      Codegen(kernels.at(0).graph, kernels[0].name, kernels[0].variables, ChipWithTiles());
  EXPECT_OK(program);
  return program->statements;
}

TEST(CpuTilePrograms, PanelsAreReadWhereTheyLie) {
  const UOp product = ProductOfPanels();
  EXPECT_EQ(Count(product, Op::kMma), 8);
  EXPECT_EQ(FragmentsOfParams(product), 4);  // of the first part and of others
  // Rows, which lie in scratch, are read once while a part of a panel is read again and again.
  for (const UOp& s : product.srcs()) {
    if (!s.is(Op::kFragment)) continue;
    EXPECT_EQ(s.arg<Ints>()[1], s.src(0).is(Op::kScratch) ? 1 : 0);
  }
}

// The extents of the loops around the first load of a buffer, by elements.
std::vector<int64_t> LoopsAroundLoad(const UOp& program, int64_t slot) {
  std::vector<int64_t> loops;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kRange)) loops.push_back(s.src(1).vmax());
    if (s.is(Op::kEnd)) loops.pop_back();
    const bool param = s.is(Op::kLoad) && s.src(0).is(Op::kParam);
    if (param && s.src(0).arg<ParamArg>().slot == slot) return loops;
  }
  return {};
}

// While one part of a panel is multiplied the next one is asked for: each square of rows asks for
// its share of a tile's sixteen rows.
TEST(CpuTilePrograms, TheNextPartOfAPanelIsAskedFor) {
  const UOp product = ProductOfPanels();
  // 512 KiB are 256 rows, or 8 squares: two rows each of two tiles, in two loops over parts.
  EXPECT_EQ(Count(product, Op::kPrefetch), 2 * 2 * 2);
}

// The loop over panels that lie in memory is within that over blocks of rows. (The other way round
// rows were laid out for each panel anew: a product of 2048 x 2048 took three times as long.)
TEST(CpuTilePrograms, RowsAreLaidOutOnceForAllPanels) {
  const UOp product = ProductOfPanels();
  EXPECT_EQ(LoopsAroundLoad(product, 1).size(), 3u);  // blocks, rows, steps
}

// Panels beside each other are filled together, and their results written: 256 bytes of a row.
TEST(CpuTilePrograms, SeveralPanelsAtOnce) {
  Target chip = ChipWithTiles();
  chip.cores = 1;
  const auto vectors = [&](int64_t depth, int64_t columns, DType of = kBFloat16) {
    const DType sums = of == kBFloat16 ? kFloat32 : kInt32;
    const Tensor a = NarrowInput({64, depth}, of), b = NarrowInput({depth, columns}, of);
    return LoopsAroundLoad(ProgramOf(a.Cast(sums).MatMul(b.Cast(sums)), chip), 2).back();
  };
  EXPECT_EQ(vectors(64, 256), 8);
  EXPECT_EQ(vectors(64, 512, kInt8), 16);
  EXPECT_EQ(vectors(64, 96), 6);     // not as many as that
  EXPECT_EQ(vectors(2048, 256), 2);  // one fills a quarter of the cache
}

// Two cores share four panels by two, and six by three: neither has four of them at once.
TEST(CpuTilePrograms, PanelsAtOnceLeaveNoCoreWithout) {
  Target chip = ChipWithTiles();
  chip.cores = 2;
  const auto columns = [&](int64_t n) {
    const UOp program = ProgramOf(NarrowInput({32, 512}).MatMul(NarrowInput({512, n})), chip);
    return LoopsAroundLoad(program, 2).back() * 16;
  };
  EXPECT_EQ(columns(128), 64);
  EXPECT_EQ(columns(192), 32);
  EXPECT_EQ(columns(1024), 128);
}

// Both products of attention are in tiles, and what lies between them is written as the second one
// reads it: nothing is laid out again.
TEST(CpuTilePrograms, ChainedProducts) {
  const auto program = [](int64_t keys) {
    const Tensor q = NarrowInput({4, 512, 64}), k = NarrowInput({4, keys, 64});
    return ProgramOf(q.ScaledDotProductAttention(k, NarrowInput({4, keys, 64})), ChipWithTiles());
  };
  const UOp full = program(256), odd = program(250);
  EXPECT_EQ(Count(full, Op::kFma), 0);
  EXPECT_EQ(Count(odd, Op::kFma), 0);
  EXPECT_EQ(Count(full, Op::kMma) % 4, 0);
  EXPECT_GE(Count(full, Op::kMma), 8);
  EXPECT_LT(Count(full, Op::kScratch), Count(odd, Op::kScratch));
}

// Both products' tiles that no loop makes anew are more than there are: it goes by vectors.
TEST(CpuTilePrograms, WhatNeedsMoreTilesThanThereAreHasNone) {
  const UOp program = ProgramOf(
      NarrowInput({48, 48}).MatMul(NarrowInput({48, 32})).Softmax().MatMul(NarrowInput({32, 16})),
      ChipWithTiles());
  for (const UOp& s : program.srcs()) EXPECT_FALSE(IsTile(s.dtype()));
}

TEST(CpuTilePrograms, PanelsAreLaidOutOnceForBlocksOfTheOwnCache) {
  // 2 MiB of rows are four blocks of 512 KiB, but two of what vectors read from the last cache.
  const Tensor product = NarrowInput({1024, 1024}).MatMul(NarrowInput({1024, 1024}));
  EXPECT_EQ(KernelsOf(product, ChipWithTiles()).size(), 2u);
  EXPECT_EQ(KernelsOf(product, ChipWithPairs()).size(), 1u);
  // Several cores would each lay out all panels: 512 KiB of rows and of panels are enough.
  const auto kernels = [](int64_t rows, int cores) {
    Target chip = ChipWithTiles();
    chip.cores = cores;
    return KernelsOf(NarrowInput({rows, 512}).MatMul(NarrowInput({512, 512})), chip).size();
  };
  EXPECT_EQ(kernels(512, 2), 2u);
  EXPECT_EQ(kernels(512, 1), 1u);
  EXPECT_EQ(kernels(480, 2), 1u);
}

TEST(CpuTilePrograms, Convolutions) {
  const Target chip = ChipWithTiles();
  const Tensor x = NarrowInput({1, 32, 16, 16});
  const Tensor y = x.Conv2d(NarrowInput({64, 32, 3, 3}), {.padding = {1, 1}});
  EXPECT_EQ(Count(ProgramOf(y, chip), Op::kMma), 4);
  // As the gradient by the input reads its weights: in no order of the sum.
  const Tensor turned = NarrowInput({32, 64, 3, 3}).Permute({1, 0, 2, 3});
  EXPECT_EQ(Count(ProgramOf(x.Conv2d(turned, {.padding = {1, 1}}), chip), Op::kMma), 4);
}

// Weights in blocks of 32 with a number that they are times, as files have them, and halves of
// bytes of which the low ones come first: panels are filled by vectors along the blocks, not by
// gathering.
TEST(CpuTilePrograms, WeightsInBlocks) {
  const Tensor bytes = NarrowInput({96, 16, 33}, kInt8);
  const Tensor whole = bytes.SliceAxis(-1, {1, 33});
  const Tensor half = bytes.SliceAxis(-1, {1, 17}).Bitcast(kUInt8);
  const Tensor scales = bytes.SliceAxis(-1, {0, 1}).Cast(kFloat32);
  for (const Tensor& numbers : {whole, Stack({half & 15, half >> 4}, -2).Flatten(-2)}) {
    const Tensor w = (numbers.Cast(kFloat32) * scales).Flatten(1).Cast(kBFloat16);
    for (const int64_t rows : {17, 64}) {
      const UOp program = ProgramOf(NarrowInput({rows, 512}).MatMul(w.T()), ChipWithTiles());
      EXPECT_GT(Count(program, Op::kMma), 0);
      if (rows > 17) {
        EXPECT_GT(Count(program, Op::kShuffle), 0);
      }
      EXPECT_EQ(Count(program, Op::kLanes), 0) << rows;
      EXPECT_EQ(Count(program, Op::kWhere), 0) << rows;
    }
  }
}

TEST(CpuTilePrograms, FewRowsByColumnsAlongTheSum) {
  const Tensor product = NarrowInput({17, 704}).MatMul(NarrowInput({96, 704}).T());
  EXPECT_GT(Count(ProgramOf(product, ChipWithTiles()), Op::kMma), 0);
}

TEST(CpuTilePrograms, NotWhereTheLayoutOfALongSumFitsNoCache) {
  const Tensor product = NarrowInput({64, 1 << 20}).MatMul(NarrowInput({1 << 20, 64}));
  for (const PlanKernel& k : KernelsOf(product, ChipWithTiles())) {
    ASSERT_OK_AND_ASSIGN(const Program p, Codegen(k.graph, k.name, k.variables, ChipWithTiles()));
    EXPECT_LT(p.scratch_bytes, 8 << 20) << k.name;
  }
}

TEST(CpuTilePrograms, NotWhereTilesWouldBeMostlyEmpty) {
  const Target chip = ChipWithTiles();
  EXPECT_EQ(
      Count(ProgramOf(NarrowInput({15, 64}).MatMul(NarrowInput({64, 96})), chip), Op::kFragment),
      0);
  EXPECT_EQ(
      Count(ProgramOf(NarrowInput({64, 64}).MatMul(NarrowInput({64, 15})), chip), Op::kFragment),
      0);
  EXPECT_EQ(
      Count(ProgramOf(NarrowInput({64, 15}).MatMul(NarrowInput({15, 96})), chip), Op::kFragment),
      0);
  Target none = chip;
  none.features = "+avx512f,+avx512bf16,+avx512vl,+amx-tile";
  EXPECT_EQ(
      Count(ProgramOf(NarrowInput({64, 64}).MatMul(NarrowInput({64, 96})), none), Op::kFragment),
      0);
}

TEST(TileNumbers, AreFreeAgainAfterTheLastUse) {
  // Nine tiles one after another, each used before the next is made, but the first for all of them.
  const UOp param = UOp::Make(Op::kParam, kBFloat16, {}, ParamArg{0, {Extent(1 << 16)}, {}});
  const DType tile = kBFloat16.WithLanes(512), sums = kFloat32.WithLanes(256);
  const auto load = [&](int64_t id) {
    return UOp::Make(Op::kFragment, tile, {param, UOp::Index(512 * id), UOp::Index(32)},
                     Ints{id, 0});
  };
  const UOp first = load(0);
  std::vector<UOp> statements = {first};
  for (int64_t i = 1; i < 10; ++i) {
    statements.push_back(load(i));
    const std::vector<UOp> operands = {first, statements.back()};
    statements.push_back(UOp::Make(Op::kMma, sums, operands, Arg(std::string(kTileName))));
  }
  const auto program = [](const std::vector<UOp>& list) {
    return UOp::Make(Op::kProgram, kVoid, list, Arg(std::string("test")));
  };
  ASSERT_OK_AND_ASSIGN(const TileNumbers numbers, NumberTiles(program(statements)));
  for (size_t i = 1; i < statements.size(); ++i) {
    EXPECT_NE(numbers.at(statements[i].get()), numbers.at(first.get()));
  }
  // All nine at once are one too many.
  std::vector<UOp> together = {first};
  for (int64_t i = 1; i < 10; ++i) together.push_back(load(i));
  for (int64_t i = 1; i < 10; ++i) {
    const std::vector<UOp> operands = {first, together[i]};
    together.push_back(UOp::Make(Op::kMma, sums, operands, Arg(std::string(kTileName))));
  }
  EXPECT_THAT(NumberTiles(program(together)).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 8 tiles"));
}

}  // namespace
}  // namespace tessera
