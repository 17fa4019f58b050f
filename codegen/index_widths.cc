// Widths of indices.
#include "codegen/index_widths.h"

#include <cstdint>

namespace tessera {

DType IndexWidths::Of(const UOp& u) {
  if (!may_narrow_ || !(u.dtype() == kInt64)) return u.dtype();
  const auto [it, fresh] = of_.try_emplace(u.get(), kInt64);
  if (!fresh) return it->second;
  bool small = u.vmin() >= INT32_MIN && u.vmax() <= INT32_MAX;
  const bool computed = IsElementwise(u.op()) && !u.is(Op::kBitcast) && !u.is(Op::kShl) &&
                        !u.is(Op::kShr) && !u.is(Op::kPow) &&
                        !(u.is(Op::kCast) && !u.src(0).dtype().IsInt());
  small &= computed || u.is(Op::kRange) || u.is(Op::kVar) || u.IsConst();
  for (const UOp& s : u.srcs()) {
    if (s.dtype() == kInt64) small &= Of(s) == kInt32;
  }
  return of_[u.get()] = small ? kInt32 : kInt64;
}

DType IndexWidths::OfOperands(const UOp& u) {
  const bool whole = u.is(Op::kBitcast) || (u.dtype() == kInt64 && Of(u) == kInt64);
  if (!may_narrow_ || whole) return kInt64;
  for (const UOp& s : u.srcs()) {
    if (s.dtype() == kInt64 && Of(s) == kInt64) return kInt64;
  }
  return kInt32;
}

}  // namespace tessera
