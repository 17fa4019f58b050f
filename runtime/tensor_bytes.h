// The elements of tensors as bytes: what the writers of file formats share.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// Computes the tensor and copies its elements, row-major, from wherever it lies.
std::vector<uint8_t> BytesOf(const Tensor& tensor);

}  // namespace tessera
