// What training keeps beside parameters: numbers, and tensors like them.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

// An Error where one is empty, or given twice, of which it would change twice.
inline void CheckParameters(absl::Span<const Tensor> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) Fail("parameter ", i, " is empty");
    for (size_t j = 0; j < i; ++j) {
      if (parameters[j].Is(parameters[i])) {
        Fail("the parameter ", Show(parameters[i]), " is given twice");
      }
    }
  }
}

// Where numbers for tensors of a device lie: on each of its places.
inline Device OfNumbers(Device device) {
  return device.is_sharding() ? Device(Sharding(device.sharding().mesh())) : device;
}

// Memory of its own from the start, which the first step need not copy.
inline Tensor Filled(const Shape& shape, DType dtype, Device device, double x) {
  return Tensor::Empty(Dims(shape.ToExtents()), dtype, device).Assign(x).Realize();
}

}  // namespace tessera::internal
