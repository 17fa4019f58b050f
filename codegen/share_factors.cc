// Factors taken out of sums of copies.
#include "codegen/share_factors.h"

#include <algorithm>
#include <vector>

#include "codegen/split.h"
#include "graph/kernel_form.h"
#include "graph/rewrite.h"

namespace tessera {

bool OfBytes(const UOp& value) {
  bool reads = false;
  for (const UOp& s : TopoSort({&value, 1})) {
    if (!s.is(Op::kIndex)) continue;
    if (!s.dtype().IsInt() || s.dtype().bits() != 8) return false;
    reads = true;
  }
  return reads;
}

std::vector<UOp> FactorsOf(const UOp& product) {
  std::vector<UOp> out, stack = {product};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (!u.is(Op::kMul)) {
      out.push_back(u);
      continue;
    }
    for (int i = u.size() - 1; i >= 0; --i) stack.push_back(UOp(u.src(i)));
  }
  return out;
}

UOp ProductOf(const std::vector<UOp>& factors) {
  UOp out = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) out = UOp::Make(Op::kMul, {out, factors[i]});
  return out;
}

UOp ShareFactors(const UOp& sink, const std::vector<UOp>& written_out, int64_t rows) {
  const RangeSets sets(sink);
  const auto is_copy = [&](const UOp& r) {
    return r.arg<RangeArg>().kind == RangeKind::kUnroll ||
           std::find(written_out.begin(), written_out.end(), r) != written_out.end();
  };
  Substitution out;
  for (const UOp& u : sets.order()) {
    if (!u.is(Op::kReduce) || u.arg<ReduceArg>().op != Op::kAdd || !u.dtype().IsFloat()) continue;
    RangeMask copies = 0, alike = 0;  // those over which some factor is the same
    for (const UOp& r : ClosedRanges(u)) copies |= is_copy(r) ? sets.Bit(r) : 0;
    const std::vector<UOp> factors = FactorsOf(u.src(0));
    for (const UOp& f : factors) {
      const RangeMask same = copies & ~sets.Free(f);
      if (sets.Iterations(same) > sets.Iterations(alike)) alike = same;
    }
    if (alike == 0 || sets.Iterations(alike) <= rows) continue;
    std::vector<UOp> own, shared, inner, steps;
    for (const UOp& f : factors) (sets.Free(f) & alike ? own : shared).push_back(f);
    for (const UOp& r : ClosedRanges(u)) (sets.Bit(r) & alike ? inner : steps).push_back(r);
    if (steps.empty() || std::none_of(own.begin(), own.end(), OfBytes)) continue;
    const UOp sum = SumOver(ProductOf(own), inner);
    out.emplace(u, SumOver(UOp::Make(Op::kMul, {sum, ProductOf(shared)}), steps));
  }
  return out.empty() ? sink : UOp(Substitute(sink, out));
}

}  // namespace tessera
