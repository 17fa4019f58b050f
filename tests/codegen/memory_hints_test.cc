// Which stores go past the caches, and which rows are fetched ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

Tensor Input(const Dims& shape, DType dtype = kFloat32) { return Tensor::Empty(shape, dtype); }

TEST(MemoryHints, ResultsLargerThanTheCacheAreStreamed) {
  const UOp large = ProgramOf(Input({2048, 1024}) + 1, SmallChip());
  EXPECT_GT(Count(large, Op::kStream), 0);
  EXPECT_EQ(Count(large, Op::kPut), 0);
  const UOp small = ProgramOf(Input({1024, 1024}) + 1, SmallChip());
  EXPECT_EQ(Count(small, Op::kStream), 0);
  EXPECT_GT(Count(small, Op::kPut), 0);
}

TEST(MemoryHints, NothingIsStreamedWhereTheCacheIsUnknown) {
  Target target = SmallChip();
  target.cache_bytes = 0;
  EXPECT_EQ(Count(ProgramOf(Input({2048, 1024}) + 1, target), Op::kStream), 0);
}

TEST(MemoryHints, WhatIsReadInPlaceIsNotStreamed) {
  Tensor x = Input({2048, 1024});
  x.Assign(x * 2);  // the line is in the cache: it was just read
  EXPECT_EQ(Count(ProgramOf(x, SmallChip()), Op::kStream), 0);
}

TEST(MemoryHints, SingleElementsAreNotStreamed) {
  const UOp rows = ProgramOf(Input({1 << 21, 4}).Sum({1}), SmallChip());
  for (const UOp& s : rows.srcs()) {
    EXPECT_TRUE(!s.is(Op::kStream) || s.src(2).dtype().lanes() > 1);
  }
}

// Where a program asks for rows to come: in which of its loops, the first of which is over rows,
// and how many elements ahead.
std::vector<std::pair<int, int64_t>> Asked(const UOp& program) {
  std::vector<std::pair<int, int64_t>> out;
  int loops = 0;
  for (const UOp& s : program.srcs()) {
    loops += s.is(Op::kRange);
    if (!s.is(Op::kPrefetch)) continue;
    const UOp& at = s.src(1);
    out.emplace_back(loops, at.is(Op::kAdd) && at.src(1).IsConst() ? at.src(1).vmin() : -1);
  }
  return out;
}

// Rows to come are asked for by one of the loops that read this one: by the last, some rows ahead,
// or of short rows by the last that does not write.
TEST(MemoryHints, RowsReadTwiceAreFetchedAhead) {
  using testing::AllOf;
  using testing::Each;
  using testing::ElementsAre;
  using testing::IsEmpty;
  using testing::Not;
  using testing::Pair;
  const auto asked = [](int64_t columns, const std::function<Tensor(Tensor)>& f) {
    return Asked(ProgramOf(f(Input({512, columns})), SmallChip()));
  };
  const auto softmax = [](Tensor x) { return x.Softmax(); };
  const auto norm = [](Tensor x) { return x.LayerNorm({}, {}, 1e-6); };
  // Rows, the maximum, the exponentials, results; rows, the mean, squares, results.
  // Vectors in lockstep lie on several lines.
  EXPECT_THAT(asked(256, softmax), ElementsAre(Pair(3, 4 * 256), Pair(3, 4 * 256 + 16)));
  EXPECT_THAT(asked(256, norm), AllOf(Not(IsEmpty()), Each(Pair(3, 4 * 256))));
  EXPECT_THAT(asked(2048, softmax), ElementsAre(Pair(3, 2 * 2048), Pair(3, 2 * 2048 + 16)));
  EXPECT_THAT(asked(2048, norm), AllOf(Not(IsEmpty()), Each(Pair(4, 2 * 2048))));
}

TEST(MemoryHints, RowsReadOnceAreNot) {
  EXPECT_EQ(Count(ProgramOf(Input({512, 256}).Sum({1}), SmallChip()), Op::kPrefetch), 0);
  EXPECT_EQ(Count(ProgramOf(Input({512, 256}).Exp(), SmallChip()), Op::kPrefetch), 0);
}

// Four rows of a vector's product are read at once, each of a quarter of them all: streams of
// their own, which go on from row to row, however long these are.
TEST(MemoryHints, StreamsFarApartAreFetchedALittleAhead) {
  constexpr int64_t kColumns = 1024;
  const UOp product =
      ProgramOf(Input({1, kColumns}).Linear(Input({1 << 14, kColumns})), SmallChip());
  EXPECT_GE(Count(product, Op::kPrefetch), 4);
  std::set<int64_t> quarters;
  for (const UOp& s : product.srcs()) {
    if (s.is(Op::kPrefetch)) {
      EXPECT_TRUE(s.src(1).src(1).IsConst(32));  // two lines, or steps of the loop
    }
    if (!s.is(Op::kAdd) || !s.src(1).IsConst() || s.dtype().lanes() > 1) continue;
    const int64_t by = s.src(1).vmin(), quarter = (1 << 12) * kColumns;
    if (by >= quarter) quarters.insert(by / quarter);
  }
  EXPECT_EQ(quarters.size(), 3u);  // and the first
}

// One such stream is asked for by bytes: it goes on past the end of its row, however long that is.
TEST(MemoryHints, ALongRowIsNotFetchedWhole) {
  constexpr int64_t kBlocks = 64, kPanels = 512;  // rows of 32 KiB
  const Tensor panels = Input({kPanels, kBlocks, 8, 16, 4}, kInt8);
  const Tensor w = panels.Permute({0, 3, 1, 2, 4}).Reshape({16 * kPanels, kBlocks, 32});
  const Tensor x = Input({1, kBlocks, 32}, kInt8);
  const Tensor dots = (x.Unsqueeze(1).Cast(kInt32) * w.Cast(kInt32)).Sum({-1});
  const UOp program =
      ProgramOf((dots.Cast(kFloat32) * Input({16 * kPanels, kBlocks})).Sum({-1}), SmallChip());
  int fetched = 0;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kPrefetch) || !(s.src(0).dtype() == kInt8)) continue;
    ++fetched;
    EXPECT_TRUE(s.src(1).src(1).IsConst(8192));
  }
  EXPECT_EQ(fetched, 8);
}

// As far as the chip asks for, where it does.
TEST(MemoryHints, StreamsFarApartAreFetchedAsFarAheadAsTheChipNeeds) {
  constexpr int64_t kColumns = 1024;
  Target chip = SmallChip();
  chip.stream_ahead = 2048;
  const UOp product = ProgramOf(Input({1, kColumns}).Linear(Input({1 << 14, kColumns})), chip);
  EXPECT_GE(Count(product, Op::kPrefetch), 4);
  for (const UOp& s : product.srcs()) {
    if (!s.is(Op::kPrefetch)) continue;
    EXPECT_TRUE(s.src(1).src(1).IsConst(2048 / 4));
  }
}

// Numbers that are computed from a few bits each take longer than their bytes.
TEST(MemoryHints, MoreIsFetchedAheadOfMuchArithmetic) {
  constexpr int64_t kColumns = 4096;
  const Tensor bytes = Input({1 << 14, kColumns}, kUInt8);
  const Tensor values = (bytes & 15).Cast(kFloat32) * (bytes / 16).Cast(kFloat32) - 8;
  const UOp product = ProgramOf(Input({1, kColumns}).Linear(values), SmallChip());
  EXPECT_GE(Count(product, Op::kPrefetch), 4);
  for (const UOp& s : product.srcs()) {
    if (!s.is(Op::kPrefetch)) continue;
    EXPECT_TRUE(s.src(1).src(1).IsConst(3072)) << s.src(1).src(1).vmax();
  }
}

// Of rows with something between them the hardware knows no more.
TEST(MemoryHints, ShortRowsWithGapsAreFetchedFurtherAhead) {
  const Tensor rows = Input({1 << 14, 512}).Slice({{}, {0, 320}});
  const UOp product = ProgramOf(Input({1, 320}).Linear(rows), SmallChip());
  int fetches = 0;
  for (const UOp& s : product.srcs()) {
    if (!s.is(Op::kPrefetch)) continue;
    ++fetches;
    ASSERT_TRUE(s.src(1).is(Op::kAdd));
    EXPECT_TRUE(s.src(1).src(1).IsConst(4 * 512)) << s.src(1).src(1).vmax();
  }
  EXPECT_GE(fetches, 4);
}

// A row that would drive this one out of the cache is left where it is.
TEST(MemoryHints, LongRowsAreNot) {
  const Tensor x = Input({64, 1 << 18});
  Target target = SmallChip();
  target.l2_bytes = 1 << 19;
  for (const PlanKernel& k : KernelsOf(x.RmsNorm(Input({1 << 18}), 1e-5), target)) {
    absl::StatusOr<Program> program = Codegen(k.graph, k.name, k.variables, target);
    ASSERT_OK(program);
    EXPECT_EQ(Count(program->statements, Op::kPrefetch), 0);
  }
}

// Chips that need it ask for what a sum reads of more than their caches hold.
TEST(MemoryHints, SumsFromMemoryAskAhead) {
  const auto asked = [](int64_t rows, int64_t ahead) {
    Target target = SmallChip();
    target.stream_ahead = ahead;
    const PlanKernel kernel = KernelsOf(Input({rows, 1024}).Sum(), target)[0];
    const absl::StatusOr<Program> program =
        Codegen(kernel.graph, kernel.name, kernel.variables, target);
    EXPECT_OK(program);
    return Count(program->statements, Op::kPrefetch);
  };
  EXPECT_GT(asked(2048, 2048), asked(2048, 0));
  EXPECT_EQ(asked(1024, 2048), asked(1024, 0));  // the cache holds all of it
}

// What a long body reads is asked for ahead where the chip needs it; of a short one loads of many
// steps are under way.
TEST(MemoryHints, LongBodiesAskAhead) {
  Target chip = SmallChip();
  const auto asked = [&](const Tensor& y) { return Count(ProgramOf(y, chip), Op::kPrefetch); };
  const Tensor x = Input({1024, 1024}), other = Input({1024, 1024}), little = Input({256, 1024});
  EXPECT_EQ(asked(x.Erf()), 0);
  chip.stream_ahead = 2048;
  const UOp program = ProgramOf(x.Erf() + other, chip);
  EXPECT_EQ(Count(program, Op::kPrefetch), 4) << "of each two lines, of vectors in lockstep";
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kPrefetch)) continue;
    const UOp& ahead = s.src(1).src(1);
    EXPECT_TRUE(ahead.IsConst(2048 / 4) || ahead.IsConst(2048 / 4 + 16));
  }
  EXPECT_EQ(asked(x * 2 + other), 0);
  EXPECT_EQ(asked(little.Erf()), 0) << "it stays in a core's cache";
}

TEST(MemoryHints, GpusHaveNone) {
  Target target = SmallChip();
  target.dialect = Dialect::kCuda;
  target.max_threads = 1024;
  target.shared_bytes = 48 << 10;
  const UOp softmax = ProgramOf(Input({4096, 1024}).Softmax(), target);
  EXPECT_EQ(Count(softmax, Op::kPrefetch) + Count(softmax, Op::kStream), 0);
}

}  // namespace
}  // namespace tessera
