// Which matrix unit of a target multiplies what.
#pragma once

#include <initializer_list>

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// An operand as a matrix unit takes it: what is cast to the dtype of the sum. Nothing where the
// unit does not take it.
UOp AsOperandOf(const MatrixShape& shape, const UOp& u);

// The unit of so many warps that sums products of these operands in `sum`, or null.
const MatrixShape* UnitOf(const Target& target, DType sum, std::initializer_list<UOp> operands,
                          int64_t warps = 1);

}  // namespace tessera
