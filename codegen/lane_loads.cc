// Loads of lanes.
#include "codegen/lane_loads.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/lane_values.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "graph/fault.h"

namespace tessera {
namespace {

constexpr int kLeastSearch = 2;        // lookups that one waits for
constexpr int64_t kFarOutside = 1024;  // elements from an operand, about a page

}  // namespace

LaneLoads::LaneLoads(const RangeSets& sets, const UOp& range, bool shuffles,
                     const NodeMap<UOp>& done)
    : sets_(sets),
      bit_(sets.Bit(range)),
      range_(range),
      lanes_(range.src(0).vmax()),
      shuffles_(shuffles),
      done_(done) {}

UOp LaneLoads::Of(const UOp& u) const {
  int64_t stride;
  const bool linear = LaneStride(u.src(1), range_, stride);
  if (linear && FaultPlanted(Fault::kLanesNotAdjacent)) stride = 1;
  if (linear && stride == 1) {
    return Vector(u, Within(u, AtLane(u.src(1), range_, 0)), GateOf(u), lanes_);
  }
  if (linear && shuffles_ && std::abs(stride) <= MostShuffled(lanes_) && stride != 0) {
    return Shuffled(u, stride);
  }
  if (shuffles_ && !GatesLanes(u)) {
    if (const UOp runs = InRuns(u)) return runs;
  }
  std::vector<UOp> parts;
  const std::vector<UOp> places = SearchedPlaces(u);
  for (int64_t l = 0; l < lanes_; ++l) {
    std::vector<UOp> srcs = {done_.At(u.src(0).get()), places[l]};
    if (u.size() == 3) srcs.push_back(AtLane(u.src(2), range_, l));
    parts.push_back(UOp::Make(Op::kIndex, srcs));
  }
  return OfScalars(parts);
}

// So many neighbours from a place on.
UOp LaneLoads::Vector(const UOp& u, const UOp& place, const UOp& gate, int64_t lanes) const {
  std::vector<UOp> srcs = {done_.At(u.src(0).get()), place};
  if (gate) srcs.push_back(gate);
  return UOp::Make(Op::kLoad, u.dtype().WithLanes(static_cast<int>(lanes)), srcs, int64_t{0});
}

// One for all lanes, or one each; or nothing.
UOp LaneLoads::GateOf(const UOp& u) const {
  return u.size() == 3 ? UOp(done_.At(u.src(2).get())) : UOp();
}

// Whether each lane has a gate of its own.
bool LaneLoads::GatesLanes(const UOp& u) const {
  return u.size() == 3 && (sets_.Free(u.src(2)) & bit_) != 0;
}

// Where the lanes of a load lie. What was found by one lookup after another is in vectors already,
// and would be looked up again for each lane by itself.
std::vector<UOp> LaneLoads::SearchedPlaces(const UOp& u) const {
  const UOp& place = done_.At(u.src(1).get());
  const bool in_vectors = place.dtype().lanes() == lanes_;
  if (!in_vectors || LookupsInTurn(TopoSort({&u.src(1), 1}), range_, sets_) < kLeastSearch) {
    return AtLanes(u.src(1), range_);
  }
  std::vector<UOp> out;
  for (int64_t l = 0; l < lanes_; ++l) {
    out.push_back(UOp::Make(Op::kLane, u.src(1).dtype(), {place}, l));
  }
  return out;
}

// Where a vector of which each lane has a gate lies: at the beginning, where what gates all lanes
// alike is closed, if else it could lie far outside. (Memory that is not mapped takes hundreds of
// cycles to be left alone: padding of every axis took 26 times as long.)
UOp LaneLoads::Within(const UOp& u, const UOp& at) const {
  if (!GatesLanes(u) || !u.src(0).is(Op::kParam)) return at;
  const Extent n = Shape(u.src(0).arg<ParamArg>().shape).Elements();
  if (at.vmin() >= -kFarOutside && n.is_int() && at.vmax() <= n.value() + kFarOutside) return at;
  UOp alike;
  std::vector<UOp> stack = {UOp(u.src(2))};
  while (!stack.empty()) {
    const UOp gate = stack.back();
    stack.pop_back();
    if (gate.is(Op::kAnd)) {
      stack.insert(stack.end(), gate.srcs().begin(), gate.srcs().end());
    } else if (!(sets_.Free(gate) & bit_)) {
      const UOp& term = done_.At(gate.get());
      alike = alike ? UOp::Make(Op::kAnd, {alike, term}) : term;
    }
  }
  return alike ? UOp::Make(Op::kWhere, {alike, at, UOp::Index(0)}) : at;
}

// Lanes in runs of neighbours: a vector of each run. Or nothing.
UOp LaneLoads::InRuns(const UOp& u) const {
  const std::vector<int64_t> offsets = LaneOffsets(u.src(1), range_);
  const bool by_rows = offsets.empty();  // where each row is depends on what is read elsewhere
  const std::vector<UOp> places = by_rows ? AtLanes(u.src(1), range_) : std::vector<UOp>();
  const int64_t run = by_rows ? RunOfNeighbours(places) : RunLength(offsets);
  if (run < kLeastLanes) return Repeated(u, offsets);
  const UOp first = AtLane(u.src(1), range_, 0);
  std::vector<UOp> parts;
  for (int64_t l = 0; l < lanes_; l += run) {
    parts.push_back(Vector(u, by_rows ? places[l] : Ahead(first, offsets[l]), GateOf(u), run));
  }
  return Joined(parts);
}

// Lanes in runs that read the same, of which some are neighbours: each of them once. Or nothing.
UOp LaneLoads::Repeated(const UOp& u, const std::vector<int64_t>& offsets) const {
  const int64_t n = static_cast<int64_t>(offsets.size());
  int64_t run = 1;
  while (run < n && offsets[run] == 0) ++run;
  if (run == 1 || n == 0 || n % run != 0 || n / run < 2) return UOp();
  std::vector<int64_t> each;
  Ints from;
  for (int64_t l = 0; l < n; ++l) {
    if (l % run == 0) each.push_back(offsets[l]);
    if (offsets[l] != each.back()) return UOp();
    from.push_back(l / run);
  }
  const int64_t neighbours = RunLength(each);
  if (neighbours == 1) return UOp();
  const UOp first = AtLane(u.src(1), range_, 0);
  std::vector<UOp> parts;
  for (int64_t l = 0; l < n; l += run * neighbours) {
    parts.push_back(Vector(u, Ahead(first, offsets[l]), GateOf(u), neighbours));
  }
  const UOp loaded = Joined(parts);
  return loaded ? Moved(loaded, loaded, from) : UOp();
}

// Lanes that lie a few elements apart, or backward: the vectors from the first of them on and up to
// the last, of which they are taken. Nothing beyond them is read; where each lane has a gate of its
// own, nothing but what gates let through.
UOp LaneLoads::Shuffled(const UOp& u, int64_t stride) const {
  const int64_t step = std::abs(stride);
  const UOp low = AtLane(u.src(1), range_, stride > 0 ? 0 : lanes_ - 1);
  const UOp gate = GateOf(u);
  const int64_t reach = (lanes_ - 1) * step + 1, vectors = (reach + lanes_ - 1) / lanes_;
  const auto begin_of = [&](int64_t v) { return std::min(v * lanes_, reach - lanes_); };
  const auto place = [&](int64_t l) { return (stride > 0 ? l : lanes_ - 1 - l) * step; };
  const auto vector = [&](int64_t begin) {
    if (!gate || gate.dtype().lanes() == 1) return Vector(u, Ahead(low, begin), gate, lanes_);
    Ints lane(lanes_, lanes_);  // of each element, or none
    for (int64_t l = 0; l < lanes_; ++l) {
      const int64_t i = place(l) - begin;
      if (i >= 0 && i < lanes_) lane[i] = l;
    }
    const UOp none = UOp::Make(Op::kSplat, gate.dtype(), {UOp::Const(kBool, Scalar())});
    return Vector(u, Ahead(low, begin), Moved(gate, none, lane), lanes_);
  };
  UOp out = vector(0);
  for (int64_t v = 1; v < std::max<int64_t>(2, vectors); ++v) {
    const UOp next = vectors == 1 ? out : vector(begin_of(v));
    Ints from;
    for (int64_t l = 0; l < lanes_; ++l) {
      const int64_t at = place(l), in = std::min(at / lanes_, vectors - 1);
      from.push_back(in == v ? lanes_ + at - begin_of(v) : in == 0 && v == 1 ? at : l);
    }
    out = Moved(out, next, from);
  }
  return out;
}

// Lanes of two vectors by number.
UOp LaneLoads::Moved(const UOp& a, const UOp& b, const Ints& from) const {
  return UOp::Make(Op::kShuffle, a.dtype().WithLanes(static_cast<int>(from.size())), {a, b}, from);
}

}  // namespace tessera
