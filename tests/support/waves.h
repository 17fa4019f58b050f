// What tests of functions of tensors compare with other libraries: sin(0.7 i), and numbers in f64.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace tessera {

inline std::vector<double> Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }
inline Tensor Waves(const Dims& shape) {
  const Extent n = Shape(shape.extents()).Elements();
  return (Tensor::Arange(n, kFloat64) * 0.7).Sin().Reshape(shape).To("CPU");
}

}  // namespace tessera
