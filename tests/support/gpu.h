// The GPUs that tests run on: CUDA's where DEVICE names one, else simulated ones.
#pragma once

#include <string>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/device.h"
#include "tests/support/samples.h"

namespace tessera {

inline const std::string& GpuKind() {
  static const auto* const kind =
      new std::string(TextFlag(Flag::kDevice).rfind("CUDA", 0) == 0 ? "CUDA" : "SIM");
  return *kind;
}
inline Place Gpu(int index = 0) { return Place(GpuKind(), index); }

// How many there are, up to this many.
inline int GpuCount(int most) {
  int count = 0;
  while (count < most && GetDevice(Gpu(count)).ok()) ++count;
  return count;
}

// Realised numbers of [-1, 1) on the first GPU.
inline Tensor OnGpu(const std::vector<int64_t>& shape, DType dtype = kFloat32, uint64_t seed = 1) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  const std::vector<double> values = Fractions(n, seed);
  const std::vector<float> floats(values.begin(), values.end());
  return Tensor::From(floats, shape, Gpu()).Cast(dtype).Realize();
}

}  // namespace tessera
