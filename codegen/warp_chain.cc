// Chained products whose scores stay in registers.
#include "codegen/warp_chain.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "codegen/block_tiler.h"
#include "codegen/gpu_numbers.h"
#include "codegen/matrix.h"
#include "graph/fold.h"
#include "graph/index_math.h"
#include "graph/matrix_unit.h"
#include "graph/product_chain.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 64, kKeys = 64, kWarps = 4, kUnit = 16;
constexpr int64_t kMostParts = 8;  // of a query, that stay in registers
constexpr int kOfThread = 8;       // sums of a unit

UOp Scratch(int64_t id, DType dtype, int64_t bytes) {
  return UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent(bytes)}});
}

}  // namespace

class WarpChain {
 public:
  WarpChain(const OnePass& pass, const Target& target)
      : pass_(pass), chain_(pass.chain), sets_(pass.sink), target_(target) {}

  UOp Run() {
    const std::optional<ChainTile> tile = ChainTileFor(chain_, sets_, target_);
    if (!tile || tile->rows < kRows) return UOp();
    const MatrixShape* unit = UnitOf(target_, chain_.first.dtype(), {tile->queries, tile->key});
    if (unit == nullptr || tile->steps > kMostParts * unit->steps()) return UOp();
    const MatrixShape* second_unit =
        UnitOf(target_, chain_.second.dtype(), {chain_.weights, chain_.values});
    if (second_unit == nullptr || second_unit->steps() != kUnit) return UOp();
    Contraction second;
    second.reduce = chain_.second;
    second.a = chain_.weights;
    second.b = chain_.values;
    const std::optional<Contraction> sorted = SortRanges(sets_, second);
    if (!sorted || !(sorted->a == chain_.weights)) return UOp();
    BlockTiler out(pass_.sink, *sorted, target_, FreshRangeId(sets_));
    GivenTile given = Given(tile->columns, kKeys);
    given.computed = true;
    if (!out.Choose(&given)) return UOp();
    out.Bind();
    out_ = &out;
    loop_ = out.step_ ? out.step_ : UOp::Index(0);

    BlockTiler scores = out.First(chain_, *tile, Given(kKeys, tile->steps));
    scores.BindWithin(out.first_row_, Simplify(Times(loop_, kKeys)), out.outer_, out.thread_);
    scores_ = &scores;
    const bool ahead = FetchAhead(scores, out);
    const UOp queries = scores.Stage(scores.a_, next_stage_++);
    const UOp keys = scores.Stage(scores.b_, next_stage_++);
    const UOp score = InUnits(
        scores.Sums(scores.Read(scores.a_, queries), scores.Read(scores.b_, keys)), scores.closed_);
    if (!score.is(Op::kPart)) return UOp();
    score_ = score;
    if (ahead) out.b_.ahead = 1;
    const UOp values = out.Stage(out.b_, next_stage_++);

    KeepMaximum();
    weight_ = Weight();
    Substitution known;
    for (size_t i = 0; i < pass_.sums.size(); ++i) {
      known.emplace(pass_.sums[i], OfOutput(SumOfRow(i)));
    }
    const UOp sums = Second(values);
    return sums ? Simplify(out.Stored(sums, known)) : UOp();
  }

 private:
  static GivenTile Given(int64_t columns, int64_t steps) {
    GivenTile given;
    given.rows = kRows;
    given.columns = columns;
    given.steps = steps;
    given.warps_down = kWarps;
    given.warps_across = 1;
    return given;
  }

  // The next tiles of keys and values are fetched while these are computed with, where two blocks
  // still share a multiprocessor.
  bool FetchAhead(BlockTiler& scores, const BlockTiler& out) const {
    if (!out.step_ || !scores.CanFetch(scores.b_) || !out.CanFetch(out.b_)) return false;
    const int64_t all = scores.Bytes(scores.a_) + 2 * (scores.Bytes(scores.b_) + out.Bytes(out.b_));
    if (all > SharedOfTwo(target_)) return false;
    scores.b_.ahead = 1;
    scores.b_.loop = loop_;
    return true;
  }

  // A value of a thread, over these ranges beside those of the grid and the threads, with what is
  // summed over a unit's steps in fragments.
  UOp InUnits(const UOp& value, const std::vector<UOp>& ranges) {
    const UOp scratch = Scratch(next_stage_++, value.dtype(), 16);
    std::vector<UOp> store = {UOp::Make(Op::kIndex, {scratch, UOp::Index(0)}), value, out_->grid_,
                              out_->thread_};
    for (const UOp& r : ranges) {
      if (!(r == out_->grid_) && !(r == out_->thread_)) store.push_back(r);
    }
    const UOp sink = UOp::Make(Op::kSink, {UOp::Make(Op::kStore, store, int64_t{0})});
    return UOp(UseMatrixUnits(sink, target_).src(0).src(1));
  }

  const MatrixRanges& OfScores() const { return scores_->matrix_; }

  // What stands for an expression of a row and a key at a thread's own score. Past the end of the
  // keys it is `none`.
  UOp AtScore(const UOp& value, const UOp& none, Substitution known = {}) const {
    Substitution map = out_->outer_;
    const UOp row = Simplify(Plus(out_->first_row_, scores_->row_));
    const UOp key = Simplify(Plus(Times(loop_, kKeys), scores_->Column()));
    PlaceRanges(out_->c_.rows, row, 1, UOp(), map);
    PlaceRanges(out_->c_.inner, key, 1, UOp(), map);
    map.emplace(chain_.first, score_);
    if (shift_) known.emplace(pass_.max, shift_);
    for (const auto& [u, to] : known) map.emplace(u, u);
    const UOp rows_end = EndOf(CountOf(out_->c_.rows), kRows);
    const UOp keys_end = EndOf(CountOf(out_->c_.inner), kKeys);
    const UOp in_keys = keys_end ? Below(key, keys_end) : UOp();
    const UOp at = GatedLoads(Substitute(value, map),
                              Both(rows_end ? Below(row, rows_end) : UOp(), in_keys), known);
    return in_keys ? UOp::Make(Op::kWhere, {in_keys, at, none}) : at;
  }

  // Of unit `part` of a tile's keys, lane `lane` of a thread's eight, whatever the row's half is if
  // `half` is none.
  UOp Lane(const UOp& value, int64_t part, int lane, std::optional<int64_t> half = {}) const {
    const MatrixRanges& m = OfScores();
    Substitution map = {{m.column_part, UOp::Index(lane / 4)}, {m.pair, UOp::Index(lane % 2)}};
    if (half) map.emplace(m.row_half, UOp::Index(*half));
    for (const UOp& r : scores_->closed_) {
      if (r.arg<RangeArg>().kind == RangeKind::kUnroll && r.src(0).IsConst(kKeys / kUnit))
        map.emplace(r, UOp::Index(part));
    }
    return Substitute(value, map);
  }

  // What a thread has of a row in a tile, combined.
  UOp OfTile(Op op, const UOp& value) const {
    UOp all;
    for (int64_t part = 0; part < kKeys / kUnit; ++part) {
      for (const int lane : {0, 1, 4, 5}) {
        const UOp one = Lane(value, part, lane);
        all = all ? UOp::Make(op, {all, one}) : one;
      }
    }
    return all;
  }
  // What the four threads of a row have, combined.
  static UOp OfRow(Op op, const UOp& value) {
    return UOp::Make(Op::kCombine, value.dtype(), {value}, ReduceArg{op, {4}});
  }

  // The largest score of a row so far, 0 for -inf, and what the sums so far are multiplied by.
  void KeepMaximum() {
    const ReduceArg& arg = pass_.max.arg<ReduceArg>();
    const DType dtype = pass_.max.dtype();
    const UOp none = UOp::Const(dtype, ReduceIdentity(Op::kMax, dtype));
    UOp now = OfRow(Op::kMax, OfTile(Op::kMax, AtScore(UOp(pass_.max.src(0)), none)));
    if (out_->step_) now = UOp::Make(Op::kRunning, {now, loop_}, arg);
    const UOp shift = UOp::Make(
        Op::kWhere, {UOp::Make(Op::kCmpEq, {now, none}), UOp::Const(dtype, Scalar()), now});
    if (out_->step_) factor_ = RescaleFactor(pass_, UOp::Make(Op::kEarlier, {now}), shift);
    shift_ = shift;
  }

  // A thread's own element of the left operand of the second product.
  UOp Weight() const {
    const UOp& value = out_->a_.value;
    return AtScore(value, UOp::Const(value.dtype(), Scalar()));
  }

  // One of the sums of a row, at a thread's half of its rows.
  UOp SumOfRow(size_t i) const {
    const UOp& sum = pass_.sums[i];
    UOp staged = chain_.weights;
    while (staged.is(Op::kCast)) staged = UOp(staged.src(0));
    UOp value = pass_.values[i];
    const UOp none = UOp::Const(value.dtype(), Scalar());
    UOp at;
    if (staged == pass_.weight) {  // as rounded as the second product has it
      UOp rounded = weight_;
      if (!(rounded.dtype() == staged.dtype())) {
        rounded = UOp::Make(Op::kCast, staged.dtype(), {rounded});
      }
      at = AtScore(value, none, {{staged, rounded}});
    } else {
      at = AtScore(value, none);
    }
    const UOp of_tile = OfTile(Op::kAdd, at);
    if (!out_->step_) return OfRow(Op::kAdd, of_tile);
    const UOp rescaled = UOp::Make(Op::kRescale, {of_tile, factor_, loop_});
    return OfRow(Op::kAdd, UOp::Make(Op::kReduce, {rescaled, loop_}, sum.arg()));
  }

  // At the rows of the result's elements.
  UOp OfOutput(const UOp& value) const {
    return Substitute(value, {{OfScores().row_half, out_->matrix_.row_half}});
  }

  // What stands for the weights until their units are there: a staged operand, which differs from
  // tile to tile. Nothing reads it in the end.
  UOp PlaceOfWeights() {
    const DType dtype = weight_.dtype();
    const int64_t id = next_stage_++;
    const UOp scratch = Scratch(id, dtype, out_->Bytes(out_->a_));
    const UOp differs = UOp::Make(Op::kCast, dtype, {loop_});
    const UOp store = UOp::Make(
        Op::kStore, {UOp::Make(Op::kIndex, {scratch, UOp::Index(0)}), differs}, int64_t{0});
    return UOp::Make(Op::kStage, {scratch, store}, StageArg{id, Space::kShared, 0});
  }

  // The second product's sums: by units whose left operands are the weights that threads hold.
  UOp Second(const UOp& values) {
    const UOp place = PlaceOfWeights();
    const UOp factor = out_->step_ ? OfOutput(factor_) : UOp();
    const UOp element =
        InUnits(out_->Sums(out_->Read(out_->a_, place), out_->Read(out_->b_, values), factor),
                out_->closed_);
    if (!element.is(Op::kPart)) return UOp();
    const UOp& reduce = element.src(0);
    if (!reduce.is(Op::kReduce)) return UOp();
    const bool rescaled = reduce.src(0).is(Op::kRescale);
    const UOp& product = rescaled ? reduce.src(0).src(0) : reduce.src(0);
    if (!product.is(Op::kMma) || product.size() != 2) return UOp();
    UOp part;
    for (const UOp& r : ClosedRanges(reduce)) {
      if (!(r == loop_)) part = r;
    }
    if (!part || !part.src(0).IsConst(kKeys / kUnit)) return UOp();
    UOp all;
    for (int64_t i = 0; i < kKeys / kUnit; ++i) {
      std::vector<UOp> lanes;
      for (int lane = 0; lane < kOfThread; ++lane) {
        lanes.push_back(Simplify(Lane(weight_, i, lane, lane / 2 % 2)));
      }
      const DType dtype = weight_.dtype().WithLanes(kOfThread);
      std::vector<UOp> srcs = {UOp::Make(Op::kLanes, dtype, lanes),
                               Substitute(product.src(1), {{part, UOp::Index(i)}})};
      if (all) srcs.push_back(all);
      all = product.WithSrcs(srcs);
    }
    if (rescaled) {
      all = UOp::Make(Op::kRescale, {all, UOp(reduce.src(0).src(1)), UOp(reduce.src(0).src(2))});
    }
    if (out_->step_) all = UOp::Make(Op::kReduce, {all, loop_}, reduce.arg());
    return UOp::Make(Op::kPart, element.dtype(), {all, UOp(element.src(1))});
  }

  const OnePass& pass_;
  const ProductChain& chain_;
  const RangeSets sets_;
  const Target& target_;
  BlockTiler *out_ = nullptr, *scores_ = nullptr;
  UOp loop_;            // over tiles of keys
  UOp score_;           // a thread's own, over a unit's ranges
  UOp shift_, factor_;  // of its row
  UOp weight_;
  int64_t next_stage_ = 0;
};

UOp TileWarpChain(const OnePass& pass, const Target& target) {
  return WarpChain(pass, target).Run();
}

}  // namespace tessera
