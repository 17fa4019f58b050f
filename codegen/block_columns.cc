// Columns shared by the warps of a block.
#include "codegen/block_columns.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/block_tiler.h"
#include "codegen/contraction.h"
#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLeastRows = 64;   // that are worth sharing
constexpr int64_t kLeastOfWarp = 4;  // rows
constexpr int64_t kMostSums = 8;     // of a thread

class ColumnBlocks {
 public:
  ColumnBlocks(const UOp& sink, const Target& target)
      : sink_(sink), sets_(sink), target_(target), next_id_(FreshRangeId(sets_)) {}

  UOp Run() {
    if (!Choose()) return UOp();
    const UOp grid = Range(CeilOver(units_, kWarp), RangeKind::kGrid);
    first_ = Simplify(Times(grid, kWarp));
    int64_t stage = FreshStageId(sink_);
    for (const UOp& u : reduces_) {
      const Element e = NewElement(threads_);
      const UOp part = Over(e.thread, kWarp), column = Modulo(e.thread, kWarp);
      const std::vector<UOp> over(ClosedRanges(u).begin(), ClosedRanges(u).end());
      const UOp step = Range(Steps(CountOf(over), part, threads_ / kWarp), RangeKind::kLoop);
      Substitution map = At(e, column);
      PlaceRanges(over, Simplify(Plus(Times(step, threads_ / kWarp), part)), 1, UOp(), map);
      const UOp value = GatedLoads(Substitute(u.src(0), map), Gate(column));
      const UOp mine = UOp::Make(Op::kReduce, {Simplify(value), step}, u.arg());
      parts_.emplace_back(
          u, MakeStage(stage++, threads_ * copies_ * lanes_, Offset(e, e.thread), mine, e.closed));
    }
    const Element e = NewElement(kWarp);
    const Substitution map = At(e, e.thread);
    const UOp gate = Gate(e.thread);
    std::vector<UOp> closed = {grid}, stores;
    closed.insert(closed.end(), e.closed.begin(), e.closed.end());
    for (const UOp& s : sink_.srcs()) {
      stores.push_back(GatedStore(s, map, gate, closed));
    }
    return Simplify(sink_.WithSrcs(stores));
  }

 private:
  // A thread's own: one of some rows of a product, and a lane of its vector of columns.
  struct Element {
    UOp thread, copy, lane;
    std::vector<UOp> closed;
  };

  bool Choose() {
    if (sink_.size() == 0) return false;
    const absl::Span<const UOp> loops = ClosedRanges(sink_.src(0));
    lane_ = BestLaneRange(sets_);
    if (!lane_ || std::find(loops.begin(), loops.end(), lane_) == loops.end()) return false;
    for (const UOp& s : sink_.srcs()) {
      const Step step = StepOf(s.src(0).src(1), lane_, sets_);
      if (!(ClosedRanges(s) == loops) || !step.linear || step.factor != 1) return false;
    }
    int64_t rows = 0;
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kStage)) return false;
      if (!u.is(Op::kReduce)) continue;
      // All of them over rows of the same columns, none inside another.
      if (u.size() < 2 || !(sets_.Free(u) & sets_.Bit(lane_))) return false;
      if (sets_.Free(u) & sets_.ClosedBy(Op::kReduce)) return false;
      rows = std::max(rows, sets_.Iterations(sets_.Closed(u)));
      reduces_.push_back(u);
    }
    if (reduces_.empty() || rows < kLeastRows) return false;
    RangeMask all = 0;
    for (const UOp& r : loops) all |= sets_.Bit(r);
    const int64_t outputs = sets_.Iterations(all), busy = kThreadsOfCore * target_.cores;
    if (outputs >= busy || outputs < kWarp) return false;
    for (const UOp& r : loops) {
      if (!(r == lane_)) columns_.push_back(r);
    }
    ChooseCopies();
    columns_.push_back(lane_);
    const auto blocks = [&] { return outputs / copies_ / lanes_ / kWarp; };
    lanes_ = std::min(VectorLanes(lane_, sets_), kMostSums / copies_);
    while (lanes_ > 1 && blocks() < target_.cores) lanes_ /= 2;
    threads_ = kThreadsOfBlock;
    const auto of_warp = [&] { return rows / (threads_ / kWarp); };
    while (2 * threads_ <= target_.max_threads && blocks() * threads_ < busy &&
           of_warp() >= 2 * kLeastOfWarp) {
      threads_ *= 2;
    }
    units_ = Simplify(Over(CountOf(columns_), lanes_));
    return true;
  }

  // Of a product of few rows by a matrix: as many of them as a thread may take.
  void ChooseCopies() {
    const std::optional<Contraction> c = FindContraction(sets_);
    const UOp row = c && c->lane == lane_ ? Longest(c->rows) : UOp();
    if (!row || !row.src(0).IsConst()) return;
    copies_ = LargestDivisor(row.src(0).vmax(), kMostSums);
    if (copies_ == 1) return;
    copied_ = row;
    rows_ = Range(UOp::Index(row.src(0).vmax() / copies_), RangeKind::kLoop);
    std::replace(columns_.begin(), columns_.end(), row, rows_);
  }

  UOp Range(const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{next_id_++, kind});
  }
  Element NewElement(int64_t threads) {
    Element e;
    const auto range = [&](int64_t extent, RangeKind kind) {
      if (extent == 1) return UOp::Index(0);
      e.closed.push_back(Range(UOp::Index(extent), kind));
      return e.closed.back();
    };
    e.thread = range(threads, RangeKind::kThread);
    e.copy = range(copies_, RangeKind::kUnroll);
    e.lane = range(lanes_, RangeKind::kVector);
    return e;
  }

  // Where the threads' sums lie: those of a lane side by side, as a warp reads them.
  UOp Offset(const Element& e, const UOp& thread) const {
    return Simplify(Plus(Times(Plus(Times(e.copy, threads_), thread), lanes_), e.lane));
  }
  // What the kernel's ranges and its reductions are at a column of the block.
  Substitution At(const Element& e, const UOp& column) const {
    Substitution map;
    PlaceRanges(columns_, Simplify(Plus(first_, column)), lanes_, e.lane, map);
    if (copied_) map[copied_] = Simplify(Plus(Times(map.at(rows_), copies_), e.copy));
    for (const auto& [reduce, stage] : parts_) {
      UOp all;
      for (int64_t p = 0; p < threads_ / kWarp; ++p) {
        const UOp at = Offset(e, Plus(column, UOp::Index(p * kWarp)));
        const UOp one = UOp::Make(Op::kIndex, {stage, at});
        all = all ? UOp::Make(reduce.arg<ReduceArg>().op, {all, one}) : one;
      }
      map[reduce] = all;
    }
    return map;
  }
  UOp Gate(const UOp& column) const {
    const UOp end = EndOf(units_, kWarp);
    return end ? Below(Plus(first_, column), end) : UOp();
  }

  const UOp sink_;
  const RangeSets sets_;
  const Target& target_;
  int64_t next_id_;
  UOp lane_;                  // along which columns are adjacent
  UOp copied_, rows_;         // of whose rows each thread takes some, and which of these groups
  std::vector<UOp> columns_;  // the ranges of the result, the lanes' last
  std::vector<UOp> reduces_;  // in an order in which none needs a later one
  int64_t lanes_ = 1, copies_ = 1, threads_ = 0;
  UOp units_, first_;                       // vectors of columns, and the block's first
  std::vector<std::pair<UOp, UOp>> parts_;  // what the threads of a block have of each reduction
};

}  // namespace

UOp ReduceColumnBlocks(const UOp& sink, const Target& target) {
  return ColumnBlocks(sink, target).Run();
}

}  // namespace tessera
