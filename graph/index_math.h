// Arithmetic on indices, for passes that make new ones; nothing is simplified but where it says so.
#pragma once

#include <vector>

#include "graph/rewrite.h"
#include "graph/simplify.h"
#include "graph/uop.h"
#include "graph/walk.h"

namespace tessera {

inline int64_t CeilDiv(int64_t n, int64_t by) { return (n + by - 1) / by; }

inline UOp Plus(const UOp& a, const UOp& b) { return UOp::Make(Op::kAdd, {a, b}); }
inline UOp Minus(const UOp& a, const UOp& b) { return UOp::Make(Op::kSub, {a, b}); }
inline UOp Times(const UOp& a, const UOp& b) { return UOp::Make(Op::kMul, {a, b}); }
inline UOp Times(const UOp& a, int64_t b) { return Times(a, UOp::Index(b)); }
inline UOp Over(const UOp& a, const UOp& b) { return UOp::Make(Op::kFloorDiv, {a, b}); }
inline UOp Over(const UOp& a, int64_t b) { return Over(a, UOp::Index(b)); }
inline UOp Modulo(const UOp& a, const UOp& b) { return UOp::Make(Op::kFloorMod, {a, b}); }
inline UOp Modulo(const UOp& a, int64_t b) { return Modulo(a, UOp::Index(b)); }

// Simplified.
inline UOp CeilOver(const UOp& a, int64_t b) {
  return Simplify(Over(Plus(a, UOp::Index(b - 1)), b));
}
inline UOp Below(const UOp& a, const UOp& b) { return Simplify(UOp::Make(Op::kCmpLt, {a, b})); }

// How many points `stride` steps reach from `from` below n. Simplified.
inline UOp Steps(const UOp& n, const UOp& from, int64_t stride) {
  return CeilOver(Minus(n, from), stride);
}

// Whether an expression is made of this one, among others.
inline bool DependsOn(const UOp& u, const UOp& part) {
  return FindBelow({&u, 1}, [&](const UOp& s) { return s == part; }) != nullptr;
}

// Several ranges as one index, the last of them fastest: what each is where the index is
// unit * lanes + lane. `lanes` divides the last one's extent.
inline void PlaceRanges(const std::vector<UOp>& ranges, const UOp& unit, int64_t lanes,
                        const UOp& lane, Substitution& map) {
  UOp rest = unit;
  for (size_t i = ranges.size(); i-- > 0;) {
    const bool last = i + 1 == ranges.size();
    const UOp extent = Simplify(last ? Over(ranges[i].src(0), lanes) : ranges[i].src(0));
    UOp value = i == 0 ? rest : Modulo(rest, extent);
    rest = Over(rest, extent);
    if (last && lanes > 1) value = Plus(Times(value, lanes), lane);
    map[ranges[i]] = Simplify(value);
  }
}

// Conditions, of which either may be nothing: it holds always.
inline UOp Both(const UOp& a, const UOp& b) {
  return !a ? b : !b ? a : UOp::Make(Op::kAnd, {a, b});
}

}  // namespace tessera
