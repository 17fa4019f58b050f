// The two passes of work division on iteration spaces, and what kernels make of them.
#include "schedule/work_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/kernel_form.h"
#include "tests/codegen/kernels.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using testing::ElementsAre;

IterationSpace Space(const std::vector<int64_t>& outputs, const std::vector<int64_t>& reductions) {
  IterationSpace space;
  for (int64_t n : outputs) space.axes.push_back({.size = n});
  for (int64_t n : reductions) space.axes.push_back({.size = n, .reduction = true});
  return space;
}

std::vector<int64_t> Splits(const IterationSpace& space, const DivisionLimits& limits) {
  const absl::StatusOr<Division> fits = FitSpans(space, limits);
  EXPECT_OK(fits);
  return fits.ok() ? UseCores(space, limits, *fits).splits : std::vector<int64_t>();
}

TEST(WorkDivision, TheLargestDivisorWithinTheCores) {
  EXPECT_EQ(LargestDivisor(1152, 32), 32);
  EXPECT_EQ(LargestDivisor(100, 32), 25);
  EXPECT_EQ(LargestDivisor(17, 32), 17);
  EXPECT_EQ(LargestDivisor(7, 4), 1);
  EXPECT_EQ(LargestDivisor(96, 20), 16);
  EXPECT_EQ(LargestDivisor(0, 4), 1);
  EXPECT_EQ(LargestDivisor(5, 0), 1);
}

TEST(WorkDivision, OutputsFirstThenOneReduction) {
  EXPECT_THAT(Splits(Space({16, 16}, {8}), {32}), ElementsAre(16, 2, 1));
  EXPECT_THAT(Splits(Space({4, 3}, {4096}), {32}), ElementsAre(4, 3, 2));
  EXPECT_THAT(Splits(Space({3, 64}, {}), {32}), ElementsAre(1, 32));  // the largest, not the first
  // Of two reductions the one that takes more of what is left; never both.
  EXPECT_THAT(Splits(Space({2}, {9, 8}), {16}), ElementsAre(2, 1, 8));
  EXPECT_THAT(Splits(Space({2}, {8}), {16, INT64_MAX, 0}), ElementsAre(2, 1));
}

TEST(WorkDivision, SticksAndGranularitiesStayWhole) {
  IterationSpace space = Space({64}, {});
  space.axes[0].stick = 16;  // four sticks
  EXPECT_THAT(Splits(space, {32}), ElementsAre(4));
  space.axes[0] = {.size = 4096, .granularity = 12};
  EXPECT_THAT(Splits(space, {8}), ElementsAre(6));
}

TEST(WorkDivision, UnevenAxesHaveALastPartOfTheirOwn) {
  IterationSpace space = Space({2}, {1009});
  EXPECT_THAT(Splits(space, {16}), ElementsAre(2, 1));  // a prime number
  space.axes[1].uneven = true;
  EXPECT_THAT(Splits(space, {16}), ElementsAre(2, 8));
  EXPECT_EQ(EachPart(space.axes[1], 8), 126);  // and one element is left
  space.axes[1].stick = 16;
  EXPECT_EQ(EachPart(space.axes[1], 8), 112);
  // What divides is taken where it uses half of the cores, sticks are not cut, none is empty.
  space.axes[1] = {.size = 1000, .reduction = true, .uneven = true};
  EXPECT_THAT(Splits(space, {24}), ElementsAre(2, 10));
  space.axes[1] = {.size = 100, .reduction = true, .stick = 32, .uneven = true};
  EXPECT_THAT(Splits(space, {64}), ElementsAre(2, 3));
  space.axes[1] = {.size = 20, .reduction = true, .stick = 32, .uneven = true};
  EXPECT_THAT(Splits(space, {64}), ElementsAre(2, 1));
}

TEST(WorkDivision, SpansAreMadeToFitByTheFewestCores) {
  IterationSpace space = Space({8, 1024}, {});
  space.accesses = {{4, {1024, 1}}};
  // 32 KiB in all: a quarter each, along the outer axis.
  const absl::StatusOr<Division> fits = FitSpans(space, {32, 8192});
  ASSERT_OK(fits);
  EXPECT_THAT(fits->splits, ElementsAre(4, 1));
  EXPECT_LE(Span(space, space.accesses[0], *fits), 8192);
  // The cores that are left go to the other axis; what is committed stays.
  EXPECT_THAT(Splits(space, {32, 8192}), ElementsAre(4, 8));
  // What one tensor has committed the next can only add to.
  space.accesses = {{4, {0, 1}}, {4, {1024, 1}}};
  const absl::StatusOr<Division> both = FitSpans(space, {64, 2048});
  ASSERT_OK(both);
  EXPECT_THAT(both->splits, ElementsAre(8, 2));
  EXPECT_THAT(Splits(space, {64, 2048}), ElementsAre(8, 8));
}

TEST(WorkDivision, AnErrorWhereNoSplitFits) {
  IterationSpace space = Space({7}, {});
  space.accesses = {{4, {1000}}};
  EXPECT_THAT(FitSpans(space, {4, 1000}),
              StatusIs(absl::StatusCode::kResourceExhausted, "split over 4 cores"));
  // Two reductions would have to be split.
  IterationSpace reduced = Space({}, {4, 4});
  reduced.accesses = {{1, {100, 1}}, {1, {1, 100}}};
  EXPECT_THAT(FitSpans(reduced, {16, 120}),
              StatusIs(absl::StatusCode::kResourceExhausted, "4 (reduced) x 4 (reduced)"));
}

// ---- kernels

PlanKernel KernelOf(const Tensor& tensor, int cores, int64_t span = INT64_MAX) {
  Target target = SmallChip();
  target.cores = cores;
  target.span_limit = span;
  const std::vector<PlanKernel> kernels = KernelsOf(tensor, target);
  return kernels.empty() ? PlanKernel() : kernels[0];
}

TEST(DivideWork, OneLongLoopIsSharedUnevenly) {
  const PlanKernel k = KernelOf(Tensor::Empty({1000, 1024}).Sum({1}), 32);
  EXPECT_EQ(k.workers, 32);
  EXPECT_NEAR(k.utilisation, 1000.0 / 1024, 1e-9);  // some have 32 rows, some 31
}

// What mostly waits for memory is cut into more parts than there are cores, where each is a run of
// memory of its own and long enough; what computes is not, as each part would lay out its operands
// again.
TEST(DivideWork, CoresTakeFromOneAnotherWhereMemoryIsWaitedFor) {
  const auto parts = [](const Tensor& t) {
    const PlanKernel k = KernelOf(t, 4);
    EXPECT_EQ(k.workers, 4);
    return k.parts();
  };
  const auto empty = [](int64_t rows, int64_t columns) { return Tensor::Empty({rows, columns}); };
  EXPECT_EQ(parts(empty(1, 2048).Linear(empty(8192, 2048))), 32);
  EXPECT_EQ(parts(empty(1024, 4096).Softmax()), 32);
  EXPECT_EQ(parts(Tensor::Empty({1 << 20}).Exp()), 32);  // 8 MiB
  EXPECT_EQ(parts(Tensor::Empty({1 << 18}).Exp()), 8);
  EXPECT_EQ(parts(Tensor::Empty({1 << 17}).Exp()), 4);
  EXPECT_EQ(parts(empty(2048, 2048).Transpose(0, 1).Contiguous()), 4);  // columns of what is read
  EXPECT_EQ(parts(empty(8192, 2048).Sum({0})), 4);
  EXPECT_EQ(parts(empty(512, 512).MatMul(empty(512, 512))), 4);
}

TEST(DivideWork, ShortLoopsAreSplitTogether) {
  const PlanKernel k = KernelOf(Tensor::Empty({16, 16, 8192}).Sum({2}), 32);
  EXPECT_EQ(k.workers, 32);
  EXPECT_EQ(k.utilisation, 1);
  const PlanKernel most = KernelOf(Tensor::Empty({4, 3, 65536 / 4}).Exp().Max({2}), 16);
  EXPECT_EQ(most.workers, 12);
  EXPECT_EQ(most.utilisation, 0.75);
}

// Parts of a row of less than two sticks have no lanes: rows are shared, though not evenly. But
// where no row is read in order, or there are too few, whatever keeps cores busy is divided.
TEST(DivideWork, ShortRowsStayWhole) {
  const auto empty = [](const Dims& shape) { return Tensor::Empty(shape); };
  const PlanKernel product = KernelOf(empty({17, 3000}).MatMul(empty({3000, 16})), 2);
  EXPECT_EQ(product.workers, 2);
  EXPECT_NEAR(product.utilisation, 17.0 / 18, 1e-9);
  EXPECT_EQ(KernelOf(empty({17, 3000}).MatMul(empty({3000, 64})), 2).utilisation, 1);
  EXPECT_EQ(KernelOf(empty({17, 16, 8192}).Sum({2}), 16).utilisation, 1);
  EXPECT_EQ(KernelOf(empty({3, 16, 8192}).Transpose(1, 2).Exp().Max({1}), 16).workers, 16);
  // Rows of less than one are lines that both would write to.
  const Tensor x = empty({257, 513}), y = x.Flip(1), pairs = Stack({x * y, x - y}, -1);
  EXPECT_NEAR(KernelOf(pairs, 2).utilisation, 257.0 / 258, 1e-9);
  // Nor are longer rows halved where nearly all cores are busy with whole ones.
  const Tensor part = empty({45, 63, 58}).SliceAxis(1, {0, 61}).SliceAxis(2, {0, 56});
  EXPECT_NEAR(KernelOf(part.Exp(), 2).utilisation, 45.0 / 46, 1e-9);
}

// The points of the loop that the cores share.
int64_t Shared(const PlanKernel& k, int cores) {
  EXPECT_EQ(k.workers, cores);
  for (const UOp& r : ClosedRanges(k.graph.src(0))) {
    if (r.arg<RangeArg>().kind == RangeKind::kGrid) return r.src(0).vmax();
  }
  return 0;
}
int64_t Shared(const Tensor& tensor, int cores) { return Shared(KernelOf(tensor, cores), cores); }

// Each core reads its part of the weights where there are few rows; with many, it lays out its part
// of them alone. Where the columns are too few for that each has rows.
TEST(DivideWork, LittleArithmeticIsSharedWhereLeastIsRead) {
  const auto product = [](int64_t rows, int64_t inner, int64_t columns) {
    return Tensor::Empty({rows, inner}).MatMul(Tensor::Empty({inner, columns}));
  };
  EXPECT_EQ(Shared(product(100, 2048, 8192), 2), 8192);
  EXPECT_EQ(Shared(product(300, 2048, 8192), 2), 8192);
  EXPECT_EQ(Shared(product(300, 8192, 16), 2), 300);
  EXPECT_EQ(Shared(product(1000, 1000, 1010), 2), 1000);
  const Tensor table = Tensor::Empty({10, 100000}), row = Tensor::Empty({100000});
  EXPECT_EQ(Shared(table + row, 2), 10);
}

// Cores share the rows that a transposition writes, unless each then reads less than a page of
// every row.
TEST(DivideWork, TranspositionsAreReadByWholePages) {
  const auto turned = [](const Dims& shape) { return Tensor::Empty(shape).T() + 1; };
  EXPECT_EQ(Shared(turned({65536, 4096}), 2), 4096);
  EXPECT_EQ(Shared(turned({65536, 1024}), 2), 65536);
  EXPECT_EQ(Shared(turned({64, 65536}), 2), 65536);
  // A column beside a matrix is not turned.
  EXPECT_EQ(Shared(Tensor::Empty({64, 1 << 20}) + Tensor::Empty({64, 1}), 2), 64);
}

// The loop that the cores share is outermost where one around it would read the same again; else
// memory is gone through in its own order.
TEST(DivideWork, SharedLoopsStayInOrder) {
  const auto place = [](const Tensor& tensor) {
    const UOp sink = KernelOf(tensor, 2).graph;
    const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
    for (size_t i = 0; i < loops.size(); ++i) {
      if (loops[i].arg<RangeArg>().kind == RangeKind::kGrid) return static_cast<int>(i);
    }
    return -1;
  };
  const Tensor x = Tensor::Empty({4, 21, 4096}), y = Tensor::Empty({4096});
  EXPECT_EQ(place(x.Max({1})), 1);
  EXPECT_EQ(place((x * y).Max({1})), 0);
  EXPECT_EQ(place(Tensor::Empty({4, 512}).MatMul(Tensor::Empty({512, 4096}))), 0);
}

// A tile of a product is one core's, so that a core wants many rows of it, or columns, by whole
// tiles as evenly as it goes.
TEST(DivideWork, TilesOfProductsOccupyTheCores) {
  const auto product = [](int64_t rows, int64_t columns) {
    return Tensor::Empty({rows, 4096}).MatMul(Tensor::Empty({4096, columns}));
  };
  EXPECT_EQ(Shared(product(8, 600), 2), 600);
  EXPECT_EQ(Shared(product(256, 300), 2), 256);
  EXPECT_EQ(Shared(product(96, 8192), 16), 8192);
  EXPECT_EQ(Shared(product(192, 8192), 16), 8192);
  EXPECT_EQ(Shared(product(192, 300), 16), 192);
  Target wide = SmallChip();  // tiles of twice as many rows
  wide.cores = 16;
  wide.vector_bytes = 64;
  wide.vector_registers = 32;
  EXPECT_EQ(Shared(KernelsOf(product(192, 8192), wide).at(0), 16), 8192);
  EXPECT_EQ(Shared(product(2048, 8192), 16), 8192);
  EXPECT_EQ(Shared(product(2048, 300), 16), 2048);
  const Tensor a = Tensor::Empty({12, 64, 64}), b = Tensor::Empty({12, 64, 64});
  EXPECT_EQ(Shared(a.MatMul(b), 2), 12);  // whole products
}

// The extents of the loops that a GPU's blocks share.
std::vector<int64_t> BlockLoops(const Tensor& tensor) {
  Target target = SmallChip();
  target.dialect = Dialect::kCuda;
  const std::vector<PlanKernel> kernels = KernelsOf(tensor, target);
  EXPECT_EQ(kernels.size(), 1u);
  std::vector<int64_t> out;
  for (const UOp& r : ClosedRanges(kernels.at(0).graph.src(0))) {
    if (r.arg<RangeArg>().kind == RangeKind::kGrid) out.push_back(r.src(0).vmax());
  }
  return out;
}

TEST(DivideWork, BlocksShareWhatReductionsDependOn) {
  EXPECT_THAT(BlockLoops(Tensor::Empty({40, 30}).T() + 1), ElementsAre(30, 40));
  EXPECT_THAT(BlockLoops(Tensor::Empty({40, 30, 20}).Sum({1})), ElementsAre(40, 20));
  // The columns of a row stay in one block, which alone computes what the row is reduced to.
  EXPECT_THAT(BlockLoops(Tensor::Empty({40, 3000}).Softmax()), ElementsAre(40));
  EXPECT_THAT(BlockLoops(Tensor::Empty({3000}).Softmax()), ElementsAre());
  EXPECT_THAT(BlockLoops(Tensor::Empty({40, 30}).MatMul(Tensor::Empty({30, 20}))),
              ElementsAre(40, 20));
  EXPECT_THAT(BlockLoops(Tensor::Empty({7, 300}).CumSum(1)), ElementsAre(7));
}

TEST(DivideWork, VariableLoopsAreSplitByWhatTheyAreMultiplesOf) {
  const Variable n("n", 0, 64);
  const Tensor x = Tensor::Empty({64, 1024}).Slice({{}, {0, n * 16}}).Sum({0});
  EXPECT_EQ(KernelOf(x, 32, 1024).workers, 4);  // 4096 bytes at most
  EXPECT_EQ(KernelOf(x, 32, 256).workers, 16);
  const std::vector<UOp> roots = {x.uop()};
  Target target = SmallChip();
  target.cores = 32;
  target.span_limit = 200;
  EXPECT_THAT(
      Schedule(WithParams(roots, MakePlanKey(roots)), target, Device(Place("CPU", 0)), false),
      StatusIs(absl::StatusCode::kResourceExhausted, "split over 32 cores"));
}

// Kernels of a reduction, and of how many numbers the first one leaves.
std::vector<int64_t> StepsOf(const Tensor& tensor, int cores, Dialect dialect = Dialect::kCpp) {
  Target target = SmallChip();
  target.cores = cores;
  target.dialect = dialect;
  const std::vector<UOp> roots = {tensor.uop()};
  const absl::StatusOr<Plan> plan =
      Schedule(WithParams(roots, MakePlanKey(roots)), target, Device(Place("CPU", 0)), false);
  EXPECT_OK(plan);
  std::vector<int64_t> out;
  if (!plan.ok()) return out;
  for (const PlanStep& s : plan->steps) {
    out.push_back(plan->buffers[s.buffers[0]].shape.MaxElements());
  }
  return out;
}

TEST(DivideWork, LongReductionsAreDividedWhateverTheirLength) {
  for (const Dialect dialect : {Dialect::kCpp, Dialect::kCuda}) {
    EXPECT_THAT(StepsOf(Tensor::Empty({1 << 20}).Sum(), 4, dialect), ElementsAre(64, 1));
    EXPECT_THAT(StepsOf(Tensor::Empty({1000003}).Sum(), 4, dialect), ElementsAre(50, 1));
    EXPECT_THAT(StepsOf(Tensor::Empty({1000003}).Exp().Max(), 4, dialect), ElementsAre(50, 1));
    // Results are shared out first: of three there are up to 21 parts each.
    EXPECT_THAT(StepsOf(Tensor::Empty({3, 1000003}).Sum({1}), 4, dialect), ElementsAre(60, 3));
    const int64_t first = dialect == Dialect::kCuda ? 63 : 64 * 3;
    EXPECT_THAT(StepsOf(Tensor::Empty({1000003, 3}).Sum({0}), 4, dialect), ElementsAre(first, 3));
    // What is computed in another way than element by element is not computed twice.
    EXPECT_THAT(StepsOf(Tensor::Empty({101, 9901, 7}).Sum({2}).Max(), 4, dialect).back(), 1);
    // Enough results, or too little for each.
    EXPECT_THAT(StepsOf(Tensor::Empty({8, 1000003}).Sum({1}), 4, dialect), ElementsAre(8));
    EXPECT_THAT(StepsOf(Tensor::Empty({65521}).Sum(), 4, dialect), ElementsAre(1));
  }
  // A core takes short rows 64 at a time.
  EXPECT_THAT(StepsOf(Tensor::Empty({2, 9999, 7}).Max({1}), 4), ElementsAre(2 * 64 * 7, 2 * 7));
  EXPECT_THAT(StepsOf(Tensor::Empty({6400, 127}).Max({0}), 4), ElementsAre(64 * 127, 127));
  EXPECT_THAT(StepsOf(Tensor::Empty({9999, 128}).Sum({0}), 4), ElementsAre(128));
  EXPECT_THAT(StepsOf(Tensor::Empty({1000, 7}).Sum({0}), 4), ElementsAre(7));  // too little
  // A thread of a GPU has a column: of few long ones each is read by several.
  const auto columns = [](int64_t rows, int64_t n, Dialect dialect = Dialect::kCuda) {
    return StepsOf(Tensor::Empty({rows, n}).Exp().Sum({0}), 4, dialect);
  };
  EXPECT_THAT(columns(4096, 512), ElementsAre(8 * 512, 512));
  EXPECT_THAT(columns(4099, 512), ElementsAre(8 * 512, 512));  // a prime number, and what is left
  EXPECT_THAT(columns(4096, 512, Dialect::kCpp), ElementsAre(512));
  EXPECT_THAT(columns(4096, 4096), ElementsAre(4096));  // enough
  EXPECT_THAT(columns(512, 512), ElementsAre(512));     // too little
}

// A panel of 16384 steps fills this chip's own cache: a quarter of it takes 4096.
TEST(DivideWork, LongSumsOfProductsAreDividedAlike) {
  const auto parts = [](int64_t rows, int64_t inner, int64_t columns, DType dtype = kFloat32) {
    const Tensor a = Tensor::Empty({rows, inner}, dtype),
                 b = Tensor::Empty({inner, columns}, dtype);
    const std::vector<int64_t> steps = StepsOf(a.MatMul(b), 2);
    const int64_t outputs = rows * columns, before = steps.size() < 2 ? 1 : steps[steps.size() - 2];
    EXPECT_EQ(steps.back(), outputs);
    return before % outputs == 0 ? before / outputs : 1;  // or panels
  };
  EXPECT_EQ(parts(64, 16384, 32), 4);
  EXPECT_EQ(parts(64, 12288, 64), 3);
  EXPECT_EQ(parts(64, 3501 * 5, 64), 5);
  EXPECT_EQ(parts(64, 12287, 64), 1);      // most of a panel stays
  EXPECT_EQ(parts(64, 16381, 64), 1);      // a prime number
  EXPECT_EQ(parts(8, 16384, 64), 1);       // rows read each panel but once
  EXPECT_EQ(parts(6000, 16384, 6000), 1);  // parts would take more than the factors
  EXPECT_EQ(parts(64, 16384, 64, kInt32), 1);
}

// Of several axes the outermost that has such parts.
TEST(DivideWork, LongSumsOverSeveralAxesAreDividedAlongOne) {
  const auto parts = [](int64_t batch, int64_t side) {
    const Tensor a = Tensor::Empty({batch, 16, side, side}),
                 b = Tensor::Empty({batch, 32, side, side});
    const std::vector<int64_t> steps = StepsOf(Einsum("nihw,nohw->io", {a, b}), 2);
    return steps.size() < 2 ? 1 : steps[steps.size() - 2] / (16 * 32);
  };
  EXPECT_EQ(parts(8, 64), 8);
  EXPECT_EQ(parts(2, 128), 8);  // of the rows: the batch has too few
  EXPECT_EQ(parts(8, 16), 1);
}

TEST(DivideWork, ATensorBeyondTheSpanIsSplitOrRefused) {
  const Tensor x = Tensor::Empty({64, 1024});
  const PlanKernel k = KernelOf(x.T().Sum({0}), 8, 64 * 1024);
  EXPECT_EQ(k.workers, 4);  // 256 KiB in parts of 64
  const std::vector<UOp> roots = {x.Sum({1}).uop()};
  Target target = SmallChip();
  target.span_limit = 4000;
  const PlanKey key = MakePlanKey(roots);
  for (const Dialect dialect : {Dialect::kCpp, Dialect::kCuda}) {
    target.dialect = dialect;
    EXPECT_THAT(Schedule(WithParams(roots, key), target, Device(Place("CPU", 0)), false),
                StatusIs(absl::StatusCode::kResourceExhausted, "the target allows 4000"));
  }
}

}  // namespace
}  // namespace tessera
