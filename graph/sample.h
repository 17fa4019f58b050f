// Tensors that stand for inputs while a function is called to see what it computes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/tensor_function.h"

namespace tessera::internal {

// A BUFFER that never has values.
UOp Placeholder(DType dtype, const Shape& shape, Device device);

// What the function makes of its inputs, some of which are Placeholders: nodes over them.
std::vector<UOp> Traced(const TensorFunction& function, const std::vector<UOp>& inputs);

// While one lives, this thread calls such a function: what it makes is its own, and it may write
// into nothing else.
class FunctionScope {
 public:
  FunctionScope();
  ~FunctionScope() { current_ = before_; }
  FunctionScope(const FunctionScope&) = delete;
  static uint64_t Current() { return current_; }  // 0: none

 private:
  static inline thread_local uint64_t current_ = 0;
  const uint64_t before_;
};

}  // namespace tessera::internal
