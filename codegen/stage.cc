// STAGE insertion.
#include "codegen/stage.h"

#include <algorithm>

#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

int64_t FreshStageId(const UOp& sink) {
  int64_t id = 0;
  for (const UOp& u : TopoSort({&sink, 1})) {
    if (u.is(Op::kStage)) id = std::max(id, u.arg<StageArg>().id + 1);
  }
  return id;
}

// Nodes that close ranges under which `value` is computed, without closing ranges on the way there.
std::vector<UOp> LoopsOver(const UOp& value, uint64_t bit, const RangeSets& sets) {
  // Which nodes reach the value with the range still open.
  absl::flat_hash_map<const Node*, bool> reaches;
  std::vector<UOp> closers;
  for (const UOp& u : sets.order()) {
    bool r = u == value;
    if (!r) {
      for (const UOp& s : u.srcs()) r |= reaches[s.get()];
    }
    if (r && (sets.Closed(u) & bit)) {
      closers.push_back(u);
      r = false;
    }
    reaches[u.get()] = r && (sets.Free(u) & bit);
  }
  return closers;
}

// Whether two loops over the range compute the value and could read it from one place. Where both
// run over something else as well that it depends on, each would fill that place for itself.
bool SharedByLoops(const UOp& value, uint64_t bit, const RangeSets& sets) {
  const std::vector<UOp> closers = LoopsOver(value, bit, sets);
  for (size_t i = 0; i < closers.size(); ++i) {
    for (size_t j = i + 1; j < closers.size(); ++j) {
      const uint64_t both = sets.Closed(closers[i]) & sets.Closed(closers[j]) & ~bit;
      if (!(both & sets.Free(value))) return true;
    }
  }
  return false;
}

}  // namespace

UOp StageValue(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges) {
  UOp offset = UOp::Index(0);
  int64_t size = 1;
  for (size_t i = ranges.size(); i-- > 0;) {
    offset = UOp::Make(Op::kAdd, {offset, UOp::Make(Op::kMul, {ranges[i], UOp::Index(size)})});
    size *= ranges[i].src(0).vmax();
  }
  offset = Simplify(offset);
  const int64_t id = FreshStageId(sink);
  const UOp scratch = UOp::Make(Op::kScratch, value.dtype(), {},
                                Pairs{{Extent(id), Extent(size * value.dtype().bytes())}});
  std::vector<UOp> store = {UOp::Make(Op::kIndex, {scratch, offset}), value};
  store.insert(store.end(), ranges.begin(), ranges.end());
  const UOp stage = UOp::Make(Op::kStage, {scratch, UOp::Make(Op::kStore, store, int64_t{0})},
                              StageArg{id, Space::kShared});
  return Substitute(sink, {{value, UOp::Make(Op::kIndex, {stage, offset})}});
}

UOp StageRecomputed(const UOp& sink, const Target& target) {
  UOp out = sink;
  for (int rounds = 0; rounds < 4; ++rounds) {
    const RangeSets sets(out);
    UOp chosen;
    UOp over;
    for (const UOp& u : sets.order()) {
      if (!IsElementwise(u.op()) || !HasProperty(u.op(), kExpensive)) continue;
      for (const UOp& r : sets.ranges()) {
        const uint64_t bit = sets.Bit(r);
        if (!(sets.Free(u) & bit) || !r.src(0).IsConst()) continue;
        if (!(sets.ClosedBy(Op::kReduce) & bit)) continue;
        if (r.src(0).vmax() * u.dtype().bytes() > target.l1_bytes) continue;
        if (!SharedByLoops(u, bit, sets)) continue;
        chosen = u;  // the last in order: the most of the expression
        over = r;
      }
    }
    if (!chosen) return out;
    out = StageValue(out, chosen, {over});
  }
  return out;
}

}  // namespace tessera
