// Kernels of tensors on a GPU as texts: scheduled and generated for a chip, not compiled.
#pragma once

#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "graph/tensor.h"

namespace tessera::benchmarks {

// A chip of the data centre, by its arch.
Target GpuTarget(const std::string& arch);

struct GpuText {
  Program program;
  int64_t bytes = 0;  // that a launch moves at least, with variables at their highest
};
// The distinct kernels that compute the tensors, which lie on a simulated GPU.
std::vector<GpuText> GpuTexts(const std::vector<Tensor>& tensors, const Target& target);

// Those of a decode step of the transformer.
std::vector<GpuText> TransformerTexts(int64_t layers, DType dtype, const Target& target);

}  // namespace tessera::benchmarks
