// Staging of windows.
#include "codegen/windows.h"

#include <algorithm>

#include "codegen/lanes.h"
#include "codegen/panels.h"
#include "codegen/split.h"
#include "codegen/stage.h"
#include "graph/index_math.h"
#include "graph/merge_ranges.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kLeastPlaces = 3;  // of a window
// Rows that take as long as laying out the places of windows along the adjacent columns.
constexpr int64_t kRowsOfLayingOut = 6;

// A loop over the result and one of the sum that move the operand as one.
struct Window {
  UOp column, step;
  int64_t dilation = 1;
  UOp place;  // a range over all that they reach
  UOp sum() const { return Plus(column, Times(step, dilation)); }
};

// By how many steps of `column` one of `step` moves every load that moves; 0 where that is no whole
// number.
int64_t DilationOf(const UOp& b, const UOp& column, const UOp& step, const RangeSets& sets) {
  int64_t out = 0;
  for (const UOp& u : TopoSort({&b, 1})) {
    if (!u.is(Op::kIndex)) continue;
    const Step x = StepOf(u.src(1), column, sets), y = StepOf(u.src(1), step, sets);
    if (!x.linear || !y.linear) return 0;
    if (x.factor == 0 && y.factor == 0) continue;
    if (x.factor == 0 || y.factor % x.factor != 0) return 0;
    const int64_t ratio = y.factor / x.factor;
    if (ratio < 1 || (out != 0 && ratio != out)) return 0;
    out = ratio;
  }
  return out;
}

class Windows {
 public:
  // Of the operand of the columns, or what is widened of it: those of the adjacent columns as well,
  // or of the others alone.
  Windows(const UOp& sink, const Contraction& c, const UOp& b, bool adjacent)
      : sets_(sink), c_(c), b_(b), value_(b) {
    int64_t id = FreshRangeId(sets_);
    for (const UOp& column : c.columns) {
      if (column == c.lane && !adjacent) continue;
      // Of what the cores share each reaches a part.
      if (column.arg<RangeArg>().kind != RangeKind::kLoop || !column.src(0).IsConst()) continue;
      for (const UOp& step : c.inner) {
        if (!step.src(0).IsConst()) continue;
        Window w{column, step, DilationOf(b, column, step, sets_), UOp()};
        if (w.dilation == 0) continue;
        const int64_t columns = column.src(0).vmax(), steps = step.src(0).vmax();
        const int64_t reach = columns + (steps - 1) * w.dilation;
        if (reach > columns * steps / 2) continue;  // they hardly overlap, if at all
        w.place =
            UOp::Make(Op::kRange, kInt64, {UOp::Index(reach)}, RangeArg{id++, RangeKind::kLoop});
        const UOp at = Plus(w.place, Times(step, -w.dilation));
        const UOp moved = Simplify(Substitute(value_, {{column, at}}));
        if (DependsOn(moved, step) || DependsOn(moved, column)) continue;
        value_ = moved;
        windows_.push_back(w);
        places_ *= steps;
        break;  // the column is in place of both
      }
    }
    next_id_ = id;
  }
  auto begin() const { return windows_.begin(); }
  auto end() const { return windows_.end(); }
  int64_t places() const { return places_; }
  bool IsOver(const UOp& column) const {
    return std::any_of(begin(), end(), [&](const Window& w) { return w.column == column; });
  }

  // Whether a loop that moves the operand by itself runs within one over windows: what is laid out
  // would be so again at each of its points.
  bool HoldOthers() const {
    bool within = false;
    for (const UOp& r : c_.columns) {
      if (r == c_.lane) continue;
      const bool is = IsOver(r);
      if (!is && within && DependsOn(b_, r)) return true;
      within |= is;
    }
    return false;
  }

  bool AreFixed() const {
    const std::vector<UOp> over = Over();
    return std::all_of(over.begin(), over.end(), [](const UOp& r) { return r.src(0).IsConst(); });
  }

  // What one stage holds; at most what no cache does.
  int64_t Bytes() const {
    int64_t out = value_.dtype().bytes();
    for (const UOp& r : Over()) out = std::min(out * r.src(0).vmax(), int64_t{1} << 31);
    return out;
  }

  // The kernel that reads the operand from a stage, filled by so many lanes.
  UOp Staged(const UOp& sink, int64_t lanes) {
    const std::vector<UOp> over = Over();
    Substitution there, read;
    std::vector<UOp> fill;
    for (const UOp& r : over) {
      fill.push_back(
          UOp::Make(Op::kRange, kInt64, {r.src(0)}, RangeArg{next_id_++, RangeKind::kLoop}));
      there.emplace(r, fill.back());
    }
    for (const Window& w : windows_) read.emplace(w.place, w.sum());
    const Places places = PlacesOf(over);
    const UOp stage = MakeStage(FreshStageId(sink), places.count, Substitute(places.at, there),
                                Substitute(value_, there), fill);
    const UOp at = Simplify(Substitute(places.at, read));
    const UOp out = Substitute(sink, {{b_, UOp::Make(Op::kIndex, {stage, at})}});
    return TileDecided(out, fill.back(), lanes);
  }

 private:
  // What a stage runs over, the result's adjacent loop last.
  std::vector<UOp> Over() const {
    std::vector<UOp> out;
    for (const UOp& r : c_.inner) {
      if (DependsOn(value_, r)) out.push_back(r);
    }
    for (const Window& w : windows_) {
      if (!(w.column == c_.lane)) out.push_back(w.place);
    }
    if (DependsOn(value_, c_.lane)) out.push_back(c_.lane);
    for (const Window& w : windows_) {
      if (w.column == c_.lane) out.push_back(w.place);
    }
    return out;
  }

  const RangeSets sets_;
  const Contraction& c_;
  const UOp b_;
  UOp value_;
  std::vector<Window> windows_;
  int64_t places_ = 1, next_id_ = 0;
};

// The kernel with these windows staged, in parts if they are too many.
UOp StageThem(const UOp& sink, const Contraction& c, bool narrow, Windows& windows, int64_t lanes,
              const Target& target) {
  const int64_t bytes = windows.Bytes(), most = target.l2_bytes * 3 / 4;
  if (bytes <= most) {
    const UOp staged = windows.Staged(sink, lanes);
    return windows.IsOver(c.lane) ? staged : MergeRanges(ColumnsOutward(staged, c));
  }
  for (const Window& w : windows) {  // each part has some places besides its own
    if (w.column == c.lane) continue;
    const int64_t extent = w.column.src(0).vmax(), reach = w.place.src(0).vmax();
    const int64_t besides = reach - extent, fit = most / (bytes / reach) - besides;
    const int64_t part = LargestDivisor(extent, std::max<int64_t>(1, fit));
    if (part > fit || part < besides) continue;
    const UOp split = SplitRange(sink, w.column, part).sink;
    const std::optional<Contraction> again = FindPairwise(RangeSets(split));
    return again ? StageWindows(split, *again, narrow, lanes, target) : UOp();
  }
  return UOp();
}

}  // namespace

int64_t WindowsOfElement(const Contraction& c, const RangeSets& sets) {
  int64_t out = 1;
  for (const UOp& step : c.inner) {
    const auto moves = [&](const UOp& column) { return DilationOf(c.b, column, step, sets) != 0; };
    if (std::any_of(c.columns.begin(), c.columns.end(), moves)) out *= step.src(0).vmax();
  }
  return out;
}

UOp StageWindows(const UOp& sink, const Contraction& c, bool narrow, int64_t lanes,
                 const Target& target) {
  if (narrow && !TakesSteps(c, target)) return UOp();
  if (c.lane.arg<RangeArg>().kind != RangeKind::kLoop) return UOp();
  const int64_t columns = c.lane.src(0).vmax(), rows = Longest(c.rows).src(0).vmax();
  const int64_t idle = (columns + lanes - 1) / lanes * lanes - columns;
  for (const bool adjacent : {true, false}) {
    // Of one vector a tile would have too little to do for what it loads.
    const bool few = columns < 2 * lanes || idle > columns * kRowsOfLayingOut / rows;
    if (narrow ? !adjacent : adjacent && few) continue;
    Windows windows(sink, c, narrow ? UOp(c.b.src(0)) : c.b, adjacent);
    if (adjacent && !windows.IsOver(c.lane)) continue;
    if (windows.places() < kLeastPlaces) continue;
    if (!windows.AreFixed() || windows.HoldOthers()) continue;
    if (const UOp out = StageThem(sink, c, narrow, windows, lanes, target)) return out;
  }
  return UOp();
}

}  // namespace tessera
