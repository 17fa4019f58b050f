// Tiles of chained products for blocks of threads.
#include "codegen/block_chain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/block_tiler.h"
#include "codegen/index_math.h"
#include "graph/fold.h"
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
  ChainTiler(const UOp& sink, const Target& target) : sink_(sink), sets_(sink), target_(target) {}

  UOp Run() {
    const std::optional<ProductChain> chain = FindProductChain(sets_);
    if (!chain) return UOp();
    chain_ = *chain;
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
    for (const UOp& u : TopoSort({&chain_.weights, 1})) {
      if (u.is(Op::kReduce) && !(u == chain_.first) && (sets_.Closed(u) & Keys())) Reduce(u);
    }
    // The weights of a tile, from its scores.
    const UOp at = Loop(tile_.rows), step = Loop(tile_.keys), tiles = Tiles();
    const UOp loop = tiles.IsConst(1) ? UOp::Index(0) : Loop(tiles, RangeKind::kLoop);
    out.a_.at = at;
    out.a_.step = step;
    out.a_.loop = loop;
    out.a_.value = WithScores(out.a_.value, ScoresOf(loop), at, step);
    const UOp weights = out.Stage(out.a_, next_stage_++);
    const UOp values = out.Stage(out.b_, next_stage_++);
    return Simplify(out.Stored(out.Sums(out.Read(out.a_, weights), out.Read(out.b_, values))));
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

  int64_t ScorePitch() const { return tile_.keys + 1; }

  // The scores of a tile of keys, in scratch. The queries are staged once for all of them.
  UOp ScoresOf(const UOp& step) {
    Contraction first;
    first.reduce = chain_.first;
    first.a = tile_.queries;
    first.b = tile_.key;
    first.batch = out_->c_.batch;
    first.rows = out_->c_.rows;
    first.columns = out_->c_.inner;
    first.lane = first.columns.back();
    first.inner.assign(ClosedRanges(chain_.first).begin(), ClosedRanges(chain_.first).end());
    BlockTiler scores(sink_, first, target_, out_->next_id_);
    GivenTile given = Given(tile_.rows, tile_.keys, tile_.steps);
    given.kept = true;
    CHECK(scores.Choose(&given), "tiles of scores are no larger than those of their chain");
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

  // A reduction of rows: each thread takes up some keys of its row in every tile, then those of a
  // row combine what they have.
  void Reduce(const UOp& u) {
    const int64_t parts = ChainTile::kThreads / tile_.rows;
    const UOp thread = Loop(UOp::Index(ChainTile::kThreads), RangeKind::kThread);
    const UOp row = Modulo(thread, tile_.rows), part = Over(thread, tile_.rows);
    const UOp count = CountOf(out_->c_.inner);
    const UOp tiles = Tiles();
    const bool several = !tiles.IsConst(1);
    const UOp step = several ? Loop(tiles, RangeKind::kLoop) : UOp::Index(0);
    const UOp own = Loop(tile_.keys / parts);
    const UOp in_tile = Plus(Times(own, parts), part);
    const UOp key = Simplify(Plus(Times(step, tile_.keys), in_tile));
    const UOp at = Simplify(Plus(out_->first_row_, row));

    UOp value = WithScores(u.src(0), ScoresOf(step), row, in_tile);
    Substitution map = out_->outer_;
    PlaceRanges(out_->c_.rows, at, 1, UOp(), map);
    PlaceRanges(out_->c_.inner, key, 1, UOp(), map);
    const UOp rows_end = EndOf(CountOf(out_->c_.rows), tile_.rows);
    const UOp keys_end = EndOf(count, tile_.keys);
    const UOp in_keys = keys_end ? Below(key, keys_end) : UOp();
    value = GatedLoads(Substitute(value, map),
                       Both(rows_end ? Below(at, rows_end) : UOp(), in_keys), UOp(), UOp());
    const Op op = u.arg<ReduceArg>().op;
    if (in_keys) {
      const UOp none = UOp::Const(u.dtype(), ReduceIdentity(op, u.dtype()));
      value = UOp::Make(Op::kWhere, {in_keys, value, none});
    }
    std::vector<UOp> srcs = {value};
    if (several) srcs.push_back(step);
    srcs.push_back(own);
    const UOp mine = UOp::Make(Op::kReduce, srcs, u.arg());
    const UOp some =
        Filled(Scratch(next_stage_++, u.dtype(), ChainTile::kThreads), thread, mine, {thread});

    const UOp second = Loop(UOp::Index(ChainTile::kThreads), RangeKind::kThread);
    const UOp of_row = Modulo(second, tile_.rows);
    UOp all;
    for (int64_t p = 0; p < parts; ++p) {
      const UOp one =
          UOp::Make(Op::kIndex, {some, Simplify(Plus(of_row, UOp::Index(p * tile_.rows)))});
      all = all ? UOp::Make(op, {all, one}) : one;
    }
    reduced_.emplace_back(
        u, Filled(Scratch(next_stage_++, u.dtype(), ChainTile::kThreads), second, all, {second}));
  }

  const UOp sink_;
  const RangeSets sets_;
  const Target& target_;
  ProductChain chain_;
  ChainTile tile_;
  BlockTiler* out_ = nullptr;  // of the second product
  UOp queries_;                // in scratch
  std::vector<std::pair<UOp, UOp>> reduced_;
  int64_t next_stage_ = 0;
};

UOp TileChainBlocks(const UOp& sink, const Target& target) {
  if (sink.size() != 1) return UOp();
  return ChainTiler(sink, target).Run();
}

}  // namespace tessera
