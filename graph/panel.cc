// Sizes of panels, and the order of what lies in them.
#include "graph/panel.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "graph/index_math.h"
#include "graph/simplify.h"
#include "graph/walk.h"

namespace tessera {

int64_t MostOfPanel(const Target& target) {
  return std::max(target.l2_bytes * 3 / 4, target.cache_bytes / (2 * target.cores));
}

int64_t BytesOfRowBlock(const Target& target, bool shared) {
  return shared ? target.cache_bytes / 4 : target.cache_bytes / (2 * target.cores);
}

int64_t MostTileRows(const Target& target) { return target.vector_registers >= 32 ? 8 : 6; }

int64_t VectorsOfPanel(const Target& target, int64_t columns, int64_t lanes, int64_t steps) {
  const int64_t all = columns / lanes;
  const bool halves = all == 4 && target.tile_vectors == 3;  // better than 3 and 1
  const int64_t vectors = halves ? 2 : std::min<int64_t>(all, target.tile_vectors);
  const bool fits = vectors > 1 && steps <= MostOfPanel(target) / (vectors * target.vector_bytes);
  return fits ? vectors : 1;
}

bool IsTile(DType t) { return t.lanes() > 1 && t.bytes() * t.lanes() == kBytesOfTile; }

int64_t BytesOfTileRows(const Target& target) { return target.l2_bytes / 2; }

bool HasTiles(DType operand, const Target& target) {
  if (target.dialect != Dialect::kCpp) return false;
  if (operand == kBFloat16) return absl::StrContains(target.features, "+amx-bf16");
  const bool bytes = operand.IsInt() && operand.bits() == 8;
  return bytes && absl::StrContains(target.features, "+amx-int8");
}

Target WithoutTiles(const Target& target) {
  Target out = target;
  out.features = absl::StrReplaceAll(target.features, {{"+amx-", "-amx-"}});
  return out;
}

bool AreOfTiles(const UOp& product, const Target& target) {
  if (!product.is(Op::kMul)) return false;
  return std::all_of(product.srcs().begin(), product.srcs().end(), [&](const UOp& x) {
    if (!x.is(Op::kCast) || !HasTiles(x.src(0).dtype(), target)) return false;
    return x.dtype() == (x.src(0).dtype() == kBFloat16 ? kFloat32 : kInt32);
  });
}

bool IsWidened(const UOp& u) {
  return u.is(Op::kCast) && u.dtype() == kFloat32 && u.src(0).dtype() == kBFloat16;
}

bool SumsPairs(const Target& target) {
  return target.dialect == Dialect::kCpp && absl::StrContains(target.features, "+avx512bf16");
}

bool MultipliesTwoSigns(const Target& target) {
  return target.dialect == Dialect::kCpp && (absl::StrContains(target.features, "+avx512vnni") ||
                                             absl::StrContains(target.features, "+avxvnni"));
}

bool SumsBytes(const Target& target) {
  if (MultipliesTwoSigns(target)) return true;
  return target.dialect == Dialect::kCpp && (absl::StrContains(target.features, "+dotprod") ||
                                             absl::StrContains(target.features, "+i8mm"));
}

UOp PairsOf(const UOp& reduce, const Target& target) {
  if (!SumsPairs(target)) return UOp();
  const UOp& product = reduce.src(0);
  const bool sums = reduce.arg<ReduceArg>().op == Op::kAdd && product.is(Op::kMul);
  if (!sums || !IsWidened(product.src(0)) || !IsWidened(product.src(1))) return UOp();
  const UOp& last = reduce.srcs().back();
  const bool loop = last.is(Op::kRange) && last.arg<RangeArg>().kind == RangeKind::kLoop;
  return loop && last.src(0).IsConst() && last.src(0).vmax() >= kStepsOfPair ? last : UOp();
}

Places PlacesOf(const std::vector<UOp>& ranges, const UOp& pairs, int64_t gap, size_t of_row) {
  Places out{UOp::Index(0), 1};
  if (pairs) out = {Modulo(pairs, kStepsOfPair), kStepsOfPair};
  for (size_t i = ranges.size(); i-- > 0;) {
    const bool paired = pairs && ranges[i] == pairs;
    const UOp point = paired ? Over(pairs, kStepsOfPair) : ranges[i];
    const int64_t extent = ranges[i].src(0).vmax();
    out.at = Plus(out.at, Times(point, out.count));
    out.count *= paired ? (extent + kStepsOfPair - 1) / kStepsOfPair : extent;
    if (i + of_row == ranges.size()) out.count += gap;
  }
  out.at = Simplify(out.at);
  return out;
}

UOp PlaceInRowTiles(const UOp& row, const UOp& step, int64_t deep, int64_t steps) {
  const UOp tile = Plus(Times(Over(row, kRowsOfTile), deep), Over(step, steps));
  const UOp within = Plus(Times(Modulo(row, kRowsOfTile), steps), Modulo(step, steps));
  return Plus(Times(tile, kRowsOfTile * steps), within);
}

bool LiesInPairs(const UOp& operand, const UOp& pairs) {
  if (!pairs || !operand || !IsWidened(operand) || !operand.src(0).is(Op::kIndex)) return false;
  const UOp& at = operand.src(0).src(1);
  const auto is_within = [&](const UOp& u) {
    return u.is(Op::kFloorMod) && u.src(0) == pairs && u.src(1).IsConst(kStepsOfPair);
  };
  if (!pairs.src(0).IsConst(kStepsOfPair)) return bool(FindBelow({&at, 1}, is_within));
  // One pair: its step is where it is in it.
  const Sum sum = ToSum(at);
  return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Sum::Term& t) {
    return t.term == pairs ? t.factor == 1 : t.factor % kStepsOfPair == 0;
  });
}

}  // namespace tessera
