// Choice of streamed stores and of rows to fetch ahead.
#include "codegen/memory_hints.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "codegen/lanes.h"
#include "graph/panel.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int64_t kLeastLoad = 8;     // bytes: with less a line would be asked for at every step
constexpr int64_t kMostReadings = 4;  // beyond, asking each time costs more than it gains
// What is read once goes by as fast as memory gives it: it must be asked for so many bytes before,
// or it comes too late. (At 4 KiB a product with rows of Q4_0 took 1.6 times as long.)
constexpr int64_t kLeastAhead = 8192;
// While other loops read the same row again nothing is asked for, unless it is short: memory has
// the more to do for it.
constexpr int64_t kLeastAheadOfReaders = 12288;
// Of short rows the next one is asked for by the loop before the one that writes, which has enough
// to do with memory. (LayerNorm and softmax of 1024 f32: 5 to 10 % less time than with 12 KiB,
// asked for by the last reader; of 4096 they took 12 % more so.)
constexpr int64_t kShortRow = 64;  // vectors, of the target
constexpr int64_t kLeastAheadOfShort = 4096;
// Of streams that hardware follows: just enough to be over the end of a page before it is, where
// the target does not say how far it wants. (At 2 KiB a loop over rows of f16 took 1.2 times as
// long on an AMD chip, 0.9 on an Intel one.)
constexpr int64_t kStepsOfStream = 2;  // of the loop, or lines
// Where arithmetic takes as long as reading, waiting for memory is time lost, and more is asked
// for: as much of four streams as leaves room for the vector in a first cache of 32 KiB. (A product
// with rows of Q4_0 gained a sixth, of Q8_0 from 2 to 30 %, the more the faster memory was.)
constexpr int64_t kBytesOfBusyStream = 3072;
constexpr int64_t kBytesOfOperation = 5;  // what comes from memory in the time of one on a vector

// Bytes of a buffer, every variable at its highest.
int64_t BytesOf(const UOp& param) {
  int64_t bytes = param.shape().MaxElements();
  return __builtin_mul_overflow(bytes, param.dtype().bytes(), &bytes) ? INT64_MAX : bytes;
}

// Whether vectors that a store writes lie one after another, as in long rows.
bool GoesOn(const UOp& store, const RangeSets& sets) {
  constexpr int64_t kMostCopies = 8;  // vectors of each step of such a loop
  const absl::Span<const UOp> loops = ClosedRanges(store);
  const int64_t lanes = store.src(1).dtype().lanes();
  return std::any_of(loops.begin(), loops.end(), [&](const UOp& r) {
    const Step s = StepOf(store.src(0).src(1), r, sets);
    return s.linear && s.factor > 0 && s.factor % lanes == 0 && s.factor <= kMostCopies * lanes;
  });
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
  const absl::Span<const UOp> stores = sets.order().back().srcs();
  // Parts of a line that are written past the caches, and again or between others as usual, wait
  // for one another. (10000 rows of 7 f64: 4 times as long.)
  const bool again = std::any_of(stores.begin(), stores.end(),
                                 [](const UOp& s) { return s.is(Op::kStore) && StoresAgain(s); });
  for (const UOp& store : stores) {
    const UOp& index = store.src(0);
    const DType written = store.src(1).dtype();
    const bool part = written.lanes() * written.bytes() < kLineBytes;
    if (again && part && !GoesOn(store, sets)) continue;
    if (written.lanes() < 2 || index.size() != 2 || !index.src(0).is(Op::kParam) ||
        read.contains(index.src(0).get()) || BytesOf(index.src(0)) <= target.cache_bytes) {
      continue;
    }
    hints.streamed.insert(store.get());
  }
}

// How loops of a kernel nest, as far as rows go.
struct Rows {
  std::vector<UOp> outer;  // loops that hold others, from the outermost in
  RangeMask outside = 0;   // the same
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
    for (RangeMask bits = sets.Closed(u); bits != 0; bits &= bits - 1) {
      int& level = rows.level[Lowest(bits)];
      level = std::max(level, d + WritesElements(u));  // a stage's come after what they read
    }
  }
  // Stores of the kernel come after all reductions.
  for (const UOp& store : sets.order().back().srcs()) {
    for (const UOp& r : ClosedRanges(store)) {
      if (rows.outside & sets.Bit(r)) {
        if (std::find(rows.outer.begin(), rows.outer.end(), r) == rows.outer.end()) {
          rows.outer.push_back(r);
        }
      } else {
        rows.level[Lowest(sets.Bit(r))] = deepest + 1;
      }
    }
  }
  return rows;
}

// A load in a loop inside of one over rows.
struct RowLoad {
  UOp load;
  UOp row;        // the innermost loop over rows that it moves with
  int level = 0;  // of its own loop
  Sum offset;
};

std::vector<RowLoad> FindRowLoads(const RangeSets& sets, const Rows& rows) {
  std::vector<RowLoad> out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kLoad) || u.dtype().lanes() < 2 || u.size() != 2 || !u.src(0).is(Op::kParam) ||
        u.dtype().lanes() * u.dtype().bytes() < kLeastLoad) {
      continue;
    }
    const RangeMask free = sets.Free(u), inside = free & ~rows.outside;
    RowLoad l;
    int64_t again = 1;  // how often it is read in loops further in
    for (const UOp& r : rows.outer) {
      if (free & sets.Bit(r)) {
        l.row = r;
        again = 1;
      } else {
        again *= std::max<int64_t>(1, r.src(0).vmax());
      }
    }
    if (!l.row || inside == 0 || again > kMostReadings) continue;
    for (RangeMask bits = inside; bits != 0; bits &= bits - 1) {
      l.level = std::max(l.level, rows.level[Lowest(bits)]);
    }
    l.load = u;
    l.offset = ToSum(u.src(1));
    out.push_back(std::move(l));
  }
  return out;
}

// Whether b lies at most a line after or before a, wherever both are.
bool OnOneLine(const RowLoad& a, const RowLoad& b) {
  if (!(a.load.src(0) == b.load.src(0)) || a.offset.terms.size() != b.offset.terms.size()) {
    return false;
  }
  for (size_t i = 0; i < a.offset.terms.size(); ++i) {
    const Sum::Term &s = a.offset.terms[i], &t = b.offset.terms[i];
    if (!(s.term == t.term) || s.factor != t.factor) return false;
  }
  const int64_t apart = std::abs(a.offset.constant - b.offset.constant);
  return apart < kLineBytes / a.load.dtype().Scalar().bytes();
}

// Whether the rows of a load follow one another in memory.
bool FillsRows(const RowLoad& l, const RangeSets& sets) {
  const int64_t row = StepOf(l.load.src(1), l.row, sets).factor;
  return row > 0 && std::any_of(sets.ranges().begin(), sets.ranges().end(), [&](const UOp& r) {
           const Step s = StepOf(l.load.src(1), r, sets);
           const bool other = !(r == l.row) && s.linear && r.src(0).IsConst();
           return other && s.factor * r.src(0).vmax() == row;
         });
}

// Whether a load whose rows follow one another is beside other such streams far away: hardware then
// fetches each of them ahead by itself, but for the ends of pages. Asking for more takes a fourth
// of the speed from it, on chips that do not ask for `stream_ahead`.
bool IsOneOfStreams(const RowLoad& l, const std::vector<RowLoad>& loads, const RangeSets& sets) {
  const int64_t row = StepOf(l.load.src(1), l.row, sets).factor;
  const auto far_away = [&](const RowLoad& other) {
    const int64_t apart = std::abs(other.offset.constant - l.offset.constant);
    return other.load.src(0) == l.load.src(0) && apart / row > 1;
  };
  return FillsRows(l, sets) && std::any_of(loads.begin(), loads.end(), far_away);
}

// How far one step of the loop takes that moves a load least, in elements; a line at least.
int64_t StepOfStream(const RowLoad& l, const Rows& rows, const RangeSets& sets) {
  int64_t least = INT64_MAX;
  const RangeMask inside = sets.Free(l.load) & ~rows.outside;
  for (RangeMask bits = inside; bits != 0; bits &= bits - 1) {
    const int64_t factor =
        std::abs(StepOf(l.load.src(1), sets.ranges()[Lowest(bits)], sets).factor);
    if (factor > 0) least = std::min(least, factor);
  }
  const int64_t line = kLineBytes / l.load.dtype().Scalar().bytes();
  return least == INT64_MAX ? line : std::max(least, line);
}

// Whether the arithmetic on what the loop of a load reads takes about as long as reading it, or
// longer.
bool IsBusy(const RowLoad& l, const std::vector<RowLoad>& loads, const Rows& rows,
            const RangeSets& sets) {
  const RangeMask loop = sets.Free(l.load) & ~rows.outside;
  int64_t bytes = 0, operations = 0;
  for (const RowLoad& other : loads) {
    const DType dtype = other.load.dtype();
    if (sets.Free(other.load) & loop) bytes += dtype.lanes() * dtype.Scalar().bytes();
  }
  for (const UOp& u : sets.order()) {
    const bool computes = u.dtype().lanes() > 1 && !u.is(Op::kLoad) && !u.is(Op::kSplat);
    operations += computes && (sets.Free(u) & loop);
  }
  return operations * kBytesOfOperation > bytes;
}

void FindAhead(const RangeSets& sets, const Target& target, MemoryHints& hints) {
  const Rows rows = FindRows(sets);
  if (rows.outer.empty()) return;
  const std::vector<RowLoad> loads = FindRowLoads(sets, rows);
  struct Reads {
    int last = -1, before = -1;  // levels: the highest, and the next below
  };
  absl::flat_hash_map<const Node*, Reads> reads;  // of a buffer
  for (const RowLoad& l : loads) {
    Reads& r = reads[l.load.src(0).get()];
    if (l.level > r.last) r.before = std::exchange(r.last, l.level);
    if (l.level < r.last) r.before = std::max(r.before, l.level);
  }
  const int highest = *std::max_element(rows.level.begin(), rows.level.end());
  std::vector<const RowLoad*> chosen;
  for (const RowLoad& l : loads) {
    const UOp& buffer = l.load.src(0);
    const Reads& r = reads.at(buffer.get());
    const bool once = r.before < 0;
    if (once && BytesOf(buffer) <= target.l2_bytes) continue;
    const Step step = StepOf(l.load.src(1), l.row, sets);
    const int64_t each = l.load.dtype().Scalar().bytes();
    const int64_t lanes = std::min<int64_t>(l.load.dtype().lanes(), target.vector_bytes / each);
    const bool is_short = !once && std::abs(step.factor) <= kShortRow * lanes;
    if (l.level != (is_short && r.last == highest ? r.before : r.last)) continue;
    const int64_t bytes = std::abs(step.factor) * each;
    if (!step.linear || bytes < kLeastStride || bytes > target.l2_bytes / 4) continue;
    const auto near = [&](const RowLoad* c) { return OnOneLine(*c, l); };
    if (std::any_of(chosen.begin(), chosen.end(), near)) continue;
    chosen.push_back(&l);
    if (once && IsOneOfStreams(l, loads, sets)) {
      int64_t elements = kStepsOfStream * StepOfStream(l, rows, sets);
      elements = std::max(elements, target.stream_ahead / each);
      if (IsBusy(l, loads, rows, sets)) elements = std::max(elements, kBytesOfBusyStream / each);
      hints.ahead.emplace(l.load.get(), elements);
      continue;
    }
    const int64_t ahead = once ? kLeastAhead : is_short ? kLeastAheadOfShort : kLeastAheadOfReaders;
    int64_t elements = step.factor * ((ahead + bytes - 1) / bytes);
    // What goes on past the end of a row need not be whole rows away. (Panels of 32 KiB of bytes: a
    // tenth of the time.)
    if (once && FillsRows(l, sets)) {
      elements = std::min(elements, ahead / each);
    }
    hints.ahead.emplace(l.load.get(), elements);
  }
}

// How far ahead of a load its like is asked for, in elements, or 0: of what the loop of a sum reads
// in order, `of_step` bytes at each point, the target's distance.
int64_t AheadInOrder(const UOp& load, const UOp& loop, int64_t of_step, const Target& target,
                     const RangeSets& sets) {
  const int64_t each = load.dtype().Scalar().bytes();
  const Step step = StepOf(load.src(1), loop, sets);
  const int64_t bytes = step.factor * each;
  const bool in_order = bytes == of_step || bytes == load.dtype().lanes() * each;
  return step.linear && in_order ? target.stream_ahead / each : 0;
}

// The same of what the loops of a sum read of a buffer, where that is more than the innermost cache
// holds. Of windows it is what the loop outside of some points reads next, or a single loop after
// as many.
int64_t AheadOfPanel(const UOp& load, absl::Span<const UOp> loops, int64_t of_step,
                     const Target& target, const RangeSets& sets) {
  constexpr int64_t kLeastPoints = 8;
  int64_t points = 1;
  for (const UOp& r : loops) {
    if (!r.src(0).IsConst() || r.src(0).vmax() > target.cache_bytes / points) return 0;
    points *= std::max<int64_t>(1, r.src(0).vmax());
  }
  if (of_step <= target.l1_bytes / points) return 0;
  const int64_t in_order = AheadInOrder(load, loops.back(), of_step, target, sets);
  if (in_order != 0) return in_order;
  points = 1;
  for (size_t i = loops.size(); i-- > 0;) {
    const Step step = StepOf(load.src(1), loops[i], sets);
    if (points >= kLeastPoints && step.linear) return step.factor;
    points *= loops[i].src(0).vmax();
  }
  const Step step = StepOf(load.src(1), loops.back(), sets);
  const int64_t bytes = std::abs(step.factor) * load.dtype().Scalar().bytes();
  return loops.size() == 1 && step.linear && bytes >= kLeastStride ? step.factor * kLeastPoints : 0;
}

// The vectors that a value loads itself, and not what fills the stages that it reads.
std::vector<UOp> OwnLoads(const UOp& value) {
  std::vector<UOp> out;
  WalkDown({&value, 1}, [&](const UOp& u) {
    if (u.is(Op::kLoad) && u.dtype().lanes() > 1 && u.size() == 2) out.push_back(u);
    return !u.is(Op::kStage);
  });
  return out;
}

// What several sums of a loop read is a panel of a product, that the next rows read again; what one
// reads of more than a cache holds comes from memory.
void FindStreamsAhead(const RangeSets& sets, const Target& target, MemoryHints& hints) {
  constexpr int kLeastSums = 8;
  if (target.stream_ahead == 0) return;
  struct Reader {
    int sums = 0;
    UOp sum;  // one of them
  };
  absl::flat_hash_map<const Node*, Reader> readers;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce) || u.dtype().lanes() < 2 || IsTile(u.dtype())) continue;
    if (ClosedRanges(u).empty()) continue;
    for (const UOp& v : OwnLoads(UOp(u.src(0)))) {
      if (!(sets.Free(v) & sets.Bit(ClosedRanges(u).back()))) continue;
      Reader& reader = readers[v.get()];
      ++reader.sums;
      reader.sum = u;
    }
  }
  const auto from_memory = [&](const UOp& load) {
    return load.src(0).is(Op::kParam) && BytesOf(load.src(0)) > target.cache_bytes;
  };
  std::vector<UOp> streams;
  absl::flat_hash_map<std::pair<UOp, UOp>, int64_t> of_step;  // bytes, by buffer and loop
  const auto loops = [&](const UOp& load) { return ClosedRanges(readers.at(load.get()).sum); };
  for (const UOp& u : sets.order()) {
    const auto it = readers.find(u.get());
    if (it == readers.end()) continue;
    if (it->second.sums >= kLeastSums || from_memory(u)) streams.push_back(u);
    of_step[{UOp(u.src(0)), loops(u).back()}] += u.dtype().lanes() * u.dtype().Scalar().bytes();
  }
  for (const UOp& u : streams) {
    const int64_t bytes = of_step.at({UOp(u.src(0)), loops(u).back()});
    const int64_t ahead = readers.at(u.get()).sums >= kLeastSums
                              ? AheadOfPanel(u, loops(u), bytes, target, sets)
                              : AheadInOrder(u, loops(u).back(), bytes, target, sets);
    if (ahead != 0) hints.ahead.try_emplace(u.get(), ahead);
  }
}

// What the loop of a store reads in order from memory, where its body is long: of a short one loads
// of many steps are under way at once, of this the next comes when the last is done. (erf of 64 MiB
// took 10.6 ms, and 3.2 asked for; at 9 operations on what one load reads 4.9 and 2.7; at 3 the
// same.)
void FindLongBodies(const RangeSets& sets, const Target& target, MemoryHints& hints) {
  constexpr int64_t kShort = 4, kOfExpensive = 16;  // operations
  if (target.stream_ahead == 0) return;
  for (const UOp& store : sets.order().back().srcs()) {
    if (ClosedRanges(store).empty()) continue;
    const UOp& loop = ClosedRanges(store).back();
    int64_t operations = 0;
    std::vector<UOp> loads;
    absl::flat_hash_map<const Node*, int64_t> of_step;  // bytes, by buffer
    WalkDown({&store, 1}, [&](const UOp& u) {
      const bool moves = (sets.Free(u) & sets.Bit(loop)) && u.dtype().lanes() > 1;
      if (moves && u.is(Op::kLoad)) {
        of_step[u.src(0).get()] += u.dtype().lanes() * u.dtype().Scalar().bytes();
        if (u.size() == 2) loads.push_back(u);
      } else if (moves && IsElementwise(u.op())) {
        operations += HasProperty(u.op(), kExpensive) ? kOfExpensive : 1;
      }
      return !u.is(Op::kStage) && !u.is(Op::kLoad);
    });
    if (operations <= kShort * static_cast<int64_t>(loads.size())) continue;
    for (const UOp& u : loads) {
      const UOp& buffer = u.src(0);
      if (!buffer.is(Op::kParam) || BytesOf(buffer) <= target.l2_bytes) continue;
      const int64_t ahead = AheadInOrder(u, loop, of_step.at(buffer.get()), target, sets);
      if (ahead != 0) hints.ahead.try_emplace(u.get(), ahead);
    }
  }
}

// What products in tiles read once; and their panels, which come from the last cache at half the
// rate that the unit takes them. (A product of 2048 x 2048: 10 % of its time.)
void FindOfTiles(const RangeSets& sets, MemoryHints& hints) {
  constexpr int64_t kLeastSquares = 4;  // for which a part is asked for
  for (const UOp& u : sets.order()) {
    const bool sums = WritesElements(u) && u.src(1).is(Op::kReduce) && IsTile(u.src(1).dtype());
    if (!sums || !u.src(1).src(0).is(Op::kMma) || ClosedRanges(u.src(1)).size() != 1) continue;
    const UOp& step = ClosedRanges(u.src(1))[0];
    const UOp &a = u.src(1).src(0).src(0), &b = u.src(1).src(0).src(1);
    const Step by = StepOf(b.src(1), step, sets);  // of the panel
    for (const UOp& r : ClosedRanges(u)) {
      const bool square = (sets.Free(a.src(1)) & ~sets.Free(b.src(1)) & sets.Bit(r)) &&
                          r.arg<RangeArg>().kind == RangeKind::kLoop && r.src(0).IsConst();
      if (!square) continue;
      hints.once.insert(a.get());
      if (!b.src(0).is(Op::kParam) || !step.src(0).IsConst() || !by.linear) continue;
      if (r.src(0).vmax() < kLeastSquares) continue;
      const int64_t rows = std::max<int64_t>(1, kRowsOfTile / r.src(0).vmax());
      hints.parts[b.get()] = {r, by.factor * step.src(0).vmax(), b.src(2).vmin(), rows};
    }
  }
}

}  // namespace

MemoryHints FindMemoryHints(const RangeSets& sets, const Target& target) {
  MemoryHints hints;
  if (target.dialect == Dialect::kCuda) return hints;  // its threads wait for one another's memory
  FindStreamed(sets, target, hints);
  FindAhead(sets, target, hints);
  FindStreamsAhead(sets, target, hints);
  FindLongBodies(sets, target, hints);
  FindOfTiles(sets, hints);
  return hints;
}

}  // namespace tessera
