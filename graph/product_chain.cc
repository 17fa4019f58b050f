// Recognising chained products.
#include "graph/product_chain.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "graph/rewrite.h"

namespace tessera {
namespace {

bool IsProduct(const UOp& u) {
  return u.is(Op::kReduce) && u.arg<ReduceArg>().op == Op::kAdd && u.src(0).is(Op::kMul) &&
         u.dtype().IsFloat();
}

// The reductions of an expression that do not lie within others of it.
std::vector<UOp> TopReductions(const UOp& value) {
  std::vector<UOp> out, stack = {value};
  absl::flat_hash_set<const Node*> seen;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (!seen.insert(u.get()).second) continue;
    if (u.is(Op::kReduce)) {
      out.push_back(u);
    } else {
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  return out;
}

std::vector<UOp> Reductions(const UOp& value) {
  std::vector<UOp> out;
  for (const UOp& u : TopoSort({&value, 1})) {
    if (u.is(Op::kReduce)) out.push_back(u);
  }
  return out;
}

}  // namespace

std::optional<ProductChain> FindProductChain(const RangeSets& sets) {
  const UOp& sink = sets.order().back();
  if (!sink.is(Op::kSink) || sink.size() != 1) return std::nullopt;
  const UOp& store = sink.src(0);
  const std::vector<UOp> top = TopReductions(store.src(1));
  if (top.size() != 1 || !IsProduct(top[0])) return std::nullopt;
  ProductChain c;
  c.second = top[0];
  c.weights = UOp(c.second.src(0).src(0));
  c.values = UOp(c.second.src(0).src(1));
  std::vector<UOp> below = Reductions(c.weights);
  if (below.empty()) {
    std::swap(c.weights, c.values);
    below = Reductions(c.weights);
  }
  if (!Reductions(c.values).empty()) return std::nullopt;
  c.inner.assign(ClosedRanges(c.second).begin(), ClosedRanges(c.second).end());
  const RangeMask inner = sets.Closed(c.second);
  bool whole_rows = false;  // whether something reduces what the second sums over
  for (const UOp& u : below) {
    if (sets.Closed(u) == inner && !(sets.Free(u) & inner)) {
      whole_rows = true;
    } else if (IsProduct(u) && !c.first && (sets.Free(u) & inner) == inner) {
      c.first = u;
    } else {
      return std::nullopt;
    }
  }
  if (!c.first || !whole_rows || Reductions(c.first).size() != 1) return std::nullopt;
  const RangeMask weights = sets.Free(c.weights), values = sets.Free(c.values);
  for (const UOp& r : ClosedRanges(store)) {
    const bool in_weights{weights & sets.Bit(r)}, in_values{values & sets.Bit(r)};
    (in_weights == in_values ? c.batch : in_weights ? c.rows : c.columns).push_back(r);
  }
  if (c.columns.empty()) return std::nullopt;
  return c;
}

}  // namespace tessera
