// Tiles of contractions for blocks of threads.
#include "codegen/block_tiles.h"

#include <algorithm>
#include <optional>

#include "codegen/block_tiler.h"
#include "codegen/contraction.h"
#include "codegen/gpu_numbers.h"
#include "codegen/lanes.h"
#include "codegen/matrix.h"
#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr int64_t kUnrolledCopies = 8, kScalarCopies = 4, kComputedCopies = 2;

}  // namespace

UOp CountOf(const std::vector<UOp>& ranges) {
  UOp n = UOp::Index(1);
  for (const UOp& r : ranges) n = Times(n, r.src(0));
  return Simplify(n);
}

UOp EndOf(const UOp& count, int64_t tile) {
  return count.IsConst() && count.vmax() % tile == 0 ? UOp() : count;
}

UOp GatedLoads(const UOp& value, const UOp& gate, const Substitution& known) {
  absl::flat_hash_map<UOp, UOp> done;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (const auto it = known.find(u); it != known.end()) {
      done.emplace(u, it->second);
      continue;
    }
    if (u.is(Op::kStage)) {
      done.emplace(u, u);
      continue;
    }
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(done.at(s));
    if (gate && u.is(Op::kIndex) && u.src(0).is(Op::kParam)) {
      srcs.resize(2);
      srcs.push_back(Both(u.size() == 3 ? done.at(u.src(2)) : UOp(), gate));
    }
    done.emplace(u, u.WithSrcs(srcs));
  }
  return done.at(value);
}

UOp GatedStore(const UOp& store, const Substitution& map, const UOp& gate,
               absl::Span<const UOp> closed) {
  const UOp& index = store.src(0);
  std::vector<UOp> at = {index.src(0), Substitute(index.src(1), map)};
  const UOp own = index.size() == 3 ? Substitute(index.src(2), map) : UOp();
  if (const UOp all = Both(own, gate)) at.push_back(all);
  std::vector<UOp> srcs = {UOp::Make(Op::kIndex, at),
                           GatedLoads(Substitute(store.src(1), map), gate)};
  srcs.insert(srcs.end(), closed.begin(), closed.end());
  return store.WithSrcs(srcs);
}

BlockTiler::BlockTiler(const UOp& kernel, const Contraction& contraction, const Target& target,
                       int64_t first_range)
    : sink_(kernel), sets_(kernel), c_(contraction), target_(target), next_id_(first_range) {}

BlockTiler::BlockTiler(const UOp& kernel, const ByteDots& dots, const Target& target,
                       int64_t first_range)
    : BlockTiler(kernel, dots.c, target, first_range) {
  c_.a = UOp(c_.reduce.src(0).src(0));  // cast
  c_.b = UOp(c_.reduce.src(0).src(1));
  if (sets_.Free(c_.a) & sets_.Bit(c_.lane)) std::swap(c_.a, c_.b);
  scaled_ = dots.sum;
  blocks_ = dots.blocks.size();
  of_block_ = CountOf(c_.inner).vmax();
  c_.inner.insert(c_.inner.begin(), dots.blocks.begin(), dots.blocks.end());
}

UOp BlockTiler::Range(int64_t extent, RangeKind kind, std::vector<UOp>& closed) {
  if (extent == 1) return UOp::Index(0);
  closed.push_back(UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{next_id_++, kind}));
  return closed.back();
}

void BlockTiler::Bind() {
  const UOp rows = CountOf(c_.rows), columns = CountOf(c_.columns), batch = CountOf(c_.batch);
  const UOp down = CeilOver(rows, tile_rows_), across = CeilOver(columns, tile_columns_);
  grid_ = UOp::Make(Op::kRange, kInt64, {Simplify(Times(batch, Times(down, across)))},
                    RangeArg{next_id_++, RangeKind::kGrid});
  // Blocks that follow one another form squares, so that what they read is shared in the cache.
  const int64_t group = down.IsConst() ? LargestDivisor(down.vmax(), 8) : 1;
  const UOp within = Modulo(grid_, Times(down, across));
  const UOp group_size = Times(across, group);
  first_row_ =
      Times(Plus(Times(Over(within, group_size), group), Modulo(within, group)), tile_rows_);
  first_column_ = Times(Modulo(Over(within, group), across), tile_columns_);
  first_row_ = Simplify(first_row_);
  first_column_ = Simplify(first_column_);
  PlaceRanges(c_.batch, Over(grid_, Times(down, across)), 1, UOp(), outer_);
  closed_ = {grid_};
  BindTile(closed_);
}

void BlockTiler::BindWithin(const UOp& row, const UOp& column, const Substitution& batch,
                            const UOp& thread) {
  thread_ = thread;
  first_row_ = row;
  first_column_ = column;
  outer_ = batch;
  BindTile(closed_);
}

void BlockTiler::BindTile(std::vector<UOp>& closed) {
  threads_ = unit_ ? warps_down_ * warps_across_ * kWarp : kSide * kSide;
  if (!thread_) thread_ = Range(threads_, RangeKind::kThread, closed);
  if (unit_) {
    BindWarps(closed);
  } else {
    BindThreads(closed);
  }
  const UOp count = CountOf(c_.inner);
  const UOp loops = CeilOver(count, steps_);
  if (!loops.IsConst(1)) {
    step_ = UOp::Make(Op::kRange, kInt64, {loops}, RangeArg{next_id_++, RangeKind::kLoop});
    sum_ranges_.push_back(step_);
    for (StagedOperand* x : {&a_, &b_}) {
      if (!x->loop) x->loop = step_;
    }
  }
  if (unit_) {
    const int64_t parts = (scaled_ ? of_block_ : steps_) / unit_->steps();
    const UOp block = Range(scaled_ ? steps_ / of_block_ : 1, RangeKind::kLoop, sum_ranges_);
    std::vector<UOp>& inside = scaled_ ? block_ranges_ : sum_ranges_;
    const UOp part = Range(parts, RangeKind::kLoop, inside);
    inside.push_back(matrix_.steps);
    in_tile_ = Times(block, of_block_);
    at_step_ = Plus(in_tile_, Plus(Times(part, unit_->steps()), matrix_.steps));
  } else {
    at_step_ = Range(steps_, RangeKind::kLoop, sum_ranges_);
  }
  row_gate_ = EndOf(CountOf(c_.rows), tile_rows_);
  column_gate_ = EndOf(CountOf(c_.columns), tile_columns_);
  step_gate_ = EndOf(count, steps_);
}

void BlockTiler::BindThreads(std::vector<UOp>& closed) {
  const UOp x = Modulo(thread_, kSide), y = Over(thread_, kSide);
  const UOp i = Range(tile_rows_ / kSide, RangeKind::kUnroll, closed);
  row_ = Plus(y, Times(i, kSide));
  const UOp j = Range(tile_columns_ / kSide / lanes_, RangeKind::kUnroll, closed);
  lane_ = Range(lanes_, RangeKind::kVector, closed);
  column_unit_ = Plus(x, Times(j, kSide));
}

void BlockTiler::BindWarps(std::vector<UOp>& closed) {
  const UOp warp = Over(thread_, kWarp), lane = Modulo(thread_, kWarp);
  // Warps side by side have the same rows, those of one unit rows that follow.
  const int64_t of_unit = unit_->warps, down = warps_down_ / of_unit;
  const int64_t rows = tile_rows_ / down, columns = tile_columns_ / warps_across_;
  const int64_t unit_columns = of_unit > 1 ? columns : kMatrixSide;
  matrix_ = MakeMatrixRanges(next_id_, unit_->steps(), unit_columns, lanes_ > 1);
  next_id_ += 4;
  const UOp unit = Over(warp, of_unit);
  const UOp i = Range(rows / (kMatrixSide * of_unit), RangeKind::kUnroll, closed);
  const UOp j = Range(columns / unit_columns, RangeKind::kUnroll, closed);
  const UOp in_unit = Plus(Times(Modulo(warp, of_unit), kMatrixSide), MatrixRow(matrix_, lane));
  row_ = Plus(Plus(Times(Modulo(unit, down), rows), Times(i, kMatrixSide * of_unit)), in_unit);
  const UOp from = Plus(Times(Over(unit, down), columns), Times(j, unit_columns));
  closed.push_back(matrix_.row_half);
  closed.push_back(matrix_.column_part);
  closed.push_back(matrix_.pair);
  if (lanes_ > 1) {
    lane_ = matrix_.pair;
    column_unit_ = Plus(Over(from, 2), MatrixColumnPair(matrix_, lane));
  } else {
    lane_ = UOp::Index(0);
    column_unit_ = Plus(Plus(from, Times(MatrixColumnPair(matrix_, lane), 2)), matrix_.pair);
  }
}

UOp BlockTiler::Column() const { return Plus(Times(column_unit_, lanes_), lane_); }

int64_t BlockTiler::Elements(const StagedOperand& x) const {
  return (x.turned ? steps_ : x.extent) * x.pitch;
}

UOp BlockTiler::Offset(const StagedOperand& x, const UOp& at, const UOp& step) const {
  const UOp row = x.turned ? step : at, column = x.turned ? at : step;
  UOp offset = Plus(Times(row, x.pitch), column);
  if (x.swizzled) {
    const int64_t bytes = x.value.dtype().bytes(), wide = kVectorBytes / bytes;
    const int64_t width = kMostRowBytes / bytes, rows = x.turned ? steps_ : x.extent;
    const UOp in_row = Modulo(column, width);
    const UOp vector = UOp::Make(Op::kXor, {Over(in_row, wide), Modulo(row, width / wide)});
    offset = Plus(Plus(Times(Over(column, width), rows * width), Times(row, width)),
                  Plus(Times(vector, wide), Modulo(column, wide)));
  }
  if (x.ahead > 0) offset = Plus(offset, Times(Modulo(x.loop, x.ahead + 1), Elements(x)));
  return Simplify(offset);
}

BlockTiler BlockTiler::First(const ProductChain& chain, const ChainTile& tile,
                             GivenTile given) const {
  Contraction first;
  first.reduce = chain.first;
  first.a = tile.queries;
  first.b = tile.key;
  first.batch = c_.batch;
  first.rows = c_.rows;
  first.columns = c_.inner;
  first.lane = first.columns.back();
  first.inner.assign(ClosedRanges(chain.first).begin(), ClosedRanges(chain.first).end());
  BlockTiler out(sink_, first, target_, next_id_);
  given.kept = true;
  CHECK(out.Choose(&given), "tiles of scores are no larger than those of their chain");
  return out;
}

bool BlockTiler::CanFetch(const StagedOperand& x) const {
  return target_.fetches && x.read_only && x.lanes * x.value.dtype().bytes() >= 4;
}

UOp BlockTiler::Stage(const StagedOperand& x, int64_t id) {
  const DType dtype = x.value.dtype();
  const bool is_a = &x == &a_;
  const int64_t bytes = Bytes(x) * (x.ahead + 1);
  const UOp scratch =
      UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent((bytes + 15) / 16 * 16)}});
  // Units of `lanes` elements are shared out to threads, rows of scratch one after another; those
  // that cannot be stored as vectors are read in order.
  const bool by_own = x.along_own;
  const int64_t fast = (by_own ? x.extent : steps_) / x.lanes;
  const int64_t units = x.extent * steps_ / x.lanes;
  std::vector<UOp> closed;
  UOp unit = Range(std::min(units, threads_), RangeKind::kThread, closed);
  if (units > threads_) {
    // Of what is computed from more than its own loads, each copy takes many registers.
    const int64_t copies = units / threads_;
    const int64_t unrolled = std::min(copies, x.at           ? kComputedCopies
                                              : x.lanes == 1 ? kScalarCopies
                                                             : kUnrolledCopies);
    const UOp loop = Range(copies / unrolled, RangeKind::kLoop, closed);
    const UOp copy = Range(unrolled, RangeKind::kUnroll, closed);
    unit = Plus(unit, Times(Plus(Times(loop, unrolled), copy), threads_));
  }
  const UOp lane = Range(x.lanes, RangeKind::kVector, closed);
  const UOp quick = Modulo(unit, fast), slow = Over(unit, fast);
  const UOp vector = Plus(Times(quick, x.lanes), lane);
  const UOp at = by_own ? vector : slow, step = by_own ? slow : vector;
  // Where that is in the operand. Vectors are whole, or nothing.
  const UOp own_first = is_a ? first_row_ : first_column_;
  const UOp sum_first = step_ ? Times(step_, steps_) : UOp::Index(0);
  const int64_t own_lanes = by_own ? x.lanes : 1, sum_lanes = by_own ? 1 : x.lanes;
  const UOp own_unit = Plus(Over(own_first, own_lanes), by_own ? quick : slow);
  const UOp sum_unit = Plus(Over(sum_first, sum_lanes), by_own ? slow : quick);
  Substitution map = outer_;
  PlaceRanges(x.ranges, Simplify(own_unit), own_lanes, lane, map);
  PlaceRanges(c_.inner, Simplify(sum_unit), sum_lanes, lane, map);
  if (x.at) {
    map.emplace(x.at, at);
    map.emplace(x.step, step);
  }
  const UOp own_end = is_a ? row_gate_ : column_gate_;
  const UOp in_own = own_end ? Below(Times(own_unit, own_lanes), own_end) : UOp();
  const UOp in_sum = step_gate_ ? Below(Times(sum_unit, sum_lanes), step_gate_) : UOp();
  UOp value = GatedLoads(Substitute(x.value, map), Both(in_own, in_sum));
  // Past the end of the sum both factors are 0, whatever is computed from nothing there.
  if (in_sum && !x.read_only) {
    value = UOp::Make(Op::kWhere, {in_sum, value, UOp::Const(dtype, Scalar())});
  }
  std::vector<UOp> store = {UOp::Make(Op::kIndex, {scratch, Offset(x, at, step)}), Simplify(value)};
  store.insert(store.end(), closed.begin(), closed.end());
  return UOp::Make(Op::kStage, {scratch, UOp::Make(Op::kStore, store, int64_t{0})},
                   StageArg{id, Space::kShared, x.ahead});
}

UOp BlockTiler::Read(const StagedOperand& x, const UOp& stage) const {
  const UOp read = UOp::Make(Op::kIndex, {stage, Offset(x, &x == &a_ ? row_ : Column(), at_step_)});
  return read.dtype() == c_.reduce.dtype() ? read : UOp::Make(Op::kCast, c_.reduce.dtype(), {read});
}

UOp BlockTiler::AtElement(Substitution& map) const {
  const UOp row = Plus(first_row_, row_);
  const UOp unit = Plus(Over(first_column_, lanes_), column_unit_);
  PlaceRanges(c_.rows, Simplify(row), 1, UOp(), map);
  PlaceRanges(c_.columns, Simplify(unit), lanes_, lane_, map);
  const UOp in_rows = row_gate_ ? Below(row, row_gate_) : UOp();
  const UOp in_columns = column_gate_ ? Below(Times(unit, lanes_), column_gate_) : UOp();
  return Both(in_rows, in_columns);
}

UOp BlockTiler::Sums(const UOp& a, const UOp& b, const UOp& factor) const {
  const auto sum = [](const UOp& value, const std::vector<UOp>& ranges, const UOp& like) {
    if (ranges.empty()) return ReducedOnce(like.arg<ReduceArg>(), value);
    std::vector<UOp> srcs = {value};
    srcs.insert(srcs.end(), ranges.begin(), ranges.end());
    return UOp::Make(Op::kReduce, srcs, like.arg());
  };
  UOp product = UOp::Make(Op::kMul, {a, b});
  if (factor) product = UOp::Make(Op::kRescale, {product, factor, step_});
  if (!scaled_) return sum(product, sum_ranges_, c_.reduce);
  Substitution map = outer_;
  UOp gate = AtElement(map);
  const UOp first = step_ ? Times(step_, steps_) : UOp::Index(0);
  const UOp at = Simplify(Plus(first, in_tile_));
  PlaceRanges(c_.inner, at, 1, UOp(), map);
  const UOp in_sum = step_gate_ ? Below(at, step_gate_) : UOp();
  map.emplace(c_.reduce, c_.reduce);
  UOp value = GatedLoads(Substitute(scaled_.src(0), map), Both(gate, in_sum),
                         {{c_.reduce, sum(product, block_ranges_, c_.reduce)}});
  // There is nothing past the end, whatever nothing is scaled by.
  if (in_sum) {
    value = UOp::Make(Op::kWhere, {in_sum, value, UOp::Const(value.dtype(), Scalar())});
  }
  return sum(value, sum_ranges_, scaled_);
}

UOp BlockTiler::Stored(const UOp& sums, const Substitution& known) const {
  const UOp& store = sink_.src(0);
  Substitution map = outer_;
  const UOp gate = AtElement(map);
  // The old sum stays as it is until the new one, whose loads have gates, takes its place.
  Substitution around = map;
  around.emplace(Result(), Result());
  Substitution as_they_are = {{Result(), sums}};
  for (const auto& [u, to] : known) {
    around.emplace(u, u);
    as_they_are.emplace(u, to);
  }
  const UOp value = GatedLoads(Substitute(store.src(1), around), gate, as_they_are);
  const UOp& index = store.src(0);
  std::vector<UOp> at = {index.src(0), Substitute(index.src(1), map)};
  UOp all = gate;
  if (index.size() == 3) all = Both(Substitute(index.src(2), map), gate);
  if (all) at.push_back(all);
  std::vector<UOp> srcs = {UOp::Make(Op::kIndex, at), value};
  srcs.insert(srcs.end(), closed_.begin(), closed_.end());
  return sink_.WithSrcs({store.WithSrcs(srcs)});
}

UOp TileBlocks(const UOp& sink, const Target& target) {
  if (sink.size() != 1) return UOp();
  const RangeSets sets(sink);
  const auto tile = [](BlockTiler tiler) {
    if (!tiler.Choose()) return UOp();
    tiler.Bind();
    const UOp a = tiler.Stage(tiler.a(), 0), b = tiler.Stage(tiler.b(), 1);
    return Simplify(tiler.Stored(tiler.Sums(tiler.Read(tiler.a(), a), tiler.Read(tiler.b(), b))));
  };
  const auto has_sides = [](const Contraction& c) { return !c.rows.empty() && !c.columns.empty(); };
  const std::optional<ByteDots> dots = FindByteDots(sets);
  if (dots && dots->sum) {
    return has_sides(dots->c) ? tile(BlockTiler(sink, *dots, target, FreshRangeId(sets))) : UOp();
  }
  const std::optional<Contraction> c = FindContraction(sets, /*integers=*/true);
  if (!c || !has_sides(*c)) return UOp();
  return tile(BlockTiler(sink, *c, target, FreshRangeId(sets)));
}

}  // namespace tessera
