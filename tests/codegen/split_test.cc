// Loops given ranges of their own, and tiles with their remainders.
#include "codegen/split.h"

#include <gtest/gtest.h>

#include <set>

#include "graph/kernel_form.h"
#include "graph/spec.h"
#include "graph/text.h"
#include "tests/codegen/kernels.h"

namespace tessera {
namespace {

// The numbers of ranges that each op closes, over all nodes that close `extent`.
std::vector<int64_t> Closers(const UOp& sink, Op op, int64_t extent) {
  std::vector<int64_t> ids;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (!u.is(op)) continue;
    for (const UOp& r : ClosedRanges(u)) {
      if (r.src(0).IsConst(extent)) ids.push_back(r.arg<RangeArg>().id);
    }
  }
  return ids;
}

UOp RowRange(const UOp& sink, int64_t extent) {
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kRange) && u.src(0).IsConst(extent)) return u;
  }
  return UOp();
}

TEST(SeparateLoops, DependentReductionsRunOverRangesOfTheirOwn) {
  const Tensor x = Tensor::Empty({64, 128});
  const UOp kernel = KernelsOf(x.Softmax(), SmallChip()).at(0).graph;
  const UOp row = RowRange(kernel, 128);
  std::vector<UOp> own;
  const UOp out = SeparateLoops(kernel, row, own);
  EXPECT_EQ(own.size(), 2u);
  const std::vector<int64_t> reductions = Closers(out, Op::kReduce, 128);
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_NE(reductions[0], reductions[1]);
  EXPECT_EQ(Closers(out, Op::kStore, 128), std::vector<int64_t>{row.arg<RangeArg>().id});
  EXPECT_OK(Verify({&out, 1}, SpecStage::kKernel, 2, "test", SmallChip()));
}

TEST(SeparateLoops, ReductionsOfTheSameDataStayOneLoop) {
  const Tensor x = Tensor::Empty({64, 128});
  const Tensor y = x.Sum({1}, true) * x.Max({1}, true) + x;
  const UOp kernel = KernelsOf(y, SmallChip()).at(0).graph;
  std::vector<UOp> own;
  const UOp out = SeparateLoops(kernel, RowRange(kernel, 128), own);
  EXPECT_EQ(own.size(), 1u);
  const std::vector<int64_t> reductions = Closers(out, Op::kReduce, 128);
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_EQ(reductions[0], reductions[1]);
}

// Of the pieces of a CAT each is copied by a loop of its own, along whichever axis they are joined.
TEST(Tile, PiecesOfACatAreNotChosenFromAtEveryStep) {
  for (int axis : {0, 1}) {
    std::vector<Tensor> pieces;
    for (int i = 0; i < 12; ++i) pieces.push_back(Tensor::Empty({16, 16}));
    const UOp program = ProgramOf(Cat(pieces, axis), SmallChip());
    for (const UOp& u : TopoSort({&program, 1})) EXPECT_FALSE(u.is(Op::kWhere)) << axis;
    EXPECT_GE(Count(program, Op::kPut), 12) << axis;
  }
}

TEST(Tile, ColumnsThatAreLookedUpAreFoundOnceForSeveralRows) {
  const Tensor x = Tensor::Empty({64, 512}), index = Tensor::Empty({300}, kInt64);
  const UOp program = ProgramOf(x.Take(index, 1), SmallChip());
  int positions = 0;
  for (const UOp& s : program.srcs()) {
    positions += s.is(Op::kLoad) && s.size() > 1 && s.dtype() == kInt64;
  }
  EXPECT_EQ(Count(program, Op::kPut), 4);
  EXPECT_EQ(positions, 1);
}

TEST(Tile, CoversARangeByWholeTilesThenLanesThenElements) {
  const UOp kernel = KernelsOf(Tensor::Empty({77}) + 1, SmallChip()).at(0).graph;
  const UOp out = Tile(kernel, RowRange(kernel, 77), 4, 8);
  ASSERT_EQ(out.size(), 3);  // 2 tiles of 32, 1 of 8, 5 single
  int64_t covered = 0;
  for (const UOp& store : out.srcs()) {
    int64_t points = 1;
    for (const UOp& r : ClosedRanges(store)) points *= r.src(0).vmax();
    covered += points;
  }
  EXPECT_EQ(covered, 77);
  EXPECT_OK(Verify({&out, 1}, SpecStage::kKernel, 2, "test", SmallChip()));
}

// Pieces of a CAT: each is read whole, without a comparison for each element.
TEST(Tile, CutsWhereComparisonsChange) {
  const Tensor a = Tensor::Empty({16}), b = Tensor::Empty({40});
  const UOp program = ProgramOf(Cat({a, b}, 0) * 2, SmallChip());
  EXPECT_EQ(Count(program, Op::kCmpLt), 0);
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kLoad)) continue;
    EXPECT_EQ(s.size(), 2) << "no gate";
    EXPECT_EQ(s.dtype().lanes(), 8);
  }
}

TEST(SplitRanges, QuotientAndRemainderBecomeLoops) {
  // Scales of blocks of 32: the flat index is divided by 32.
  const Tensor w = Tensor::Empty({4, 32}), scale = Tensor::Empty({4, 1});
  const Tensor y = (w * scale).Reshape({128}) + Tensor::Empty({128});
  const UOp kernel = KernelsOf(y, SmallChip()).at(0).graph;
  for (const UOp& u : TopoSort({&kernel, 1})) {
    EXPECT_FALSE(u.is(Op::kFloorDiv) || u.is(Op::kFloorMod)) << Print({&kernel, 1});
  }
  EXPECT_EQ(Closers(kernel, Op::kStore, 32).size(), 1u);
}

// A transposition reads rows, turns squares of them, and writes rows; so does one beside other
// data.
TEST(JoinTransposed, LoadsAcrossTheLanes) {
  const Tensor x = Tensor::Empty({64, 64});
  for (const Tensor& y : {x.T().Contiguous(), x + x.T(), x.T().Exp() * 2}) {
    const UOp program = ProgramOf(y, SmallChip());
    EXPECT_GT(Count(program, Op::kShuffle), 0);
    EXPECT_EQ(Count(program, Op::kLane) + Count(program, Op::kLanes), 0);
  }
}

// Channels that come last in what is written, and did not in what is read, are written out: their
// vectors interleave, be they 2 or 7, and no lane is stored by itself.
TEST(JoinTransposed, ChannelsInterleave) {
  for (const int64_t n : {2, 3, 4, 7}) {
    const Tensor x = Tensor::Empty({n, 64}), y = Tensor::Empty({64});
    std::vector<Tensor> few;
    for (int64_t i = 0; i < std::min<int64_t>(n, 4); ++i) few.push_back(Tensor::Empty({64}));
    for (const Tensor& t : {x.T().Contiguous(), x.T().Exp() + y.Unsqueeze(1), Stack(few, 1) + 1}) {
      const UOp program = ProgramOf(t, SmallChip());
      EXPECT_EQ(Count(program, Op::kLane) + Count(program, Op::kLanes), 0) << n;
      int stores = 0;
      for (const UOp& s : program.srcs()) {
        stores += s.is(Op::kPut);
        EXPECT_TRUE(!s.is(Op::kPut) || s.src(2).dtype().lanes() > 1) << n;
      }
      EXPECT_EQ(stores, t.size(1));
    }
  }
}

// The loops of a matrix that is turned, from the outermost in.
std::vector<UOp> LoopsOfTurned(int64_t rows, int64_t columns) {
  const UOp program = ProgramOf(Tensor::Empty({rows, columns}).T().Contiguous(), SmallChip());
  std::vector<UOp> loops;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kRange)) loops.push_back(s);
  }
  return loops;
}

// The inner loop goes along what is read: rows to their ends, though cores share the columns.
TEST(JoinTransposed, ReadsRowsToTheirEnds) {
  const std::vector<UOp> loops = LoopsOfTurned(1000, 512);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_TRUE(loops[0].src(1).IsConst(1000 / 8));
  EXPECT_EQ(loops[1].arg<RangeArg>().kind, RangeKind::kGrid);
}

// Rows that crowd a few sets of the cache are written some way on, before the next columns are
// read.
TEST(JoinTransposed, WritesRowsThatCrowdInBlocks) {
  const std::vector<UOp> loops = LoopsOfTurned(1024, 512);
  ASSERT_EQ(loops.size(), 3u);
  EXPECT_TRUE(loops[0].src(1).IsConst(4));
  EXPECT_EQ(loops[1].arg<RangeArg>().kind, RangeKind::kGrid);
  EXPECT_TRUE(loops[2].src(1).IsConst(1024 / 8 / 4));
}

// Blocks are no wider than rows: each element is read once.
TEST(JoinTransposed, ReadsShortRowsOnce) {
  const UOp program = ProgramOf(Tensor::Empty({2000, 8}).T().Contiguous(), ChipWithPairs());
  int loads = 0;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kLoad) || s.size() < 2) continue;
    ++loads;
    EXPECT_EQ(s.dtype().lanes(), 8);
  }
  EXPECT_EQ(loads, Count(program, Op::kPut));
  // Nor do sums along columns have lanes for which several columns are read.
  const Tensor x = Tensor::Empty({63, 340, 8}), y = Tensor::Empty({63, 7, 340});
  const UOp sums = ProgramOf(x.Transpose().MatMul(y.Transpose()), ChipWithPairs());
  for (const UOp& s : sums.srcs()) EXPECT_FALSE(s.is(Op::kFma) && s.dtype().lanes() > 8);
}

// What rows that are computed in two vectors need twice is kept, narrow as it may be.
TEST(StageRecomputed, KeepsNarrowFloatsAsWideOnes) {
  const auto exponentials = [](DType dtype) {
    const Tensor x = Tensor::Empty({67, 24}, dtype);
    const UOp program = ProgramOf(x.Exp() + x.Exp().Sum({-1}, true), ChipWithPairs());
    int n = 0;
    for (const UOp& s : program.srcs()) n += s.dtype().IsFloat() && HasProperty(s.op(), kExpensive);
    return n;
  };
  EXPECT_EQ(exponentials(kFloat16), exponentials(kFloat32));
}

// Columns that lie across memory are read along it and turned: no load or store of one element.
TEST(JoinTransposed, PanelsAcrossTheGrain) {
  const Tensor x = Tensor::Empty({64, 32}), w = Tensor::Empty({48, 32});
  const UOp program = ProgramOf(x.MatMul(w.Transpose()), SmallChip());
  EXPECT_GT(Count(program, Op::kShuffle), 0);
  EXPECT_EQ(Count(program, Op::kLane), 0);
  for (const UOp& s : program.srcs()) {
    EXPECT_TRUE(!s.is(Op::kPut) || s.src(2).dtype().lanes() == 8);
  }
}

// A binary search waits for one lookup after another: so do all lanes, and none searches anew.
TEST(Vectors, SearchesHaveLanes) {
  const Tensor found = Tensor::Empty({1 << 12}, kUInt32).SearchSorted(Tensor::Empty({64}, kUInt32));
  const UOp program = ProgramOf(found, SmallChip());
  EXPECT_GT(Count(program, Op::kLane), 0);
  int lookups = 0;
  for (const UOp& s : program.srcs()) lookups += s.is(Op::kLoad) && s.dtype().lanes() == 1;
  EXPECT_LE(lookups, 1 + 13 * 8);
}

// Lanes that lie backward, or every other element, are moved from whole vectors.
TEST(Vectors, LanesAreMoved) {
  const Tensor x = Tensor::Empty({64, 64});
  for (const Tensor& y : {x.Flip({1}).Contiguous(), x + x.Flip({1}), x.SliceAxis(1, {0, 64, 2}) * 2,
                          x.SliceAxis(1, {1, 64, 2}) + x.SliceAxis(1, {63, {}, -2})}) {
    const UOp program = ProgramOf(y, SmallChip());
    EXPECT_GT(Count(program, Op::kShuffle), 0);
    EXPECT_EQ(Count(program, Op::kLane) + Count(program, Op::kLanes), 0);
  }
}

// A convolution of each of eight channels by itself.
UOp Depthwise(const Dims& shape, int64_t stride, DType dtype = kFloat32) {
  ConvOptions options;
  options.padding = {1, 1};
  options.stride = {stride, stride};
  options.groups = 8;
  const Tensor weight = Tensor::Empty({8, 1, 3, 3}, dtype);
  return ProgramOf(Tensor::Empty(shape, dtype).Conv2d(weight, options), SmallChip());
}

// Lanes two apart are moved as well where a border cuts them off: each of them has a gate.
TEST(Vectors, LanesAreMovedAtBorders) {
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    const UOp program = Depthwise({2, 8, 96, 96}, 2, dtype);
    EXPECT_GT(Count(program, Op::kShuffle), 0) << dtype.ToString();
    EXPECT_EQ(Count(program, Op::kLane) + Count(program, Op::kLanes), 0) << dtype.ToString();
  }
}

// Windows over a border are vectors, whatever their elements are: each lane of a load has a gate.
TEST(Vectors, BordersAreMaskedInEveryWidth) {
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64, kInt8}) {
    const UOp program = Depthwise({2, 8, 30, 30}, 1, dtype);
    int masked = 0;
    for (const UOp& s : program.srcs()) {
      masked += s.is(Op::kLoad) && s.size() == 3 && s.src(2).dtype().lanes() > 1;
      const bool sum = s.is(Op::kFma) || s.is(Op::kAdd);
      EXPECT_FALSE(sum && s.dtype() == kFloat32) << dtype.ToString() << " of one element";
    }
    EXPECT_GT(masked, 0) << dtype.ToString();
  }
}

// Rows of 16 of which the first and the last are a border, or which are of two pieces, are one
// vector of masked lanes each: no piece has a vector to itself.
TEST(Vectors, ShortPiecesAreMasked) {
  const Tensor inner = Tensor::Empty({64, 6});
  for (const Tensor& y : {inner.Pad({{0, 0}, {1, 1}}), Cat({inner, inner.SliceAxis(1, {0, 2})}, 1),
                          Cat({inner, inner, inner}, 1)}) {
    const UOp program = ProgramOf(y.Contiguous(), SmallChip());
    for (const UOp& s : program.srcs()) {
      EXPECT_FALSE(s.is(Op::kPut) && s.src(2).dtype().lanes() < 4) << y.shape().ToString();
    }
  }
}

// A vector of masked lanes of which none is there is not asked of memory far outside.
TEST(Vectors, MaskedLanesAreNotFarOutside) {
  const auto chosen = [](int64_t border) {
    const Tensor y = Tensor::Empty({9, 64, 6}).Pad({{border, border}, {border, border}, {1, 1}});
    const UOp program = ProgramOf(y.Contiguous(), SmallChip());
    int masked = 0, within = 0;
    for (const UOp& s : program.srcs()) {
      if (!s.is(Op::kLoad) || s.size() != 3 || s.src(2).dtype().lanes() == 1) continue;
      ++masked;
      within += s.src(1).is(Op::kWhere);
    }
    EXPECT_GT(masked, 0);
    return within == masked;
  };
  EXPECT_TRUE(chosen(8));
  EXPECT_FALSE(chosen(1)) << "less than a page before and after";
}

// Long chains of arithmetic are computed of several vectors side by side, where there are enough of
// them and each is short; what is cheap is not.
TEST(Vectors, LongChainsRunInLockstep) {
  const auto lanes = [](const Tensor& y, Op op, const Target& target = SmallChip()) {
    const std::vector<int> all = LanesOf(ProgramOf(y, target), op);
    return std::set<int>(all.begin(), all.end());
  };
  const std::set<int> four = {32}, two = {16}, one = {8};
  const auto x = [](int64_t columns, DType dtype = kFloat32) {
    return Tensor::Empty({64, columns}, dtype);
  };
  EXPECT_EQ(lanes(x(1024).Softmax(), Op::kExp), four);
  EXPECT_EQ(lanes(x(1024).Tanh(), Op::kTanh), four);
  EXPECT_EQ(lanes(x(1024, kBFloat16).Sin(), Op::kSin), four);
  EXPECT_EQ(lanes(x(48).Softmax(), Op::kExp), two);
  EXPECT_EQ(lanes(x(40).Softmax(), Op::kExp), one);
  EXPECT_EQ(lanes(x(1024, kFloat64).Exp(), Op::kExp), std::set<int>{4});
  EXPECT_EQ(lanes(x(1024).Sqrt(), Op::kSqrt), one);
  Target wide = SmallChip();
  wide.vector_bytes = 64;
  EXPECT_EQ(lanes(x(1024).Exp(), Op::kExp, wide), std::set<int>{16});
}

// Between the borders that windows reach over comparisons are decided: there is a loop of whole
// vectors of its own for that, of which no lane is masked.
TEST(CutDecided, BordersAreApart) {
  PoolOptions options;
  options.size = {3, 3};
  options.stride = {1, 1};
  options.padding = {1, 1};
  Target chip = SmallChip();
  chip.cores = 1;
  const auto lengths = [&](int64_t columns) {
    const Tensor x = Tensor::Empty({1, 4, 9, columns});
    UOp kernel = KernelsOf(x.MaxPool(options), chip).at(0).graph;
    std::vector<int64_t> out;
    for (const UOp& r : CutDecided(kernel, RowRange(kernel, columns), 8)) {
      out.push_back(r.src(0).vmax());
    }
    EXPECT_OK(Verify({&kernel, 1}, SpecStage::kKernel, 2, "test", SmallChip()));
    return out;
  };
  EXPECT_EQ(lengths(64), (std::vector<int64_t>{8, 48, 8}));
  EXPECT_EQ(lengths(61), (std::vector<int64_t>{8, 48, 5}));
  EXPECT_EQ(lengths(24), (std::vector<int64_t>{24})) << "one vector alone has no border";
}

// No loop over windows is left, and of 14 columns two are in both of two vectors.
TEST(Windows, OfShortRowsAreWrittenOut) {
  const UOp program = Depthwise({2, 8, 14, 14}, 1);
  EXPECT_LE(Count(program, Op::kRange), 3) << "samples, channels and rows";
  std::set<int> widths;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kPut)) widths.insert(s.src(2).dtype().lanes());
  }
  EXPECT_EQ(widths, (std::set<int>{8}));
}

// What is added to in place is added to once.
TEST(Windows, WhatIsReadWhereItIsWrittenIsDoneOnce) {
  Tensor x = Tensor::Empty({16, 8, 14});
  x.Assign(x * 2 + Tensor::Empty({14}));
  std::set<int> widths;
  const UOp program = ProgramOf(x, SmallChip());
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kPut)) widths.insert(s.src(2).dtype().lanes());
  }
  EXPECT_EQ(widths, (std::set<int>{1, 4, 8}));
}

// Rows of which little is left keep their loops as short as before.
TEST(Windows, WhatIsLeftOfLongRowsHasNoLanes) {
  const UOp program = ProgramOf(Tensor::Empty({16, 805}) + Tensor::Empty({805}), SmallChip());
  for (const UOp& s : program.srcs()) {
    EXPECT_FALSE(s.is(Op::kPut) && s.src(2).dtype().lanes() == 4);
  }
}

}  // namespace
}  // namespace tessera
