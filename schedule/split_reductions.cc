// Two-step reductions.
#include <algorithm>

#include "graph/fault.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr int64_t kLargeReduction = 1 << 16;
constexpr int64_t kPartsPerCore = 16;
constexpr int64_t kTile = 64 * 64;     // sums of a GPU's block, which keep a multiprocessor busy
constexpr int64_t kLeastSide = 16;     // rows and columns of a product that is done in tiles
constexpr int64_t kLeastSteps = 1024;  // of a part, that pay for its sums being written and read

// Of a product of matrices whose result has too few tiles to keep a GPU's multiprocessors busy:
// into how many parts its sum is split; else 1.
int64_t PartsOfProduct(const UOp& u, int64_t outputs, int64_t steps, const Target& target) {
  const UOp& x = u.src(0);
  if (target.dialect != Dialect::kCuda || !x.is(Op::kMul)) return 1;
  if (u.arg<ReduceArg>().op != Op::kAdd || steps == 0) return 1;
  for (const UOp& factor : x.srcs()) {
    const UOp& once = factor.is(Op::kExpand) ? factor.src(0) : factor;
    // The rows of all matrices that one factor has; so the columns of each, or the other way round.
    const int64_t rows = once.shape().is_static() ? once.shape().MaxElements() / steps : 0;
    if (rows == 0 || outputs / rows < kLeastSide) return 1;
  }
  const int64_t tiles = std::max<int64_t>(1, outputs / kTile);
  return std::min(target.cores / tiles, steps / kLeastSteps);
}

// The reduction in two steps, or nothing where one is enough or no axis divides.
UOp Split(const UOp& u, const Target& target) {
  if (!u.is(Op::kReduce) || target.cores < 2 || !u.shape().is_static()) return UOp();
  const int64_t outputs = u.shape().MaxElements();
  const UOp& x = u.src(0);
  if (outputs == 0 || !x.shape().is_static()) return UOp();
  const int64_t steps = x.shape().MaxElements() / outputs;
  const int64_t of_product = PartsOfProduct(u, outputs, steps, target);
  const bool large = outputs < 2 * target.cores && steps >= kLargeReduction;
  if (!large && of_product < 2) return UOp();
  const int64_t most = of_product >= 2 ? of_product : kPartsPerCore * target.cores;
  const int64_t least = of_product >= 2 ? 2 : 2 * target.cores;
  const ReduceArg& arg = u.arg<ReduceArg>();
  const Op second = FaultPlanted(Fault::kSecondStepSums) && !x.dtype().IsBool() ? Op::kAdd : arg.op;
  for (int64_t axis : arg.axes) {
    const int64_t n = x.shape()[axis].value();
    const int64_t parts = LargestDivisor(n, most);
    if (parts < least) continue;
    Extents split = x.shape().ToExtents();
    split[axis] = parts;
    split.insert(split.begin() + axis + 1, n / parts);
    ReduceArg first{arg.op, {}};
    for (int64_t a : arg.axes) first.axes.push_back(a >= axis ? a + 1 : a);
    UOp partial = UOp::Make(Op::kReduce, {UOp::Make(Op::kReshape, {x}, split)}, first);
    if (of_product >= 2) {
      // A result for each part: rows and columns lie as they do without parts.
      Ints order = {axis};
      for (int64_t i = 0; i < partial.shape().rank(); ++i) {
        if (i != axis) order.push_back(i);
      }
      partial = UOp::Make(Op::kContiguous, {UOp::Make(Op::kPermute, {partial}, order)});
      const UOp sum = UOp::Make(Op::kReduce, {partial}, ReduceArg{second, {0}});
      return UOp::Make(Op::kReshape, {sum}, u.shape().ToExtents());
    }
    Extents merged = x.shape().ToExtents();
    for (int64_t a : arg.axes) merged[a] = a == axis ? Extent(parts) : Extent(1);
    partial = UOp::Make(Op::kContiguous, {UOp::Make(Op::kReshape, {partial}, merged)});
    return UOp::Make(Op::kReduce, {partial}, ReduceArg{second, {axis}});
  }
  return UOp();
}

}  // namespace

std::vector<UOp> SplitReductions(absl::Span<const UOp> roots, const Targets& targets) {
  Substitution map;
  bool any = false;
  for (const UOp& u : TopoSort(roots)) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(map.at(s));
    UOp built = any ? u.WithSrcs(srcs) : u;
    if (UOp two = Split(built, targets.Of(u.device()))) {
      built = two;
      any = true;
    }
    map.emplace(u, built);
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) out.push_back(map.at(r));
  return out;
}

}  // namespace tessera
