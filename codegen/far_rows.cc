// Reductions down the columns of a matrix.
#include "codegen/far_rows.h"

#include <algorithm>
#include <optional>

#include "codegen/contraction.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kPageBytes = 4096;                   // of a row, read at a time, or several,
constexpr int64_t kPagesOfSlow = 4;                    // where chips are slow to follow streams
constexpr int64_t kLeastBytes = 512;                   // that are worth it
constexpr int64_t kTogether = 16, kLeastTogether = 8;  // rows
constexpr int64_t kFewerKept = 4;                      // than could be, to have no rows left
constexpr int64_t kVectors = 4;                        // of sums that are added up together
constexpr int64_t kMostFactors = 128;                  // elements of the other operand, in reach
constexpr int64_t kMostResults = 16;                   // for each column; more reuse what they read
constexpr int64_t kMostOfPairs = 10;                   // where tiles take two steps at once

struct FarRows {
  UOp reduce, row, column;
  std::vector<UOp> results;  // loops over which the same rows are reduced in other ways
  std::vector<UOp> batch;    // the other loops
  int64_t bytes = 0;         // of an element of the widest matrix
};

std::optional<FarRows> FindFarRows(const RangeSets& sets, const Target& target) {
  const UOp& sink = sets.order().back();
  FarRows f;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    if (f.reduce || ClosedRanges(u).size() != 1) return std::nullopt;
    f.reduce = u;
    f.row = ClosedRanges(u)[0];
  }
  if (!f.reduce || sink.size() != 1 || !f.row.src(0).IsConst()) return std::nullopt;
  const UOp& store = sink.src(0);
  for (const UOp& r : ClosedRanges(store)) {
    const Step s = StepOf(store.src(0).src(1), r, sets);
    if (s.linear && s.factor == 1) f.column = r;
    if (!r.src(0).IsConst() || !(sets.Free(f.reduce) & sets.Bit(r))) return std::nullopt;
  }
  if (!f.column || !AdjacentOver(f.reduce.src(0), f.column, sets)) return std::nullopt;
  RangeMask over = 0;  // loops that move over the matrices
  int64_t most = PairsOf(f.reduce, target) ? kMostOfPairs : kMostResults;
  for (const UOp& u : TopoSort({&f.reduce, 1})) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) continue;
    if (!(sets.Free(u) & sets.Bit(f.column))) continue;
    const Step step = StepOf(u.src(1), f.row, sets);
    const int64_t bytes = u.dtype().bytes();
    if (!step.linear || std::abs(step.factor) < kLeastStride / bytes) return std::nullopt;
    const int64_t elements = sets.Iterations(sets.Free(u));
    if (elements <= target.l2_bytes / bytes) return std::nullopt;
    // Near enough for tiles, which read some lines of each row, and use them for all results.
    if (elements <= target.cache_bytes / 2 / bytes) most = kLeastRowsOfPanel - 1;
    f.bytes = std::max(f.bytes, bytes);
    over |= sets.Free(u);
  }
  if (f.bytes == 0) return std::nullopt;
  int64_t results = 1;
  for (const UOp& r : ClosedRanges(store)) {
    if (r == f.column) continue;
    const bool again = !(over & sets.Bit(r));
    (again ? f.results : f.batch).push_back(r);
    if (!again) continue;
    results *= r.src(0).vmax();
    if (results > most || r.arg<RangeArg>().kind == RangeKind::kGrid) return std::nullopt;
  }
  return f;
}

// A kernel whose reduction over `row` is in two: of some rows at a time, which is kept in scratch,
// and of what is kept. The ranges of the first one: its rows, results and columns.
struct InTwo {
  UOp sink, row;
  std::vector<UOp> results;
  UOp column;
};

InTwo ReduceInTwo(const InTwo& in, int64_t rows) {
  const SplitLoops split = SplitRange(in.sink, in.row, rows);
  std::vector<UOp> over = {split.outer};
  over.insert(over.end(), in.results.begin(), in.results.end());
  over.push_back(in.column);
  const std::vector<RangeKind> loops(over.size(), RangeKind::kLoop);
  for (const UOp& u : TopoSort({&split.sink, 1})) {
    const absl::Span<const UOp> closed = ClosedRanges(u);
    if (!u.is(Op::kReduce)) continue;
    if (std::find(closed.begin(), closed.end(), split.inner) == closed.end()) continue;
    const UOp first = UOp::Make(Op::kReduce, {UOp(u.src(0)), split.inner}, u.arg());
    const UOp second = UOp::Make(Op::kReduce, {first, split.outer}, u.arg());
    const UOp sink = StageValueOver(Substitute(split.sink, {{u, second}}), first, over, loops);
    return {sink, split.inner, {over.begin() + 1, over.end() - 1}, over.back()};
  }
  return in;
}

// How the rows are taken: so many together, such groups one after another, and so many groups kept
// at a time, which divides them. What is left of the rows is reduced column by column.
struct Grouping {
  int64_t together = 0, groups = 0, block = 0;
  int64_t rows() const { return together * groups; }
};

// A number that divides n if one is worth it, else the most.
int64_t DivisorOrMost(int64_t n, int64_t least, int64_t most) {
  const int64_t divisor = LargestDivisor(n, most);
  return divisor < least ? std::min(n, most) : divisor;
}

Grouping GroupRows(int64_t rows, int64_t most_together, int64_t most_kept) {
  Grouping g;
  g.together = DivisorOrMost(rows, kLeastTogether, most_together);
  g.groups = rows / g.together;
  g.block = DivisorOrMost(g.groups, most_kept / kFewerKept, most_kept);
  g.groups -= g.groups % g.block;
  return g;
}

}  // namespace

UOp ReduceFarRows(const UOp& sink, const RangeSets& sets, const Target& target) {
  const std::optional<FarRows> f = FindFarRows(sets, target);
  if (!f) return UOp();
  const int64_t columns = f->column.src(0).vmax(), rows = f->row.src(0).vmax();
  const bool divided = f->column.arg<RangeArg>().kind == RangeKind::kGrid;
  const int64_t run = kPageBytes * (target.stream_ahead > 0 ? kPagesOfSlow : 1);
  const int64_t piece =
      LargestDivisor(columns, std::min(run / f->bytes, divided ? columns / target.cores : columns));
  int64_t results = 1;
  for (const UOp& r : f->results) results *= r.src(0).vmax();
  const int64_t most_together = std::min(kTogether, kMostFactors / results);
  if (piece * f->bytes < kLeastBytes || std::min(rows, most_together) < kLeastTogether) {
    return UOp();
  }
  const int64_t kept = results * piece * f->reduce.dtype().bytes();  // of each group of rows
  const Grouping g =
      GroupRows(rows, most_together, std::max<int64_t>(1, target.l2_bytes / 2 / kept));

  UOp out = sink, row = f->row, column = f->column;
  if (g.rows() < rows) {
    const int64_t id = FreshRangeId(sets);
    const auto range = [](int64_t n, int64_t id) {
      return UOp::Make(Op::kRange, kInt64, {UOp::Index(n)}, RangeArg{id, RangeKind::kLoop});
    };
    row = range(g.rows(), id);
    const UOp left = range(rows - g.rows(), id + 1), first = UOp::Index(g.rows());
    const LoopSegment after = rows - g.rows() == 1
                                  ? LoopSegment{first, {}}
                                  : LoopSegment{UOp::Make(Op::kAdd, {left, first}), {left}};
    out = Simplify(SplitIntoSegments(out, f->row, {{row, {row}}, after}));
  }
  std::vector<UOp> order = f->batch;
  if (piece < columns) {
    const SplitLoops split = SplitRange(out, column, piece);
    out = split.sink;
    column = split.inner;
    order.push_back(split.outer);
  }
  std::stable_partition(order.begin(), order.end(),
                        [](const UOp& r) { return r.arg<RangeArg>().kind == RangeKind::kGrid; });
  order.insert(order.end(), f->results.begin(), f->results.end());
  order.push_back(column);
  std::vector<UOp> columns_of = {column};
  InTwo in_two{WithLoops(out, order), row, f->results, column};
  std::vector<int64_t> sizes = {g.together};
  if (g.block < g.groups) sizes.insert(sizes.begin(), g.together * g.block);
  for (int64_t size : sizes) {
    in_two = ReduceInTwo(in_two, size);
    columns_of.push_back(in_two.column);
  }
  const int64_t lanes = LanesFor(f->column, sets, target);
  out = Tile(in_two.sink, in_two.row, g.together, 1);
  for (const UOp& r : in_two.results) out = Tile(out, r, r.src(0).vmax(), 1);
  for (const UOp& c : columns_of) out = Tile(out, c, c == in_two.column ? 1 : kVectors, lanes);
  return out;
}

}  // namespace tessera
