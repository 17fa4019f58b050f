// GPU optimisation choices by heuristic: ranges bound to blocks and threads, and vectors of 16
// bytes.
//
// A kernel without reductions gives each thread one vector of the output, or some elements where
// there are no vectors; what reads along another axis than it writes turns in shared memory
// (turn_blocks.h). A reduction gives each thread one output where neighbours then read neighbours,
// or of a contraction a tile of rows and one vector of columns; where there are too few columns for
// that, warps share their rows (block_columns.h). Of long rows of blocks of bytes a thread takes
// numbers of a block in several rows (row_blocks.h). Else each block, or each warp, has one point
// of the ranges that reductions depend on: its threads share the reduction, combine, and then share
// what is left of the output (so a softmax reads its row in one block).
#include <algorithm>

#include "codegen/block_chain.h"
#include "codegen/block_columns.h"
#include "codegen/block_tiler.h"
#include "codegen/block_tiles.h"
#include "codegen/contraction.h"
#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "codegen/passes.h"
#include "codegen/row_blocks.h"
#include "codegen/turn_blocks.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kEnoughThreads = 1 << 14;  // outputs that occupy a chip with a thread each
constexpr size_t kMostWork = 64;             // of one element, that is worth writing out in copies
constexpr int64_t kThreadRows = 8;           // of a contraction, at most, in a thread's registers

// The loops that the scheduler gave to blocks, all of them as plain ones.
UOp AsLoops(const UOp& sink) {
  const RangeSets sets(sink);
  RangeReplacements map;
  for (const UOp& r : sets.ranges()) {
    if (r.arg<RangeArg>().kind == RangeKind::kLoop) continue;
    const UOp loop =
        UOp::Make(Op::kRange, kInt64, r.srcs(), RangeArg{r.arg<RangeArg>().id, RangeKind::kLoop});
    map.emplace(r, RangeReplacement{loop, {loop}});
  }
  return map.empty() ? sink : ReplaceRanges(sink, map);
}

// The ids of those that blocks share.
std::vector<int64_t> SharedLoops(const UOp& sink) {
  std::vector<int64_t> out;
  if (sink.size() == 0) return out;
  for (const UOp& r : ClosedRanges(sink.src(0))) {
    const RangeArg& arg = r.arg<RangeArg>();
    if (arg.kind == RangeKind::kGrid) out.push_back(arg.id);
  }
  return out;
}

class Binder {
 public:
  // Of the kernel's loops those with these ids are shared by blocks.
  Binder(const UOp& sink, std::vector<int64_t> shared, const Target& target)
      : sink_(sink),
        sets_(sink_),
        shared_(std::move(shared)),
        cores_(target.cores),
        next_id_(FreshRangeId(sets_)) {}

  UOp Run() {
    if (sink_.size() == 0 || !SameLoops()) return sink_;
    const absl::Span<const UOp> loops = ClosedRanges(sink_.src(0));
    loops_.assign(loops.begin(), loops.end());
    RangeMask all = 0, rows = 0;
    for (const UOp& r : loops_) {
      all |= sets_.Bit(r);
      const int64_t id = r.arg<RangeArg>().id;
      if (std::find(shared_.begin(), shared_.end(), id) != shared_.end()) rows |= sets_.Bit(r);
    }
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kReduce) && u.size() > 1 && (sets_.Free(u) & ~all) == 0) reduces_.push_back(u);
    }
    lane_ = BestLaneRange(sets_);
    if (reduces_.empty() || (rows == all && ThreadEach(all))) {
      BindThreads();
      Settle();
    } else {
      BindBlocks(rows);
    }
    return NestThreads(Gated(ReplaceRanges(sink_, map_)));
  }

 private:
  bool SameLoops() const {
    for (const UOp& s : sink_.srcs()) {
      if (!(ClosedRanges(s) == ClosedRanges(sink_.src(0)))) return false;
    }
    return true;
  }

  // Whether a thread for each output keeps neighbours together and the chip busy.
  bool ThreadEach(RangeMask all) const {
    const int64_t outputs = sets_.Iterations(all);
    int64_t longest = 1;
    for (const UOp& r : reduces_) longest = std::max(longest, sets_.Iterations(sets_.Closed(r)));
    const bool neighbours = lane_ && (sets_.Bit(lane_) & all);
    const int64_t enough = std::min(kEnoughThreads, kThreadsOfCore * cores_);
    return longest < kWarp || (neighbours && outputs >= enough) ||
           (neighbours && outputs >= longest);
  }

  UOp Range(const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {Simplify(extent)}, RangeArg{next_id_++, kind});
  }

  // One index for several ranges, the last of them innermost and in vectors of `lanes`.
  struct Flat {
    std::vector<UOp> ranges;
    UOp count = UOp::Index(1);  // of the index
    int64_t lanes = 1;
    UOp copied;  // one of the others, of which each index has several neighbours
    int64_t copies = 1;

    // How many values of the index a range takes part in.
    UOp Extent(const UOp& r) const {
      const int64_t each = r == ranges.back() ? lanes : copied && r == copied ? copies : 1;
      return Simplify(Over(r.src(0), UOp::Index(each)));
    }
  };
  static Flat Flatten(std::vector<UOp> ranges, const UOp& innermost, int64_t lanes,
                      const UOp& copied = UOp(), int64_t copies = 1) {
    if (auto it = std::find(ranges.begin(), ranges.end(), innermost); it != ranges.end()) {
      std::rotate(it, it + 1, ranges.end());
    }
    Flat flat{std::move(ranges), UOp::Index(1), lanes, copied, copies};
    for (const UOp& r : flat.ranges) flat.count = Times(flat.count, flat.Extent(r));
    flat.count = Simplify(flat.count);
    return flat;
  }

  // What each range is at `index`, with the loops that run over all of them in place of the first.
  void Place(const Flat& flat, const UOp& index, std::vector<UOp> loops) {
    UOp rest = index;
    for (size_t i = flat.ranges.size(); i-- > 0;) {
      const UOp& r = flat.ranges[i];
      const bool last = i + 1 == flat.ranges.size();
      const UOp extent = flat.Extent(r);
      UOp value = i == 0 ? rest : UOp::Make(Op::kFloorMod, {rest, extent});
      rest = Over(rest, extent);
      if (last && flat.lanes > 1) {
        const UOp vector = Range(UOp::Index(flat.lanes), RangeKind::kVector);
        value = Plus(Times(value, flat.lanes), vector);
        loops.push_back(vector);
      }
      if (!last && flat.copies > 1 && r == flat.copied) {
        const UOp copy = Range(UOp::Index(flat.copies), RangeKind::kUnroll);
        value = Plus(Times(value, flat.copies), copy);
        loops.push_back(copy);
      }
      map_.emplace(r, RangeReplacement{Simplify(value), {}});
    }
    // ReplaceRanges puts the loops where the outermost range stood.
    outermost_.push_back({flat.ranges, std::move(loops)});
  }

  // Rows of a contraction that one thread computes, so that what it reads of b serves them all:
  // as many as leave the chip enough of `threads`.
  int64_t RowsOfTile(int64_t threads, UOp& row) const {
    const std::optional<Contraction> c = FindContraction(sets_);
    if (!c || !(c->lane == lane_)) return 1;
    for (const UOp& r : c->rows) {
      const bool ours = std::find(loops_.begin(), loops_.end(), r) != loops_.end();
      if (ours && r.src(0).IsConst() && (!row || r.src(0).vmax() > row.src(0).vmax())) row = r;
    }
    int64_t rows = row ? kThreadRows : 1;
    while (rows > 1 && (row.src(0).vmax() % rows != 0 || threads / rows < kEnoughThreads))
      rows /= 2;
    return rows;
  }

  // Of loads and stores in less than vectors: how many a thread makes, apart by what its neighbours
  // take, so that as much is under way; less where multiprocessors would not be full of threads.
  int64_t CopiesOf(int64_t units, int64_t lanes) const {
    int widest = 1;
    size_t work = 0;
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kIndex)) widest = std::max(widest, u.dtype().bytes());
      work += IsElementwise(u.op()) ? HasProperty(u.op(), kExpensive) ? kMostWork : 1 : 0;
    }
    if (!reduces_.empty() || work > kMostWork) return 1;
    int64_t copies = 1;
    while (2 * copies * lanes * widest <= kVectorBytes &&
           ShareOf(units / (2 * copies), cores_) >= 2 * kThreadsOfCore) {
      copies *= 2;
    }
    return copies;
  }

  UOp Gated(const UOp& sink) const {
    if (!gate_) return sink;
    std::vector<UOp> stores;
    for (const UOp& s : sink.srcs()) {
      const UOp& index = s.src(0);
      std::vector<UOp> srcs(s.srcs().begin(), s.srcs().end());
      const UOp gate = Both(index.size() == 3 ? UOp(index.src(2)) : UOp(), gate_);
      srcs[0] = UOp::Make(Op::kIndex, {index.src(0), index.src(1), gate});
      stores.push_back(s.WithSrcs(srcs));
    }
    return sink.WithSrcs(stores);
  }

  void BindThreads() {
    if (loops_.empty()) return;
    const bool in_output = lane_ && std::find(loops_.begin(), loops_.end(), lane_) != loops_.end();
    int64_t lanes = in_output ? VectorLanes(lane_, sets_) : 1;
    RangeMask all = 0;
    for (const UOp& r : loops_) all |= sets_.Bit(r);
    // Threads of reductions are worth more than vectors.
    if (!reduces_.empty() && sets_.Iterations(all) / lanes < 4 * kEnoughThreads) lanes = 1;
    // So are warps for every multiprocessor.
    while (lanes > 1 && ShareOf(sets_.Iterations(all) / lanes, cores_) < kWarp) lanes /= 2;
    UOp row;
    const int64_t rows = in_output ? RowsOfTile(sets_.Iterations(all) / lanes, row) : 1;
    const Flat flat = Flatten(loops_, lane_, lanes, row, rows);
    int64_t threads = kThreadsOfBlock;
    while (threads > kWarp && ShareOf(flat.count.vmax(), cores_) <= threads / 2) threads /= 2;
    if (const int64_t copies = CopiesOf(flat.count.vmax(), lanes); copies > 1) {
      const UOp block = Range(CeilOver(flat.count, threads * copies), RangeKind::kGrid);
      const UOp thread = Range(UOp::Index(threads), RangeKind::kThread);
      const UOp copy = Range(UOp::Index(copies), RangeKind::kUnroll);
      const UOp at = Plus(Times(Plus(Times(block, copies), copy), threads), thread);
      const UOp end = EndOf(flat.count, threads * copies);
      if (!end) return Place(flat, at, {block, thread, copy});
      // Past the end threads read the last element, without a branch, and do not store it.
      gate_ = Below(at, end);
      Place(flat, UOp::Make(Op::kMin, {at, Minus(end, UOp::Index(1))}), {block, thread, copy});
      return;
    }
    const UOp block = Range(Steps(flat.count, UOp::Index(0), threads), RangeKind::kGrid);
    const UOp left = Minus(flat.count, Times(block, threads));
    const bool whole = flat.count.IsConst() && flat.count.vmax() % threads == 0;
    const UOp thread =
        Range(whole ? UOp::Index(threads) : UOp::Make(Op::kMin, {UOp::Index(threads), left}),
              RangeKind::kThread);
    Place(flat, Plus(Times(block, threads), thread), {block, thread});
  }

  // The ranges of a reduction that its threads can share: no other reduction over some of them.
  bool Shareable(const UOp& reduce) const {
    for (const UOp& u : sets_.order()) {
      if (!u.is(Op::kReduce) || !(sets_.Closed(u) & sets_.Closed(reduce))) continue;
      if (!(ClosedRanges(u) == ClosedRanges(reduce))) return false;
      if (std::find(reduces_.begin(), reduces_.end(), u) == reduces_.end()) return false;
    }
    return true;
  }

  UOp Innermost(const std::vector<UOp>& ranges) const {
    const bool best = lane_ && std::find(ranges.begin(), ranges.end(), lane_) != ranges.end();
    return best ? lane_ : ranges.back();
  }

  // The flat index shared by the threads of a block, or of a row. What they reduce must be enough
  // for each to have some in the first step: else nothing would keep the others from loading.
  void Share(const std::vector<UOp>& ranges, bool reduced, int64_t threads, int64_t lanes) {
    const Flat flat = Flatten(ranges, Innermost(ranges), lanes);
    const bool enough = flat.count.vmax() > threads || flat.count.IsConst(threads);
    if (!enough && reduced) return;
    const UOp thread = Range(enough ? UOp::Index(threads) : flat.count, RangeKind::kThread);
    const UOp steps = Steps(flat.count, thread, threads);
    // A loop of one step would be closed by reductions whose values do not depend on it.
    if (!enough || steps.IsConst(1)) {
      Place(flat, thread, {thread});
      return;
    }
    const UOp step = Range(steps, RangeKind::kLoop);
    Place(flat, Plus(Times(step, threads), thread), {thread, step});
  }

  void BindBlocks(RangeMask row_bits) {
    std::vector<UOp> rows, columns;
    for (const UOp& r : loops_) (sets_.Bit(r) & row_bits ? rows : columns).push_back(r);
    std::vector<std::vector<UOp>> shared;  // the ranges of each reduction that threads share
    for (const UOp& u : reduces_) {
      std::vector<UOp> over(ClosedRanges(u).begin(), ClosedRanges(u).end());
      if (Shareable(u) && std::find(shared.begin(), shared.end(), over) == shared.end()) {
        shared.push_back(std::move(over));
      }
    }
    if (!columns.empty()) shared.push_back(columns);
    int64_t longest = 1;
    std::vector<int64_t> lanes;
    for (const std::vector<UOp>& over : shared) {
      RangeMask bits = 0;
      for (const UOp& r : over) bits |= sets_.Bit(r);
      const int64_t points = sets_.Iterations(bits);
      int64_t wide = VectorLanes(Innermost(over), sets_);
      while (wide > 1 && points / wide < kWarp && points >= kWarp) wide /= 2;  // a warp's at least
      lanes.push_back(wide);
      longest = std::max(longest, points / wide);
    }
    // What the threads share comes last among a store's loops.
    loops_ = rows;
    if (longest < kWarp) {
      BindThreads();
      loops_.insert(loops_.end(), columns.begin(), columns.end());
      Settle();
      return;
    }
    int64_t threads = kThreadsOfBlock;
    while (threads > kWarp && threads > longest) threads /= 2;
    const Flat flat = Flatten(rows, UOp(), 1);
    const bool several = flat.count.vmax() >= kWarpsOfBlock && longest <= 8 * kWarp;
    if (several) threads = kWarp;
    int64_t of_block = several ? kWarpsOfBlock : 1;
    while (of_block > 1 && ShareOf(flat.count.vmax(), cores_) <= of_block / 2) of_block /= 2;
    if (!rows.empty()) PlaceRows(flat, of_block);
    for (size_t i = 0; i < shared.size(); ++i) {
      Share(shared[i], shared[i] != columns, threads, lanes[i]);
    }
    loops_.insert(loops_.end(), columns.begin(), columns.end());
    Settle();
  }

  void PlaceRows(const Flat& flat, int64_t of_block) {
    if (of_block == 1) {
      const UOp block = Range(flat.count, RangeKind::kGrid);
      Place(flat, block, {block});
      return;
    }
    const UOp block = Range(Steps(flat.count, UOp::Index(0), of_block), RangeKind::kGrid);
    const UOp left = Minus(flat.count, Times(block, of_block));
    const bool whole = flat.count.IsConst() && flat.count.vmax() % of_block == 0;
    const UOp row =
        Range(whole ? UOp::Index(of_block) : UOp::Make(Op::kMin, {UOp::Index(of_block), left}),
              RangeKind::kRow);
    Place(flat, Plus(Times(block, of_block), row), {block, row});
  }

  // Stores with their loops in the order of loops_; each flat index's loops where the first of its
  // ranges is listed.
  void Settle() {
    const auto listed = [&](const std::vector<UOp>& ranges) {
      for (const UOp& r : loops_) {
        if (std::find(ranges.begin(), ranges.end(), r) != ranges.end()) return r;
      }
      for (const UOp& u : reduces_) {
        for (const UOp& r : ClosedRanges(u)) {
          if (std::find(ranges.begin(), ranges.end(), r) != ranges.end()) return r;
        }
      }
      return UOp();
    };
    for (auto& [ranges, loops] : outermost_) map_.at(listed(ranges)).ranges = loops;
    sink_ = WithLoops(sink_, loops_);
  }

  // A reduction over threads and more is one over threads of what each of them reduces.
  static UOp NestThreads(const UOp& sink) {
    absl::flat_hash_map<UOp, UOp> done;
    for (const UOp& u : TopoSort({&sink, 1})) {
      absl::InlinedVector<UOp, 6> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
      if (!u.is(Op::kReduce) || u.size() < 3) {
        done.emplace(u, u.WithSrcs(srcs));
        continue;
      }
      std::vector<UOp> inner = {srcs[0]}, outer;
      for (size_t i = 1; i < srcs.size(); ++i) {
        const bool thread = srcs[i].arg<RangeArg>().kind == RangeKind::kThread;
        (thread ? outer : inner).push_back(srcs[i]);
      }
      UOp out = UOp::Make(Op::kReduce, inner, u.arg());
      if (!outer.empty()) {
        outer.insert(outer.begin(), out);
        out = UOp::Make(Op::kReduce, outer, u.arg());
      }
      done.emplace(u, out);
    }
    return done.at(sink);
  }

  UOp sink_;
  const RangeSets sets_;
  const std::vector<int64_t> shared_;
  const int64_t cores_;  // multiprocessors
  int64_t next_id_;
  std::vector<UOp> loops_;    // of the stores
  std::vector<UOp> reduces_;  // outside of all others
  UOp lane_;
  RangeReplacements map_;
  UOp gate_;  // of what threads do, or nothing
  std::vector<std::pair<std::vector<UOp>, std::vector<UOp>>> outermost_;
};

}  // namespace

UOp BindRanges(const UOp& sink, const Target& target) {
  const UOp loops = AsLoops(sink);
  if (const UOp chain = TileChainBlocks(loops, target)) return chain;
  if (const UOp tiles = TileBlocks(loops, target)) return tiles;
  if (const UOp turned = TurnBlocks(loops, target)) return turned;
  if (const UOp columns = ReduceColumnBlocks(loops, target)) return columns;
  if (const UOp rows = ReduceRowBlocks(loops, target)) return rows;
  return Simplify(Binder(loops, SharedLoops(sink), target).Run());
}

}  // namespace tessera
