// Looking for a unit in a target's table.
#include "graph/matrix_unit.h"

#include <algorithm>

namespace tessera {

UOp AsOperandOf(const MatrixShape& shape, const UOp& u) {
  if (u.dtype() == shape.operand && shape.operand == shape.sum) return u;
  return u.is(Op::kCast) && u.src(0).dtype() == shape.operand ? UOp(u.src(0)) : UOp();
}

const MatrixShape* UnitOf(const Target& target, DType sum, std::initializer_list<UOp> operands,
                          int64_t warps) {
  const auto takes = [&](const MatrixShape& shape) {
    return shape.sum == sum && shape.warps == warps &&
           std::all_of(operands.begin(), operands.end(),
                       [&](const UOp& u) { return static_cast<bool>(AsOperandOf(shape, u)); });
  };
  const auto it = std::find_if(target.mma.begin(), target.mma.end(), takes);
  return it == target.mma.end() ? nullptr : &*it;
}

}  // namespace tessera
