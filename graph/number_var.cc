// Constants from VARs.
#include "graph/number_var.h"

namespace tessera {

int64_t NumberOf(const UOp& constant) {
  const Scalar scalar = constant.arg<Scalar>();
  if (!constant.dtype().IsFloat()) return scalar.AsInt();
  int64_t bits = 0;
  StoreScalar(&bits, constant.dtype(), scalar);
  return bits;
}

UOp ConstantFrom(DType dtype, const std::string& var) {
  const DType wide[] = {kUInt8, kUInt16, kUInt32};
  DType whole = dtype;
  if (dtype.IsFloat()) whole = dtype.bytes() == 8 ? kInt64 : wide[dtype.bytes() / 2];
  const bool all = whole.bytes() == 8;
  UOp value =
      UOp::Make(Op::kVar, kInt64, {},
                VarArg{var, all ? INT64_MIN : MinInt(whole), all ? INT64_MAX : MaxInt(whole)});
  if (!(whole == kInt64)) value = UOp::Make(Op::kCast, whole, {value});
  return whole == dtype ? value : UOp::Make(Op::kBitcast, dtype, {value});
}

bool RecognisedByNumbers(const UOp& u) {
  switch (u.op()) {
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kShl:
    case Op::kShr:
    case Op::kTruncDiv:
    case Op::kTruncMod:
    case Op::kFloorDiv:
    case Op::kFloorMod:
      return u.dtype().IsInt();
    default:
      return false;
  }
}

}  // namespace tessera
