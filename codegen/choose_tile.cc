// Which tile of a contraction a block of threads computes, and how its operands lie in scratch.
#include <algorithm>

#include "codegen/block_tiler.h"
#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/matrix_unit.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLeastRows = 16, kLeastSteps = 8;
constexpr int64_t kMostAhead = 3;
constexpr int64_t kWarpsOfGroup = 4;

// Lanes of 16 bytes along the range, where each load of a value that moves with it reads whole
// vectors; 1 if none moves.
int64_t LanesAlong(const UOp& value, const UOp& range, const RangeSets& sets) {
  if (!range.src(0).IsConst()) return 1;
  int widest = value.dtype().bytes();
  int64_t lanes = kVectorBytes;
  bool moves = false;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & sets.Bit(range))) continue;
    if (u.size() == 3 && (sets.Free(u.src(2)) & sets.Bit(range))) return 1;
    const Step step = StepOf(u.src(1), range, sets);
    if (!step.linear || step.factor != 1) return 1;
    moves = true;
    widest = std::max(widest, u.dtype().bytes());
    const Sum sum = ToSum(u.src(1));
    while (sum.constant % lanes != 0) lanes /= 2;
    for (const Sum::Term& t : sum.terms) {
      while (!(t.term == range) && t.factor % lanes != 0) lanes /= 2;
    }
  }
  if (!moves) return 1;
  lanes = std::min(lanes, kVectorBytes / widest);
  while (lanes > 1 && range.src(0).vmax() % lanes != 0) lanes /= 2;
  return lanes;
}

// Whether some load of a value moves by one element with the range, and none by more.
bool Adjacent(const UOp& value, const UOp& range, const RangeSets& sets) {
  bool moves = false;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & sets.Bit(range))) continue;
    const Step step = StepOf(u.src(1), range, sets);
    if (!step.linear || step.factor != 1) return false;
    moves = true;
  }
  return moves;
}

}  // namespace

int64_t SharedOfTwo(const Target& target) {
  constexpr int64_t kReservedBytes = 1 << 10;  // by the system, for each block
  return (target.shared_bytes + kReservedBytes) / 2 - kReservedBytes;
}

void BlockTiler::TakeUnit(const MatrixShape* unit) {
  unit_ = unit;
  a_.value = unit_ ? AsOperandOf(*unit_, c_.a) : c_.a;
  b_.value = unit_ ? AsOperandOf(*unit_, c_.b) : c_.b;
}

bool BlockTiler::MuchAfter() const {
  const UOp after =
      Substitute(sink_.src(0).src(1), {{Result(), UOp::Const(Result().dtype(), Scalar())}});
  const std::vector<UOp> nodes = TopoSort({&after, 1});
  return c_.reduce.dtype().bytes() == 8 ||
         std::any_of(nodes.begin(), nodes.end(),
                     [](const UOp& u) { return HasProperty(u.op(), kExpensive); });
}

bool BlockTiler::ChooseGroups(int64_t rows, int64_t columns, int64_t batch, int64_t steps) {
  if (scaled_) return false;
  const MatrixShape* unit = UnitOf(target_, c_.reduce.dtype(), {c_.a, c_.b}, kWarpsOfGroup);
  if (unit == nullptr || steps < 2 * unit->steps() || MuchAfter()) return false;
  // Nearly all multiprocessors: numbers of tiles are powers of two more often than theirs are.
  const int64_t enough = ShareOf(target_.cores - target_.cores / 16, batch);
  constexpr int64_t kTiles[][2] = {{128, 256}, {128, 128}};
  for (const auto& [m, n] : kTiles) {
    const bool full = m < 2 * rows && n < 2 * columns;
    if (!full || CeilDiv(rows, m) * CeilDiv(columns, n) < enough) continue;
    tile_rows_ = m;
    tile_columns_ = n;
    warps_down_ = m / kMatrixSide;
    warps_across_ = 1;
    a_.swizzled = b_.swizzled = true;
    TakeUnit(unit);
    return true;
  }
  return false;
}

int64_t BlockTiler::PutAdjacentLast(const UOp& value, std::vector<UOp>& ranges) const {
  size_t best = ranges.size() - 1;
  int64_t lanes = LanesAlong(value, ranges[best], sets_);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t n = LanesAlong(value, ranges[i], sets_);
    if (n > lanes) lanes = n, best = i;
  }
  std::rotate(ranges.begin() + best, ranges.begin() + best + 1, ranges.end());
  return lanes;
}

void BlockTiler::Lay(StagedOperand& x, int64_t along_sum, int64_t along) const {
  x.along_own =
      along > along_sum || (along == along_sum && Adjacent(x.value, x.ranges.back(), sets_) &&
                            !Adjacent(x.value, c_.inner.back(), sets_));
  x.turned = x.along_own && (!unit_ || x.value.dtype().bytes() == 2);
  x.lanes = std::max(along_sum, along);
  x.read_only = x.value.is(Op::kIndex) && x.value.src(0).is(Op::kParam);
}

bool BlockTiler::Choose(const GivenTile* given) {
  const DType sum = c_.reduce.dtype();
  TakeUnit(UnitOf(target_, sum, {c_.a, c_.b}));
  if (scaled_ && (!unit_ || of_block_ % unit_->steps() != 0 || of_block_ > kMostRowBytes)) {
    return false;
  }
  const std::vector<UOp> blocks(c_.inner.begin(), c_.inner.begin() + blocks_);
  if (!unit_ && sum.bytes() != 4 && sum.bytes() != 8) return false;
  const int64_t rows = CountOf(c_.rows).vmax(), columns = CountOf(c_.columns).vmax();
  const int64_t steps = CountOf(c_.inner).vmax(), batch = CountOf(c_.batch).vmax();
  if (given != nullptr) {
    tile_rows_ = given->rows;
    tile_columns_ = given->columns;
    warps_down_ = given->warps_down;
    warps_across_ = given->warps_across;
  } else {
    if (rows < kLeastRows || columns < kLeastRows || steps < kLeastSteps) return false;
    if (target_.max_threads < kSide * kSide || target_.shared_bytes < 48 << 10) return false;
    if (!ChooseGroups(rows, columns, batch, steps)) ChooseTile(rows, columns, batch);
  }
  const bool computed = given != nullptr && given->computed;
  if (!computed) {
    // The sum's own order: adjacent in a if anywhere, else in b.
    std::vector<UOp> of_b = c_.inner;
    const int64_t a_best = PutAdjacentLast(a_.value, c_.inner);
    const int64_t b_best = PutAdjacentLast(b_.value, of_b);
    if (a_best == 1 && b_best > 1) c_.inner = of_b;
  }
  const int64_t a_sum = computed ? 1 : LanesAlong(a_.value, c_.inner.back(), sets_);
  const int64_t b_sum = LanesAlong(b_.value, c_.inner.back(), sets_);
  // The tiles of one kernel agree on the order of what they share.
  const int64_t a_own = computed           ? 1
                        : given != nullptr ? LanesAlong(a_.value, c_.rows.back(), sets_)
                                           : PutAdjacentLast(a_.value, c_.rows);
  const auto lane = std::find(c_.columns.begin(), c_.columns.end(), c_.lane);
  std::rotate(lane, lane + 1, c_.columns.end());
  a_.ranges = c_.rows;
  b_.ranges = c_.columns;
  if (!computed) Lay(a_, a_sum, a_own);
  Lay(b_, b_sum, LanesAlong(b_.value, c_.lane, sets_));
  // Along a step: rows of up to 128 bytes, and no more than there is.
  const int64_t least = unit_ ? unit_->steps() : kLeastSteps;
  const int bytes = std::max(a_.value.dtype().bytes(), b_.value.dtype().bytes());
  steps_ = std::max(least, kMostRowBytes / bytes);
  while (steps_ / 2 >= least && steps_ / 2 >= steps) steps_ /= 2;
  if (given != nullptr) steps_ = std::max(least, given->steps);
  if (steps_ % of_block_ != 0) steps_ = of_block_;
  if (!std::equal(blocks.begin(), blocks.end(), c_.inner.begin())) return false;
  if (given == nullptr || !given->kept) ChooseLanes();
  a_.extent = tile_rows_;
  b_.extent = tile_columns_;
  // So many steps at once that two blocks share a multiprocessor; and so few in a stage that one
  // can be fetched while another is computed with.
  int64_t stage = LayStages();
  const bool alone = Grouped() && 3 * stage > SharedOfTwo(target_);  // one block, and far ahead
  const int64_t room = alone ? target_.shared_bytes : SharedOfTwo(target_);
  const bool free = given == nullptr && !scaled_ && !Grouped() && target_.fetches;
  while (free && 2 * stage > room && steps_ > least && steps_ < steps) {
    steps_ /= 2;
    stage = LayStages();
  }
  const bool fetched = target_.fetches && (a_.read_only || b_.read_only);
  const int64_t most = given != nullptr ? 0 : fetched ? kMostAhead : 1;
  a_.ahead = b_.ahead =
      std::clamp<int64_t>(room / stage - 1, 0, std::min(most, CeilDiv(steps, steps_) - 1));
  return stage <= target_.shared_bytes;
}

int64_t BlockTiler::LayStages() {
  int64_t bytes = 0;
  for (StagedOperand* x : {&a_, &b_}) {
    // Without units a turned b is read in vectors.
    const int64_t width = x->turned ? x->extent : steps_;
    x->lanes = std::min(x->lanes, width);
    x->pitch = width + (x->swizzled ? 0 : kVectorBytes / x->value.dtype().bytes());
    bytes += Elements(*x) * x->value.dtype().bytes();
  }
  return bytes;
}

void BlockTiler::ChooseTile(int64_t rows, int64_t columns, int64_t batch) {
  const bool few = MuchAfter();  // it is written out for each of a thread's sums
  constexpr int64_t kTiles[][2] = {{128, 128}, {128, 64}, {64, 128}, {64, 64},
                                   {64, 32},   {32, 64},  {32, 32}};
  for (const auto& [m, n] : kTiles) {
    tile_rows_ = m;
    tile_columns_ = n;
    if (few && m * n > 64 * 64) continue;
    if ((m > 32 && m >= 2 * rows) || (n > 32 && n >= 2 * columns)) continue;
    if (CeilDiv(rows, m) * CeilDiv(columns, n) >= ShareOf(target_.cores, batch)) break;
  }
}

void BlockTiler::ChooseLanes() {
  lanes_ = unit_ ? 2 : kVectorBytes / c_.reduce.dtype().bytes();
  const UOp& store = sink_.src(0);
  const auto fit = [&](const UOp& value) {
    for (const UOp& u : TopoSort({&value, 1})) {
      if (!u.is(Op::kIndex) || !(sets_.Free(u) & sets_.Bit(c_.lane))) continue;
      lanes_ = std::min(lanes_, LanesAlong(u, c_.lane, sets_));
    }
  };
  const UOp sums = UOp::Const(Result().dtype(), Scalar());
  fit(Substitute(store.src(1), {{Result(), sums}}));
  fit(store.src(0));
  if (!unit_ && !b_.turned) lanes_ = 1;
  lanes_ = std::min(lanes_, tile_columns_ / kSide);
}

}  // namespace tessera
