// What training keeps beside parameters: numbers, and tensors like them.
#pragma once

#include "graph/tensor.h"

namespace tessera::internal {

// Where numbers for tensors of a device lie: on each of its places.
inline Device OfNumbers(Device device) {
  return device.is_sharding() ? Device(Sharding(device.sharding().mesh())) : device;
}

// Memory of its own from the start, which the first step need not copy.
inline Tensor Filled(const Shape& shape, DType dtype, Device device, double x) {
  return Tensor::Empty(Dims(shape.ToExtents()), dtype, device).Assign(x).Realize();
}

}  // namespace tessera::internal
