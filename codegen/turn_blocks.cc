// Rectangles that turn in shared memory.
#include "codegen/turn_blocks.h"

#include <algorithm>
#include <vector>

#include "codegen/block_tiler.h"
#include "codegen/lanes.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kThreads = 256, kRows = 32, kPitch = kRows + 1;
constexpr int64_t kBytesOfThread = 16;  // that each has under way, as with vectors
constexpr int64_t kLeastSide = 16;      // of what is worth turning

// Whether an access moves by one element with the range.
bool IsAdjacent(const UOp& access, const UOp& range, const RangeSets& sets) {
  const Step s = StepOf(access.src(1), range, sets);
  return s.linear && s.factor == 1;
}

class BlockTurner {
 public:
  BlockTurner(const UOp& sink, const Target& target)
      : sink_(sink), sets_(sink), target_(target), next_id_(FreshRangeId(sets_)) {}

  UOp Run() {
    if (!Choose()) return UOp();
    const UOp tiles_across = CeilOver(across_.src(0), columns_);
    const UOp tiles = Simplify(Times(CeilOver(down_.src(0), kRows), tiles_across));
    const UOp grid = Range(Simplify(Times(CountOf(others_), tiles)), RangeKind::kGrid);
    PlaceRanges(others_, Over(grid, tiles), 1, UOp(), others_at_);
    const UOp tile = Modulo(grid, tiles);
    first_row_ = Simplify(Times(Over(tile, tiles_across), kRows));
    first_column_ = Simplify(Times(Modulo(tile, tiles_across), columns_));

    // By rows into scratch.
    Place at = PlaceOf(kRows);
    Substitution map = At(at.quick, at.slow);
    Substitution staged;
    int64_t id = FreshStageId(sink_);
    const Place out = PlaceOf(columns_);
    for (const UOp& load : turned_) {
      const UOp value = GatedLoads(Substitute(load, map), Gate(at.quick, at.slow));
      const UOp offset = Simplify(Plus(Times(at.slow, kPitch), at.quick));
      const UOp stage =
          MakeStage(id++, columns_ * kPitch, offset, Simplify(value), {at.thread, at.copy});
      const UOp read = Simplify(Plus(Times(out.quick, kPitch), out.slow));
      staged.emplace(load, UOp::Make(Op::kIndex, {stage, read}));
    }
    // From there by columns.
    map = At(out.slow, out.quick);
    map.insert(staged.begin(), staged.end());
    const UOp gate = Gate(out.slow, out.quick);
    std::vector<UOp> stores;
    for (const UOp& s : sink_.srcs()) {
      stores.push_back(GatedStore(s, map, gate, {grid, out.thread, out.copy}));
    }
    return Simplify(sink_.WithSrcs(stores));
  }

 private:
  // A thread's place in the rectangle: along the side that threads follow one after another, and
  // along the other one.
  struct Place {
    UOp thread, copy, quick, slow;
  };

  // Which loads turn: those adjacent along the one range along which most bytes are.
  bool Choose() {
    if (sink_.size() == 0 || target_.max_threads < kThreads) return false;
    for (const UOp& u : sets_.order()) {
      if (u.is(Op::kReduce) || u.is(Op::kStage)) return false;
    }
    const absl::Span<const UOp> loops = ClosedRanges(sink_.src(0));
    for (const UOp& r : loops) {
      if (IsAdjacent(sink_.src(0).src(0), r, sets_)) across_ = r;
    }
    if (!across_ || across_.src(0).vmax() < kLeastSide) return false;
    for (const UOp& s : sink_.srcs()) {
      if (!(ClosedRanges(s) == loops) || !IsAdjacent(s.src(0), across_, sets_)) return false;
    }
    int most = 0;
    for (const UOp& r : loops) {
      if (r == across_ || r.src(0).vmax() < kLeastSide) continue;
      std::vector<UOp> turned;
      int bytes = 0;
      for (const UOp& u : sets_.order()) {
        if (!u.is(Op::kIndex) || !Turns(u, r)) continue;
        turned.push_back(u);
        bytes += u.dtype().bytes();
      }
      if (bytes <= most) continue;
      most = bytes;
      down_ = r;
      turned_ = std::move(turned);
    }
    if (!down_) return false;
    for (const UOp& r : loops) {
      if (!(r == across_) && !(r == down_)) others_.push_back(r);
    }
    int widest = 1;
    for (const UOp& u : turned_) widest = std::max(widest, u.dtype().bytes());
    columns_ = kThreads / kRows * std::max<int64_t>(4, kBytesOfThread / widest);
    const int64_t bytes = columns_ * kPitch * most;
    return bytes <= target_.shared_bytes / 4;
  }

  // Whether a load of memory is adjacent along r, and jumps along the stores' own range.
  bool Turns(const UOp& load, const UOp& r) const {
    if (!load.src(0).is(Op::kParam) || !IsAdjacent(load, r, sets_)) return false;
    for (const UOp& s : sink_.srcs()) {
      if (load == s.src(0)) return false;
    }
    const Step jump = StepOf(load.src(1), across_, sets_);
    return jump.linear && jump.factor != 0 && jump.factor != 1;
  }

  UOp Range(const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{next_id_++, kind});
  }
  Place PlaceOf(int64_t side) {
    Place p;
    p.thread = Range(UOp::Index(kThreads), RangeKind::kThread);
    p.copy = Range(UOp::Index(kRows * columns_ / kThreads), RangeKind::kUnroll);
    const UOp unit = Plus(p.thread, Times(p.copy, kThreads));
    p.quick = Modulo(unit, side);
    p.slow = Over(unit, side);
    return p;
  }

  // What the kernel's ranges are there, and whether there is anything.
  Substitution At(const UOp& row, const UOp& column) const {
    Substitution map = others_at_;
    map[down_] = Simplify(Plus(first_row_, row));
    map[across_] = Simplify(Plus(first_column_, column));
    return map;
  }
  UOp Gate(const UOp& row, const UOp& column) const {
    const UOp rows = EndOf(down_.src(0), kRows), columns = EndOf(across_.src(0), columns_);
    return Both(rows ? Below(Plus(first_row_, row), rows) : UOp(),
                columns ? Below(Plus(first_column_, column), columns) : UOp());
  }

  const UOp sink_;
  const RangeSets sets_;
  const Target& target_;
  int64_t next_id_;
  UOp across_, down_;  // adjacent in the stores, and in the loads that turn
  std::vector<UOp> turned_, others_;
  int64_t columns_ = 0;
  UOp first_row_, first_column_;
  Substitution others_at_;
};

}  // namespace

UOp TurnBlocks(const UOp& sink, const Target& target) { return BlockTurner(sink, target).Run(); }

}  // namespace tessera
