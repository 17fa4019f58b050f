// STAGE insertion.
#include "codegen/stage.h"

#include <algorithm>
#include <bit>

#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {

int64_t FreshStageId(const UOp& sink) {
  int64_t id = 0;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kScratch)) id = std::max(id, u.arg<Pairs>()[0].first.value() + 1);
  }
  return id;
}

UOp MakeStage(int64_t id, int64_t elements, const UOp& offset, const UOp& value,
              absl::Span<const UOp> ranges, Space space) {
  const Pairs size{{Extent(id), Extent(elements * value.dtype().bytes())}};
  const UOp scratch = UOp::Make(Op::kScratch, value.dtype(), {}, size);
  std::vector<UOp> store = {UOp::Make(Op::kIndex, {scratch, offset}), value};
  store.insert(store.end(), ranges.begin(), ranges.end());
  return UOp::Make(Op::kStage, {scratch, UOp::Make(Op::kStore, store, int64_t{0})},
                   StageArg{id, space});
}

namespace {

// Nodes that close ranges of `bits` under which `value` is computed, the first on each way there.
std::vector<UOp> LoopsOver(const UOp& value, RangeMask bits, const RangeSets& sets) {
  // Which nodes reach the value with the ranges still open.
  absl::flat_hash_map<const Node*, bool> reaches;
  std::vector<UOp> closers;
  for (const UOp& u : sets.order()) {
    bool r = u == value;
    if (!r) {
      for (const UOp& s : u.srcs()) r |= reaches[s.get()];
    }
    if (r && (sets.Closed(u) & bits)) {
      closers.push_back(u);
      r = false;
    }
    reaches[u.get()] = r && (sets.Free(u) & bits);
  }
  return closers;
}

}  // namespace

namespace {

constexpr int64_t kFewSets = 512, kLine = 64;  // bytes

// `value` is read at `ranges`, where `places` are those of its points, and filled at `fill`.
UOp StageAt(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges,
            const std::vector<UOp>& fill, const Places& places) {
  Substitution there;
  for (size_t i = 0; i < ranges.size(); ++i) there.emplace(ranges[i], fill[i]);
  const UOp stage = MakeStage(FreshStageId(sink), places.count, Substitute(places.at, there),
                              Substitute(value, there), fill);
  return Substitute(sink, {{value, UOp::Make(Op::kIndex, {stage, places.at})}});
}

// Of the ranges so many last ones are a row; of `pairs` two steps lie side by side.
UOp Stage(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges,
          const std::vector<UOp>& fill, const UOp& pairs, size_t of_row) {
  // Where rows begin in few sets of the cache, what is read down them would share these.
  int64_t bytes = value.dtype().bytes() * (pairs ? kStepsOfPair : 1);
  for (const UOp& r : absl::MakeSpan(ranges).last(of_row)) bytes *= r.src(0).vmax();
  const bool apart = ranges.size() > of_row && bytes % kFewSets == 0;
  const int64_t gap = apart ? kLine / value.dtype().bytes() : 0;
  return StageAt(sink, value, ranges, fill, PlacesOf(ranges, pairs, gap, of_row));
}

// Ranges like these, of their own.
std::vector<UOp> RangesLike(const UOp& sink, const std::vector<UOp>& ranges,
                            const std::vector<RangeKind>& kinds) {
  int64_t id = FreshRangeId(RangeSets(sink));
  std::vector<UOp> out;
  for (size_t i = 0; i < ranges.size(); ++i) {
    out.push_back(UOp::Make(Op::kRange, kInt64, {ranges[i].src(0)}, RangeArg{id++, kinds[i]}));
  }
  return out;
}

}  // namespace

UOp StageValue(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges) {
  return Stage(sink, value, ranges, ranges, UOp(), 1);
}

UOp StageValueOver(const UOp& sink, const UOp& value, std::vector<UOp>& ranges,
                   const std::vector<RangeKind>& kinds, const UOp& pairs, size_t of_row) {
  std::vector<UOp> fill = RangesLike(sink, ranges, kinds);
  const UOp out = Stage(sink, value, ranges, fill, pairs, of_row);
  ranges = std::move(fill);
  return out;
}

UOp StageInTiles(const UOp& sink, const UOp& value, std::vector<UOp>& ranges,
                 const std::vector<RangeKind>& kinds) {
  const std::vector<UOp> rows(ranges.begin(), ranges.end() - 1);
  const Places row = PlacesOf(rows);
  const int64_t steps = kBytesOfTileRow / value.dtype().bytes();
  const int64_t depth = ranges.back().src(0).vmax();
  if (row.count % kRowsOfTile != 0 || depth % steps != 0) return UOp();
  const UOp at = Simplify(PlaceInRowTiles(row.at, ranges.back(), depth / steps, steps));
  std::vector<UOp> fill = RangesLike(sink, ranges, kinds);
  const UOp out = StageAt(sink, value, ranges, fill, {at, row.count * depth});
  ranges = std::move(fill);
  return out;
}

UOp FillForAll(const UOp& sink, const UOp& stage, const UOp& loop) {
  const UOp& scratch = stage.src(0);
  const Pairs& was = scratch.arg<Pairs>();
  const int64_t bytes = was[0].second.value(), elements = bytes / scratch.dtype().bytes();
  const Pairs size{{Extent(FreshStageId(sink)), Extent(bytes * loop.src(0).vmax())}};
  const UOp whole = UOp::Make(Op::kScratch, scratch.dtype(), {}, size);
  const UOp first = UOp::Make(Op::kMul, {loop, UOp::Index(elements)});
  const auto there = [&](const UOp& index, const UOp& of) {
    std::vector<UOp> srcs(index.srcs().begin(), index.srcs().end());
    srcs[0] = of;
    srcs[1] = Simplify(UOp::Make(Op::kAdd, {first, srcs[1]}));
    return index.WithSrcs(srcs);
  };
  std::vector<UOp> parts = {whole};
  for (const UOp& store : stage.srcs().subspan(1)) {
    std::vector<UOp> srcs = {there(store.src(0), whole), UOp(store.src(1)), loop};
    srcs.insert(srcs.end(), ClosedRanges(store).begin(), ClosedRanges(store).end());
    parts.push_back(store.WithSrcs(srcs));
  }
  const UOp filled = UOp::Make(Op::kStage, parts, StageArg{size[0].first.value(), Space::kShared});
  Substitution reads;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kIndex) && u.src(0) == stage) reads.emplace(u, there(u, filled));
  }
  return Substitute(sink, reads);
}

UOp StageRecomputed(const UOp& sink, const Target& target) {
  UOp out = sink;
  for (int rounds = 0; rounds < 4; ++rounds) {
    const RangeSets sets(out);
    const RangeMask reduced = sets.ClosedBy(Op::kReduce);
    UOp chosen;  // the last in order: the most of the expression
    std::vector<UOp> row;
    for (const UOp& u : sets.order()) {
      if (!IsElementwise(u.op()) || !HasProperty(u.op(), kExpensive)) continue;
      const RangeMask inner = sets.Free(u) & reduced;
      if (inner == 0 || sets.Iterations(inner) > target.l1_bytes / u.dtype().bytes()) continue;
      // All of a short row is in one vector, and is what it was wherever it is met again. (Narrow
      // floats are computed in f32: of rows of 24, in two, e^x + sum e^x of f16 takes 130 us kept,
      // and 218.)
      const int width = std::max(u.dtype().bytes(), u.dtype().IsFloat() ? 4 : 1);
      const int64_t bytes = sets.Iterations(inner) * width;
      if (Count(inner) == 1 && bytes <= target.vector_bytes) continue;
      const std::vector<UOp> loops = LoopsOver(u, inner, sets);
      if (loops.size() < 2) continue;
      std::vector<UOp> over;  // all of `inner`, as one of the loops nests them
      for (const UOp& r : ClosedRanges(loops[0])) {
        if ((inner & sets.Bit(r)) && r.src(0).IsConst()) over.push_back(r);
      }
      if (static_cast<int>(over.size()) != Count(inner)) continue;
      chosen = u;
      row = std::move(over);
    }
    if (!chosen) return out;
    out = StageValue(out, chosen, row);
  }
  return out;
}

}  // namespace tessera
