// Where results stand in for something: behind the casts of bits that Detach is.
#include "graph/stand_ins.h"

namespace tessera {

Substitution ResultsInDerivatives(absl::Span<const UOp> nodes) {
  Substitution stands_in_for, out;
  for (const UOp& u : nodes) {
    if (u.is(Op::kStandIn)) stands_in_for.emplace(u.src(0), u);
  }
  if (stands_in_for.empty()) return out;
  for (const UOp& u : nodes) {
    if (!u.is(Op::kBitcast) || !u.src(0).is(Op::kBitcast)) continue;
    const auto it = stands_in_for.find(u.src(0).src(0));
    if (it == stands_in_for.end() || !(it->second.dtype() == u.dtype())) continue;
    out.emplace(u, it->second);
    out.emplace(it->second, it->second);  // its own derivative stays as it is
  }
  return out;
}

}  // namespace tessera
