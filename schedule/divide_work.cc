// Work division of kernels: one loop is shared by the cores as evenly as its extent allows, or
// several are split into equal parts, whichever keeps more of them busy.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/walk.h"
#include "schedule/memory_runs.h"
#include "schedule/passes.h"
#include "schedule/work_division.h"

namespace tessera {
namespace {

// The points of some ranges, over the variables that their extents depend on.
Extent Points(const RangeSets& sets, RangeMask mask) {
  Extent n = 1;
  for (; mask != 0; mask &= mask - 1) {
    const UOp& r = sets.ranges()[Lowest(mask)];
    const bool varies = sets.Free(r) != sets.Bit(r);  // within another: taken at its longest
    n = n * (varies ? Extent(std::max<int64_t>(0, r.src(0).vmax())) : Extent(r.src(0)));
  }
  return n;
}

// How many elements there are between the first and the last that the indices reach. Where some
// terms are looked up there are as many such stretches as are looked up.
std::optional<int64_t> Stretches(absl::Span<const UOp> indices, const RangeSets& sets) {
  using LookedUp = std::vector<std::tuple<const Node*, const Node*, int64_t>>;  // whose, where
  struct Stretch {
    RangeMask looked_up = 0;
    absl::int128 low = INT64_MAX, high = INT64_MIN;
  };
  std::map<LookedUp, Stretch> stretches;
  for (const UOp& index : indices) {
    const Sum sum = ToSum(index);
    absl::int128 low = sum.constant, high = sum.constant;
    LookedUp key;
    RangeMask looked_up = 0;
    for (const Sum::Term& t : sum.terms) {
      const UOp* const read =
          FindBelow({&t.term, 1}, [](const UOp& u) { return u.is(Op::kIndex); });
      if (read != nullptr) {
        key.emplace_back(read->src(0).get(), read->src(1).get(), t.factor);
        looked_up |= sets.Free(read->src(1));
        continue;
      }
      const bool up = t.factor > 0;
      low += absl::int128(t.factor) * (up ? t.term.vmin() : t.term.vmax());
      high += absl::int128(t.factor) * (up ? t.term.vmax() : t.term.vmin());
    }
    Stretch& s = stretches[std::move(key)];
    s = {looked_up, std::min(s.low, low), std::max(s.high, high)};
  }
  absl::int128 elements = 0;
  for (const auto& [key, s] : stretches) {
    const Extent times = Points(sets, s.looked_up);
    if (!times.is_int()) return std::nullopt;
    elements += (s.high - s.low + 1) * times.value();
  }
  if (elements > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(elements);
}

// What one launch costs: arithmetic on every point of the ranges that a node depends on, and each
// buffer's bytes once.
void Price(PlanKernel& k, const RangeSets& sets) {
  std::map<RangeMask, int64_t> operations;  // by what they run over
  Extent bytes = 0;
  for (const UOp& u : sets.order()) {
    const bool arithmetic = IsElementwise(u.op()) && u.dtype().IsFloat() && !u.is(Op::kWhere) &&
                            !u.is(Op::kCast) && !u.is(Op::kBitcast);
    if (arithmetic) ++operations[sets.Free(u)];
    if (u.is(Op::kRunning)) ++operations[sets.Free(u)];
    if (u.is(Op::kUpdate)) ++operations[sets.Closed(u)];
    if (u.is(Op::kReduce)) ++operations[sets.Free(u) | sets.Closed(u)];
    if (u.is(Op::kParam)) {
      // What is read at most: fewer bytes where the ranges do not reach all of it.
      Extent elements = 0;
      std::vector<UOp> indices;
      for (const UOp& i : sets.order()) {
        if (!i.is(Op::kIndex) || i.src(0) != u) continue;
        elements = elements + Points(sets, sets.Free(i.src(1)));
        indices.push_back(i.src(1));
      }
      if (elements.is_int()) {
        int64_t least = std::min(elements.value(), u.shape().MaxElements());
        if (indices.size() > 1) {
          least = std::min(least, Stretches(indices, sets).value_or(least));
        }
        elements = least;
      }
      bytes = bytes + elements * u.dtype().bytes();
    }
  }
  k.flops = 0;
  for (const auto& [mask, n] : operations) k.flops = k.flops + Points(sets, mask) * n;
  k.bytes = bytes;
}

// What every value of an extent is a multiple of; 0 where there is just one.
int64_t GranularityOf(const UOp& extent) {
  if (extent.IsConst()) return 0;
  const Sum sum = ToSum(extent);
  int64_t out = sum.constant;
  for (const Sum::Term& t : sum.terms) out = std::gcd(out, t.factor);
  return std::max<int64_t>(1, std::abs(out));
}

// Of these loops the one, by place, over rows of the result that are shorter than two sticks and
// read in order, or than one, if there are enough of them for so many cores: parts of such rows
// have no lanes, and cores would write to the same lines.
std::optional<size_t> WholeRows(const RangeSets& sets, absl::Span<const UOp> loops, int64_t cores) {
  const UOp& store = sets.order().back().src(0);
  const UOp row = AdjacentLoop(store);
  const auto at = std::find(loops.begin(), loops.end(), row);
  if (!row || at == loops.end()) return std::nullopt;
  const int64_t stick = kStickBytes / store.src(1).dtype().bytes();
  if (row.src(0).vmax() >= 2 * stick) return std::nullopt;
  const auto enough = [&](const UOp& r) { return !(r == row) && r.src(0).vmax() >= cores; };
  if (std::none_of(loops.begin(), loops.end(), enough)) return std::nullopt;
  if (row.src(0).vmax() < stick) return at - loops.begin();
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || u == store.src(0)) continue;
    for (const Sum sum = ToSum(u.src(1)); const Sum::Term& t : sum.terms) {
      if (t.term == row && t.factor == 1) return at - loops.begin();
    }
  }
  return std::nullopt;
}

// The loops of a kernel's stores; and, where spans are limited, how far each goes in every tensor.
IterationSpace SpaceOf(const RangeSets& sets, absl::Span<const UOp> loops, const Target& target) {
  IterationSpace space;
  for (const UOp& r : loops) {
    IterationAxis axis;
    axis.size = r.src(0).vmax();
    axis.granularity = GranularityOf(r.src(0));
    space.axes.push_back(axis);
  }
  if (target.span_limit == INT64_MAX) return space;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) continue;
    IterationAccess access{u.dtype().bytes(), std::vector<int64_t>(loops.size(), 0)};
    for (const Sum sum = ToSum(u.src(1)); const Sum::Term& t : sum.terms) {
      const auto at = std::find(loops.begin(), loops.end(), t.term);
      if (at != loops.end()) access.strides[at - loops.begin()] = t.factor;
    }
    space.accesses.push_back(std::move(access));
  }
  return space;
}

UOp GridRange(const UOp& extent, int64_t id) {
  return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{id, RangeKind::kGrid});
}

// The kernel with the parts of all split loops as one, outermost, whose points the cores share.
UOp ApplyDivision(const UOp& sink, std::vector<UOp> order, const Division& division) {
  const int64_t id = FreshRangeId(RangeSets(sink));
  const UOp parts = GridRange(UOp::Index(division.cores()), id);
  RangeReplacements map;
  UOp rest = parts;
  for (size_t i = division.splits.size(); i-- > 0;) {
    const int64_t n = division.splits[i];
    if (n == 1) continue;
    const UOp part = UOp::Make(Op::kFloorMod, {rest, UOp::Index(n)});
    rest = UOp::Make(Op::kFloorDiv, {rest, UOp::Index(n)});
    const UOp each = Simplify(UOp::Make(Op::kFloorDiv, {order[i].src(0), UOp::Index(n)}));
    const UOp inner = UOp::Make(Op::kRange, kInt64, {each},
                                RangeArg{id + 1 + static_cast<int64_t>(i), RangeKind::kLoop});
    const UOp value = UOp::Make(Op::kAdd, {UOp::Make(Op::kMul, {part, each}), inner});
    map.emplace(order[i], RangeReplacement{value, {inner}});
  }
  UOp out = Simplify(ReplaceRanges(WithLoops(sink, order), map));
  std::vector<UOp> loops = {parts};
  for (const UOp& r : ClosedRanges(out.src(0))) loops.push_back(r);
  return WithLoops(out, loops);
}

constexpr int64_t kOccupying = 4, kTilesOccupying = 2;  // for each core: shared evenly enough
constexpr double kSharedEvenly = 0.99;                  // busy, in whole tiles
constexpr double kComputing = 64;         // operations on each byte: memory is not waited for
constexpr double kWorthAnother = 0.75;    // of the bytes that each core moves
constexpr double kLeastPart = 256 << 10;  // bytes that a core takes at once
constexpr double kReadAgain = 1.0 / 16;   // of them, by every part
constexpr int64_t kMostPartsEach = 8;
constexpr double kSharedWell = 0.9;  // busy, that is worth more than runs of memory being cut

// The columns of a kernel's only product, along which the result is adjacent, and the rows, which
// use the columns' operand again; and how many points of each loop codegen keeps together: one, but
// those of a tile for these two. Of rows a power of two, as most numbers of them have more of its
// multiples: a tile that is left over takes less time, too.
struct Tiles {
  std::vector<int64_t> points;
  std::optional<size_t> columns, rows;
};
Tiles TilesOf(const RangeSets& sets, const UOp& store, absl::Span<const UOp> loops,
              const Target& target) {
  Tiles out;
  out.points.assign(loops.size(), 1);
  const RangeMask summed = sets.ClosedBy(Op::kReduce);
  const UOp sum = OnlyReduction(sets);
  if (!sum) return out;
  const size_t columns = std::find(loops.begin(), loops.end(), AdjacentLoop(store)) - loops.begin();
  size_t rows = loops.size();
  if (columns == loops.size()) return out;
  RangeMask of_columns = 0, of_others = 0;  // loops that move an operand along the columns; any
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !(sets.Free(u.src(1)) & summed)) continue;
    const RangeMask over = sets.Free(u.src(1));
    (over & sets.Bit(loops[columns]) ? of_columns : of_others) |= over;
  }
  for (size_t i = 0; i < loops.size(); ++i) {
    if (!(sets.Bit(loops[i]) & of_others & ~of_columns)) continue;
    if (rows == loops.size() || loops[rows].src(0).vmax() < loops[i].src(0).vmax()) rows = i;
  }
  if (rows == loops.size()) return out;
  out.rows = rows;
  out.columns = columns;
  const bool squares = AreOfTiles(sum.src(0), target);
  const auto most = std::bit_floor(static_cast<uint64_t>(MostTileRows(target)));
  out.points[rows] = squares ? kSideOfSquare : static_cast<int64_t>(most);
  out.points[columns] =
      squares ? kSideOfSquare : target.tile_vectors * target.vector_bytes / sum.dtype().bytes();
  return out;
}

// The bytes of what moves with a loop, and of what does not: each core that shares it moves all of
// that.
struct Moved {
  double by_loop = 0, besides = 0;
  double Each(int64_t cores) const { return besides + by_loop / static_cast<double>(cores); }
};
Moved MovedOver(const RangeSets& sets, const UOp& loop) {
  Moved out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !u.src(0).is(Op::kParam)) continue;
    const RangeMask over = sets.Free(u.src(1));
    const int64_t elements =
        std::min(sets.Iterations(over), std::max<int64_t>(1, u.src(0).shape().MaxElements()));
    (over & sets.Bit(loop) ? out.by_loop : out.besides) +=
        static_cast<double>(elements) * u.dtype().bytes();
  }
  return out;
}

// How much of the cores is busy, where they share a loop by whole tiles of so many points.
double UseOfTiles(int64_t extent, int64_t tile, int64_t cores) {
  const int64_t each = (extent + tile * cores - 1) / (tile * cores) * tile;
  return static_cast<double>(extent) / static_cast<double>(each * cores);
}

// Whether it is better that the cores share a product's columns than its rows: each panel of
// columns is laid out once then, not by every core. But rows that lie across memory are turned by
// all who use them, bytes are summed in panels of their own, and columns over several loops are
// laid out together.
bool SharesColumns(const RangeSets& sets, absl::Span<const UOp> loops, const Tiles& tiles,
                   int64_t cores) {
  const UOp &row = loops[*tiles.rows], &column = loops[*tiles.columns];
  const auto use = [&](size_t i) {
    return UseOfTiles(loops[i].src(0).vmax(), tiles.points[i], cores);
  };
  const double least = std::min(use(*tiles.rows), kSharedEvenly);
  if (!column.src(0).IsConst() || use(*tiles.columns) < least) return false;
  RangeMask others = 0;
  for (const UOp& r : loops) others |= r == column ? 0 : sets.Bit(r);
  const RangeMask summed = sets.ClosedBy(Op::kReduce);
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kReduce) && !u.dtype().IsFloat()) return false;
    if (!u.is(Op::kIndex) || !(sets.Free(u) & summed)) continue;
    if (sets.Free(u) & sets.Bit(column)) {
      if (sets.Free(u) & others) return false;
      continue;
    }
    for (const Sum at = ToSum(u.src(1)); const Sum::Term& t : at.terms) {
      if (t.term == row && t.factor == 1) return false;
    }
  }
  return true;
}

// Of a product the loop to share, or another one by whose tiles more of the cores are busy; of
// those that are as good the one by which each moves least. (Of 16 rows by 256 columns in panels of
// 32 the columns of a panel are the longest loop, and one tile.)
size_t KeepingBusy(const RangeSets& sets, absl::Span<const UOp> loops, const Tiles& tiles,
                   std::optional<size_t> whole, int64_t cores, size_t shared) {
  const auto use = [&](size_t i) {
    return UseOfTiles(loops[i].src(0).vmax(), tiles.points[i], cores);
  };
  size_t out = shared;
  if (use(out) >= kSharedWell) return out;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (i == whole || !loops[i].src(0).IsConst() || use(i) < use(out)) continue;
    const bool moves_less =
        MovedOver(sets, loops[i]).Each(cores) < MovedOver(sets, loops[out]).Each(cores);
    if (use(i) > use(out) || moves_less) out = i;
  }
  return out;
}

// Which loop the cores share: the first that occupies them, else the longest; but where memory is
// what takes time another that occupies them, if each then moves much less: a product of a few rows
// is divided by columns, so that each core reads its part of the weights. A long transposition is
// divided along its result's rows where each core would read a few bytes of every row else. Never
// `whole`, but for want of others.
size_t LoopToShare(const PlanKernel& k, const RangeSets& sets, absl::Span<const UOp> loops,
                   std::optional<size_t> whole, int64_t cores, const Target& target) {
  const Tiles tiles = TilesOf(sets, k.graph.src(0), loops, target);
  const auto extent = [&](size_t i) { return i == whole ? 1 : loops[i].src(0).vmax(); };
  const auto enough = [&](size_t i) {
    return std::max(kOccupying, kTilesOccupying * tiles.points[i]) * cores;
  };
  size_t out = loops.size();
  for (size_t i = 0; i < loops.size(); ++i) {
    if (out == loops.size() || extent(out) < std::min(extent(i), enough(out))) out = i;
  }
  if (cores < 2 || out == loops.size()) return out;
  if (tiles.rows) out = KeepingBusy(sets, loops, tiles, whole, cores, out);
  double least = MovedOver(sets, loops[out]).Each(cores);
  if (static_cast<double>(k.flops.max()) > kComputing * least) {
    const bool by_columns = tiles.rows == out && extent(*tiles.columns) >= enough(*tiles.columns) &&
                            SharesColumns(sets, loops, tiles, cores);
    return by_columns ? *tiles.columns : out;
  }
  for (size_t i = 0; i < loops.size(); ++i) {
    if (extent(i) < enough(i)) continue;
    const double bytes = MovedOver(sets, loops[i]).Each(cores);
    if (bytes > kWorthAnother * least) continue;
    least = bytes;
    out = i;
  }
  const UOp along = AdjacentLoop(k.graph.src(0));
  const size_t row = std::find(loops.begin(), loops.end(), along) - loops.begin();
  if (row == loops.size() || row == out || extent(row) < enough(row)) return out;
  const int64_t run = RunOver(sets, loops[out], along), of_row = RunOver(sets, along, loops[out]);
  const bool turns = run > 0 && run < std::min(kLeastRun * cores, of_row);
  return turns && k.bytes.max() > target.cache_bytes ? row : out;
}

// The loop to share, or one around it that keeps the cores as busy, if they write short runs else.
size_t ByWholeRuns(const RangeSets& sets, absl::Span<const UOp> loops, size_t shared,
                   int64_t cores) {
  const auto cuts = [&](size_t i) {
    Division division{std::vector<int64_t>(loops.size(), 1)};
    division.splits[i] = cores;
    return CutsRuns(sets, loops, division);
  };
  if (cores < 2 || shared == loops.size() || !cuts(shared)) return shared;
  for (size_t i = 0; i < shared; ++i) {
    const int64_t n = loops[i].src(0).IsConst() ? loops[i].src(0).vmax() : 0;
    if (n >= cores && Utilisation(n, cores, cores) >= kSharedWell && !cuts(i)) return i;
  }
  return shared;
}

// Into how many parts each core's share of a loop is cut. Cores are slowed by what else runs, each
// by something else: one that is done takes parts of the others'. Not where every part would lay
// out or read much of the same again, nor where parts lie across one another in memory (a
// transposition took twice as long).
int64_t PartsEach(const PlanKernel& k, const RangeSets& sets, const UOp& loop, int64_t cores) {
  const auto bytes = static_cast<double>(k.bytes.max()), flops = static_cast<double>(k.flops.max());
  if (flops > kComputing * bytes || !RunsOn(sets, loop)) return 1;
  const Moved moved = MovedOver(sets, loop);
  const double part = std::max(kLeastPart, moved.besides / kReadAgain);
  const double parts = moved.by_loop / static_cast<double>(cores) / part;
  const int64_t most = std::min(loop.src(0).vmax() / (kOccupying * cores), kMostPartsEach);
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(parts, static_cast<double>(most))));
}

// The loops of a kernel, the `outer` that cores may share first. Never shared: loops that a
// reduction runs over, and those that one inside does not depend on, as every core would compute it
// again; nor one whose points come one after another, which is the last.
std::vector<UOp> SharedFirst(const RangeSets& sets, const UOp& sink, size_t& outer) {
  const UOp running = RunningRange(sink);
  RangeMask inside = sets.ClosedBy(Op::kReduce) | (running ? sets.Bit(running) : 0);
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kReduce)) inside |= ~sets.Free(u);
  }
  const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
  std::vector<UOp> order(loops.begin(), loops.end());
  const auto place = [&](const UOp& r) { return r == running ? 2 : sets.Bit(r) & inside ? 1 : 0; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const UOp& a, const UOp& b) { return place(a) < place(b); });
  outer = std::count_if(order.begin(), order.end(), [&](const UOp& r) { return place(r) == 0; });
  return order;
}

}  // namespace

absl::Status DivideWork(PlanKernel& kernel, const Target& target) {
  const RangeSets sets(kernel.graph);
  Price(kernel, sets);
  // Without optimisation a block is one thread, and takes what a core would.
  const bool blocks = target.dialect == Dialect::kCuda && IntFlag(Flag::kNoOpt) == 0;
  if (HasUpdates(kernel.graph)) {
    if (!blocks) return DivideUpdates(kernel, target);
    kernel.graph = ShareAmongBlocks(kernel.graph);
    return absl::OkStatus();
  }
  size_t outer = 0;
  std::vector<UOp> order = SharedFirst(sets, kernel.graph, outer);
  int64_t work = 0;
  for (const UOp& u : sets.order()) {
    if (IsElementwise(u.op()) || u.is(Op::kIndex)) work += sets.Iterations(sets.Free(u));
  }
  const int64_t wanted = std::min<int64_t>(target.cores, std::max<int64_t>(1, work / kWorthACore));

  // What must be split to fit, and what may be to keep more cores busy than one loop does.
  const absl::Span<const UOp> divided = absl::MakeSpan(order).subspan(0, outer);
  IterationSpace space = SpaceOf(sets, divided, target);
  const DivisionLimits limits{target.cores, target.span_limit, /*reduction_axes=*/0};
  const absl::StatusOr<Division> fits = FitSpans(space, limits);
  if (!fits.ok()) {
    return absl::Status(fits.status().code(),
                        absl::StrCat(kernel.name, ": ", fits.status().message()));
  }
  Division division = *fits;
  const bool must = division.cores() > 1;
  if (blocks) {
    if (must) kernel.graph = ApplyDivision(kernel.graph, order, division);
    kernel.graph = ShareAmongBlocks(kernel.graph);
    return absl::OkStatus();
  }
  const std::optional<size_t> whole = WholeRows(sets, divided, wanted);
  if (whole && division.splits[*whole] == 1) {
    space.axes[*whole].stick = std::max<int64_t>(1, space.axes[*whole].size);
  }
  if (wanted > 1) {
    division = UseCores(space, {std::max(wanted, division.cores()), target.span_limit, 0}, *fits);
  }

  const size_t grid =
      ByWholeRuns(sets, divided, LoopToShare(kernel, sets, divided, whole, wanted, target), wanted);
  const int64_t one = grid < outer ? order[grid].src(0).vmax() : 1;
  const int64_t sharers = std::min(wanted, one);
  const double shared_use = sharers > 0 ? Utilisation(one, sharers, wanted) : 0;
  const double divided_use = Utilisation(division.cores(), division.cores(), wanted);
  const bool shared_well = shared_use >= kSharedWell && CutsRuns(sets, divided, division);
  if (must || (wanted > 1 && divided_use > shared_use && !shared_well)) {
    kernel.workers = static_cast<int>(division.cores());
    kernel.utilisation = divided_use;
    kernel.graph = ApplyDivision(kernel.graph, order, division);
    return absl::OkStatus();
  }
  kernel.workers = wanted > 1 ? std::max(1, static_cast<int>(sharers)) : 1;
  if (kernel.workers > 1) {
    kernel.parts_each = static_cast<int>(PartsEach(kernel, sets, order[grid], sharers));
    kernel.utilisation = shared_use;
    const UOp shared = order[grid];
    if (IsReadAgainOutside(sets, order, grid)) {
      std::rotate(order.begin(), order.begin() + grid, order.begin() + grid + 1);
    }
    const UOp marked = GridRange(shared.src(0), shared.arg<RangeArg>().id);
    const UOp ordered = WithLoops(kernel.graph, order);
    kernel.graph = ReplaceRanges(ordered, {{shared, RangeReplacement{marked, {marked}}}});
    return absl::OkStatus();
  }
  kernel.graph = WithLoops(kernel.graph, order);
  return absl::OkStatus();
}

}  // namespace tessera
