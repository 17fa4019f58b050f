// Products on chips whose register tiles have more columns than others: programs, and what they
// give on this one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"
#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

// This machine's instructions in tiles of three vectors, on caches of round numbers.
Target WideTiles() {
  Target t = HostTarget();
  t.tile_vectors = 3;
  t.stream_ahead = 2048;
  t.cores = 2;
  t.l1_bytes = 32 << 10;
  t.l2_bytes = 256 << 10;
  t.cache_bytes = 1 << 20;
  return t;
}

// The product of two matrices by the plan for a target, its kernels compiled for that and run by
// two workers, one after the other.
std::vector<float> ProductFor(const Target& target, const Tensor& a, const Tensor& b,
                              const std::vector<float>& x, const std::vector<float>& y,
                              size_t& kernels) {
  const std::vector<UOp> roots = {a.MatMul(b).uop()};
  const PlanKey key = MakePlanKey(roots);
  const absl::StatusOr<Plan> plan =
      Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)), /*on_meshes=*/false);
  EXPECT_OK(plan);
  if (!plan.ok()) return {};
  kernels = plan->kernels.size();
  std::vector<std::vector<char>> memory;
  for (const PlanBuffer& buffer : plan->buffers) {
    std::vector<char>& bytes = memory.emplace_back(buffer.bytes);
    if (buffer.kind != PlanBuffer::kInput) continue;
    const std::vector<float>& from = key.leaves[buffer.slot] == a.uop() ? x : y;
    std::memcpy(bytes.data(), from.data(), bytes.size());
  }
  for (const PlanStep& step : plan->steps) {
    const PlanKernel& k = plan->kernels[step.kernel];
    const absl::StatusOr<Program> program = Codegen(k.graph, k.name, k.variables, target);
    EXPECT_OK(program);
    const absl::StatusOr<CpuKernelPtr> code = GetKernel(program->text, program->entry, target);
    EXPECT_OK(code);
    std::vector<void*> buffers;
    for (int i : step.buffers) buffers.push_back(memory[i].data());
    std::vector<char> scratch(program->scratch_bytes + 64);
    void* room = scratch.data();
    size_t space = scratch.size();
    std::align(64, space - 64, room, space);
    for (int w = 0; w < k.workers; ++w) {
      (*code)->fn(buffers.data(), nullptr, room, w, k.workers);
    }
  }
  const std::vector<char>& result = memory[plan->roots[0]];
  std::vector<float> out(result.size() / sizeof(float));
  std::memcpy(out.data(), result.data(), result.size());
  return out;
}

TEST(ColumnTiles, AnyNumberOfThemSlow) {
  std::mt19937 rng(7);
  const auto numbers = [&](int64_t n) {
    std::vector<float> out(n);
    for (float& f : out) f = static_cast<float>(static_cast<int>(rng() % 15) - 7);
    return out;
  };
  bool packed = false, plain = false;
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 5, 48},
                                {33, 300, 48},
                                {64, 7, 100},
                                {40, 640, 16},
                                {65, 130, 65},
                                {17, 33, 1},
                                {2048, 320, 176},
                                {2048, 320, 192},
                                {1500, 512, 256}}) {
    SCOPED_TRACE(absl::StrCat(m, " x ", k, " x ", n));
    const Tensor a = Tensor::Empty({m, k}), b = Tensor::Empty({k, n});
    const std::vector<float> x = numbers(m * k), y = numbers(k * n);
    std::vector<float> want(m * n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t s = 0; s < k; ++s) {
        for (int64_t j = 0; j < n; ++j) want[i * n + j] += x[i * k + s] * y[s * n + j];
      }
    }
    size_t kernels = 0;
    EXPECT_EQ(ProductFor(WideTiles(), a, b, x, y, kernels), want);
    (kernels > 1 ? packed : plain) = true;
  }
  EXPECT_TRUE(packed) << "no product had its panels laid out before it";
  EXPECT_TRUE(plain);
}

Target WideSmallChip() {
  Target t = ChipWithPairs();
  t.features.clear();
  t.tile_vectors = 3;
  return t;
}

// Twenty-four sums, and of their operands one row's at a time beside three vectors: all at once
// would take more registers than there are.
TEST(ColumnTiles, RowsGoByWhileVectorsStay) {
  const UOp program =
      ProgramOf(Tensor::Empty({64, 100}).MatMul(Tensor::Empty({100, 96})), WideSmallChip());
  EXPECT_EQ(Count(program, Op::kFma), 24);
  int splats = 0, most = 0;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kSplat) && !s.src(0).IsConst()) most = std::max(most, ++splats);
    if (s.is(Op::kFma)) splats = 0;
  }
  EXPECT_EQ(most, 1);
}

// Two vectors are a tile of 8 x 2 sums, and four are two of them: not single ones, which load nine
// numbers for eight products. Five are three and what is left of them.
TEST(ColumnTiles, TwoVectorsAreATile) {
  const auto sums = [](int64_t columns) {
    const Tensor product = Tensor::Empty({64, 64}).MatMul(Tensor::Empty({64, columns}));
    return Count(ProgramOf(product, WideSmallChip()), Op::kFma);
  };
  EXPECT_EQ(sums(16), 8);
  EXPECT_EQ(sums(32), 16);
  EXPECT_EQ(sums(48), 24);
  EXPECT_EQ(sums(64), 16);
  EXPECT_EQ(sums(96), 24);
}

// Rows of one vector are no tiles by themselves: the windows over them are laid out so that tiles
// run over their ends.
TEST(ColumnTiles, WindowsOverShortRowsAreFlat) {
  const auto sums = [](int64_t side) {
    ConvOptions options;
    options.padding = {1, 1};
    const Tensor y =
        Tensor::Empty({1, 16, side, side}).Conv2d(Tensor::Empty({64, 16, 3, 3}), options);
    return Count(ProgramOf(y, WideSmallChip()), Op::kFma);
  };
  EXPECT_EQ(sums(16), 24 + 8);  // 256 columns: five tiles and a vector
  EXPECT_EQ(sums(32), 16);
}

TEST(ColumnTiles, PanelsOfOneVectorAreReadThreeAtATime) {
  // 2304 columns are 48 tiles; of 2048 two vectors are left over, which have a tile of their own.
  // Two steps of the sum are written out.
  const std::vector<PlanKernel> kernels = KernelsOf(
      Tensor::Empty({4096, 1024}).MatMul(Tensor::Empty({1024, 2048 + 256})), WideSmallChip());
  ASSERT_EQ(kernels.size(), 2u);
  const std::vector<PlanKernel> odd =
      KernelsOf(Tensor::Empty({4096, 1024}).MatMul(Tensor::Empty({1024, 2048})), WideSmallChip());
  ASSERT_EQ(odd.size(), 2u);
  for (const auto& [of, sums] : {std::pair(&kernels, 2 * 24), std::pair(&odd, 2 * (24 + 16))}) {
    ASSERT_OK_AND_ASSIGN(const Program product, Codegen((*of)[0].graph, (*of)[0].name,
                                                        (*of)[0].variables, WideSmallChip()));
    EXPECT_EQ(Count(product.statements, Op::kFma), sums);
    EXPECT_EQ(product.scratch_bytes, 0) << "a panel is laid out again";
  }
}

TEST(ColumnTiles, RowsThatAreLeftOverAreOneTile) {
  Target chip = WideSmallChip();
  chip.cores = 1;
  const auto sums = [&](int64_t rows) {
    const Tensor product = Tensor::Empty({rows, 64}).MatMul(Tensor::Empty({64, 48}));
    return Count(ProgramOf(product, chip), Op::kFma);
  };
  EXPECT_EQ(sums(64), 8 * 3);
  EXPECT_EQ(sums(61), 8 * 3 + 5 * 3);
  EXPECT_EQ(sums(57), 8 * 3 + 3);
}

TEST(ColumnTiles, PanelsAreAskedForAheadWhereTheChipNeedsIt) {
  const Tensor product = Tensor::Empty({128, 1024}).MatMul(Tensor::Empty({1024, 96}));
  Target target = WideSmallChip();
  EXPECT_EQ(Count(ProgramOf(product, target), Op::kPrefetch), 0);
  target.stream_ahead = 2048;
  const UOp program = ProgramOf(product, target);
  EXPECT_EQ(Count(program, Op::kPrefetch), 3);
  for (const UOp& s : program.srcs()) {
    EXPECT_TRUE(!s.is(Op::kPrefetch) || s.src(1).src(1).IsConst(2048 / 4));
  }
  // Of a panel that the innermost cache holds nothing is asked for.
  const Tensor few = Tensor::Empty({256, 100}).MatMul(Tensor::Empty({100, 96}));
  EXPECT_EQ(Count(ProgramOf(few, target), Op::kPrefetch), 0);
}

// A convolution by steps of two lays out its windows, which one loop then reads row by row.
TEST(ColumnTiles, WindowsOfOneLoopAreAskedForAhead) {
  Target chip = WideSmallChip();
  chip.stream_ahead = 2048;
  const Tensor x = Tensor::Empty({2, 3, 224, 224}), w = Tensor::Empty({64, 3, 7, 7});
  const UOp program = ProgramOf(x.Conv2d(w, {.stride = {2, 2}, .padding = {3, 3}}), chip);
  EXPECT_GE(Count(program, Op::kPrefetch), 3);
  EXPECT_EQ(Count(program, Op::kLanes), 0);  // every second element is taken from two vectors
}

}  // namespace
}  // namespace tessera
