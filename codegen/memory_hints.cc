// Choice of streamed stores and of rows to fetch ahead.
#include "codegen/memory_hints.h"

#include <algorithm>
#include <bit>

#include "codegen/lanes.h"

namespace tessera {
namespace {

// Bytes of a buffer, or 0 where they are not known.
int64_t BytesOf(const UOp& param) {
  int64_t bytes = param.dtype().bytes();
  for (const Extent& e : param.shape()) {
    if (!e.is_int() || __builtin_mul_overflow(bytes, e.value(), &bytes)) return 0;
  }
  return bytes;
}

bool IsVectorLoad(const UOp& u) {
  return u.is(Op::kLoad) && u.dtype().lanes() > 1 && u.size() == 2 && u.src(0).is(Op::kParam);
}

void FindStreamed(const RangeSets& sets, const Target& target, MemoryHints& hints) {
  if (target.cache_bytes <= 0) return;
  absl::flat_hash_set<const Node*> read;
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kLoad)) read.insert(u.src(0).get());
    for (const UOp& s : u.srcs().subspan(u.is(Op::kStore) ? 1 : 0)) {  // past the address
      if (s.is(Op::kIndex)) read.insert(s.src(0).get());
    }
  }
  for (const UOp& store : sets.order().back().srcs()) {
    const UOp& index = store.src(0);
    if (store.src(1).dtype().lanes() < 2 || index.size() != 2 || !index.src(0).is(Op::kParam) ||
        read.contains(index.src(0).get()) || BytesOf(index.src(0)) <= target.cache_bytes) {
      continue;
    }
    hints.streamed.insert(store.get());
  }
}

// How loops of a kernel nest, as far as rows go.
struct Rows {
  UOp outer;               // the innermost loop that holds others
  uint64_t outside = 0;    // it and those around it
  std::vector<int> level;  // of the loops inside, by number: the later, the higher
};

Rows FindRows(const RangeSets& sets) {
  Rows rows;
  rows.level.resize(sets.ranges().size());
  absl::flat_hash_map<const Node*, int> depth;
  int deepest = 0;
  for (const UOp& u : sets.order()) {
    int d = 0;
    for (const UOp& s : u.srcs()) d = std::max(d, depth.at(s.get()));
    const bool loops = (u.is(Op::kReduce) && u.size() > 1) || u.is(Op::kStage);
    if (loops) rows.outside |= sets.Free(u);
    d += loops;
    depth.emplace(u.get(), d);
    deepest = std::max(deepest, d);
    if (!ClosesRanges(u)) continue;
    for (uint64_t bits = sets.Closed(u); bits != 0; bits &= bits - 1) {
      int& level = rows.level[std::countr_zero(bits)];
      level = std::max(level, d + u.is(Op::kStore));  // a stage's come after what they read
    }
  }
  // Stores of the kernel come after all reductions.
  for (const UOp& store : sets.order().back().srcs()) {
    for (const UOp& r : ClosedRanges(store)) {
      if (rows.outside & sets.Bit(r)) {
        rows.outer = r;
      } else {
        rows.level[std::countr_zero(sets.Bit(r))] = deepest + 1;
      }
    }
  }
  return rows;
}

void FindAhead(const RangeSets& sets, const Target& target, MemoryHints& hints) {
  const Rows rows = FindRows(sets);
  if (!rows.outer) return;
  const uint64_t outer = sets.Bit(rows.outer);
  struct Reads {
    int first = INT32_MAX, last = 0;  // levels
  };
  absl::flat_hash_map<const Node*, Reads> reads;  // of a buffer
  const auto for_each_load = [&](auto fn) {
    for (const UOp& u : sets.order()) {
      if (!IsVectorLoad(u)) continue;
      const uint64_t free = sets.Free(u), inside = free & ~rows.outside;
      if (!(free & outer) || std::popcount(inside) != 1) continue;
      fn(u, rows.level[std::countr_zero(inside)]);
    }
  };
  for_each_load([&](const UOp& u, int level) {
    Reads& r = reads[u.src(0).get()];
    r.first = std::min(r.first, level);
    r.last = std::max(r.last, level);
  });
  for_each_load([&](const UOp& u, int level) {
    const Reads& r = reads.at(u.src(0).get());
    if (r.first == r.last || level != r.last) return;
    const Step step = StepOf(u.src(1), rows.outer, sets);
    if (!step.linear || step.factor == 0) return;
    if (std::abs(step.factor) > target.l2_bytes / 4 / u.dtype().Scalar().bytes()) return;
    hints.ahead.emplace(u.get(), step.factor);
  });
}

}  // namespace

MemoryHints FindMemoryHints(const RangeSets& sets, const Target& target) {
  MemoryHints hints;
  FindStreamed(sets, target, hints);
  FindAhead(sets, target, hints);
  return hints;
}

}  // namespace tessera
