// Register tiles of contractions.
#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "codegen/contraction.h"
#include "codegen/cpu_tiles.h"
#include "codegen/flat_columns.h"
#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "codegen/share_factors.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "codegen/windows.h"
#include "graph/index_math.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int64_t kMostRowsOfBlock = 1 << 14;
constexpr int64_t kLeastRowsOfBlock = 64;                // for which packing a panel anew is little
constexpr int64_t kRowsToTranspose = 32;                 // that pay for packing across the grain
constexpr int64_t kStepsToTurn = 11, kPairsToTurn = 88;  // of a sum, for each row; so do few rows
constexpr int64_t kFarColumns = 4 << 10;  // bytes of one, from which several are so many streams
constexpr int64_t kCopiesOfShort = 8;
constexpr int kOpsToStage = 3;          // cheaper to keep than to compute for each tile of rows
constexpr int64_t kRowsToFlatten = 16;  // that pay for laying out the columns in a row
constexpr int64_t kLongSum = 512;       // against which it is little to store lanes apart
// Steps that may be worth that, and reading lanes apart as well.
constexpr int64_t kStepsOfApart = 16, kStepsOfFar = 64;
constexpr int64_t kCrowded = 4 << 10;  // bytes apart, of which a core's first cache has few places
constexpr int64_t kFewSteps = 64;      // too few for lanes of their own
constexpr int64_t kShortSum = 32;      // against which it is much to store its result
constexpr int64_t kSumsAtOnce = 8;     // that keep a chip's units busy
constexpr int64_t kSumsOfTile = 12;    // to which more add little
constexpr int64_t kStepsBeside = 3;    // of a long sum, at most
constexpr int64_t kLargeProduct = int64_t{1} << 24;
constexpr int64_t kVectorsOfFew = 4;   // of a row of columns that are under way together
constexpr int64_t kRowsOfFew = 4;      // of them
constexpr int64_t kColumnsToTurn = 8;  // for which it pays to pack what lies along the sum

// Lanes over columns of which each b is used by few rows, or none: b's own order decides. Of short
// columns, as an image's rows are, several are under way together, which share an element of a.
UOp TileFewRows(const UOp& sink, const Contraction& c, int64_t lanes) {
  const int64_t vectors = std::min(c.lane.src(0).vmax() / lanes, kVectorsOfFew);
  const UOp out = Simplify(TileRepeating(sink, c.lane, vectors, lanes));
  std::vector<UOp> others;
  for (const UOp& r : c.columns) {
    if (r != c.lane && r.arg<RangeArg>().kind == RangeKind::kLoop) others.push_back(r);
  }
  const UOp other = Longest(others);
  const int64_t copies = std::min(kSumsAtOnce / vectors, kRowsOfFew);
  return other && other.src(0).vmax() >= 2 * copies ? Tile(out, other, copies, 1) : out;
}

// The range summed over along which these operands are adjacent, if it is long enough for lanes.
UOp RangeAlong(const RangeSets& sets, const Contraction& c, absl::Span<const UOp> operands,
               int64_t lanes, Gates gates = Gates::kByThresholds) {
  std::vector<UOp> adjacent;
  for (const UOp& r : c.inner) {
    const auto is = [&](const UOp& u) { return AdjacentOver(u, r, sets, gates); };
    if (std::all_of(operands.begin(), operands.end(), is)) adjacent.push_back(r);
  }
  const UOp along = Longest(adjacent);
  return along && along.src(0).vmax() >= lanes ? along : UOp();
}

// Elementwise ops of an expression for each step of a range.
int OpsOver(const UOp& u, const UOp& range, const RangeSets& sets) {
  int ops = 0;
  for (const UOp& s : TopoSort({&u, 1})) {
    ops += IsElementwise(s.op()) && s.dtype() != kInt64 && (sets.Free(s) & sets.Bit(range));
  }
  return ops;
}

// Short loops of a sum beside the one that has the lanes, the innermost first. They are written
// out: what depends on their steps, as the fields of a byte do, is decided then, and what they
// share is read once.
std::vector<UOp> ShortLoops(const Contraction& c, const UOp& along) {
  std::vector<UOp> out;
  int64_t copies = 1;
  for (auto it = c.inner.rbegin(); it != c.inner.rend(); ++it) {
    const int64_t extent = it->src(0).vmax();
    if (*it == along || !it->src(0).IsConst() || copies * extent > kCopiesOfShort) continue;
    copies *= extent;
    out.push_back(*it);
  }
  return out;
}

// Dot products: lanes along the sum, several columns at once as so many streams, and several rows
// that share what is read of b.
UOp TileAlong(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
              const UOp& along, int64_t lanes, const Target& target) {
  const int64_t columns = c.lane.src(0).vmax(), rows = row ? row.src(0).vmax() : 1;
  const int64_t tile_columns = columns >= 4 ? 4 : 1;
  // Registers: the sums, the columns' part of b, and one of a.
  const int64_t most = (target.vector_registers - 2 - tile_columns) / tile_columns;
  const int64_t tiles = CeilDiv(rows, most), tile_rows = CeilDiv(rows, tiles);
  UOp out = ColumnsOutward(sink, c);
  const bool far = BytesOfSum(c, c.b.dtype().bytes()) >= kFarColumns;
  out = Simplify(far ? TileApart(out, c.lane, tile_columns) : Tile(out, c.lane, tile_columns, 1));
  if (tiles > 1 && OpsOver(c.b, along, sets) >= kOpsToStage) {
    out = Simplify(PackColumns(out, along, UOp(), target, target.l2_bytes / 2));
  }
  if (rows > 1) out = Simplify(Tile(out, row, tile_rows, 1));
  const int64_t length = along.src(0).vmax();
  const int64_t unroll = length <= 2 * lanes ? length / lanes : rows == 1 ? 2 : 1;
  if (RangeSets(out).Bit(along) == 0) return out;
  const std::vector<UOp> written_out = ShortLoops(c, along);
  out = ShareFactors(TileMasking(out, along, unroll, lanes, target), written_out, tile_rows);
  for (const UOp& r : written_out) out = Tile(out, r, r.src(0).vmax(), 1);
  return out;
}

// The vectors of columns that are under way together: those of a tile; or, where there is but one
// tile, those of the rest as well.
int64_t VectorsAtOnce(int64_t columns, int64_t tile_columns, int64_t lanes) {
  if (columns >= 2 * tile_columns * lanes) return tile_columns;
  return std::max(CeilDiv(columns, lanes), tile_columns);
}

// Rows whose sums stay in registers, with the columns and one element of a: as many as can be; or
// fewer where no row is left over then, if that takes no more tiles or leaves sums enough. A vector
// that is not full takes its own of each element. (On 16 registers, 1000 x 1017 x 999: 4 rows by 2
// vectors 112 GFLOP/s, 5 116, 6 and a tile of 4 left over 128.)
int64_t RowsOfTile(int64_t rows, int64_t columns, int64_t vectors, int64_t lanes,
                   const Target& target) {
  const bool full = columns >= vectors * lanes;
  const int64_t fit = (target.vector_registers - (full ? 1 : 3) - vectors) / vectors;
  const int64_t most = std::clamp<int64_t>(fit, 1, MostTileRows(target));
  const int64_t tiles = CeilDiv(rows, most), even = LargestDivisor(rows, most);
  const bool enough = even > most / 2 && even * vectors >= kSumsOfTile;
  return enough || rows == tiles * even ? even : most;
}

// Every panel meets all rows: so many of them at a time as stay in the last cache, or in the core's
// part of it where rows, or what becomes of them, are its own. The largest divisor of the rows that
// does, or 0 where it is small.
int64_t RowsOfBlock(const Contraction& c, const UOp& row, bool own, const Target& target) {
  const UOp a = PairsOf(c, target) ? UOp(c.a.src(0)) : c.a;
  const int64_t bytes = BytesOfSum(c, a.dtype().bytes());
  const bool divided = row.arg<RangeArg>().kind == RangeKind::kGrid;
  const int64_t rows = row.src(0).vmax(), each = divided ? rows / target.cores : rows;
  const bool shared = c.lane.arg<RangeArg>().kind == RangeKind::kGrid && !own;
  const int64_t most = std::min(kMostRowsOfBlock, BytesOfRowBlock(target, shared) / bytes);
  if (!row.src(0).IsConst()) return 0;
  const int64_t block = LargestDivisor(rows, std::min(most, each));
  return block >= kLeastRowsOfBlock ? block : 0;
}

bool IsLoad(const UOp& u) { return u.is(Op::kIndex); }

// Whether a lies in memory along the rows: a tile's elements of one step are then adjacent, but
// every step is far from the last.
bool LiesAlongRows(const RangeSets& sets, const Contraction& c, const UOp& row) {
  if (!AdjacentOver(c.a, row, sets) || !FindBelow({&c.a, 1}, IsLoad)) return false;
  return std::all_of(c.inner.begin(), c.inner.end(), [&](const UOp& r) {
    return r.src(0).IsConst() && !AdjacentOver(c.a, r, sets);
  });
}

// Whether elements of a are widened one by one, for each vector of columns anew, though they lie in
// order. Pairs are not widened.
bool IsWidened(const RangeSets& sets, const Contraction& c, const Target& target) {
  if (PairsOf(c, target)) return false;
  if (!c.a.is(Op::kCast) || c.a.dtype().bytes() <= c.a.src(0).dtype().bytes()) return false;
  const auto fixed = [](const UOp& r) { return r.src(0).IsConst(); };
  return c.a.src(0).is(Op::kIndex) && std::all_of(c.inner.begin(), c.inner.end(), fixed) &&
         AdjacentOver(c.a, c.inner.back(), sets);
}

// What the products read of a, in blocks of rows; turned, where it lies along the rows, or widened.
// `row` and `block` become the loops within and over blocks. Nothing where all of a is in order and
// in cache. (f16 of 1024 x 1024: 8.3 ms widened anew at each use, 6 ms once.)
UOp BlockRows(const UOp& sink, const RangeSets& sets, const Contraction& c, int64_t lanes,
              const Target& target, UOp& row, UOp& block) {
  const bool many = row.src(0).vmax() >= kRowsToTranspose;
  const bool turn = many && LiesAlongRows(sets, c, row);
  const bool widen = many && !turn && IsWidened(sets, c, target);
  const int64_t rows = RowsOfBlock(c, row, turn || widen, target);
  const bool grid = row.arg<RangeArg>().kind == RangeKind::kGrid;
  const bool copy = turn || widen;
  if (rows == 0 || (!copy && rows * (grid ? target.cores : 1) >= row.src(0).vmax())) return UOp();
  SplitLoops split = SplitRange(sink, row, rows);
  row = split.inner;
  block = split.outer;
  if (!copy) return split.sink;
  const std::optional<Contraction> again = FindPairwise(RangeSets(split.sink));
  if (!again) return UOp();
  std::vector<UOp> over = {row};
  over.insert(over.end(), again->inner.begin(), again->inner.end());
  const UOp a = PairsOf(*again, target) ? UOp(again->a.src(0)) : again->a;
  UOp out =
      StageValueOver(split.sink, a, over, std::vector<RangeKind>(over.size(), RangeKind::kLoop));
  if (widen) return Simplify(Tile(out, over.back(), 1, lanes, kLeastLanes));
  out = Tile(out, over.front(), 1, lanes);
  return Simplify(Tile(out, over.back(), lanes, 1));
}

// Whether a sum is so short that what its results cost is to store them, and what it reads of b for
// all columns stays in the core's own cache: its rows are then stored one after another, and not a
// panel's columns of each, which are far apart. (16 steps in bf16, 4096 x 4096: 3.5 to 0.76 ms.)
bool IsShortSum(const UOp& sink, const Contraction& c, const Target& target) {
  int64_t bytes = BytesOfSum(c, c.b.dtype().bytes());
  const UOp& result = sink.src(0).src(0).src(0);
  if (BytesOfSum(c, 1) > kShortSum || !result.is(Op::kParam)) return false;
  for (const UOp& r : c.columns) {
    const bool loop = r.src(0).IsConst() && r.arg<RangeArg>().kind == RangeKind::kLoop;
    if (!loop || r.src(0).vmax() > target.l2_bytes / 2 / bytes) return false;
    bytes *= r.src(0).vmax();
  }
  return true;
}

// Steps of the sum side by side: all of short loops, as a window's are, else two or three. The text
// is longer by as much, which a small product does not earn back. (1024 x 1024 by AVX2 16.6 to 15.5
// ms; 64 by 64 windows of 3 x 3 over 8 images of 56 x 56 18.8 to 16.8; compiled in 41 and 53 ms.)
UOp StepsWrittenOut(const UOp& sink, const Contraction& c) {
  UOp out = sink;
  const auto put = [&](const UOp& r, int64_t steps) {
    if (RangeSets(out).Bit(r)) out = Tile(out, r, steps, 1);
  };
  const std::vector<UOp> loops = ShortLoops(c, UOp());
  for (const UOp& r : loops) put(r, r.src(0).vmax());
  const UOp& last = c.inner.back();
  if (!loops.empty() || !last.src(0).IsConst()) return out;
  const int64_t steps = LargestDivisor(last.src(0).vmax(), kStepsBeside);
  if (steps > 1) put(last, steps);
  return out;
}

// Outer products: lanes over columns, b packed in panels where tiles of rows use it again.
UOp TileAcross(const UOp& sink, const RangeSets& sets, const Contraction& c, const UOp& row,
               int64_t lanes, const Target& target, const UOp& block = UOp()) {
  if (!block) {
    const UOp tiled = AreFactors(c) ? TileByUnits(sink, sets, c, row, target) : UOp();
    if (tiled) return tiled;
    UOp inner = row, outer;
    if (const UOp blocked = BlockRows(sink, sets, c, lanes, target, inner, outer)) {
      const RangeSets now(blocked);
      std::optional<Contraction> again = FindPairwise(now);
      if (!again || !now.Bit(c.lane)) return UOp();
      again->lane = c.lane;
      return TileAcross(blocked, now, *again, inner, lanes, target, outer);
    }
  }
  const int64_t columns = c.lane.src(0).vmax(), rows = row.src(0).vmax();
  const int64_t steps = BytesOfSum(c, 1) / (PairsOf(c, target) ? kStepsOfPair : 1);
  const UOp panel = LoopOverPanels(sets, c, lanes, target);
  const int64_t in_row = panel ? panel.src(0).vmax() * lanes : columns;
  const int64_t tile_columns = VectorsOfPanel(target, in_row, lanes, steps);
  const int64_t vectors = VectorsAtOnce(in_row, tile_columns, lanes);
  const int64_t tile_rows = RowsOfTile(rows, in_row, vectors, lanes, target);
  const bool whole = IsShortSum(sink, c, target);
  UOp out = whole ? RowsOutward(sink, c, block) : ColumnsOutward(sink, c, block);
  if (panel) out = Simplify(Tile(out, panel, tile_columns, 1));
  out = Simplify(TileRepeating(out, c.lane, panel ? 1 : tile_columns, lanes));
  // The columns share what gates a step of the sum: its mask is found once for all of them.
  const UOp across =
      AdjacentOver(c.b, c.lane, sets) ? UOp() : RangeAlong(sets, c, {c.b}, lanes, Gates::kAny);
  if (rows >= 2 * tile_rows || across) {
    const int64_t most = whole ? target.l2_bytes / 2 : MostOfPanel(target);
    out = Simplify(PackColumns(out, UOp(), across, target, most, whole ? &c.batch : nullptr));
  }
  out = Tile(SumPairs(out, target), row, tile_rows, 1);
  const int64_t products = sets.Iterations(sets.Free(c.reduce.src(0)));
  return products < kLargeProduct ? out : StepsWrittenOut(out, c);
}

UOp TileLaidOut(const UOp& sink, int64_t lanes, const Target& target) {
  const RangeSets sets(sink);
  const std::optional<Contraction> c = FindPairwise(sets);
  if (!c) return UOp();
  return TileAcross(sink, sets, *c, Longest(c->rows), lanes, target);
}

// Products over several ranges, as a convolution's are, of which the target takes several steps at
// once, where these go on in order in the rows' operand or tiles lay that out.
UOp TileSteps(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target) {
  const UOp windows = StageWindows(sink, c, /*narrow=*/true, lanes, target);
  const UOp laid_out = windows ? windows : sink;
  const std::optional<Contraction> read = FindPairwise(RangeSets(laid_out));
  const UOp merged = read ? MergeSum(laid_out, *read, target) : UOp();
  const std::optional<Contraction> one =
      merged ? FindPairwise(RangeSets(merged)) : std::optional<Contraction>();
  if (!one) return UOp();
  const UOp flat = FlattenColumns(merged, *one, lanes, target);
  return TileLaidOut(flat ? flat : merged, lanes, target);
}

// The kernel with the loops of its sum in the order in which the rows' operand lies, the innermost
// those that move it least; or nothing where they are. (The gradient of a convolution by its input,
// whose weights lie by the channels that are summed over: 2048 of 14 x 14 from 256 27 to 10.5 ms;
// of 256 from 256 it is the same.)
UOp SumInOrder(const UOp& sink, const RangeSets& sets, const Contraction& c) {
  UOp load = c.a;
  while (load.is(Op::kCast)) load = UOp(load.src(0));
  if (c.inner.size() < 2 || !load.is(Op::kIndex)) return UOp();
  std::vector<UOp> loops = c.inner;
  const auto by = [&](const UOp& r) { return std::abs(StepOf(load.src(1), r, sets).factor); };
  const auto moves = [&](const UOp& r) { return StepOf(load.src(1), r, sets).linear && by(r) > 0; };
  if (!std::all_of(loops.begin(), loops.end(), moves)) return UOp();
  std::stable_sort(loops.begin(), loops.end(),
                   [&](const UOp& x, const UOp& y) { return by(x) > by(y); });
  if (loops == c.inner) return UOp();
  std::vector<UOp> srcs = {UOp(c.reduce.src(0))};
  srcs.insert(srcs.end(), loops.begin(), loops.end());
  return Substitute(sink, {{c.reduce, c.reduce.WithSrcs(srcs)}});
}

// Whether what an expression reads lies so near along a range that a line has several of it.
bool LiesNear(const RangeSets& sets, const UOp& u, const UOp& range) {
  const std::vector<UOp> nodes = TopoSort({&u, 1});
  return std::none_of(nodes.begin(), nodes.end(), [&](const UOp& l) {
    if (!IsLoad(l)) return false;
    const Step s = StepOf(l.src(1), range, sets);
    return !s.linear || std::abs(s.factor) >= kColumnsToTurn;
  });
}

// Whether a sum that is no longer than this pays for lanes that are stored apart: where others
// would be fewer, and lanes do not share the few places that a cache has for them.
bool PaysForApart(const RangeSets& sets, const Contraction& c, const UOp& lane, int64_t rows,
                  int64_t lanes) {
  int64_t others = 1;
  for (const UOp& r : c.columns) {
    others = std::min(lanes, others * (r == lane ? 1 : std::max<int64_t>(1, r.src(0).vmax())));
  }
  const UOp& index = sets.order().back().src(0).src(0);
  const int64_t apart = StepOf(index.src(1), lane, sets).factor * index.dtype().bytes();
  return (rows < kRowsToFlatten || others < lanes) && apart % kCrowded != 0;
}

// Where the adjacent columns are too few for lanes, as the elements of a convolution's window are
// in the gradient of its weight, the longest of the columns has the lanes, if the sum is long or
// that pays all the same. (Of 4 x 4 images, the gradient of 64 x 64 windows: 144 us, and 57 so.)
// Not where vectors of the adjacent ones, half full at least, read side by side what is far apart
// along the longest, perhaps with a border. (4 rows by 512 x 12 columns of 512 steps, of which the
// 12 lie side by side: 2.3 ms along the 512, 0.3 along the 12. Gradients of 64 images by windows of
// 3 x 3 between borders: of 11 x 11 2 ms along the images, 0.84 along the 11; of 7 x 7 150 us, and
// 660.)
UOp LongColumn(const RangeSets& sets, const Contraction& c, int64_t rows, int64_t lanes) {
  const int64_t columns = c.lane.src(0).vmax(), steps = BytesOfSum(c, 1);
  const UOp longest = Longest(c.columns);
  const bool fits = longest.src(0).IsConst() && longest.src(0).vmax() >= lanes &&
                    longest.arg<RangeArg>().kind == RangeKind::kLoop;
  if (columns >= lanes || !fits) return UOp();
  const bool near = LiesNear(sets, c.b, longest);
  if (!near && 2 * columns >= lanes && AdjacentOver(c.b, c.lane, sets, Gates::kAny)) return UOp();
  const bool far = !near && AdjacentOver(c.b, c.lane, sets);
  if (steps < (far ? kStepsOfFar : kStepsOfApart)) return UOp();
  return steps >= kLongSum || PaysForApart(sets, c, longest, rows, lanes) ? longest : UOp();
}

// Lanes for fewer columns than fill a vector: the largest power of two of them, if that is worth
// it. (10 columns of 1000 x 4096: 6.3 ms by lanes along the sum, over which columns are far apart,
// 0.5 so.) Not where lanes along the rows, if these fill a vector, or along a long sum, have what
// they read side by side. (10 x 14 of 2049 steps, both operands turned: 47 us by rows, 6.4 so.)
int64_t LanesOfFew(const RangeSets& sets, const Contraction& c, const UOp& row, int64_t lanes,
                   const Target& target) {
  const int64_t columns = c.lane.src(0).vmax();
  const bool few = c.lane.src(0).IsConst() && columns >= kLeastLanes && columns < lanes;
  const bool as_few = row.src(0).vmax() < lanes && columns >= kColumnsToTurn;
  if (!few || (!as_few && LiesAlongRows(sets, c, row))) return lanes;
  const bool worth_it = AdjacentOver(c.b, c.lane, sets) || PairsOf(c, target) ||
                        columns >= kColumnsToTurn || BytesOfSum(c, 1) < kFewSteps;
  return worth_it ? static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(columns))) : lanes;
}

// Whether columns that lie along the sum are turned into panels for so few rows: of a short sum the
// lanes of each result are added up after few steps. (16 rows by 4,096 columns of 16 steps: 183 us
// along the sum, 6.4 turned; of 512 steps 154 and 210. Pairs of bf16 are widened along the sum.)
// What lies in several windows is turned once for all. (16 rows by 4,096 columns of 32 steps at 8
// places each: 619 us along the sum, 173 turned.)
bool PaysToTurn(const RangeSets& sets, const Contraction& c, int64_t rows, const Target& target) {
  if (rows >= kRowsToTranspose) return true;
  if (rows < kLeastRowsOfPanel) return false;
  const int64_t steps = PairsOf(c, target) ? kPairsToTurn : kStepsToTurn;
  const int64_t windows = rows >= kRowsToFlatten ? WindowsOfElement(c, sets) : 1;
  return BytesOfSum(c, 1) / windows <= steps * rows;
}

}  // namespace

UOp TileContraction(const UOp& sink, const RangeSets& sets, const Contraction& c,
                    const Target& target) {
  const UOp row = Longest(c.rows);
  const int64_t lanes = target.vector_bytes / c.reduce.dtype().bytes();
  const int64_t columns = c.lane.src(0).vmax();
  const int64_t rows = row ? row.src(0).vmax() : 1;
  if (lanes < 2) return UOp();
  const bool paired = LiesInPairs(c.b, PairsOf(c, target));  // a panel
  const bool across = (paired || AdjacentOver(c.b, c.lane, sets)) && columns >= lanes;
  if (across && rows < kLeastRowsOfPanel) {
    return c.reduce.src(0).is(Op::kMul) ? TileFewRows(sink, c, lanes) : UOp();
  }
  if (!across && !PaysToTurn(sets, c, rows, target)) {
    const UOp tiled = row && AreFactors(c) ? TileByUnits(sink, sets, c, row, target) : UOp();
    if (tiled) return tiled;
    if (const UOp along = RangeAlong(sets, c, {c.a, c.b}, lanes)) {
      return TileAlong(sink, sets, c, row, along, lanes, target);
    }
  }
  if (const UOp lane = rows < kLeastRowsOfPanel ? UOp() : LongColumn(sets, c, rows, lanes)) {
    Contraction apart = c;
    apart.lane = lane;
    return TileAcross(sink, sets, apart, row, lanes, target);
  }
  if (rows >= kLeastRowsOfPanel && !TakesSteps(c, target)) {
    if (const UOp ordered = SumInOrder(sink, sets, c)) {
      const RangeSets now(ordered);
      if (const std::optional<Contraction> again = FindPairwise(now)) {
        return TileContraction(ordered, now, *again, target);
      }
    }
  }
  if (rows >= kRowsToFlatten && !paired) {
    if (TakesSteps(c, target)) {
      if (const UOp tiled = TileSteps(sink, c, lanes, target)) return tiled;
    }
    UOp laid_out = StageWindows(sink, c, /*narrow=*/false, lanes, target);
    if (!laid_out) laid_out = FlattenColumns(sink, c, lanes, target);
    if (laid_out) return TileLaidOut(laid_out, lanes, target);
  }
  if (rows < kLeastRowsOfPanel) return UOp();
  const int64_t narrow = LanesOfFew(sets, c, row, lanes, target);
  return columns < narrow ? UOp() : TileAcross(sink, sets, c, row, narrow, target);
}

}  // namespace tessera
