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

// The reduction in two steps, or nothing where one is enough or no axis divides.
UOp Split(const UOp& u, const Target& target) {
  if (!u.is(Op::kReduce) || target.cores < 2 || !u.shape().is_static()) return UOp();
  const int64_t outputs = u.shape().MaxElements();
  const UOp& x = u.src(0);
  if (outputs == 0 || !x.shape().is_static() || outputs >= 2 * target.cores ||
      x.shape().MaxElements() / outputs < kLargeReduction) {
    return UOp();
  }
  const ReduceArg& arg = u.arg<ReduceArg>();
  for (int64_t axis : arg.axes) {
    const int64_t n = x.shape()[axis].value();
    const int64_t parts = LargestDivisor(n, kPartsPerCore * target.cores);
    if (parts < 2 * target.cores) continue;
    Extents split = x.shape().ToExtents();
    split[axis] = parts;
    split.insert(split.begin() + axis + 1, n / parts);
    ReduceArg first{arg.op, {}};
    for (int64_t a : arg.axes) first.axes.push_back(a >= axis ? a + 1 : a);
    UOp partial = UOp::Make(Op::kReduce, {UOp::Make(Op::kReshape, {x}, split)}, first);
    Extents merged = x.shape().ToExtents();
    for (int64_t a : arg.axes) merged[a] = a == axis ? Extent(parts) : Extent(1);
    partial = UOp::Make(Op::kContiguous, {UOp::Make(Op::kReshape, {partial}, merged)});
    const Op second =
        FaultPlanted(Fault::kSecondStepSums) && !x.dtype().IsBool() ? Op::kAdd : arg.op;
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
