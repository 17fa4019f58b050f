// Optimisation choices by heuristic: register tiles for contractions, lanes and unrolling for
// everything else, staging of what would be computed or gathered again.
#include <algorithm>

#include "codegen/byte_dots.h"
#include "codegen/contraction.h"
#include "codegen/far_rows.h"
#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "codegen/passes.h"
#include "codegen/product_chain.h"
#include "codegen/residues.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/flags.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

// Elementwise work per step of a range, expensive ops counted as what they cost.
int ArithmeticOf(const UOp& range, const RangeSets& sets) {
  const RangeMask bit = sets.Bit(range);
  int ops = 0;
  for (const UOp& u : sets.order()) {
    if (!IsElementwise(u.op()) || !(sets.Free(u) & bit)) continue;
    if (u.dtype() == kInt64 || u.dtype().IsBool()) continue;
    ops += HasProperty(u.op(), kExpensive) ? 12 : 1;
  }
  return ops;
}

// Short bodies are unrolled: reductions for independent sums, others for longer streaks.
int64_t UnrollOf(const UOp& range, const RangeSets& sets, int64_t lanes) {
  const int ops = ArithmeticOf(range, sets);
  const bool reduced = (sets.ClosedBy(Op::kReduce) & sets.Bit(range)) != 0;
  int64_t unroll = reduced    ? std::clamp(24 / std::max(1, ops), 1, 8)
                   : ops <= 4 ? 4
                   : ops <= 8 ? 2
                              : 1;
  while (unroll > 1 && unroll * lanes * 2 > range.src(0).vmax()) unroll /= 2;
  return unroll;
}

constexpr int64_t kTurnedBlock = 16;  // a side of blocks that turn in registers, at most
// Of blocks that turn, so many side by side in the rows that are written, before the next columns.
constexpr int64_t kLeastBlocksOfRow = 16, kMostBlocksOfRow = 32;
// Rows that lie a multiple of so many bytes apart share few sets of a cache, and what is written to
// many of them at once drives itself out. (2048 x 2048 of f32 took 2.5 times as long, 8192 x 512
// 5.5 times.) Past the caches it takes less.
constexpr int64_t kCrowded = 1024, kCrowdedPastCaches = 256;

// The kernel with loops of their own for the pieces of ranges that choose between values: what is
// not chosen is then neither computed nor asked for at every step. Between few, this is worth it of
// loops that are not shared among cores, while copies are few. (Two results of one turn by angles,
// stacked, whose blocks turn in registers: 0.4 of the time.)
UOp CutChoices(const UOp& sink, const Target& target) {
  constexpr size_t kMany = 4, kMostCopies = 8;
  UOp out = sink;
  for (const UOp& store : sink.srcs()) {
    size_t copies = 1;
    for (const UOp& r : ClosedRanges(store)) {
      const RangeSets sets(out);
      const UOp best = BestLaneRange(sets, &target);
      if (best && InterleavesWith(best, sets) == r) continue;  // written out together
      const size_t choices = sets.Bit(r) == 0 ? 0 : Choices(sets, r);
      const size_t pieces = choices == 0 ? 1 : Thresholds(sets, r).size() + 1;
      if (pieces == 1) continue;
      const bool own = r != best && r.arg<RangeArg>().kind == RangeKind::kLoop;
      if (choices < kMany && (!own || copies * pieces > kMostCopies)) continue;
      copies *= pieces;
      out = Simplify(Tile(out, r, 1, 1));
    }
  }
  return out;
}

// The stores with the loop over `inner` directly within that over `outer`.
UOp NestWithin(const UOp& sink, const UOp& inner, const UOp& outer) {
  std::vector<UOp> stores;
  for (const UOp& store : sink.srcs()) {
    std::vector<UOp> srcs(store.srcs().begin(), store.srcs().end());
    const auto from = std::find(srcs.begin(), srcs.end(), inner);
    const auto to = std::find(srcs.begin(), srcs.end(), outer);
    if (from < to && to != srcs.end()) std::rotate(from, from + 1, to + 1);
    stores.push_back(store.WithSrcs(srcs));
  }
  return sink.WithSrcs(stores);
}

// Whether rows of the result, `written` one after another, crowd a few sets of a cache.
bool RowsCrowd(const UOp& sink, const UOp& rows, const RangeSets& sets, const Target& target) {
  const UOp& index = sink.src(0).src(0);
  const int64_t apart = StepOf(index.src(1), rows, sets).factor * index.dtype().bytes();
  int64_t bytes = index.src(0).shape().MaxElements();
  const bool fits =
      !__builtin_mul_overflow(bytes, index.dtype().bytes(), &bytes) && bytes <= target.cache_bytes;
  return apart % (fits ? kCrowded : kCrowdedPastCaches) == 0;
}

// The loop over the points of `range` cut into one over blocks of them and one within, which is
// given back; the rest that they leave is a loop of its own. Few points, or unknown ones, stay, and
// those of which the cores would get too few blocks for equal shares.
std::vector<UOp> CutIntoBlocks(UOp& sink, const UOp& range, int64_t lanes, const Target& target) {
  constexpr int64_t kLeastShare = 4;
  const int64_t points = range.src(0).IsConst() ? range.src(0).vmax() : 0, blocks = points / lanes;
  if (blocks <= kMostBlocksOfRow) return {};
  int64_t each = LargestDivisor(blocks, kMostBlocksOfRow);
  if (each < kLeastBlocksOfRow || points % lanes != 0) each = kMostBlocksOfRow;
  const RangeKind kind = range.arg<RangeArg>().kind;
  if (kind == RangeKind::kGrid && blocks / each < kLeastShare * target.cores) return {};
  each *= lanes;
  int64_t id = FreshRangeId(RangeSets(sink));
  const auto loop = [&](int64_t extent, RangeKind of) {
    return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id++, of});
  };
  const UOp outer = loop(points / each, kind), inner = loop(each, RangeKind::kLoop);
  std::vector<LoopSegment> segments = {{Plus(Times(outer, each), inner), {outer, inner}}};
  std::vector<UOp> loops = {inner};
  if (points % each != 0) {
    loops.push_back(loop(points % each, kind));
    segments.push_back({Plus(loops.back(), UOp::Index(points - points % each)), {loops.back()}});
  }
  sink = Simplify(SplitIntoSegments(sink, range, segments));
  return loops;
}

// The kernel in blocks that turn in registers: of so many lanes along `best`, and along `turned`,
// along which loads that jump over these are adjacent. Rows are read to their ends, as chips
// expect, and written in pieces; or the other way round where these would crowd.
UOp WithTurnedBlocks(const UOp& sink, const UOp& best, const UOp& turned, int64_t lanes,
                     const Target& target) {
  const RangeSets sets(sink);
  const bool best_writes = StepOf(sink.src(0).src(0).src(1), best, sets).factor == 1;
  const UOp &reads = best_writes ? turned : best, &writes = best_writes ? best : turned;
  UOp out = NestWithin(sink, reads, writes);
  std::vector<UOp> within = {writes};
  if (RowsCrowd(sink, reads, sets, target)) {
    std::vector<UOp> blocks = CutIntoBlocks(out, writes, lanes, target);
    if (!blocks.empty()) within = std::move(blocks);
    for (const UOp& w : within) out = NestWithin(out, w, reads);
  }
  const auto tile = [&](const std::vector<UOp>& loops, int64_t copies, int64_t width) {
    for (const UOp& r : loops) out = Tile(out, r, copies, width);
  };
  tile(best_writes ? within : std::vector<UOp>{reads}, 1, lanes);
  tile(best_writes ? std::vector<UOp>{reads} : within, lanes, 1);
  return out;
}

// Of short rows what is left after whole vectors is most of the work, unless it has lanes as well.
bool IsShort(const UOp& range, int64_t lanes) {
  const UOp& extent = range.src(0);
  return extent.IsConst() && 2 * (extent.vmax() % lanes) > extent.vmax() / lanes;
}

// Whether all of a row is best one vector of so many lanes, the last of them left out: where what
// is computed costs more than two vectors, or single elements, would to read and to write. (Softmax
// of rows of 10: 0.6 of the time; their quotients by their sums 1.25.)
bool IsBestMasked(const RangeSets& sets, const UOp& row, int64_t lanes, const Target& target) {
  constexpr int kMuch = 12;
  return row.src(0).IsConst() && row.src(0).vmax() > lanes / 2 && row.src(0).vmax() < lanes &&
         ArithmeticOf(row, sets) >= kMuch && MayMask(sets, row, lanes, target);
}

// How many vectors a loop takes in lockstep, as one of so many times the lanes. What an exponential
// computes is one long chain, of which a core holds only a few at a time when they come one after
// another; side by side each waits for the others' results instead of its own. Where a vector is
// at most 32 bytes long. (tanh, the logistic function and softplus of floats in cache, AVX2: 0.7 of
// the time.)
int64_t VectorsInLockstep(const RangeSets& sets, const UOp& range, int64_t lanes,
                          const Target& target) {
  constexpr int64_t kLongestVector = 32, kLeastTurns = 8;
  const RangeMask bit = sets.Bit(range);
  if (target.vector_bytes > kLongestVector || !range.src(0).IsConst()) return 1;
  if (lanes < target.vector_bytes / kFloat32.bytes()) return 1;
  bool chains = false;
  for (const UOp& u : sets.order()) {
    if (!(sets.Free(u) & bit)) continue;
    if (u.is(Op::kIndex)) {
      const Step s = StepOf(u.src(1), range, sets);
      if (u.size() != 2 || !s.linear || (s.factor != 0 && s.factor != 1)) return 1;
    } else if (HasProperty(u.op(), kExpensive)) {
      if (u.dtype().Scalar().bytes() > kFloat32.bytes()) return 1;
      chains = true;
    }
  }
  int64_t n = chains ? 4 : 1;
  const int64_t points = range.src(0).vmax();
  while (n > 1 && points % (n * lanes) != 0 && points < kLeastTurns * n * lanes) n /= 2;
  return n;
}

constexpr int64_t kCopiesOfWindow = 16, kMostOfWindow = 64;

// Whether what is read at the points of a range lies so that lanes of `lane` are loaded as vectors.
bool LoadsVectors(const RangeSets& sets, const UOp& range, const UOp& lane, int64_t lanes) {
  return std::all_of(sets.order().begin(), sets.order().end(), [&](const UOp& u) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & sets.Bit(range))) return true;
    const Step s = StepOf(u.src(1), lane, sets);
    return s.linear && std::abs(s.factor) <= MostShuffled(lanes);
  });
}

// Loops of a reduction over few points, other than those that have lanes: the innermost first. Not
// where lanes, of which there are n, are gathered: all points at once would take more registers
// than there are.
std::vector<UOp> Windows(const RangeSets& sets, const std::vector<UOp>& lanes, int64_t n) {
  std::vector<UOp> out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce)) continue;
    const absl::Span<const UOp> closed = ClosedRanges(u);
    int64_t copies = 1;
    for (size_t i = closed.size(); i-- > 0;) {
      const UOp& r = closed[i];
      if (std::find(lanes.begin(), lanes.end(), r) != lanes.end()) continue;
      copies *= r.src(0).IsConst() ? r.src(0).vmax() : kCopiesOfWindow + 1;
      if (copies > kCopiesOfWindow || copies * ArithmeticOf(r, sets) > kMostOfWindow) break;
      const auto vectors = [&](const UOp& lane) { return LoadsVectors(sets, r, lane, n); };
      if (!std::all_of(lanes.begin(), lanes.end(), vectors)) break;
      if (std::find(out.begin(), out.end(), r) == out.end()) out.push_back(r);
    }
  }
  return out;
}

// Lanes along `best` and along the loops of reductions over it, unrolled unless it is one of many.
UOp WithLanes(const UOp& sink, const UOp& best, bool one_of_many, const Target& target) {
  const RangeSets sets(sink);
  const int64_t most = LanesFor(best, sets, target);
  int64_t lanes = most;
  while (lanes > 1 && lanes > best.src(0).vmax()) lanes /= 2;
  const bool masked = lanes < most && IsBestMasked(sets, best, 2 * lanes, target);
  if (masked) lanes *= 2;
  if (lanes < 2) return sink;
  const UOp between = InterleavesWith(best, sets);
  UOp turned;  // along which loads that jump over the lanes are adjacent
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kIndex) && !turned && !between) turned = TurnsWith(u, best, sets);
  }
  // Reductions give loops of their own to what they run over; blocks need both loops to themselves.
  if (turned && (sets.ClosedBy(Op::kReduce) & (sets.Bit(best) | sets.Bit(turned)))) turned = UOp();
  if (turned) {
    return WithTurnedBlocks(sink, best, turned, std::min(lanes, kTurnedBlock), target);
  }
  std::vector<UOp> loops = {best};
  UOp out = SeparateLoops(sink, best, loops);
  const std::vector<UOp> windows = Windows(RangeSets(out), loops, lanes);
  for (const UOp& loop : loops) {
    if (RangeSets(out).Bit(loop) == 0) continue;
    for (const UOp& part : CutDecided(out, loop, lanes)) {
      const RangeSets now(out);
      const bool alone = one_of_many || between;
      const int64_t vectors = alone || masked ? 1 : VectorsInLockstep(now, part, lanes, target);
      const int64_t wide = vectors * lanes;
      const int64_t unroll = alone || vectors > 1 ? 1 : UnrollOf(part, now, lanes);
      const bool reduced = (now.ClosedBy(Op::kReduce) & now.Bit(part)) != 0;
      out = !IsShort(part, wide) ? Tile(out, part, unroll, wide)
            : reduced || masked  ? TileMasking(out, part, unroll, wide, target)
                                 : TileRepeating(out, part, unroll, wide);
    }
  }
  if (between) out = Simplify(Tile(out, between, between.src(0).vmax(), 1));
  // Where a window begins and ends is decided then, and what its points read of a weight is known
  // before the loops around.
  for (const UOp& r : windows) {
    if (RangeSets(out).Bit(r) != 0) out = Simplify(Tile(out, r, r.src(0).vmax(), 1));
  }
  return out;
}

constexpr size_t kFewPieces = 4;

bool IsIn(const UOp& store, const UOp& range) {
  return RangeSets(UOp::Make(Op::kSink, {store})).Bit(range) != 0;
}

// The loops that get lanes: the best one, and for stores that are not in it the best of theirs, as
// the pieces of a CAT have loops of their own. A loop of a store that others with lanes have too is
// made its own, in `sink`: they would get lanes of lanes.
std::vector<UOp> LaneRanges(UOp& sink, const Target& target) {
  const RangeSets sets(sink);
  int64_t next_id = FreshRangeId(sets);
  std::vector<UOp> out;
  // Where none is long enough, a short one is cut at its Thresholds all the same.
  for (const Target* vectors : {&target, static_cast<const Target*>(nullptr)}) {
    if (const UOp best = BestLaneRange(sets, vectors); best && out.empty()) out.push_back(best);
  }
  std::vector<UOp> stores(sink.srcs().begin(), sink.srcs().end());
  for (UOp& store : stores) {
    if (out.empty() || stores.size() == 1) break;
    const auto has = [&](const UOp& s) {
      return std::any_of(out.begin(), out.end(), [&](const UOp& r) { return IsIn(s, r); });
    };
    if (has(store)) continue;
    const RangeSets own(UOp::Make(Op::kSink, {store}));
    UOp best = BestLaneRange(own, &target);
    if (!best) continue;
    const auto shares = [&](const UOp& s) { return has(s) && IsIn(s, best); };
    if (std::any_of(stores.begin(), stores.end(), shares)) {
      if (FindBelow({&store, 1}, [](const UOp& u) { return u.is(Op::kStage); })) continue;
      const UOp ours =
          UOp::Make(Op::kRange, kInt64, {best.src(0)}, RangeArg{next_id++, RangeKind::kLoop});
      store = Substitute(store, {{best, ours}});
      best = ours;
    }
    out.push_back(best);
  }
  sink = sink.WithSrcs(stores);
  return out;
}

constexpr int64_t kRowsAtOnce = 4;

// Where elements of rows are looked up, at the same places in each, and no loop has lanes: several
// rows at once, so that a place is found once for all of them.
UOp WithRowsAtOnce(const UOp& sink) {
  const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
  if (sink.size() != 1 || loops.size() < 2) return sink;
  const UOp &row = loops[loops.size() - 2], &element = loops.back();
  const RangeSets sets(sink);
  const auto looked_up_alike = [&](const UOp& u) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & sets.Bit(row))) return false;
    const std::vector<UOp> below = TopoSort({&u.src(1), 1});
    return std::any_of(below.begin(), below.end(), [&](const UOp& p) {
      return p.is(Op::kIndex) && (sets.Free(p) & sets.Bit(element)) &&
             !(sets.Free(p) & sets.Bit(row));
    });
  };
  const bool alike = std::any_of(sets.order().begin(), sets.order().end(), looked_up_alike);
  return alike ? Tile(sink, row, kRowsAtOnce, 1) : sink;
}

UOp OptimiseLoops(const UOp& sink, const Target& target) {
  const UOp split = SplitResidues(sink, target);
  UOp out = CutChoices(StageRecomputed(split ? split : sink, target), target);
  const std::vector<UOp> ranges = LaneRanges(out, target);  // may separate loops
  if (ranges.empty()) return WithRowsAtOnce(out);
  for (const UOp& best : ranges) out = WithLanes(out, best, ranges.size() > kFewPieces, target);
  return out;
}

// The kernel in tiles, or nothing.
UOp OptimiseReduction(const UOp& sink, const Target& target) {
  const RangeSets sets(sink);
  if (const std::optional<ByteDots> dots = FindByteDots(sets)) {
    if (const UOp joined = JoinShortRows(sink, sets, *dots)) {
      if (const UOp tiled = OptimiseReduction(joined, target)) return tiled;
    }
    return TileByteDots(sink, sets, *dots, target);
  }
  if (const UOp rows = ReduceFarRows(sink, sets, target)) return rows;
  const std::optional<Contraction> c = FindPairwise(sets);
  return c ? TileContraction(sink, sets, *c, target) : UOp();
}

// One nest of loops: a contraction in tiles, or loops.
UOp OptimiseNest(const UOp& nest, const Target& target) {
  try {
    if (const UOp tiled = OptimiseReduction(WidenLast(nest, target), target)) {
      return Simplify(tiled);
    }
  } catch (const TooManyRanges&) {  // cut at the ends of many pieces
  }
  return Simplify(OptimiseLoops(nest, target));
}

}  // namespace

UOp Optimise(const UOp& sink, const Target& target) {
  if (IntFlag(Flag::kNoOpt) != 0) return sink;
  if (HasUpdates(sink) || RunningRange(sink)) return OptimiseInOrder(sink, target);
  if (target.dialect == Dialect::kCuda) return BindRanges(sink, target);
  const auto nest = [&](const UOp& part) { return OptimiseNest(part, target); };
  UOp out;
  if (const std::optional<ProductChain> c = FindProductChain(RangeSets(sink))) {
    out = TileChain(sink, *c, target, nest);
  }
  if (!out) out = nest(sink);
  // In a piece of a range a value may no longer depend on what its reduction runs over.
  return SeparateRanges(Simplify(out));
}

}  // namespace tessera
