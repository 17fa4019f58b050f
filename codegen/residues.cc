// Loops by residues.
#include "codegen/residues.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "graph/index_math.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// Of an element. They are written out, or lanes where they are many; what is not in two is
// gathered. (131,072 numbers made of others repeated 16 or 64 times between borders: 130 us so, 15
// in two.)
constexpr int64_t kMostPlaces = 64;
// Of the loop with lanes, one for each place of the others, which saves a little: images put
// together every 4 x 4 take a sixth less with 16 copies than with 1. Text grows with them.
constexpr int64_t kMostCopies = 16;
constexpr int64_t kLeastElements = 4;  // fewer have no lanes

// How the loop is divided: by how much, and from which point on an element's places are together.
struct Division {
  int64_t by = 0, first = 0;
};

// Of a division or a remainder of the range and a constant; nothing where it is none.
Division DivisionOf(const UOp& u, const UOp& range) {
  if (!u.is(Op::kFloorDiv) && !u.is(Op::kFloorMod)) return {};
  if (!u.src(1).IsConst() || !(u.dtype() == kInt64)) return {};
  const int64_t by = u.src(1).vmin();
  const Sum sum = ToSum(u.src(0));
  if (by < 2 || by > kMostPlaces || sum.terms.size() != 1) return {};
  if (!(sum.terms[0].term == range) || sum.terms[0].factor != 1) return {};
  return {by, ((-sum.constant) % by + by) % by};
}

// How the loop is divided where lanes along it would be gathered, or something is chosen by what is
// left of the division; else nothing.
Division DivisionAlong(const RangeSets& sets, const UOp& range) {
  Division out;
  bool chooses = false;
  absl::flat_hash_set<const Node*> divided;
  for (const UOp& u : sets.order()) {
    if (!(sets.Free(u) & sets.Bit(range)) || u.is(Op::kIndex)) continue;
    const Division d = DivisionOf(u, range);
    if (out.by != 0 && d.by != 0 && d.by != out.by) return {};
    if (out.by == 0) out = d;
    const bool of_one = std::any_of(u.srcs().begin(), u.srcs().end(),
                                    [&](const UOp& s) { return divided.contains(s.get()); });
    chooses |= of_one && u.dtype().IsBool();
    if (d.by != 0 || (of_one && u.dtype() == kInt64)) divided.insert(u.get());
  }
  const UOp& place = sets.order().back().src(0).src(0).src(1);
  const Step step = StepOf(place, range, sets);
  return chooses || (step.linear && step.factor == 1) ? out : Division();
}

}  // namespace

UOp SplitResidues(const UOp& sink, const Target& target) {
  if (sink.size() != 1 || !sink.src(0).is(Op::kStore)) return UOp();
  UOp out = sink;
  std::vector<UOp> places;
  int64_t copies = 1;
  const absl::Span<const UOp> loops = ClosedRanges(sink.src(0));
  for (const UOp& r : std::vector<UOp>(loops.rbegin(), loops.rend())) {
    const RangeSets sets(out);
    const Division d = r.src(0).IsConst() ? DivisionAlong(sets, r) : Division();
    const int64_t n = r.src(0).vmax(), elements = d.by == 0 ? 0 : (n - d.first) / d.by;
    const RangeKind kind = r.arg<RangeArg>().kind;
    if (elements < kLeastElements || (sets.ClosedBy(Op::kReduce) & sets.Bit(r))) continue;
    if (!places.empty() && copies * d.by > kMostCopies) continue;
    if (kind != RangeKind::kLoop && kind != RangeKind::kGrid) continue;
    int64_t id = FreshRangeId(sets);
    const auto range = [&](int64_t extent, RangeKind of) {
      return UOp::Make(Op::kRange, kInt64, {UOp::Index(extent)}, RangeArg{id++, of});
    };
    std::vector<LoopSegment> segments;
    const auto add = [&](int64_t begin, int64_t count) {
      if (count == 0) return;
      if (count == 1 && kind == RangeKind::kLoop) {
        segments.push_back({UOp::Index(begin), {}});
        return;
      }
      const UOp rest = range(count, kind);
      segments.push_back({Plus(rest, UOp::Index(begin)), {rest}});
    };
    add(0, d.first);
    const UOp element = range(elements, kind), place = range(d.by, RangeKind::kLoop);
    segments.push_back(
        {Plus(Plus(Times(element, d.by), place), UOp::Index(d.first)), {element, place}});
    add(d.first + elements * d.by, n - d.first - elements * d.by);
    out = Simplify(SplitIntoSegments(out, r, segments));
    if (!places.empty()) copies *= d.by;
    places.push_back(place);
  }
  if (places.empty()) return UOp();
  const UOp best = BestLaneRange(RangeSets(out), &target);
  if (!best) return UOp();
  const UOp between = InterleavesWith(best, RangeSets(out));
  for (const UOp& place : places) {
    if (!(place == between)) out = Tile(out, place, place.src(0).vmax(), 1);
  }
  return Simplify(out);
}

}  // namespace tessera
