// Columns in a row.
#include "codegen/flat_columns.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kVectorsInARow = 8;  // against which the last, partly used, is little
constexpr int64_t kMostInARow = int64_t{64} << 20;  // bytes

// The columns, from the innermost outwards, that lie in the result as one row of memory.
std::vector<UOp> AdjacentColumns(const RangeSets& sets, const UOp& store, const Contraction& c) {
  std::vector<UOp> out;
  int64_t elements = 1;
  for (bool found = true; found;) {
    found = false;
    for (const UOp& r : c.columns) {
      const Step s = StepOf(store.src(0).src(1), r, sets);
      if (!s.linear || s.factor != elements || !r.src(0).IsConst()) continue;
      if (r.arg<RangeArg>().kind != RangeKind::kLoop) continue;
      if (std::find(out.begin(), out.end(), r) != out.end()) continue;
      out.push_back(r);
      elements *= r.src(0).vmax();
      found = true;
      break;
    }
  }
  return out;
}

// How many columns lie in a row: all of so many ranges, and of the next one a part.
struct FlatColumns {
  size_t whole = 0;
  int64_t part = 1, count = 1;
};

// As many as these bytes hold, of so many a column.
FlatColumns FlatWithinBytes(const std::vector<UOp>& columns, int64_t each, int64_t bytes) {
  FlatColumns out;
  for (const UOp& r : columns) {
    const int64_t extent = r.src(0).vmax(), fit = bytes / each / out.count;
    if (extent > fit) {
      if (out.whole > 0) out.part = LargestDivisor(extent, std::max<int64_t>(1, fit));
      out.count *= out.part;
      break;
    }
    out.count *= extent;
    ++out.whole;
  }
  return out;
}

// As many as a core's own cache holds. Where these are few, and the adjacent range alone has too
// few for lanes, as its part of the last cache holds, which is slower by less than going without;
// or, where even that has none, whole ranges. (A convolution of 512 channels of 7 x 7 took 13 times
// as long.)
FlatColumns FlatWithin(const std::vector<UOp>& columns, int64_t each, int64_t lanes,
                       const Target& target) {
  FlatColumns out = FlatWithinBytes(columns, each, target.l2_bytes * 3 / 4);
  if (out.count >= kVectorsInARow * lanes) return out;
  if (columns.empty() || columns[0].src(0).vmax() >= lanes) return out;
  out = FlatWithinBytes(columns, each, MostOfPanel(target));
  if (out.count >= lanes) return out;
  out = {};
  while (out.count < lanes && out.whole < columns.size()) {
    out.count *= columns[out.whole++].src(0).vmax();
  }
  return out.count <= kMostInARow / each ? out : FlatColumns();
}

}  // namespace

UOp FlattenColumns(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target) {
  const RangeSets sets(sink);
  UOp pairs = PairsOf(c, target);
  // Tiles have the rows' operand laid out.
  const bool tiles = AreFactors(c) && AreOfTiles(c.reduce.src(0), target);
  if (pairs && !tiles && !AdjacentOver(c.a, pairs, sets)) pairs = UOp();
  const UOp b = pairs ? UOp(c.b.src(0)) : c.b;
  const bool apart = pairs && b.is(Op::kIndex) && b.src(0).is(Op::kStage);  // no pairs there
  const bool in_order = AdjacentOver(b, c.lane, sets) && c.lane.src(0).vmax() % lanes == 0;
  if (in_order && !apart) return UOp();
  std::vector<UOp> columns = AdjacentColumns(sets, sink.src(0), c);
  std::vector<UOp> over = c.inner;
  for (const UOp& r : over) {
    if (!r.src(0).IsConst()) return UOp();
  }
  const FlatColumns flat = FlatWithin(columns, BytesOfSum(c, b.dtype().bytes()), lanes, target);
  if (flat.part > 1) {
    const UOp split = SplitRange(sink, columns[flat.whole], flat.part).sink;
    const std::optional<Contraction> again = FindPairwise(RangeSets(split));
    return again ? FlattenColumns(split, *again, lanes, target) : UOp();
  }
  columns.resize(flat.whole);
  if (columns.size() < 2) return UOp();
  over.insert(over.end(), columns.rbegin(), columns.rend());
  const size_t paired = std::find(over.begin(), over.end(), pairs) - over.begin();
  UOp out = StageValueOver(sink, b, over, std::vector<RangeKind>(over.size(), RangeKind::kLoop),
                           pairs, columns.size());
  out = TileDecided(out, over.back(), lanes);
  if (pairs) out = Tile(Simplify(out), over[paired], kStepsOfPair, 1);
  return MergeRanges(ColumnsOutward(Simplify(out), c));
}

}  // namespace tessera
