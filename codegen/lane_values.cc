// Values at lanes.
#include "codegen/lane_values.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "graph/index_math.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// The value of an index expression of this range and constants alone, or nothing.
std::optional<int64_t> At(const UOp& u, const UOp& range, int64_t point) {
  if (u == range) return point;
  if (u.IsConst()) return u.vmin();
  if (u.size() != 2) return std::nullopt;
  const std::optional<int64_t> a = At(u.src(0), range, point), b = At(u.src(1), range, point);
  if (!a || !b) return std::nullopt;
  if (u.is(Op::kAdd)) return *a + *b;
  if (u.is(Op::kMul)) return *a * *b;
  if (*a < 0 || *b <= 0) return std::nullopt;
  if (u.is(Op::kFloorDiv)) return *a / *b;
  if (u.is(Op::kFloorMod)) return *a % *b;
  return std::nullopt;
}

// Stages that are filled over all of the range: what they have does not depend on it.
void LeaveFilled(const UOp& u, const UOp& range, Substitution& map) {
  for (const UOp& stage : TopoSort({&u, 1})) {
    if (!stage.is(Op::kStage)) continue;
    for (const UOp& filled : stage.srcs().subspan(1)) {
      const absl::Span<const UOp> closed = ClosedRanges(filled);
      if (std::find(closed.begin(), closed.end(), range) != closed.end()) map.emplace(stage, stage);
    }
  }
}

}  // namespace

UOp AtLane(const UOp& u, const UOp& range, int64_t lane) {
  int64_t stride;
  if (!(u.dtype() == kInt64) || !LaneStride(u, range, stride)) {
    Substitution map = {{range, UOp::Index(lane)}};
    LeaveFilled(u, range, map);
    return Simplify(Substitute(u, map));
  }
  // The range is a term of a sum, which becomes a number.
  Sum sum = ToSum(u);
  const auto is_range = [&range](const Sum::Term& t) { return t.term == range; };
  sum.terms.erase(std::remove_if(sum.terms.begin(), sum.terms.end(), is_range), sum.terms.end());
  sum.constant += stride * lane;
  return Simplify(FromSum(sum, kInt64));
}

std::vector<UOp> AtLanes(const UOp& u, const UOp& range) {
  std::vector<UOp> out = {AtLane(u, range, 0)};
  const std::vector<int64_t> offsets =
      u.dtype() == kInt64 ? LaneOffsets(u, range) : std::vector<int64_t>();
  for (int64_t l = 1; l < range.src(0).vmax(); ++l) {
    out.push_back(offsets.empty() ? AtLane(u, range, l) : Ahead(out[0], offsets[l]));
  }
  return out;
}

UOp Ahead(const UOp& index, int64_t by) {
  Sum sum = ToSum(index);
  sum.constant += by;
  return FromSum(sum, kInt64);
}

bool LaneStride(const UOp& index, const UOp& range, int64_t& stride) {
  stride = 0;
  for (const Sum sum = ToSum(index); const Sum::Term& t : sum.terms) {
    if (t.term == range) {
      stride = t.factor;
    } else if (DependsOn(t.term, range)) {
      return false;
    }
  }
  return true;
}

std::vector<int64_t> LaneOffsets(const UOp& index, const UOp& range) {
  std::vector<int64_t> out(range.src(0).vmax(), 0);
  for (const Sum sum = ToSum(index); const Sum::Term& t : sum.terms) {
    if (!DependsOn(t.term, range)) continue;
    for (size_t l = 0; l < out.size(); ++l) {
      const std::optional<int64_t> at = At(t.term, range, static_cast<int64_t>(l));
      if (!at) return {};
      out[l] += *at * t.factor;
    }
  }
  for (size_t l = out.size(); l-- > 0;) out[l] -= out[0];
  return out;
}

int64_t RunLength(const std::vector<int64_t>& offsets) {
  const int64_t n = static_cast<int64_t>(offsets.size());
  int64_t run = 1;
  while (run < n && offsets[run] == offsets[0] + run) ++run;
  run = int64_t{1} << std::bit_width(static_cast<uint64_t>(run)) >> 1;
  if (run == 0 || n % run != 0) return 1;
  for (int64_t l = 0; l < n; ++l) {
    if (offsets[l] != offsets[l - l % run] + l % run) return 1;
  }
  return run;
}

int64_t RunOfNeighbours(const std::vector<UOp>& places) {
  const auto is_ahead = [&](size_t l, size_t of) {
    const UOp apart = Simplify(UOp::Make(Op::kSub, {UOp(places[l]), UOp(places[of])}));
    return apart.IsConst(static_cast<int64_t>(l - of));
  };
  size_t run = 1;
  while (run < places.size() && is_ahead(run, 0)) ++run;
  run = std::bit_floor(run);
  if (places.size() % run != 0) return 1;
  for (size_t l = run; l < places.size(); ++l) {
    if (!is_ahead(l, l - l % run)) return 1;
  }
  return static_cast<int64_t>(run);
}

UOp Joined(std::vector<UOp> parts) {
  while (parts.size() > 1) {
    std::vector<UOp> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) {
      Ints from(2 * parts[i].dtype().lanes());
      for (size_t l = 0; l < from.size(); ++l) {
        // Of one vector twice, lanes of the first alone.
        from[l] = static_cast<int64_t>(parts[i] == parts[i + 1] ? l % (from.size() / 2) : l);
      }
      const DType wide = parts[i].dtype().WithLanes(static_cast<int>(from.size()));
      next.push_back(UOp::Make(Op::kShuffle, wide, {parts[i], parts[i + 1]}, from));
    }
    if (parts.size() % 2 == 1) return UOp();
    parts = std::move(next);
  }
  return parts[0];
}

UOp OfScalars(const std::vector<UOp>& parts) {
  const int lanes = static_cast<int>(parts.size());
  size_t run = 1;
  while (run < parts.size() && parts[run] == parts[0]) ++run;
  std::vector<UOp> distinct;
  Ints from;
  for (size_t l = 0; l < parts.size(); ++l) {
    if (l % run == 0) distinct.push_back(parts[l]);
    if (!(parts[l] == distinct.back())) run = 0;
    if (run == 0) break;
    from.push_back(static_cast<int64_t>(l / run));
  }
  const DType dtype = parts[0].dtype();
  if (run < 2 || distinct.size() < 2) return UOp::Make(Op::kLanes, dtype.WithLanes(lanes), parts);
  const UOp few =
      UOp::Make(Op::kLanes, dtype.WithLanes(static_cast<int>(distinct.size())), distinct);
  return UOp::Make(Op::kShuffle, dtype.WithLanes(lanes), {few, few}, from);
}

}  // namespace tessera
