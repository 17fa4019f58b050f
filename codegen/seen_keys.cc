// Which keys are seen, and loops that end after them.
#include "codegen/seen_keys.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/lane_values.h"
#include "codegen/one_pass.h"
#include "graph/index_math.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLeastUnseen = 64;  // keys that may be left out
constexpr int64_t kLeastRows = 128;   // for which reading all values once more is little

// By how much an index grows with a range; nothing where that is not the same everywhere.
std::optional<int64_t> StrideOf(const UOp& index, const UOp& range) {
  int64_t stride;
  return LaneStride(Simplify(index), range, stride) ? std::optional(stride) : std::nullopt;
}

// An integer as one of 64 bits, computed from indices as such where narrower ones do not wrap.
UOp Widened(const UOp& u, int depth = 0) {
  constexpr int kDeepest = 6;  // what is shared is seen again on each way to it
  const DType dtype = u.dtype();
  const auto holds = [&](const UOp& wide) {
    return wide.vmin() >= MinInt(dtype) && wide.vmax() <= MaxInt(dtype);
  };
  if (dtype == kInt64) return u;
  if (depth == kDeepest) return UOp::Make(Op::kCast, kInt64, {u});
  if (u.is(Op::kCast) && u.src(0).dtype().IsInt()) {
    const UOp wide = Widened(u.src(0), depth + 1);
    if (holds(wide)) return wide;
  }
  if (u.is(Op::kAdd) || u.is(Op::kSub) || u.is(Op::kMul)) {
    const UOp wide =
        UOp::Make(u.op(), {Widened(u.src(0), depth + 1), Widened(u.src(1), depth + 1)});
    if (holds(wide)) return wide;
  }
  return UOp::Make(Op::kCast, kInt64, {u});
}

// One side of a comparison with keys, so bounded that what is made of it does not wrap; or nothing.
UOp WithinBounds(const UOp& u, const UOp& key) {
  constexpr int64_t kMost = int64_t{1} << 48;
  if (u.vmin() >= -kMost && u.vmax() <= kMost) return u;
  if (DependsOn(u, key)) return UOp();
  const UOp above = UOp::Make(Op::kMax, {u, UOp::Index(-kMost)});
  return UOp::Make(Op::kMin, {above, UOp::Index(kMost)});
}

// So many of the first keys are all at which a comparison may be what it is to be, or nothing.
UOp EndOfComparison(const UOp& condition, bool holds, const UOp& key) {
  bool less = condition.is(Op::kCmpLt);
  if (!(less || condition.is(Op::kCmpLe))) return UOp();
  const DType dtype = condition.src(0).dtype();
  if (!dtype.IsInt() || dtype == kUInt64) return UOp();
  UOp a = WithinBounds(Widened(condition.src(0)), key),
      b = WithinBounds(Widened(condition.src(1)), key);
  if (!a || !b) return UOp();
  if (!holds) {  // b <= a, or b < a
    std::swap(a, b);
    less = !less;
  }
  const UOp excess = Simplify(Plus(Minus(a, b), UOp::Index(less ? 1 : 0)));  // at most 0
  if (StrideOf(excess, key) != 1) return UOp();
  return Simplify(Minus(UOp::Index(1), Substitute(excess, {{key, UOp::Index(0)}})));
}

// The same of a condition of several.
UOp EndWhere(const UOp& condition, bool holds, const UOp& key) {
  std::vector<UOp> work = {condition};
  absl::flat_hash_set<const Node*> met;
  while (!work.empty()) {
    const UOp u = work.back();
    work.pop_back();
    if (!met.insert(u.get()).second) continue;
    if (u.is(holds ? Op::kAnd : Op::kOr)) {
      work.insert(work.end(), u.srcs().begin(), u.srcs().end());
    } else if (const UOp end = EndOfComparison(u, holds, key)) {
      return end;
    }
  }
  return UOp();
}

// The same of a score that is not -inf.
UOp EndOfFinite(const UOp& score, const UOp& key) {
  if (!score.is(Op::kWhere)) return UOp();
  for (const bool holds : {true, false}) {
    if (!IsNumber(score.src(holds ? 2 : 1), -std::numeric_limits<double>::infinity())) continue;
    if (const UOp end = EndWhere(score.src(0), holds, key)) return end;
    return EndOfFinite(score.src(holds ? 1 : 2), key);
  }
  return UOp();
}

bool IsCastOf(const UOp& u, const UOp& weight) {
  const UOp* at = &u;
  while (at->is(Op::kCast)) at = &at->src(0);
  return *at == weight;
}

// `value` where a range is another; but not within what closes the range itself.
UOp WithRange(const UOp& value, const UOp& range, const UOp& other) {
  const RangeSets sets(value);
  const RangeMask bit = sets.Bit(range);
  absl::flat_hash_map<const Node*, UOp> made;
  for (const UOp& u : sets.order()) {
    UOp out = u;
    if (u == range) {
      out = other;
    } else if (sets.Free(u) & bit) {
      std::vector<UOp> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(made.at(s.get()));
      out = u.WithSrcs(srcs);
    }
    made.emplace(u.get(), out);
  }
  return made.at(value.get());
}

// Scratch with an element for each key.
struct KeyTable {
  enum class Unseen : uint8_t { kIgnored, kZero, kOther };  // what counts of keys that no row sees
  int64_t row;  // elements from one row to the next, or from so many rows as a tile has
  Unseen unseen;
  int64_t of_tile = 0;  // keys of a tile, where it lies in tiles (see PlaceInRowTiles)

  // The key of an element.
  UOp KeyAt(const UOp& at) const {
    const UOp in_row = Modulo(at, row);
    if (of_tile == 0) return Simplify(in_row);
    const UOp tile = Over(in_row, of_tile * kRowsOfTile);
    return Simplify(Plus(Times(tile, of_tile), Modulo(in_row, of_tile)));
  }
};

class LoopEnder {
 public:
  LoopEnder(const UOp& sink, const UOp& scores, const UOp& weights, bool in_tiles)
      : sink_(sink), sets_(sink) {
    tables_.emplace(scores.src(0), KeyTable{RowOf(scores), KeyTable::Unseen::kIgnored});
    KeyTable of_weights{RowOf(weights), KeyTable::Unseen::kZero};
    if (in_tiles) {
      const UOp& keys = ClosedRanges(weights.src(1)).back().src(0);
      of_weights.row = kRowsOfTile * keys.vmax();
      of_weights.of_tile = kBytesOfTileRow / weights.dtype().bytes();
    }
    tables_.emplace(weights.src(0), of_weights);
  }

  UOp Run(const UOp& seen, int64_t& next_id) {
    if (tables_.size() != 2 || !FindTables() || !FindLoops()) return UOp();
    int64_t unit = 1;
    for (const Loop& l : loops_) unit = std::lcm(unit, l.step);
    if (unit > kMostKeysOfUnit) return UOp();
    const UOp units = CeilOver(seen, unit);
    const UOp end = Times(units, unit);  // of keys that all loops go over
    absl::flat_hash_map<const Node*, UOp> made;
    for (const UOp& u : sets_.order()) {
      std::vector<UOp> srcs;
      for (const UOp& s : u.srcs()) srcs.push_back(made.at(s.get()));
      for (const Loop& l : loops_) {
        if (!(l.closer == u)) continue;
        const UOp steps = Minus(Times(units, unit / l.step), UOp::Index(l.first / l.step));
        const UOp some = UOp::Make(Op::kMax, {steps, UOp::Index(0)});
        const UOp times = UOp::Make(Op::kMin, {UOp(l.range.src(0)), some});
        const RangeArg arg{next_id++, RangeKind::kLoop};
        const UOp range = UOp::Make(Op::kRange, kInt64, {Simplify(times)}, arg);
        for (UOp& s : srcs) s = WithRange(s, l.range, range);
      }
      UOp out = u.WithSrcs(srcs);
      if (checked_.contains(u.get())) {
        const UOp key = tables_.at(ScratchOf(u)).KeyAt(out.src(1));
        out = UOp::Make(Op::kWhere, {Below(key, end), out, UOp::Const(u.dtype(), Scalar())});
      }
      made.emplace(u.get(), out);
    }
    return made.at(sink_.get());
  }

 private:
  static constexpr int64_t kMostKeysOfUnit = 512;  // more would leave little of what is not seen

  struct Loop {
    UOp closer, range;
    int64_t step = 0, first = 0;  // keys from one iteration to the next, and that of the first
  };

  // Elements from one row of a stage to the next, or 0 where that is not known.
  static int64_t RowOf(const UOp& stage) {
    const UOp& store = stage.src(1);
    const absl::Span<const UOp> ranges = ClosedRanges(store);
    int64_t row = std::numeric_limits<int64_t>::max();
    for (const UOp& r : ranges.first(ranges.size() - 1)) {
      if (r.src(0).IsConst(1)) continue;
      row = std::min(row, StrideOf(store.src(0).src(1), r).value_or(0));
    }
    return row;
  }

  static const UOp& ScratchOf(const UOp& index) {
    const UOp& from = index.src(0);
    return from.is(Op::kStage) ? from.src(0) : from;
  }
  bool IsOfTable(const UOp& u) const { return u.is(Op::kIndex) && tables_.contains(ScratchOf(u)); }

  // Scratch filled from a table, at the place of the key that is read for it, is one as well. Each
  // is of one stage.
  bool FindTables() {
    absl::flat_hash_map<UOp, UOp> stages;
    for (const UOp& u : sets_.order()) {
      if (!u.is(Op::kStage)) continue;
      const UOp& scratch = u.src(0);
      if (const auto it = tables_.find(scratch); it != tables_.end()) {
        if (it->second.row <= 0 || !stages.emplace(scratch, u).second) return false;
        continue;
      }
      bool weight = true;
      int64_t row = 0;
      for (const UOp& store : u.srcs().subspan(1)) {
        for (const UOp& at : AccessesOf(store)) {
          const absl::Span<const UOp> own = ClosedRanges(store);
          if (!std::any_of(own.begin(), own.end(),
                           [&](const UOp& r) { return StepOf(at, r) != 0; })) {
            continue;  // of rows alone
          }
          row = tables_.at(ScratchOf(at)).row;
          const UOp apart = Minus(at.src(1), store.src(0).src(1));
          for (const UOp& r : own) {
            if (StrideOf(apart, r) != 0) return false;
          }
        }
        const UOp* value = &store.src(1);
        while (value->is(Op::kCast)) value = &value->src(0);
        weight = weight && (value->is(Op::kExp) || value->is(Op::kExp2));
      }
      if (row == 0) continue;
      if (!stages.emplace(scratch, u).second) return false;
      tables_.emplace(scratch,
                      KeyTable{row, weight ? KeyTable::Unseen::kZero : KeyTable::Unseen::kOther});
    }
    return true;
  }

  // What is read of tables, or written, where a node's own ranges are open.
  std::vector<UOp> AccessesOf(const UOp& closer) const {
    const RangeMask own = sets_.Closed(closer);
    std::vector<UOp> out, work = {closer};
    absl::flat_hash_set<const Node*> met;
    while (!work.empty()) {
      const UOp u = work.back();
      work.pop_back();
      for (const UOp& s : u.srcs()) {
        if (!(sets_.Free(s) & own) || !met.insert(s.get()).second) continue;
        if (IsOfTable(s)) out.push_back(s);
        work.push_back(s);
      }
    }
    return out;
  }

  // By how many keys a range moves what is read or written; 0 where it runs over rows.
  std::optional<int64_t> StepOf(const UOp& access, const UOp& range) const {
    const std::optional<int64_t> by = StrideOf(KeyOf(access), range);
    return by && *by >= 0 ? by : std::nullopt;
  }
  UOp KeyOf(const UOp& access) const { return tables_.at(ScratchOf(access)).KeyAt(access.src(1)); }

  // The key of what is read or written first; -1 where that varies.
  int64_t FirstKey(const UOp& access) const {
    const UOp key = KeyOf(access);
    const RangeSets sets(key);
    Substitution first;
    for (const UOp& r : sets.ranges()) first.emplace(r, UOp::Index(0));
    const UOp at = Simplify(Substitute(key, first));
    return at.IsConst() ? at.vmax() : -1;
  }

  bool FindLoops() {
    absl::flat_hash_set<const Node*> ended;
    for (const UOp& u : sets_.order()) {
      if (!ClosesRanges(u)) continue;
      const std::vector<UOp> accesses = AccessesOf(u);
      for (const UOp& r : ClosedRanges(u)) {
        Loop loop{u, r};
        for (const UOp& at : accesses) {
          const std::optional<int64_t> step = StepOf(at, r);
          if (!step || (loop.step != 0 && *step != 0 && loop.step != *step)) return false;
          if (*step == 0) continue;
          const int64_t first = FirstKey(at);
          loop.first = loop.step == 0 || loop.first == first ? first : -1;
          loop.step = *step;
        }
        if (r.arg<RangeArg>().kind != RangeKind::kLoop || loop.step == 0) continue;
        if (loop.first < 0 || loop.first % loop.step != 0) continue;
        loops_.push_back(loop);
        for (const UOp& at : accesses) {
          if (StepOf(at, r) == loop.step) ended.insert(at.get());
        }
      }
    }
    for (const UOp& u : sets_.order()) {
      if (!IsOfTable(u) || !u.src(0).is(Op::kStage) || ended.contains(u.get())) continue;
      const KeyTable& table = tables_.at(ScratchOf(u));
      if (table.unseen == KeyTable::Unseen::kIgnored) continue;
      if (table.unseen == KeyTable::Unseen::kOther || table.of_tile != 0) return false;
      checked_.insert(u.get());
    }
    return !loops_.empty();
  }

  const UOp& sink_;
  const RangeSets sets_;
  absl::flat_hash_map<UOp, KeyTable> tables_;  // by scratch
  std::vector<Loop> loops_;
  absl::flat_hash_set<const Node*> checked_;  // reads in other loops, of weights
};

}  // namespace

UOp SeenKeys(const UOp& sink, const ProductChain& chain, const RangeSets& sets,
             const std::vector<UOp>& rows) {
  if (chain.inner.size() != 1) return UOp();
  const std::optional<OnePass> pass = FindOnePass(sink, chain, sets);
  if (!pass || !IsCastOf(pass->chain.weights, pass->weight)) return UOp();
  for (const UOp& value : pass->values) {
    if (!IsCastOf(value, pass->weight)) return UOp();
  }
  const UOp& key = chain.inner[0];
  UOp end = EndOfFinite(pass->max.src(0), key);
  if (!end) return UOp();
  for (const UOp& r : rows) {
    const std::optional<int64_t> by = StrideOf(end, r);
    if (!by) return UOp();
    const UOp last = Minus(r.src(0), UOp::Index(1));
    end = Simplify(Substitute(end, {{r, *by > 0 ? last : UOp::Index(0)}}));
  }
  const RangeMask closed = sets.Closed(pass->max) | sets.Closed(chain.first);
  const RangeSets of_end(end);
  for (const UOp& r : of_end.ranges()) {
    const bool column =
        std::find(chain.columns.begin(), chain.columns.end(), r) != chain.columns.end();
    if (column || (sets.Bit(r) & closed)) return UOp();
  }
  const UOp unseen = Simplify(Minus(key.src(0), end));
  if (unseen.vmax() < kLeastUnseen) return UOp();
  end = UOp::Make(Op::kMax, {end, UOp::Index(1)});
  return Simplify(UOp::Make(Op::kMin, {end, UOp(key.src(0))}));
}

bool MayLeaveKeys(const UOp& sink, const ProductChain& chain, const RangeSets& sets) {
  RangeMask rows = 0;
  for (const UOp& r : chain.rows) rows |= sets.Bit(r);
  return sets.Iterations(rows) >= kLeastRows && SeenKeys(sink, chain, sets, {});
}

UOp FinitenessOfValues(const ProductChain& chain, const std::vector<UOp>& own, int64_t& next_id) {
  Substitution there;
  std::vector<UOp> srcs = {UOp()};
  const auto add = [&](const UOp& r) {
    srcs.push_back(
        UOp::Make(Op::kRange, kInt64, {UOp(r.src(0))}, RangeArg{next_id++, RangeKind::kLoop}));
    there.emplace(r, srcs.back());
  };
  for (const UOp& r : chain.inner) add(r);
  for (const UOp& r : own) add(r);
  const UOp value = Substitute(chain.values, there);
  srcs[0] = UOp::Make(Op::kMul, {value, UOp::Const(value.dtype(), Scalar())});
  return UOp::Make(Op::kReduce, srcs, ReduceArg{Op::kAdd, {}});
}

UOp EndAfterSeen(const UOp& sink, const UOp& scores, const UOp& weights, bool in_tiles,
                 const UOp& seen, int64_t& next_id) {
  return LoopEnder(sink, scores, weights, in_tiles).Run(seen, next_id);
}

}  // namespace tessera
