// Functions of floats that are composed of several ops: computed in at least f32, rounded once.
#pragma once

#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What f makes of a tensor, integers and bools as f32, given back in the float dtype that it has.
template <typename F>
Tensor InFloats(const Tensor& t, F f) {
  return f(WideFloat(t)).Cast(FloatResult(t.dtype()));
}

// The same of two operands in the dtype in which they meet.
template <typename F>
Tensor InFloats(const Operand& a, const Operand& b, F f) {
  const DType result = FloatResult(CommonType(a, b)), wide = AccumulateType(result);
  return f(Tensor(AsNode(a, wide)), Tensor(AsNode(b, wide))).Cast(result);
}

}  // namespace tessera::internal
