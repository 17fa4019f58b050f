// Tensors that stand for inputs while a function is called to see what it computes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/tensor_function.h"

namespace tessera::internal {

// A BUFFER that never has values; on the default device, or on none, if none is given.
UOp Placeholder(DType dtype, const Shape& shape, Device device);
UOp PlaceholderOn(DType dtype, const Shape& shape, Device device);

// Where a sample is of what lies there: whole along the mesh dims that cut the axis of samples.
Device OfSample(Device device, int axis);

// What the function makes of its inputs, some of which are Placeholders: nodes over them.
std::vector<UOp> Traced(const TensorFunction& function, const std::vector<UOp>& inputs);

// The roots of a sample's graph as those of a batch, which is their first axis: of all nodes that
// depend on some of the inputs, whose batches are given.
std::vector<UOp> OfEach(absl::Span<const UOp> roots, const Extent& batch,
                        absl::flat_hash_map<const Node*, UOp> inputs);

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
