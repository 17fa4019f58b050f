// Tensors through scheduler, compiler and CPU, against the reference evaluator.
#pragma once

#include <string>
#include <vector>

#include "graph/tensor.h"
#include "tests/support/error_bound.h"
#include "tests/testing.h"

namespace tessera {

// The bytes of a BUFFER in host memory.
HostArray ReadBuffer(const UOp& buffer);

// Realises the tensors together; "" where each agrees with the reference, else what differs.
std::string Mismatch(std::vector<Tensor> tensors, Compared* compared = nullptr);

// The values of tensors as the reference has them, for what is said of graphs: no kernel is made.
std::vector<std::vector<double>> ReferenceValues(const std::vector<Tensor>& tensors);

#define EXPECT_REFERENCE(...)                                                                \
  if (const std::string mismatch_ = ::tessera::Mismatch({__VA_ARGS__}); mismatch_.empty()) { \
  } else                                                                                     \
    ADD_FAILURE() << mismatch_ << "\n"

}  // namespace tessera
