// Leaves that need a buffer of their own.
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
  return Rebuild(out, [](const UOp& u, const UOp& was) {
    if (!MovesItself(was)) return UOp();
    std::vector<UOp> srcs(u.srcs().begin(), u.srcs().end());
    srcs[2] = UOp::Make(Op::kContiguous, {srcs[2]});
    return u.WithSrcs(srcs);
  });
}

}  // namespace tessera
