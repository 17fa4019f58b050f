// Factors taken out of sums of copies.
#include "codegen/share_factors.h"

#include <algorithm>
#include <vector>

#include "codegen/split.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"

namespace tessera {
namespace {

// Whether a value is read from bytes alone.
bool OfBytes(const UOp& value) {
  bool reads = false;
  for (const UOp& s : TopoSort({&value, 1})) {
    if (!s.is(Op::kIndex)) continue;
    if (!s.dtype().IsInt() || s.dtype().bits() != 8) return false;
    reads = true;
  }
  return reads;
}

UOp ProductOf(const std::vector<UOp>& factors) {
  UOp out = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) out = UOp::Make(Op::kMul, {out, factors[i]});
  return out;
}

}  // namespace

UOp ShareFactors(const UOp& sink, const std::vector<UOp>& written_out, int64_t rows) {
  const RangeSets sets(sink);
  Substitution out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce) || u.arg<ReduceArg>().op != Op::kAdd || !u.dtype().IsFloat()) continue;
    std::vector<UOp> steps, copies, own, shared, stack = {UOp(u.src(0))};
    RangeMask bits = 0;
    int64_t n = 1;
    for (const UOp& r : ClosedRanges(u)) {
      const bool copy = r.arg<RangeArg>().kind == RangeKind::kUnroll ||
                        std::find(written_out.begin(), written_out.end(), r) != written_out.end();
      (copy ? copies : steps).push_back(r);
      if (copy) n *= r.src(0).vmax(), bits |= sets.Bit(r);
    }
    while (!stack.empty()) {
      const UOp f = stack.back();
      stack.pop_back();
      if (!(sets.Free(f) & bits)) {
        shared.push_back(f);
      } else if (f.is(Op::kMul)) {
        stack.insert(stack.end(), f.srcs().begin(), f.srcs().end());
      } else {
        own.push_back(f);
      }
    }
    if (n <= rows || steps.empty() || shared.empty()) continue;
    if (std::none_of(own.begin(), own.end(), OfBytes)) continue;
    const UOp sum = SumOver(ProductOf(own), copies);
    out.emplace(u, SumOver(UOp::Make(Op::kMul, {sum, ProductOf(shared)}), steps));
  }
  return out.empty() ? sink : UOp(Substitute(sink, out));
}

}  // namespace tessera
