// Own extents are met in shapes, the meshes that they are of in devices.
#include "schedule/own_variables.h"

#include <algorithm>

#include "graph/own_extent.h"

namespace tessera {

std::vector<PlaceVariable> OwnVariables(absl::Span<const UOp> roots) {
  std::vector<UOp> variables;
  std::vector<Device> meshes;
  for (const UOp& u : TopoSort(roots, /*with_extents=*/true)) {
    if (OwnSizesOf(u)) variables.push_back(u);
    const bool fresh = std::find(meshes.begin(), meshes.end(), u.device()) == meshes.end();
    if (u.device().is_manual() && fresh) meshes.push_back(u.device());
  }
  std::vector<PlaceVariable> out;
  for (const UOp& u : variables) {
    const OwnSizes own = *OwnSizesOf(u);
    for (const Device& device : meshes) {
      const Mesh mesh = device.sharding().mesh();
      std::vector<int> dims;
      for (const auto& [d, size] : own.dims) {
        if (d < mesh.ndim() && mesh.dims()[d].size == size) dims.push_back(d);
      }
      if (dims.size() != own.dims.size()) continue;  // of another mesh
      PlaceVariable v;
      v.name = u.arg<VarArg>().name;
      v.variable = u;
      v.mesh = device;
      for (int i = 0; i < mesh.size(); ++i) {
        v.values.push_back(own.sizes[mesh.CoordinateOver(i, dims)]);
      }
      out.push_back(std::move(v));
    }
  }
  return out;
}

}  // namespace tessera
