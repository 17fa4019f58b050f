// What the tests of per-place programs share: meshes of CPUs, and numbers.
#pragma once

#include "graph/shard_map.h"
#include "tests/support/check.h"

namespace tessera {

using Values = std::vector<float>;

inline std::vector<Place> Places(int n) {
  std::vector<Place> out;
  for (int i = 0; i < n; ++i) out.emplace_back("CPU", i);
  return out;
}
inline Mesh Line(int n) { return Mesh(Places(n), std::vector<MeshDim>{{n, "d"}}); }
inline Mesh Grid() { return Mesh(Places(4), {{2, "dp"}, {2, "tp"}}); }
inline Sharding Along(const Mesh& m, int axis) { return Sharding(m, {Placement::Shard(axis)}); }

inline Values Numbers(int64_t n, int seed = 0) {
  Values v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + seed * 3) % 13) - 6;
  return v;
}
inline Values Read(const Tensor& t) { return t.ToVector<float>(); }

inline const Placement kWhole = Placement::Replicate();

}  // namespace tessera
