// Work division of kernels with UPDATEs. The updates of one element are taken up one after another,
// so what the cores share is what is side by side: the axes that base and updates have in common,
// or else parts of the axis that is written, of which each skips the updates of the others.
#include <algorithm>

#include "graph/kernel_form.h"
#include "graph/lookup.h"
#include "graph/merge_ranges.h"
#include "graph/simplify.h"
#include "schedule/passes.h"
#include "schedule/work_division.h"

namespace tessera {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kManyThreads = 1 << 13;  // that keep a GPU busy enough
constexpr int64_t kFewestParts = 4;        // fewer do not pay for reading the index again

int64_t ProductOf(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int a = begin; a < end; ++a) {
    if (__builtin_mul_overflow(n, std::max<int64_t>(1, shape[a].max()), &n)) return INT64_MAX;
  }
  return n;
}

// The loops with `first` before the others, and of the kind that the cores share.
UOp Shared(const UOp& sink, const UOp& first) {
  const UOp grid = UOp::Make(Op::kRange, kInt64, {first.src(0)},
                             RangeArg{first.arg<RangeArg>().id, RangeKind::kGrid});
  std::vector<UOp> stores;
  for (const UOp& s : sink.srcs()) {
    std::vector<UOp> srcs = {s.src(0), s.src(1), first};
    for (const UOp& r : ClosedRanges(s)) {
      if (!(r == first)) srcs.push_back(r);
    }
    stores.push_back(s.WithSrcs(srcs));
  }
  return ReplaceRanges(sink.WithSrcs(stores), {{first, RangeReplacement{grid, {grid}}}});
}

}  // namespace

int64_t UpdateParts(const UOp& value, const Target& target) {
  if (!value.is(Op::kScatter)) return 1;
  const Lookup l = Lookup::Of(value);
  const Shape& shape = value.shape();
  const int64_t before = ProductOf(shape, 0, l.axis);
  const int64_t after = ProductOf(shape, l.axis + 1, l.table_rank);
  const int64_t n = std::max<int64_t>(1, shape[l.axis].max());
  if (target.dialect == Dialect::kCuda) {
    if (before > kManyThreads || after > kManyThreads) return 1;
    return std::min(n, std::max<int64_t>(1, kManyThreads / (before * after)));
  }
  const int64_t work = value.src(2).shape().MaxElements() + shape.MaxElements();
  const int64_t wanted = std::min<int64_t>(target.cores, work / kWorthACore);
  const bool wide = after / std::max<int64_t>(1, wanted) * value.dtype().bytes() >= kLineBytes;
  if (wanted < kFewestParts || before >= wanted || wide) return 1;
  return std::min(n, wanted);
}

absl::Status DivideUpdates(PlanKernel& kernel, const Target& target) {
  kernel.workers = 1;
  const RangeSets sets(kernel.graph);
  int64_t work = 0;
  for (const UOp& s : kernel.graph.srcs()) work += sets.Iterations(sets.Closed(s));
  const int64_t wanted = std::min<int64_t>(target.cores, work / kWorthACore);
  if (wanted < 2) return absl::OkStatus();
  UOp best;
  for (const UOp& r : ClosedRanges(kernel.graph.src(0))) {
    const bool common =
        std::all_of(kernel.graph.srcs().begin(), kernel.graph.srcs().end(),
                    [&](const UOp& s) { return (sets.Closed(s) & sets.Bit(r)) != 0; });
    if (!common || (best && best.src(0).vmax() >= std::min(wanted, r.src(0).vmax()))) continue;
    best = r;
  }
  if (!best || best.src(0).vmax() < 2) return absl::OkStatus();
  // What is adjacent in memory is shared in long pieces.
  const bool last = ClosedRanges(kernel.graph.src(0)).back() == best;
  const int64_t pieces = LargestDivisor(best.src(0).vmax(), wanted);
  if (last && best.src(0).IsConst()) {
    if (pieces < 2) return absl::OkStatus();
    const SplitLoops split = SplitRange(kernel.graph, best, best.src(0).vmax() / pieces);
    kernel.graph = Shared(split.sink, split.outer);
    kernel.workers = static_cast<int>(pieces);
    kernel.utilisation = static_cast<double>(pieces) / static_cast<double>(wanted);
    return absl::OkStatus();
  }
  const int64_t extent = best.src(0).vmax();
  kernel.workers = static_cast<int>(std::min(wanted, extent));
  const int64_t most = (extent + kernel.workers - 1) / kernel.workers;
  kernel.utilisation = static_cast<double>(extent) / static_cast<double>(most * wanted);
  kernel.graph = Shared(kernel.graph, best);
  return absl::OkStatus();
}

}  // namespace tessera
