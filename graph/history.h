// What values were computed from, kept where gradients may still be asked for.
//
// Once a tensor has been read or realised it stands for its values alone, and the graph behind it
// can go. Where that graph leads to a tensor marked with RequireGrad it is kept beside the buffer,
// and Grad walks on through it; until that tensor is given another value or dies, as no gradient by
// what it was can be asked for. What leads there by way of integers alone, Detach or NoGrad, has no
// derivative and keeps nothing.
#pragma once

#include "absl/types/span.h"
#include "graph/tensor.h"

namespace tessera {

// An expression without its node, which would keep the buffer that keeps this.
struct History {
  Op op;
  DType dtype;
  std::vector<UOp> srcs;
  Arg arg;
};

// To be called where the expressions of tensors were replaced by the buffers that they were
// computed into.
void KeepHistories(absl::Span<const UOp> expressions, absl::Span<const UOp> buffers);

// The graph with expressions in place of the buffers that have a history; they are not computed
// again.
UOp WithHistory(const UOp& root);

// Whether a BUFFER without a history is known to have been computed from this value.
bool WasComputedFrom(const UOp& buffer, const UOp& value);

}  // namespace tessera
