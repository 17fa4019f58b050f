// Elementwise ops on known values: constant folding and the reference evaluator.
#pragma once

#include "absl/types/span.h"
#include "graph/dtype.h"
#include "graph/ops.h"

namespace tessera {

// The value of an elementwise op on constants. `result` is the dtype of the node; `operand` that of
// its sources, of WHERE the branches' (its condition is a bool). Rounds and wraps as the op does.
Scalar EvaluateScalarOp(Op op, DType result, DType operand, absl::Span<const Scalar> args);

// The same over arrays: element i of the result is of element i*step of each source.
struct ScalarSource {
  const Scalar* data = nullptr;
  int64_t step = 1;  // 0: one value for all
};
void EvaluateElementwise(Op op, DType result, DType operand, absl::Span<const ScalarSource> srcs,
                         absl::Span<Scalar> out);

// What a reduction by `op` starts from, and gives over nothing.
Scalar ReduceIdentity(Op op, DType dtype);

}  // namespace tessera
