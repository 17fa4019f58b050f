// Tiles of chained products for blocks of threads.
#include "codegen/block_chain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "codegen/block_tiler.h"
#include "codegen/gpu_numbers.h"
#include "codegen/one_pass.h"
#include "codegen/warp_chain.h"
#include "graph/fold.h"
#include "graph/index_math.h"
#include "graph/product_chain.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/status.h"

namespace tessera {
namespace {

UOp Scratch(int64_t id, DType dtype, int64_t elements) {
  const int64_t bytes = (elements * dtype.bytes() + 15) / 16 * 16;
  return UOp::Make(Op::kScratch, dtype, {}, Pairs{{Extent(id), Extent(bytes)}});
}

// Scratch filled with a value at an offset, over ranges.
UOp Filled(const UOp& scratch, const UOp& offset, const UOp& value,
           const std::vector<UOp>& ranges) {
  std::vector<UOp> srcs = {UOp::Make(Op::kIndex, {scratch, Simplify(offset)}), Simplify(value)};
  srcs.insert(srcs.end(), ranges.begin(), ranges.end());
  const int64_t id = scratch.arg<Pairs>()[0].first.value();
  return UOp::Make(Op::kStage, {scratch, UOp::Make(Op::kStore, srcs, int64_t{0})},
                   StageArg{id, Space::kShared, 0});
}

}  // namespace

class ChainTiler {
 public:
  // Of the kernel, or of what one pass makes of it.
  ChainTiler(const UOp& sink, const ProductChain& chain, const Target& target)
      : sink_(sink), sets_(sink), target_(target), chain_(chain) {}
  ChainTiler(const OnePass& pass, const Target& target)
      : ChainTiler(pass.sink, pass.chain, target) {
    pass_ = &pass;
  }

  UOp Run() {
    const std::optional<ChainTile> tile = ChainTileFor(chain_, sets_, target_);
    if (!tile) return UOp();
    tile_ = *tile;
    Contraction second;
    second.reduce = chain_.second;
    second.a = chain_.weights;
    second.b = chain_.values;
    const std::optional<Contraction> sorted = SortRanges(sets_, second);
    if (!sorted || !(sorted->a == chain_.weights)) return UOp();
    BlockTiler out(sink_, *sorted, target_, FreshRangeId(sets_));
    out_ = &out;
    GivenTile given = Given(tile_.rows, tile_.columns, tile_.keys);
    given.computed = true;
    if (!out.Choose(&given)) return UOp();
    out.Bind();
    ahead_ = FetchesAhead();
    if (ahead_ && out.CanFetch(out.b_)) out.b_.ahead = 1;
    const UOp loop = out.step_ ? out.step_ : UOp::Index(0);
    UOp scores;
    if (pass_) {
      scores = ScoresOf(loop);
      KeepMaximum(scores, loop);
    } else {
      for (const UOp& u : TopoSort({&chain_.weights, 1})) {
        if (u.is(Op::kReduce) && !(u == chain_.first) && (sets_.Closed(u) & Keys())) Reduce(u);
      }
      scores = ScoresOf(loop);
    }
    // The weights of a tile, from its scores.
    const UOp at = Loop(tile_.rows), step = Loop(tile_.keys);
    out.a_.at = at;
    out.a_.step = step;
    out.a_.value = WithScores(out.a_.value, scores, at, step);
    const UOp weights = out.Stage(out.a_, next_stage_++);
    const UOp values = out.Stage(out.b_, next_stage_++);
    Substitution known;
    for (size_t i = 0; pass_ && i < pass_->sums.size(); ++i) {
      known.emplace(pass_->sums[i], SumOfRow(i, scores, weights, loop));
    }
    const UOp factor = pass_ && out.step_ ? FactorAt(out.row_) : UOp();
    const UOp sums = out.Sums(out.Read(out.a_, weights), out.Read(out.b_, values), factor);
    return Simplify(out.Stored(sums, known));
  }

 private:
  UOp Loop(int64_t extent) { return Loop(UOp::Index(extent), RangeKind::kLoop); }
  UOp Loop(const UOp& extent, RangeKind kind) {
    return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{out_->next_id_++, kind});
  }

  RangeMask Keys() const { return sets_.Closed(chain_.second); }

  // Eight warps: of many rows four have some each, of few two.
  static GivenTile Given(int64_t rows, int64_t columns, int64_t steps) {
    GivenTile given;
    given.rows = rows;
    given.columns = columns;
    given.steps = steps;
    given.warps_down = rows / 16;
    given.warps_across = ChainTile::kThreads / 32 / given.warps_down;
    return given;
  }

  // How many tiles of keys there are.
  UOp Tiles() const {
    return Simplify(Over(Plus(CountOf(out_->c_.inner), UOp::Index(tile_.keys - 1)), tile_.keys));
  }

  // Neighbouring threads take up every few keys of a row, and rows that follow: from other banks.
  int64_t ScorePitch() const { return tile_.keys + PartsOfRow(); }
  int64_t PartsOfRow() const { return ChainTile::kThreads / tile_.rows; }
  int64_t PartPitch() const { return tile_.rows + kWarp / PartsOfRow(); }

  // The tiles of the first product.
  BlockTiler First() const {
    return out_->First(chain_, tile_, Given(tile_.rows, tile_.keys, tile_.steps));
  }

  // Whether the next tile of keys and of values is fetched while one is computed with: in one pass,
  // where two blocks still share a multiprocessor.
  bool FetchesAhead() const {
    if (!pass_ || !out_->step_) return false;
    const BlockTiler first = First();
    const int64_t of_rows =
        2 * ChainTile::kThreads + 2 * PartsOfRow() * PartPitch() + tile_.rows * ScorePitch();
    const int64_t once =
        first.Bytes(first.a_) + out_->Bytes(out_->a_) + of_rows * chain_.first.dtype().bytes();
    return once + 2 * (first.Bytes(first.b_) + out_->Bytes(out_->b_)) <= SharedOfTwo(target_);
  }

  // The scores of a tile of keys, in scratch. The queries are staged once for all of them.
  UOp ScoresOf(const UOp& step) {
    BlockTiler scores = First();
    if (ahead_ && scores.CanFetch(scores.b_)) {
      scores.b_.ahead = 1;
      scores.b_.loop = step;
    }
    scores.BindWithin(out_->first_row_, Simplify(Times(step, tile_.keys)), out_->outer_);
    if (!queries_) queries_ = scores.Stage(scores.a_, next_stage_++);
    const UOp keys = scores.Stage(scores.b_, next_stage_++);
    const UOp sums = scores.Sums(scores.Read(scores.a_, queries_), scores.Read(scores.b_, keys));
    out_->next_id_ = scores.next_id_;
    const UOp scratch = Scratch(next_stage_++, chain_.first.dtype(), tile_.rows * ScorePitch());
    const UOp offset = Plus(Times(scores.row_, ScorePitch()), scores.Column());
    return Filled(scratch, offset, sums, scores.closed_);
  }

  // An expression of a row and a key, by their places in the tile, where scores are in scratch and
  // what reduces rows is known.
  UOp WithScores(const UOp& value, const UOp& scores, const UOp& row, const UOp& key) const {
    Substitution map;
    map.emplace(chain_.first, UOp::Make(Op::kIndex, {scores, Plus(Times(row, ScorePitch()), key)}));
    for (const auto& [reduction, stage] : reduced_) {
      map.emplace(reduction, UOp::Make(Op::kIndex, {stage, row}));
    }
    return Substitute(value, map);
  }

  // What each thread takes up, of some keys of its row in a tile or, `over_tiles`, in all of them,
  // in scratch. `value` is of the row's and the key's place in the tile.
  UOp InParts(const ReduceArg& arg, const UOp& step, bool over_tiles,
              absl::FunctionRef<UOp(const UOp& row, const UOp& key)> value_at) {
    const int64_t parts = PartsOfRow();
    const UOp thread = Loop(UOp::Index(ChainTile::kThreads), RangeKind::kThread);
    const UOp row = Over(thread, parts), part = Modulo(thread, parts);
    const UOp own = Loop(tile_.keys / parts);
    const UOp in_tile = Plus(Times(own, parts), part);
    const UOp key = Simplify(Plus(Times(step, tile_.keys), in_tile));
    const UOp at = Simplify(Plus(out_->first_row_, row));
    UOp value = value_at(row, in_tile);
    Substitution map = out_->outer_;
    PlaceRanges(out_->c_.rows, at, 1, UOp(), map);
    PlaceRanges(out_->c_.inner, key, 1, UOp(), map);
    const UOp rows_end = EndOf(CountOf(out_->c_.rows), tile_.rows);
    const UOp keys_end = EndOf(CountOf(out_->c_.inner), tile_.keys);
    const UOp in_keys = keys_end ? Below(key, keys_end) : UOp();
    value =
        GatedLoads(Substitute(value, map), Both(rows_end ? Below(at, rows_end) : UOp(), in_keys));
    const DType dtype = value.dtype();
    if (in_keys) {
      const UOp none = UOp::Const(dtype, ReduceIdentity(arg.op, dtype));
      value = UOp::Make(Op::kWhere, {in_keys, value, none});
    }
    std::vector<UOp> srcs = {value};
    if (over_tiles) srcs.push_back(step);
    srcs.push_back(own);
    const UOp mine = UOp::Make(Op::kReduce, srcs, arg);
    return Filled(Scratch(next_stage_++, dtype, parts * PartPitch()),
                  Plus(Times(part, PartPitch()), row), mine, {thread});
  }

  // What the threads of a row have, combined.
  UOp OfRow(Op op, const UOp& parts, const UOp& row) const {
    UOp all;
    for (int64_t p = 0; p < PartsOfRow(); ++p) {
      const UOp one =
          UOp::Make(Op::kIndex, {parts, Simplify(Plus(row, UOp::Index(p * PartPitch())))});
      all = all ? UOp::Make(op, {all, one}) : one;
    }
    return all;
  }

  // A reduction of rows over all keys: each thread takes up some of its row in every tile, then
  // those of a row combine what they have.
  void Reduce(const UOp& u) {
    const UOp tiles = Tiles();
    const bool several = !tiles.IsConst(1);
    const UOp step = several ? Loop(tiles, RangeKind::kLoop) : UOp::Index(0);
    const UOp scores = ScoresOf(step);
    const UOp parts = InParts(
        u.arg<ReduceArg>(), step, several,
        [&](const UOp& row, const UOp& key) { return WithScores(u.src(0), scores, row, key); });
    const UOp thread = Loop(UOp::Index(ChainTile::kThreads), RangeKind::kThread);
    const UOp all = OfRow(u.arg<ReduceArg>().op, parts, Modulo(thread, tile_.rows));
    reduced_.emplace_back(
        u, Filled(Scratch(next_stage_++, u.dtype(), ChainTile::kThreads), thread, all, {thread}));
  }

  // In one pass: the largest score of each row so far, in scratch, 0 for -inf; behind these what
  // the sums so far are multiplied by.
  void KeepMaximum(const UOp& scores, const UOp& step) {
    const ReduceArg& arg = pass_->max.arg<ReduceArg>();
    const DType dtype = pass_->max.dtype();
    const UOp parts = InParts(arg, step, false, [&](const UOp& row, const UOp& key) {
      return WithScores(pass_->max.src(0), scores, row, key);
    });
    const UOp thread = Loop(UOp::Index(ChainTile::kThreads), RangeKind::kThread);
    UOp now = OfRow(Op::kMax, parts, Modulo(thread, tile_.rows));
    if (out_->step_) now = UOp::Make(Op::kRunning, {now, step}, arg);
    const UOp none = UOp::Const(dtype, ReduceIdentity(Op::kMax, dtype));
    const UOp shift = UOp::Make(
        Op::kWhere, {UOp::Make(Op::kCmpEq, {now, none}), UOp::Const(dtype, Scalar()), now});
    const UOp scratch = Scratch(next_stage_++, dtype, 2 * ChainTile::kThreads);
    maximum_ = Filled(scratch, thread, shift, {thread});
    if (out_->step_) {
      const UOp factor = RescaleFactor(*pass_, UOp::Make(Op::kEarlier, {now}), shift);
      const UOp at = Plus(thread, UOp::Index(ChainTile::kThreads));
      const UOp store =
          UOp::Make(Op::kStore, {UOp::Make(Op::kIndex, {scratch, at}), factor, thread}, int64_t{1});
      maximum_ = maximum_.WithSrcs({scratch, UOp(maximum_.src(1)), store});
    }
    reduced_.emplace_back(pass_->max, maximum_);
  }

  // By which sums of the rows so far are multiplied at a tile.
  UOp FactorAt(const UOp& row) const {
    const UOp at = Simplify(Plus(row, UOp::Index(ChainTile::kThreads)));
    return UOp::Make(Op::kIndex, {maximum_, at});
  }

  // One of the sums of a thread's row. The exponentials are read where they lie as weights.
  UOp SumOfRow(size_t i, const UOp& scores, const UOp& weights, const UOp& step) {
    const UOp& sum = pass_->sums[i];
    UOp staged = chain_.weights;
    while (staged.is(Op::kCast)) staged = UOp(staged.src(0));
    const bool there = staged == pass_->weight;
    const UOp parts =
        InParts(sum.arg<ReduceArg>(), step, false, [&](const UOp& row, const UOp& key) {
          UOp value = pass_->values[i];
          if (there) {
            UOp read = UOp::Make(Op::kIndex, {weights, out_->Offset(out_->a_, row, key)});
            if (!(read.dtype() == staged.dtype()))
              read = UOp::Make(Op::kCast, staged.dtype(), {read});
            value = Substitute(value, {{staged, read}});
          }
          return WithScores(value, scores, row, key);
        });
    const UOp of_tile = OfRow(Op::kAdd, parts, out_->row_);
    if (!out_->step_) return of_tile;
    const UOp rescaled = UOp::Make(Op::kRescale, {of_tile, FactorAt(out_->row_), step});
    return UOp::Make(Op::kReduce, {rescaled, step}, sum.arg());
  }

  const UOp sink_;
  const RangeSets sets_;
  const Target& target_;
  const ProductChain chain_;
  const OnePass* pass_ = nullptr;
  ChainTile tile_;
  BlockTiler* out_ = nullptr;  // of the second product
  UOp queries_;                // in scratch
  UOp maximum_;                // of the rows so far, and factors
  std::vector<std::pair<UOp, UOp>> reduced_;
  bool ahead_ = false;
  int64_t next_stage_ = 0;
};

UOp TileChainBlocks(const UOp& sink, const Target& target) {
  if (sink.size() != 1) return UOp();
  const RangeSets sets(sink);
  const std::optional<ProductChain> chain = FindProductChain(sets);
  if (!chain) return UOp();
  if (const std::optional<OnePass> pass = FindOnePass(sink, *chain, sets)) {
    if (const UOp out = TileWarpChain(*pass, target)) return out;
    if (const UOp out = ChainTiler(*pass, target).Run()) return out;
  }
  return ChainTiler(sink, *chain, target).Run();
}

}  // namespace tessera
