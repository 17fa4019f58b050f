// The programs of contractions: what is read, in which widths, and what is decided beforehand; and
// what they give.
#include "codegen/contraction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/grad.h"
#include "tests/codegen/kernels.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

// Loads from memory: (from a pointer, of so many lanes, under a gate).
struct LoadCount {
  int vectors = 0, scalars = 0, gated = 0;
};
LoadCount LoadsOf(const UOp& program, DType element) {
  LoadCount out;
  for (const UOp& s : program.srcs()) {
    if (!s.is(Op::kLoad) || s.size() < 2 || !(s.dtype().Scalar() == element)) continue;
    ++(s.dtype().lanes() > 1 ? out.vectors : out.scalars);
    out.gated += s.size() == 3;
  }
  return out;
}

// Short columns that few rows use, as those of a convolution with two results: several are under
// way together, and of 30 elements some are in two vectors rather than any by itself.
TEST(Contraction, ShortColumnsOfFewRowsAreVectors) {
  const Tensor x = Tensor::Empty({2, 16, 28, 31}), w = Tensor::Empty({2, 16, 2, 2});
  const UOp program = ProgramOf(x.Conv2d(w), SmallChip());
  int sums = 0;
  for (const UOp& s : program.srcs()) {
    EXPECT_FALSE(s.is(Op::kStore) && s.src(1).dtype().lanes() == 1);
    EXPECT_FALSE(s.is(Op::kPut) && s.src(2).dtype().lanes() == 1);
    sums += s.is(Op::kFma);
  }
  EXPECT_GE(sums, 8);
}

// Gradients of weights sum along rows of images of which a stride leaves some out: these are laid
// out before the product, as narrow as they are, and no product is of single elements.
TEST(Contraction, WeightGradientsOfStridesHaveLanes) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    ConvOptions options;
    options.stride = {3, 3};
    options.padding = {1, 1};
    const Tensor x = Tensor::Empty({4, 8, 30, 30}, dtype), w = Tensor::Empty({6, 8, 3, 3}, dtype);
    const Tensor y = x.Conv2d(w, options).Cast(kFloat32);
    const Tensor loss = (y * Tensor::Empty({4, 6, 10, 10})).Sum();
    int products = 0, laid_out = 0;
    for (const PlanKernel& kernel : KernelsOf(Grad(loss, {&w, 1}).at(0), SmallChip())) {
      const UOp program = ProgramOf(kernel, SmallChip());
      for (const UOp& s : program.srcs()) {
        products += s.is(Op::kFma);
        EXPECT_FALSE(s.is(Op::kFma) && s.dtype().lanes() == 1) << kernel.name;
      }
      const bool lays_out =
          kernel.name == "map_72x400_" + dtype.ToString();  // of every point of the sum
      laid_out += lays_out;
      EXPECT_FALSE(lays_out && Count(program, Op::kCast) > 0);
    }
    EXPECT_GT(products, 0);
    EXPECT_EQ(laid_out, 1);
  }
}

// As few rows as columns, both of which lie along memory: the columns have the lanes all the same.
TEST(Contraction, FewRowsByFewColumnsHaveLanes) {
  const Tensor a = Tensor::Empty({2049, 5}), b = Tensor::Empty({12, 2049});
  for (const PlanKernel& kernel : KernelsOf(a.Transpose().MatMul(b.Transpose()), ChipWithPairs())) {
    int vectors = 0, products = 0;
    const UOp program = ProgramOf(kernel, ChipWithPairs());
    for (const UOp& s : program.srcs()) {
      products += s.is(Op::kFma);
      vectors += s.is(Op::kFma) && s.dtype().lanes() >= 4;
    }
    EXPECT_GT(vectors, 0) << kernel.name;
    EXPECT_GE(2 * vectors, products) << kernel.name;
  }
}

// So are images of a few places, of which a stride leaves some out, for as few results.
TEST(Contraction, ShortRowsOfStridesHaveLanes) {
  const Tensor x = Tensor::Empty({3, 32, 8, 8}), w = Tensor::Empty({5, 32, 3, 3});
  int products = 0;
  for (const PlanKernel& kernel :
       KernelsOf(x.Conv2d(w, {.stride = {2, 2}, .padding = {1, 1}}), SmallChip())) {
    const UOp program = ProgramOf(kernel, SmallChip());
    for (const UOp& s : program.srcs()) {
      products += s.is(Op::kFma);
      EXPECT_FALSE(s.is(Op::kFma) && s.dtype().lanes() == 1) << kernel.name;
    }
  }
  EXPECT_GT(products, 0);
}

// Fewer adjacent columns than lanes: others have the lanes where sums pay for storing these apart,
// but not where what the adjacent ones read side by side lies far apart along the others.
TEST(Contraction, ColumnsThatHaveLanes) {
  const Tensor images = Tensor::Empty({32, 8, 3, 3}), weights = Tensor::Empty({8, 8, 3, 3});
  const Tensor rows = Tensor::Empty({4, 512}), columns = Tensor::Empty({64, 512, 12});
  Target target = ChipWithPairs();
  target.cores = 1;
  const auto products = [&](const Tensor& t, int lanes) {
    int of_lanes = 0, all = 0;
    for (const PlanKernel& kernel : KernelsOf(t, target)) {
      const UOp program = ProgramOf(kernel, target);
      for (const UOp& s : program.srcs()) {
        all += s.is(Op::kFma);
        of_lanes += s.is(Op::kFma) && s.dtype().lanes() == lanes;
      }
    }
    EXPECT_GT(all, 0);
    return of_lanes == all;
  };
  EXPECT_TRUE(products(images.Conv2d(weights, {.padding = {1, 1}}), 16));
  EXPECT_FALSE(products(Einsum("ik,jkl->ijl", {rows, columns}), 16));
  // Unless these would fill less than half of a vector; borders are no matter.
  for (const int64_t side : {7, 8, 11}) {
    for (const int64_t border : {0, 1}) {
      const int64_t read = side + 2 - 2 * border;
      const Tensor x = Tensor::Empty({64, 8, read, read});
      EXPECT_EQ(products(x.Conv2d(weights, {.padding = {border, border}}), 16), side < 8) << side;
    }
  }
}

TEST(Contraction, ValuesOfFewColumnsSlow) {
  std::mt19937 random(1);
  const auto drawn = [&](const std::vector<int64_t>& shape) {
    const int64_t n = Tensor::Empty(shape).elements();
    return Tensor::From(Draw(n, random()), shape).Cast(kFloat32).Realize();
  };
  for (const int64_t k : {17, 65}) {
    for (const int64_t l : {3, 12}) {
      const Tensor few = drawn({4, k}), many = drawn({20, k});
      const Tensor apart = drawn({17, k, l}), near = drawn({k, 17, l}), along = drawn({17, l, k});
      EXPECT_REFERENCE(Einsum("ik,jkl->ijl", {few, apart}), Einsum("ik,kjl->jil", {few, near}),
                       Einsum("ik,jlk->ijl", {few, along}), Einsum("ik,jkl->ijl", {many, apart}),
                       Einsum("ik,kjl->jil", {many, near}), Einsum("ik,jlk->ijl", {many, along}));
    }
  }
  for (const int64_t side : {2, 3, 4}) {
    const Tensor x = drawn({33, 3, side, side}), w = drawn({20, 3, 3, 3}),
                 v = drawn({256, 3, 3, 3});
    EXPECT_REFERENCE(x.Conv2d(w, {.padding = {1, 1}}), x.Conv2d(v, {.padding = {1, 1}}));
  }
}

// Weights in fields of four bits: a byte is read once, and which field it is is no question.
TEST(Contraction, FieldsOfBytesAreUnrolled) {
  const Tensor bytes = Tensor::Empty({64, 8, 16}, kUInt8), x = Tensor::Empty({1, 256});
  const Tensor fields = Stack({bytes & 15, bytes >> 4}, -2);
  const Tensor weights = fields.Cast(kFloat32).Reshape({64, 256});
  const UOp program = ProgramOf(x.Linear(weights), SmallChip());
  const LoadCount loads = LoadsOf(program, kUInt8);
  EXPECT_EQ(loads.vectors, 4 * 2);  // of four columns the two halves of 16 bytes
  EXPECT_EQ(loads.scalars, 0);
  EXPECT_EQ(loads.gated, 0);
}

// The scale of a block multiplies the sum of its copies, where its numbers are bytes: others might
// not be numbers any more without it. What many rows share is scaled once.
TEST(Contraction, CopiesShareTheirScale) {
  const auto products = [](int64_t rows, DType numbers) {
    const Tensor x = Tensor::Empty({rows, 256}), scales = Tensor::Empty({64, 8, 1});
    const Tensor weights = Tensor::Empty({64, 8, 32}, numbers).Cast(kFloat32) * scales;
    const UOp program = ProgramOf(x.Linear(weights.Reshape({64, 256})), SmallChip());
    int count = 0;
    for (const UOp& s : program.srcs()) count += s.is(Op::kMul) && s.dtype().lanes() > 1;
    return count;
  };
  EXPECT_EQ(products(1, kInt8), 0);
  EXPECT_EQ(products(1, kFloat32), 4 * 8 * 2);  // of four columns two copies of each block
  EXPECT_GT(products(4, kInt8), 0);
}

// A left operand that a core's part of the last cache does not hold meets the panels in blocks of
// rows: one more loop than a small one's.
TEST(Contraction, RowsComeInBlocks) {
  const auto loops = [](int64_t rows) {
    const Tensor a = Tensor::Empty({rows, 1024}), b = Tensor::Empty({1024, 96});
    return Count(ProgramOf(a.MatMul(b), SmallChip()), Op::kRange);
  };
  EXPECT_EQ(loops(1260), loops(252) + 1);
}

// What a program stores to memory in vectors, by the extents of the loops around it, innermost
// first.
std::vector<int64_t> LoopsAroundStores(const UOp& program) {
  std::vector<int64_t> open, found;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kEnd)) open.pop_back();
    if (s.is(Op::kRange)) open.push_back(s.src(1).vmax());
    if (s.is(Op::kPut) && s.src(0).is(Op::kParam) && s.src(2).dtype().lanes() > 1) {
      found.assign(open.rbegin(), open.rend());
    }
  }
  return found;
}

// Of a short sum the rows are stored one after another; of a longer one the rows of each panel.
TEST(Contraction, ShortSumsStoreWholeRows) {
  const auto innermost = [](int64_t steps, bool turned) {
    const Tensor a = Tensor::Empty({1, 510, steps});
    const Tensor b = Tensor::Empty(turned ? Dims{1, 1024, steps} : Dims{1, steps, 1024});
    return LoopsAroundStores(ProgramOf(a.MatMul(turned ? b.Transpose() : b), SmallChip())).front();
  };
  const int64_t rows = 510 / 6, panels = 1024 / 16;  // tiles of them
  for (bool turned : {false, true}) {
    EXPECT_EQ(innermost(16, turned), panels);
    EXPECT_EQ(innermost(128, turned), rows);
  }
}

// Few rows by columns that lie along a short sum: these are turned, instead of adding up the lanes
// of each result.
TEST(Contraction, ColumnsOfShortSumsAreTurned) {
  const auto folds = [](int64_t steps) {
    const Tensor a = Tensor::Empty({8, steps}), b = Tensor::Empty({512, steps});
    return Count(ProgramOf(a.MatMul(b.Transpose()), SmallChip()), Op::kFold);
  };
  EXPECT_EQ(folds(32), 0);
  EXPECT_GT(folds(512), 0);
}

// Columns of which one range has too few for lanes lie in a row with those of the next, even where
// no core's own cache holds them.
TEST(Contraction, ColumnsOfDeepConvolutionsHaveLanes) {
  const auto in_lanes = [](int64_t channels) {
    const Tensor x = Tensor::Empty({1, channels, 7, 7}), w = Tensor::Empty({64, channels, 3, 3});
    const Tensor y = x.Conv2d(w, {.padding = {1, 1}});  // of many channels the sum of parts
    const UOp program = ProgramOf(KernelsOf(y, SmallChip()).at(0), SmallChip());
    int count = 0;
    for (const UOp& u : program.srcs()) count += u.is(Op::kFma) && u.dtype().lanes() == 8;
    return count;
  };
  for (const int64_t channels : {64, 512, 900, 2048}) {
    EXPECT_GT(in_lanes(channels), 0) << channels;
  }
}

// What windows have in common takes the room of the operand and its borders; in rows as long as the
// result's, that times the places along these.
TEST(Contraction, WindowsShareTheirElements) {
  const auto scratch = [](const Dims& x, const Dims& w) {
    const Tensor y = Tensor::Empty(x).Conv2d(Tensor::Empty(w), {.padding = {1, 1}});
    const std::vector<PlanKernel> kernels = KernelsOf(y, SmallChip());
    const absl::StatusOr<Program> program =
        Codegen(kernels.at(0).graph, kernels[0].name, kernels[0].variables, SmallChip());
    return program.ok() ? program->scratch_bytes : 0;
  };
  EXPECT_EQ(scratch({1, 64, 16, 32}, {32, 64, 3, 3}), 64 * 18 * 34 * 4);
  EXPECT_EQ(scratch({1, 64, 7, 7}, {128, 64, 3, 3}), 64 * 3 * 9 * 7 * 4);
}

TEST(Contraction, RowsAreWidenedInVectors) {
  const Tensor a = Tensor::Empty({256, 512}, kFloat16), b = Tensor::Empty({512, 128}, kFloat16);
  const UOp program = ProgramOf(a.MatMul(b), SmallChip());
  for (const UOp& s : program.srcs()) {
    EXPECT_FALSE(s.is(Op::kCast) && s.src(0).dtype() == kFloat16) << "of one element";
  }
  // Pairs are taken as they lie: only the columns are laid out.
  const UOp pairs =
      ProgramOf(NarrowInput({256, 512}).MatMul(NarrowInput({512, 128})), ChipWithPairs());
  EXPECT_EQ(Count(pairs, Op::kScratch), 1);
}

// The loops of a sum follow the rows' operand: of weights that lie by the channels which are summed
// over, as in the gradient by a convolution's input, a window's places are innermost.
TEST(Contraction, SumsGoInOrder) {
  ConvOptions options;
  options.padding = {1, 1};
  const Tensor x = Tensor::Empty({1, 64, 16, 32}), w = Tensor::Empty({48, 64, 3, 3});
  const Tensor g = Tensor::Empty({1, 48, 16, 32});
  const Tensor of_x = Grad((x.Conv2d(w, options) * g).Sum(), {x})[0];
  const UOp program = ProgramOf(KernelsOf(of_x, SmallChip()).back(), SmallChip());
  std::vector<int64_t> open;
  int sums = 0;
  for (const UOp& s : program.srcs()) {
    if (s.is(Op::kRange)) open.push_back(s.src(1).vmax());
    if (s.is(Op::kEnd)) open.pop_back();
    if (!s.is(Op::kFma) || s.dtype().lanes() == 1) continue;
    ASSERT_GE(open.size(), 3u);
    EXPECT_EQ(std::vector<int64_t>(open.end() - 3, open.end()), (std::vector<int64_t>{48, 3, 3}));
    ++sums;
  }
  EXPECT_GE(sums, 8);
}

// Of sixteen registers six rows by two vectors take up sums; fewer rows are divided evenly, where
// that is no tile more; and where a vector is not full it has elements of its own.
TEST(Contraction, RowsOfATile) {
  const auto sums = [](int64_t rows, int64_t columns) {
    const Tensor product = Tensor::Empty({rows, 64}).MatMul(Tensor::Empty({64, columns}));
    Target chip = SmallChip();
    chip.cores = 1;
    return Count(ProgramOf(product, chip), Op::kFma);
  };
  EXPECT_EQ(sums(60, 64), 6 * 2);
  EXPECT_EQ(sums(64, 64), 6 * 2 + 4 * 2);
  EXPECT_EQ(sums(20, 64), 5 * 2);
  EXPECT_EQ(sums(8, 64), 4 * 2);
  EXPECT_EQ(sums(60, 12), 5 * 2);
}

// Of a large product two or three steps of the sum are written out, or all of a window.
TEST(Contraction, LargeProductsTakeSeveralSteps) {
  const auto sums = [](int64_t steps) {
    const Tensor product = Tensor::Empty({600, steps}).MatMul(Tensor::Empty({steps, 128}));
    return Count(ProgramOf(product, SmallChip()), Op::kFma);
  };
  EXPECT_EQ(sums(128), 6 * 2);
  EXPECT_EQ(sums(256), 2 * 6 * 2);
  EXPECT_EQ(sums(255), 3 * 6 * 2);
  EXPECT_EQ(sums(251), 6 * 2);
  const Tensor image = Tensor::Empty({1, 48, 32, 64}), w = Tensor::Empty({60, 48, 3, 3});
  EXPECT_EQ(Count(ProgramOf(image.Conv2d(w, {.padding = {1, 1}}), SmallChip()), Op::kFma),
            3 * 6 * 2);
}

// Keys and values whose panels a core's part of the last cache holds are read before the loop over
// blocks of rows; others in it, again by each block.
TEST(ProductChain, KeepsPanels) {
  const auto loops_around_loads = [](int64_t keys) {
    const Tensor q = Tensor::Empty({2, 512, 32}), k = Tensor::Empty({2, keys, 32});
    const UOp program = ProgramOf(q.ScaledDotProductAttention(k, k + 1), SmallChip());
    int open = 0, most = 0;
    for (const UOp& s : program.srcs()) {
      open += s.is(Op::kRange) - s.is(Op::kEnd);
      const bool reads = s.is(Op::kLoad) && s.dtype().lanes() > 1 && s.src(0).is(Op::kParam);
      if (reads) most = std::max(most, open);
    }
    return most;
  };
  EXPECT_EQ(loops_around_loads(16384), loops_around_loads(1024) + 1);
}

// Sums and extremes of what is no product have the tiles of one: rows of points in a panel, which
// their own vectors are read from, and copies of the sums for the rows of a tile.
TEST(Contraction, DistancesHaveTheTilesOfProducts) {
  const Tensor a = Tensor::Empty({96, 1, 40}), b = Tensor::Empty({1, 96, 40});
  const Tensor apart = a - b;
  for (const Tensor& t : {apart.Square().Sum({2}), apart.Abs().Max({2}),
                          (a.Maximum(b) * apart.Exp()).Sum({2}).Sqrt()}) {
    const UOp program = ProgramOf(t, SmallChip());
    EXPECT_EQ(Count(program, Op::kScratch), 1);
    int sums = 0;
    for (const UOp& s : program.srcs()) sums += s.is(Op::kReg) && s.dtype().lanes() > 1;
    EXPECT_GE(sums, 8);
  }
  // What both vary over is no operand of either.
  const Tensor mask = Tensor::Empty({96, 96, 40});
  EXPECT_EQ(Count(ProgramOf((apart * mask).Square().Sum({2}), SmallChip()), Op::kScratch), 0);
}

// Each piece of a CAT is a loop with lanes of its own.
TEST(Loops, PiecesOfACatAreReadAsVectors) {
  const Tensor x = Tensor::Empty({40, 64});
  const LoadCount loads =
      LoadsOf(ProgramOf(Cat(std::vector<Tensor>(6, x), 1), SmallChip()), kFloat32);
  EXPECT_EQ(loads.scalars, 0);
  EXPECT_GE(loads.vectors, 6);
}

// Where a loop chooses between two values, each has a loop of its own; also where blocks of them
// turn in registers.
TEST(Loops, NoStepChoosesBetweenTwo) {
  const Tensor x = NarrowInput({64, 48, 32}, kFloat32), y = NarrowInput({64, 48, 32}, kFloat32);
  const auto choices = [](const Tensor& t) { return Count(ProgramOf(t, SmallChip()), Op::kWhere); };
  EXPECT_EQ(choices(Stack({x * y, x - y}, 1)), 0);
  EXPECT_EQ(choices(Stack({x * y, x - y}, 1).Transpose(-1, -2)), 0);
  EXPECT_EQ(choices(Stack({x * y, x - y, x / y}, 2)), 0);
}

// Heads that were computed in groups are in order in memory: the product over them reads vectors.
TEST(Contraction, ReadsRegroupedHeadsAsVectors) {
  const Tensor mixed = Tensor::Empty({8, 4, 64}), w = Tensor::Empty({96, 64, 32});
  const Tensor rows = mixed.Reshape({32, 1, 64}).Permute({1, 0, 2}).Reshape({1, 2048});
  const UOp program = ProgramOf(rows.Linear(w.Reshape({96, 2048})), SmallChip());
  EXPECT_EQ(LoadsOf(program, kFloat32).scalars, 0);
}

// Rows that lie far apart are reduced some at a time, for a page of columns; those of a matrix that
// a near cache holds are not.
TEST(FarRows, AreReducedInTwo) {
  const auto staged = [](const Tensor& t) {
    return Count(ProgramOf(t, SmallChip()), Op::kScratch);
  };
  EXPECT_EQ(staged(Tensor::Empty({512, 2048}).Sum({0})), 1);
  EXPECT_EQ(staged(Tensor::Empty({16384, 2048}).Max({0})), 2);
  EXPECT_EQ(staged(Tensor::Empty({2, 512}).MatMul(Tensor::Empty({512, 2048}))), 1);
  // Several rows of products have tiles where the matrix stays near, few or far ones do not.
  const auto product = [](int64_t rows, int64_t steps) {
    return Tensor::Empty({rows, steps}).MatMul(Tensor::Empty({steps, 2048}));
  };
  const int64_t tiles = staged(product(4, 100));
  EXPECT_EQ(staged(product(4, 240)), tiles);
  EXPECT_EQ(staged(product(3, 240)), 1);
  EXPECT_EQ(staged(product(4, 4096)), 2);
  EXPECT_EQ(staged(Tensor::Empty({64, 2048}).Sum({0})), 0);
  EXPECT_EQ(staged(Tensor::Empty({2048, 512}).Sum({1})), 0);
  EXPECT_EQ(staged(Tensor::Empty({1000, 100}).Sum({0})), 0);
}

// Fields of bytes in groups that do not nest as their scales do: lanes over what is adjacent in all
// of them.
TEST(Contraction, FieldsOfSeveralOrdersAreReadAsVectors) {
  const Tensor low = Tensor::Empty({64, 4, 2, 64}, kUInt8);
  const Tensor high = Tensor::Empty({64, 4, 2, 32}, kUInt8), x = Tensor::Empty({1, 1024});
  const Tensor fours = Stack({low & 15, low >> 4}, -2).Reshape({64, 1024});
  const Tensor twos = Stack({high & 3, (high >> 2) & 3, (high >> 4) & 3, high >> 6}, -2);
  const Tensor numbers = (fours + twos.Reshape({64, 1024}) * 16).Cast(kFloat32);
  const Tensor scales = Tensor::Empty({64, 64, 1});
  const Tensor weights = numbers.Reshape({64, 64, 16}) * scales;
  const UOp program = ProgramOf(x.Linear(weights.Reshape({64, 1024})), SmallChip());
  const LoadCount loads = LoadsOf(program, kUInt8);
  EXPECT_GT(loads.vectors, 0);
  EXPECT_EQ(loads.scalars, 0);
}

}  // namespace
}  // namespace tessera
