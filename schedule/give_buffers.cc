// Leaves that need a buffer of their own.
#include <algorithm>

#include "graph/fault.h"
#include "graph/rewrite.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

bool MovesItself(const UOp& u) {
  return u.is(Op::kAssign) && u.src(2) == u.src(0) && !(u.src(1) == u.src(0)) &&
         !FaultPlanted(Fault::kMoveInPlace);
}

}  // namespace

std::vector<UOp> GiveBuffers(absl::Span<const UOp> roots) {
  std::vector<UOp> out(roots.begin(), roots.end());
  for (UOp& r : out) {
    if (r.size() == 0 && !r.is(Op::kParam) && !r.is(Op::kBuffer)) {
      r = UOp::Make(Op::kContiguous, {r});
    }
  }
  const std::vector<UOp> order = TopoSort(out);
  if (std::none_of(order.begin(), order.end(), MovesItself)) return out;
  Substitution map;
  for (const UOp& u : order) {
    absl::InlinedVector<UOp, 4> srcs;
    for (const UOp& s : u.srcs()) srcs.push_back(map.at(s));
    if (MovesItself(u)) srcs[2] = UOp::Make(Op::kContiguous, {srcs[2]});
    map.emplace(u, u.WithSrcs(srcs));
  }
  for (UOp& r : out) r = UOp(map.at(r));
  return out;
}

}  // namespace tessera
