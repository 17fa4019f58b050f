// Blocks of rows of chained products.
#include "codegen/product_chain.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/seen_keys.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kMostRows = 512;      // of a block: more would gain little
constexpr int64_t kRowsOfPacking = 24;  // that take as long as packing the panels of a block
constexpr int64_t kRowsOfReading = 24;  // for which reading kept panels again is little
constexpr int64_t kBlocksOfSeen = 8;    // of keys that rows see in turn: more would gain little
constexpr int64_t kRowsOfRest = 32;     // that another nest, of a block of another size, is worth

RangeMask MaskOf(const std::vector<UOp>& ranges, const RangeSets& sets) {
  RangeMask mask = 0;
  for (const UOp& r : ranges) mask |= sets.Bit(r);
  return mask;
}

// What the chain keeps for each row: all of both products' for it.
int64_t BytesOfRow(const ProductChain& c, const RangeSets& sets) {
  return std::max<int64_t>(1, 2 * c.first.dtype().bytes() * sets.Iterations(sets.Closed(c.second)));
}

// Bytes of what both products read of keys and values, laid out for all of them.
int64_t BytesOfPanels(const ProductChain& c, const RangeSets& sets) {
  const int64_t keys = sets.Iterations(sets.Closed(c.second));
  const int64_t columns = sets.Iterations(MaskOf(c.columns, sets));
  const auto each = [](const UOp& u) { return (IsWidened(u) ? u.src(0) : u).dtype().bytes(); };
  const int64_t of_key = sets.Iterations(sets.Closed(c.first)) * each(c.first.src(0).src(0)) +
                         columns * each(c.values);
  return keys > 0 && of_key > INT64_MAX / keys ? INT64_MAX : keys * of_key;
}

// Rows of which all stays in the core's own cache. Matrix units read panels as fast as only that
// one gives them, so these are to stay there too, if enough rows do besides.
int64_t RowsOfOwnCache(const ProductChain& c, const RangeSets& sets, const Target& target) {
  const int64_t bytes = target.l2_bytes * 3 / 4, panels = BytesOfPanels(c, sets);
  const bool tiles = AreOfTiles(c.first.src(0), target) && AreOfTiles(c.second.src(0), target);
  const int64_t beside = tiles && panels < bytes ? (bytes - panels) / BytesOfRow(c, sets) : 0;
  return beside >= kSideOfSquare ? beside : bytes / BytesOfRow(c, sets);
}

// Whether the panels of both products, of all keys, are kept from block to block: they stay in the
// core's part of the last cache, and enough rows for reading them again in its own.
bool KeepsPanels(const ProductChain& c, const RangeSets& sets, const Target& target) {
  const RangeMask keys = sets.Closed(c.second), steps = sets.Closed(c.first);
  const RangeMask columns = MaskOf(c.columns, sets);
  for (const UOp& r : sets.ranges()) {
    if ((sets.Bit(r) & (keys | steps | columns)) && !r.src(0).IsConst()) return false;
  }
  const int64_t most = target.cache_bytes / (2 * target.cores) / c.first.dtype().bytes();
  const int64_t elements = most / std::max<int64_t>(1, sets.Iterations(keys));  // of each key
  return sets.Iterations(steps) + sets.Iterations(columns) <= elements &&
         RowsOfOwnCache(c, sets, target) >= kRowsOfReading;
}

// The longest of the rows, if there are any: the one that blocks divide.
UOp BlockedRow(const ProductChain& c) {
  if (c.rows.empty()) return UOp();
  return *std::max_element(c.rows.begin(), c.rows.end(), [](const UOp& x, const UOp& y) {
    return x.src(0).vmax() < y.src(0).vmax();
  });
}

// So many that both products' rows stay in the core's part of the last cache, or where panels are
// kept in its own; and that the worker with most blocks, of which the last has the rest as well, is
// done soonest.
int64_t RowsOfBlock(bool leaves, const UOp& row, const ProductChain& c, const RangeSets& sets,
                    const Target& target) {
  const bool kept = KeepsPanels(c, sets, target);
  const int64_t part = std::max(target.l2_bytes, target.cache_bytes / (2 * target.cores));
  int64_t fit = kept ? RowsOfOwnCache(c, sets, target) : part / BytesOfRow(c, sets);
  if (kept && leaves) {  // keys, of which a block's last row sees most
    const int64_t keys = sets.Iterations(sets.Closed(c.second));
    fit = std::min(fit, std::max(kRowsOfReading, keys / kBlocksOfSeen));
  }
  const int64_t rows = row.src(0).vmax(), tile = MostTileRows(target);
  const int64_t most = std::clamp<int64_t>(fit, 1, std::min(rows, kMostRows));
  const auto time = [&](int64_t block) {
    return (block + tile - 1) / tile * tile + (kept ? 0 : kRowsOfPacking);
  };
  const bool shared = row.arg<RangeArg>().kind == RangeKind::kGrid;
  const int64_t workers = shared ? target.cores : 1;
  int64_t best = 1, least = INT64_MAX;
  for (int64_t block = 1; block <= most; ++block) {
    const int64_t blocks = (rows / block + workers - 1) / workers, rest = rows % block;
    const int64_t all = blocks * time(block) + (rest > 0 ? time(rest) + kRowsOfRest : 0);
    if (all > least) continue;
    least = all;
    best = block;
  }
  return best;
}

UOp OnlyStage(const UOp& sink) {
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kStage)) return u;
  }
  return UOp();
}

// A nest optimised by itself. The ranges that it closes are none of those around it; those of one
// extent and kind are the same in all nests, as a kernel may have but so many.
class NestOptimiser {
 public:
  NestOptimiser(int64_t next_id, absl::FunctionRef<UOp(const UOp&)> nest)
      : next_id_(next_id), nest_(nest) {}

  UOp Run(const UOp& sink) {
    const UOp out = nest_(sink);
    const RangeSets sets(out);
    Substitution own;
    absl::flat_hash_map<std::pair<UOp, RangeKind>, size_t> used;
    for (const UOp& r : sets.ranges()) {
      if (sets.Free(out) & sets.Bit(r)) continue;
      const std::pair<UOp, RangeKind> like(r.src(0), r.arg<RangeArg>().kind);
      std::vector<UOp>& made = made_[like];
      const size_t i = used[like]++;
      if (i == made.size()) {
        made.push_back(
            UOp::Make(Op::kRange, kInt64, {like.first}, RangeArg{next_id_++, like.second}));
      }
      own.emplace(r, made[i]);
    }
    return Substitute(out, own);
  }

  // The same with ranges that no other nest has.
  UOp RunApart(const UOp& sink) {
    auto others = std::exchange(made_, {});
    const UOp out = Run(sink);
    made_ = std::move(others);
    return out;
  }

  int64_t& next_id() { return next_id_; }

 private:
  int64_t next_id_;
  absl::FunctionRef<UOp(const UOp&)> nest_;
  absl::flat_hash_map<std::pair<UOp, RangeKind>, std::vector<UOp>> made_;
};

// The nest with panels that are the same for all blocks of rows filled for all its columns at once.
UOp KeepPanels(const UOp& nest, const std::vector<UOp>& rows) {
  const RangeSets sets(nest);
  const RangeMask of_rows = MaskOf(rows, sets);
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kStage) || (sets.Free(u) & of_rows)) continue;
    for (const UOp& store : nest.srcs()) {
      for (const UOp& r : ClosedRanges(store)) {
        if (sets.Free(u) & sets.Bit(r)) return KeepPanels(FillForAll(nest, u, r), rows);
      }
    }
  }
  return nest;
}

UOp WithStores(const UOp& stage, const UOp& sink) {
  std::vector<UOp> srcs = {UOp(stage.src(0))};
  srcs.insert(srcs.end(), sink.srcs().begin(), sink.srcs().end());
  return stage.WithSrcs(srcs);
}

// Of a store's chain: the loop over blocks of rows, and that over the rows of one; nothing where
// there is one block, or a block is one row.
struct RowBlock {
  UOp blocks, row;
};

// The rows that a block takes whole: the one that is its own part, and others, from the innermost
// outwards, while they are few enough together.
std::vector<UOp> RowsInside(const ProductChain& c, const RowBlock& block) {
  const UOp& row = block.row;
  std::vector<UOp> rows;
  int64_t count = 1;
  if (row) {
    rows.push_back(row);
    count = row.src(0).vmax();
  }
  for (auto it = c.rows.rbegin(); it != c.rows.rend(); ++it) {
    const int64_t extent = it->src(0).vmax();
    if (*it == row || *it == block.blocks || it->arg<RangeArg>().kind == RangeKind::kGrid) continue;
    if (!it->src(0).IsConst() || extent > kMostRows / count) break;
    count *= extent;
    rows.insert(rows.begin(), *it);
  }
  return rows;
}

// The block's nests with loops over keys that end after those that its rows see, if all values that
// its columns meet are finite.
UOp EndedAfterSeen(const UOp& sink, const ProductChain& c, const UOp& seen,
                   const std::vector<UOp>& columns, const UOp& scores, const UOp& weights,
                   bool in_tiles, NestOptimiser& nests) {
  const UOp sum = FinitenessOfValues(c, columns, nests.next_id());
  const UOp finite = UOp::Make(Op::kCmpEq, {sum, UOp::Const(sum.dtype(), Scalar())});
  const UOp flag = UOp::Make(Op::kWhere, {finite, UOp::Index(1), UOp::Index(0)});
  const UOp stage = MakeStage(FreshStageId(sink), 1, UOp::Index(0), flag, {});
  const UOp filled = WithStores(stage, nests.RunApart(UOp::Make(Op::kSink, {UOp(stage.src(1))})));
  const UOp all =
      UOp::Make(Op::kCmpEq, {UOp::Make(Op::kIndex, {filled, UOp::Index(0)}), UOp::Index(0)});
  const UOp& keys = c.inner[0].src(0);
  const UOp end = UOp::Make(Op::kWhere, {all, keys, seen});
  const UOp out = EndAfterSeen(sink, scores, weights, in_tiles, end, nests.next_id());
  return out ? out : sink;
}

// The store's chain over one block. The stores that take its place, which may `keep` panels from
// block to block, and may leave keys that no row of the block sees.
std::vector<UOp> TileBlock(const UOp& store, const RowBlock& block, bool keep, bool leaves,
                           const Target& target, NestOptimiser& nests) {
  const UOp sink = UOp::Make(Op::kSink, {store});
  const std::optional<ProductChain> c = FindProductChain(RangeSets(sink));
  if (!c) return {};
  std::vector<UOp> rows = RowsInside(*c, block);
  const UOp seen = leaves ? SeenKeys(sink, *c, RangeSets(sink), rows) : UOp();
  std::vector<UOp> outer, own, columns;
  const auto in = [](const std::vector<UOp>& ranges, const UOp& r) {
    return std::find(ranges.begin(), ranges.end(), r) != ranges.end();
  };
  for (const UOp& r : ClosedRanges(store)) {
    (in(c->columns, r) || in(rows, r) ? own : outer).push_back(r);
    if (in(c->columns, r)) columns.push_back(r);
  }
  rows.insert(rows.end(), c->inner.begin(), c->inner.end());
  const std::vector<RangeKind> loops(rows.size(), RangeKind::kLoop);

  // From the last nest to the first: each reads the one before it from scratch.
  std::vector<UOp> over = rows;
  // Those that are widened lie as what they were: matrix units take them so.
  const UOp kept = IsWidened(c->weights) ? UOp(c->weights.src(0)) : c->weights;
  const UOp within = WithLoops(sink, own);
  const bool tiles = AreOfTiles(c->second.src(0), target) && c->inner.size() == 1;
  UOp mixed = tiles ? StageInTiles(within, kept, over, loops) : UOp();
  const bool in_tiles = static_cast<bool>(mixed);
  if (!mixed) mixed = StageValueOver(within, kept, over, loops);
  const UOp weights = OnlyStage(mixed);
  Substitution there;
  for (size_t i = 0; i < rows.size(); ++i) there.emplace(rows[i], over[i]);
  const UOp scaled = StageValueOver(UOp::Make(Op::kSink, {UOp(weights.src(1))}),
                                    Substitute(c->first, there), over, loops);
  const UOp scores = OnlyStage(scaled);

  UOp score_nest = nests.Run(UOp::Make(Op::kSink, {UOp(scores.src(1))}));
  if (keep) score_nest = KeepPanels(score_nest, c->rows);
  UOp weight_nest = nests.Run(Substitute(scaled, {{scores, UOp(scores.src(0))}}));
  weight_nest = Substitute(weight_nest, {{UOp(scores.src(0)), WithStores(scores, score_nest)}});
  UOp out = nests.Run(Substitute(mixed, {{weights, UOp(weights.src(0))}}));
  if (keep) out = KeepPanels(out, c->rows);
  out = Substitute(out, {{UOp(weights.src(0)), WithStores(weights, weight_nest)}});
  if (seen) out = EndedAfterSeen(out, *c, seen, columns, scores, weights, in_tiles, nests);

  std::vector<UOp> stores;
  for (const UOp& s : out.srcs()) {
    std::vector<UOp> srcs = {UOp(s.src(0)), UOp(s.src(1))};
    srcs.insert(srcs.end(), outer.begin(), outer.end());
    srcs.insert(srcs.end(), ClosedRanges(s).begin(), ClosedRanges(s).end());
    stores.push_back(s.WithSrcs(srcs));
  }
  return stores;
}

}  // namespace

UOp TileChain(const UOp& sink, const ProductChain& chain, const Target& target,
              absl::FunctionRef<UOp(const UOp& sink)> nest) {
  const RangeSets sets(sink);
  const bool leaves = MayLeaveKeys(sink, chain, sets);
  int64_t next_id = FreshRangeId(sets);
  UOp blocks = sink;
  std::vector<RowBlock> of_store = {{}};
  if (const UOp row = BlockedRow(chain)) {
    of_store.clear();
    const int64_t block = RowsOfBlock(leaves, row, chain, sets, target);
    const auto range = [&](const UOp& extent, RangeKind kind) {
      return UOp::Make(Op::kRange, kInt64, {extent}, RangeArg{next_id++, kind});
    };
    const auto by_block = [&](Op op, const UOp& a) {
      return Simplify(UOp::Make(op, {a, UOp::Index(block)}));
    };
    const RangeKind kind = row.arg<RangeArg>().kind;
    const UOp whole = by_block(Op::kFloorDiv, UOp(row.src(0)));
    const UOp rest = by_block(Op::kFloorMod, UOp(row.src(0)));
    std::vector<LoopSegment> segments;
    // `count` blocks of `extent` rows from `begin` on. One of the workers runs a single block.
    const auto add = [&](const UOp& begin, const UOp& count, const UOp& extent) {
      if (count.vmax() <= 0 || extent.vmax() <= 0) return;
      LoopSegment s{begin, {}};
      RowBlock& made = of_store.emplace_back();
      if (!count.IsConst(1) || kind == RangeKind::kGrid) {
        made.blocks = range(count, kind);
        s.ranges.push_back(made.blocks);
        s.value = UOp::Make(Op::kAdd, {begin, by_block(Op::kMul, made.blocks)});
      }
      if (!extent.IsConst(1)) {
        made.row = range(extent, RangeKind::kLoop);
        s.ranges.push_back(made.row);
        s.value = UOp::Make(Op::kAdd, {s.value, made.row});
      }
      segments.push_back(std::move(s));
    };
    add(UOp::Index(0), whole, UOp::Index(block));
    add(by_block(Op::kMul, whole), UOp::Index(1), rest);
    blocks = Simplify(SplitIntoSegments(sink, row, segments));
    if (blocks.size() != static_cast<int>(segments.size())) return UOp();
  }

  constexpr int64_t kIdsOfNests = 1000;  // above those that the kernel has
  NestOptimiser nests(next_id + kIdsOfNests, nest);
  const bool keep = KeepsPanels(chain, sets, target);
  std::vector<UOp> stores;
  for (int i = 0; i < blocks.size(); ++i) {
    const std::vector<UOp> of_block =
        TileBlock(blocks.src(i), of_store[i], keep, leaves, target, nests);
    if (of_block.empty()) return UOp();
    stores.insert(stores.end(), of_block.begin(), of_block.end());
  }
  return UOp::Make(Op::kSink, stores);
}

}  // namespace tessera
