// Lane choice.
#include "codegen/lanes.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/gpu_numbers.h"
#include "graph/fault.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {
namespace {

constexpr int64_t kFewestIterations = 4;
constexpr size_t kMostThresholds = 4, kMostChoices = 64;

// Whether u compares the range with a constant; then also at which index its value changes.
bool IsThreshold(const UOp& u, const UOp& range, int64_t& at) {
  if (!u.is(Op::kCmpLt)) return false;
  if (u.src(0) == range && u.src(1).IsConst()) {
    at = u.src(1).vmin();
    return true;
  }
  if (u.src(1) == range && u.src(0).IsConst()) {
    at = u.src(0).vmin() + 1;
    return true;
  }
  return false;
}

// Values that such comparisons choose between: of a piece of the range one is left of each.
size_t ChoicesAlong(const RangeSets& sets, const UOp& range) {
  size_t n = 0;
  int64_t at;
  for (const UOp& u : sets.order()) n += u.is(Op::kWhere) && IsThreshold(u.src(0), range, at);
  return n;
}

// Lookups one after another, each at a place that the one before has shown, as in a binary search:
// then lanes wait together, and what they look up one by one is nothing beside that.
constexpr int kLongSearch = 4;

constexpr int64_t kLeastTurned = 4;  // elements of a side that make blocks worth turning
constexpr int64_t kMostInterleaved = 8;

// Bytes that one launch would move in whole vectors if the range became lanes, less those that it
// would gather or scatter one by one. What turns in blocks counts little, but does no harm.
double LaneScore(const UOp& range, const RangeSets& sets, const Target* vectors) {
  const RangeMask bit = sets.Bit(range);
  double score = 0;
  const bool searches = LookupsInTurn(sets.order(), range, sets) >= kLongSearch;
  const int64_t most_shuffled = MostShuffled(vectors ? LanesFor(range, sets, *vectors) : 1);
  absl::flat_hash_set<const Node*> written;
  for (const UOp& u : sets.order()) {
    if (WritesElements(u)) written.insert(u.src(0).get());
  }
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & bit)) continue;
    const Step s = StepOf(u.src(1), range, sets);
    const bool gated = u.size() == 3 && !DecidedByThresholds(u.src(2), range, sets);
    const bool adjacent = s.linear && (s.factor == 1 || s.factor == 0) && !gated;
    const bool is_written = written.contains(u.get());
    const bool turns = !gated && TurnsWith(u, range, sets);
    const int64_t most = is_written ? 1 : turns ? kLeastTurned : most_shuffled;
    const bool shuffled = s.linear && std::abs(s.factor) <= most && !(is_written && gated);
    const bool masked = s.linear && s.factor == 1;
    const double bytes = static_cast<double>(sets.Iterations(sets.Free(u))) * u.dtype().bytes();
    const bool between = vectors && is_written && InterleavesWith(range, sets);
    score += adjacent                        ? bytes
             : shuffled || masked || between ? bytes / 2
             : turns                         ? bytes / 8
             : searches && !is_written       ? 0
                                             : -2 * bytes;
  }
  return score;
}

}  // namespace

int64_t MostShuffled(int64_t lanes) { return std::clamp<int64_t>(lanes / 2, 4, 8); }

int LookupsInTurn(absl::Span<const UOp> order, const UOp& range, const RangeSets& sets) {
  const RangeMask bit = sets.Bit(range);
  absl::flat_hash_map<const Node*, int> depth;
  int deepest = 0;
  for (const UOp& u : order) {
    if (!(sets.Free(u) & bit)) continue;
    int d = 0;
    for (const UOp& s : u.srcs()) {
      if (const auto it = depth.find(s.get()); it != depth.end()) d = std::max(d, it->second);
    }
    d += u.is(Op::kIndex);
    depth.emplace(u.get(), d);
    deepest = std::max(deepest, d);
  }
  return deepest;
}

UOp TurnsWith(const UOp& load, const UOp& lane, const RangeSets& sets) {
  const UOp& sink = sets.order().back();
  if (!sink.is(Op::kSink) || load.size() != 2 || !load.src(0).is(Op::kParam)) return UOp();
  if (load.dtype().bytes() > 8 || lane.src(0).vmax() < kLeastTurned) return UOp();
  const Step jump = StepOf(load.src(1), lane, sets);
  if (!jump.linear || jump.factor == 0 || jump.factor == 1) return UOp();
  for (const UOp& r : ClosedRanges(sink.src(0))) {
    if (r == lane || r.src(0).vmax() < kLeastTurned || !r.src(0).IsConst()) continue;
    if (sets.ClosedBy(Op::kReduce) & sets.Bit(r)) continue;
    const Step s = StepOf(load.src(1), r, sets);
    if (s.linear && s.factor == 1) return r;
  }
  return UOp();
}

UOp InterleavesWith(const UOp& lane, const RangeSets& sets) {
  const UOp& sink = sets.order().back();
  if (!sink.is(Op::kSink)) return UOp();
  UOp store;
  for (const UOp& s : sink.srcs()) {
    if (!s.is(Op::kStore)) return UOp();
    const absl::Span<const UOp> closed = ClosedRanges(s);
    if (std::find(closed.begin(), closed.end(), lane) == closed.end()) continue;
    if (store) return UOp();
    store = s;
  }
  if (!store) return UOp();
  const UOp& index = store.src(0);
  const Step apart = StepOf(index.src(1), lane, sets);
  if (index.size() != 2 || !apart.linear || apart.factor < 2) return UOp();
  if (apart.factor > kMostInterleaved) return UOp();
  for (const UOp& r : ClosedRanges(store)) {
    const bool own = r != lane && r.arg<RangeArg>().kind == RangeKind::kLoop;
    const Step s = StepOf(index.src(1), r, sets);
    if (own && s.linear && s.factor == 1 && r.src(0).IsConst(apart.factor)) return r;
  }
  return UOp();
}

Step StepOf(const UOp& index, const UOp& range, const RangeSets& sets) {
  Step step;
  const RangeMask bit = sets.Bit(range);
  for (const Sum sum = ToSum(index); const Sum::Term& t : sum.terms) {
    if (t.term == range) {
      step.factor = t.factor;
    } else if (sets.Free(t.term) & bit) {
      step.linear = false;
    }
  }
  return step;
}

bool ChoosesBy(const UOp& u, const UOp& range) {
  absl::flat_hash_set<const Node*> depends;  // on the range, without reading anything by it
  for (const UOp& s : TopoSort({&u, 1})) {
    const bool by_range = s == range || std::any_of(s.srcs().begin(), s.srcs().end(), [&](auto& x) {
                            return depends.contains(x.get());
                          });
    if (by_range && !s.is(Op::kIndex)) depends.insert(s.get());
    const bool shift = s.is(Op::kShl) || s.is(Op::kShr);
    if ((shift || s.is(Op::kWhere)) && depends.contains(s.src(shift ? 1 : 0).get())) return true;
  }
  return false;
}

std::vector<int64_t> Thresholds(const RangeSets& sets, const UOp& range) {
  std::vector<int64_t> out;
  if (!range.src(0).IsConst()) return out;
  for (const UOp& u : sets.order()) {
    int64_t at;
    if (!IsThreshold(u, range, at) || at <= 0 || at >= range.src(0).vmax()) continue;
    if (std::find(out.begin(), out.end(), at) == out.end()) out.push_back(at);
  }
  const bool too_many = out.size() > kMostThresholds && out.size() > ChoicesAlong(sets, range);
  if (too_many || out.size() > kMostChoices) out.clear();
  std::sort(out.begin(), out.end());
  return out;
}

int64_t LongestPiece(const RangeSets& sets, const UOp& range) {
  int64_t longest = 0, begin = 0;
  for (const int64_t at : Thresholds(sets, range)) {
    longest = std::max(longest, at - begin);
    begin = at;
  }
  return std::max(longest, range.src(0).vmax() - begin);
}

size_t Choices(const RangeSets& sets, const UOp& range) {
  const size_t choices = ChoicesAlong(sets, range);
  return choices <= kMostChoices && Thresholds(sets, range).size() <= choices ? choices : 0;
}

RangePart DecidedPart(const RangeSets& sets, const UOp& range) {
  const RangeMask bit = sets.Bit(range);
  const int64_t n = range.src(0).vmax();
  const auto end = static_cast<double>(n);
  std::vector<RangePart> open;  // where one is not decided
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kCmpLt) || !(sets.Free(u) & bit) || u.src(0).dtype() != kInt64) continue;
    const Sum sum = ToSum(UOp::Make(Op::kSub, {UOp(u.src(1)), UOp(u.src(0))}));
    double step = 0;
    auto least = static_cast<double>(sum.constant), most = least;  // but for the range
    bool linear = true;
    for (const Sum::Term& t : sum.terms) {
      const auto factor = static_cast<double>(t.factor);
      if (t.term == range) {
        step = factor;
        continue;
      }
      linear &= !(sets.Free(t.term) & bit);
      const double x = factor * static_cast<double>(t.term.vmin());
      const double y = factor * static_cast<double>(t.term.vmax());
      least += std::min(x, y);
      most += std::max(x, y);
    }
    if (!linear || step == 0) return {0, n};
    // It is false up to where even the most, and true from where even the least is above 0; or the
    // other way around.
    const double first = step > 0 ? std::floor(-most / step) + 1 : std::ceil(-least / step);
    const double last = step > 0 ? std::floor(-least / step) + 1 : std::ceil(-most / step);
    const RangePart part{static_cast<int64_t>(std::clamp(first, 0.0, end)),
                         static_cast<int64_t>(std::clamp(last, 0.0, end))};
    if (part.begin < part.end) open.push_back(part);
  }
  std::sort(open.begin(), open.end(),
            [](const RangePart& a, const RangePart& b) { return a.begin < b.begin; });
  open.push_back({n, n});
  RangePart best;
  int64_t from = 0;
  for (const RangePart& part : open) {
    if (part.begin - from > best.end - best.begin) best = {from, part.begin};
    from = std::max(from, part.end);
  }
  return best;
}

bool DecidedByThresholds(const UOp& condition, const UOp& range, const RangeSets& sets) {
  const RangeMask bit = sets.Bit(range);
  if (!(sets.Free(condition) & bit)) return true;
  if (Thresholds(sets, range).empty()) return false;
  bool decided = true;
  WalkDown({&condition, 1}, [&](const UOp& u) {
    int64_t at;
    if (!decided || !(sets.Free(u) & bit) || IsThreshold(u, range, at)) return false;
    decided = !(u == range);
    return decided;
  });
  return decided;
}

namespace {

// Whether scratch is filled anew at each point of the range: lanes and copies would share it.
bool FillsScratch(const RangeSets& sets, const UOp& range) {
  if (FaultPlanted(Fault::kLanesShareScratch)) return false;
  for (const UOp& u : sets.order()) {
    if (u.is(Op::kStage) && (sets.Free(u) & sets.Bit(range))) return true;
  }
  return false;
}

}  // namespace

UOp BestLaneRange(const RangeSets& sets, const Target* vectors) {
  // A nest may stand inside loops that are not its own.
  RangeMask own = 0;
  for (const Op op : {Op::kStore, Op::kUpdate, Op::kReduce}) own |= sets.ClosedBy(op);
  UOp best;
  double best_score = 0;
  for (const UOp& r : sets.ranges()) {
    if (!(own & sets.Bit(r))) continue;
    const int64_t length = vectors ? LongestPiece(sets, r) : r.src(0).vmax();
    if (length < kFewestIterations || FillsScratch(sets, r)) continue;
    double score = LaneScore(r, sets, vectors);
    if (sets.ClosedBy(Op::kReduce) & sets.Bit(r)) {
      score *= 0.99;  // of two alike, the one along which no lanes are left to be combined
      const int64_t lanes = vectors ? LanesFor(r, sets, *vectors) : 1;
      if (2 * length < lanes) score *= static_cast<double>(length) / static_cast<double>(lanes);
    }
    if (score > best_score) {
      best = r;
      best_score = score;
    }
  }
  return best;
}

int64_t LanesFor(const UOp& range, const RangeSets& sets, const Target& target) {
  const RangeMask bit = sets.Bit(range);
  int widest = 1;
  for (const UOp& u : sets.order()) {
    if (!(sets.Free(u) & bit) || u.dtype().IsVoid() || u.is(Op::kRange)) continue;
    if (u.dtype() == kInt64 && !u.is(Op::kIndex)) continue;  // mostly indices
    // Narrow floats are computed in f32.
    widest = std::max({widest, u.dtype().bytes(), u.dtype().IsFloat() ? 4 : 1});
  }
  return std::max<int64_t>(1, target.vector_bytes / widest);
}

int64_t AlignmentOf(const UOp& index, int64_t most) {
  const Sum sum = ToSum(index);
  int64_t n = most;
  while (n > 1 && sum.constant % n != 0) n /= 2;
  for (const Sum::Term& t : sum.terms) {
    while (n > 1 && t.factor % n != 0) n /= 2;
  }
  return n;
}

int64_t VectorLanes(const UOp& range, const RangeSets& sets) {
  const RangeMask bit = sets.Bit(range);
  if (!range.src(0).IsConst()) return 1;
  int widest = 1;
  int64_t lanes = kVectorBytes;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kIndex) || !(sets.Free(u) & bit)) continue;
    if (u.size() == 3 && (sets.Free(u.src(2)) & bit)) return 1;
    const Sum sum = ToSum(u.src(1));
    const Step step = StepOf(u.src(1), range, sets);
    if (!step.linear || (step.factor != 1 && step.factor != 0)) return 1;
    widest = std::max(widest, u.dtype().bytes());
    if (step.factor == 0) continue;
    while (sum.constant % lanes != 0) lanes /= 2;
    for (const Sum::Term& t : sum.terms) {
      while (!(t.term == range) && t.factor % lanes != 0) lanes /= 2;
    }
  }
  lanes = std::min({lanes, kVectorBytes / widest, int64_t{8}});
  while (lanes > 1 && range.src(0).vmax() % lanes != 0) lanes /= 2;
  return lanes;
}

}  // namespace tessera
