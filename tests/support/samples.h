// What tests share: places in a line, numbers to lay on them, and how exact these are.
#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// The first n places of a kind; an axis over them, or the whole on each.
inline Sharding Line(int n, std::optional<int> axis = 0, Layout layout = {},
                     const char* kind = "CPU") {
  std::vector<Place> places;
  for (int i = 0; i < n; ++i) places.emplace_back(kind, i);
  return Sharding(std::move(places), axis, std::move(layout));
}

// Whole numbers from -100 on, which repeat after 251.
inline Tensor Count(const std::vector<int64_t>& shape, DType dtype = kFloat32) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 251) - 100;
  return Tensor::From(v, shape).Cast(dtype);
}

// Numbers of [-1, 1), others for every seed.
inline std::vector<double> Fractions(int64_t n, uint64_t seed) {
  std::vector<double> v(n);
  uint64_t state = seed * 2654435761u + 12345;
  for (double& x : v) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<double>(state >> 40) / (1 << 23) - 1;
  }
  return v;
}

// The same in a shape, in f64 on the CPU.
inline Tensor FractionsOf(const std::vector<int64_t>& shape, uint64_t seed) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return Tensor::From(Fractions(n, seed), shape).To("CPU");
}

// Of f64, or of what is computed in f32.
inline double EpsilonOf(DType t) {
  return t == kFloat64 ? std::numeric_limits<double>::epsilon()
                       : std::numeric_limits<float>::epsilon();
}

}  // namespace tessera
