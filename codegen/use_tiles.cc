// Sums over a tile's ranges as products of tiles.
#include <utility>
#include <vector>

#include "codegen/cpu_tiles.h"
#include "codegen/lanes.h"
#include "codegen/split.h"
#include "graph/kernel_form.h"
#include "graph/panel.h"
#include "graph/rewrite.h"
#include "graph/simplify.h"

namespace tessera {
namespace {

// The ranges of a tile among those that a node closes.
std::vector<UOp> MatrixRangesOf(const UOp& u) {
  std::vector<UOp> out;
  for (const UOp& r : ClosedRanges(u)) {
    if (r.arg<RangeArg>().kind == RangeKind::kMatrix) out.push_back(r);
  }
  return out;
}

// The store of a tile of sums as one vector, or nothing where it is none.
UOp TileOf(const UOp& store, const RangeSets& sets) {
  const UOp& sum = store.src(1);
  if (!sum.is(Op::kReduce) || !sum.src(0).is(Op::kMul)) return UOp();
  const std::vector<UOp> side = MatrixRangesOf(store), steps = MatrixRangesOf(sum);
  if (side.size() != 2 || steps.size() != 2) return UOp();
  UOp a = UOp(sum.src(0).src(0)), b = UOp(sum.src(0).src(1));
  if (!a.is(Op::kCast) || !b.is(Op::kCast)) return UOp();
  if (sets.Free(a) & sets.Bit(side[1])) std::swap(a, b);
  Substitution first;
  for (const std::vector<UOp>& ranges : {side, steps}) {
    for (const UOp& r : ranges) first.emplace(r, UOp::Index(0));
  }
  const int64_t beside = steps[1].src(0).vmax();
  // What a tile's rows, and what of a row lies `apart`, move by.
  const auto fragment = [&](const UOp& operand, const UOp& rows, const UOp& apart, int64_t factor) {
    const UOp& load = operand.src(0);
    if (!load.is(Op::kIndex) || load.size() != 2) return UOp();
    const auto step = [&](const UOp& r) { return StepOf(load.src(1), r, sets); };
    if (!step(rows).linear || !step(apart).linear || step(apart).factor != factor) return UOp();
    if (!step(steps[1]).linear || step(steps[1]).factor != 1) return UOp();
    const DType dtype =
        load.dtype().WithLanes(static_cast<int>(kRowsOfTile * kRowsOfTile * beside));
    const UOp at = Simplify(Substitute(UOp(load.src(1)), first));
    return UOp::Make(Op::kFragment, dtype, {UOp(load.src(0)), at, UOp::Index(step(rows).factor)},
                     Ints{0, 0});
  };
  const UOp left = fragment(a, side[0], steps[0], beside);
  const UOp right = fragment(b, steps[0], side[1], beside);
  const UOp& index = store.src(0);
  const Step down = StepOf(index.src(1), side[0], sets),
             right_by = StepOf(index.src(1), side[1], sets);
  if (!left || !right || down.factor != kRowsOfTile || right_by.factor != 1) return UOp();
  const DType sums = sum.dtype().WithLanes(kRowsOfTile * kRowsOfTile);
  std::vector<UOp> srcs = {UOp::Make(Op::kMma, sums, {left, right}, Arg(std::string(kTileName)))};
  for (const UOp& r : ClosedRanges(sum)) {
    if (r.arg<RangeArg>().kind != RangeKind::kMatrix) srcs.push_back(r);
  }
  const UOp at = Simplify(Substitute(UOp(index.src(1)), first));
  const bool once = srcs.size() == 1;
  if (once && store.is(Op::kUpdate)) {  // what is there is taken up
    const UOp old = UOp::Make(Op::kLoad, sums, {UOp(index.src(0)), at}, int64_t{0});
    srcs[0] = srcs[0].WithSrcs({left, right, old});
  }
  std::vector<UOp> out = {UOp::Make(Op::kIndex, {UOp(index.src(0)), at}),
                          once ? srcs[0] : UOp::Make(Op::kReduce, srcs, sum.arg())};
  for (const UOp& r : ClosedRanges(store)) {
    if (r.arg<RangeArg>().kind != RangeKind::kMatrix) out.push_back(r);
  }
  return once ? UOp::Make(Op::kStore, out, Arg(int64_t{0})) : store.WithSrcs(out);
}

}  // namespace

UOp UseTiles(const UOp& sink) {
  const RangeSets sets(sink);
  Substitution map;
  for (const UOp& u : sets.order()) {
    if (!WritesElements(u)) continue;
    // What it reads may be in tiles of its own, which came before.
    if (const UOp tile = TileOf(u, sets)) map.emplace(u, Substitute(tile, map));
  }
  return map.empty() ? sink : UOp(Substitute(sink, map));
}

}  // namespace tessera
