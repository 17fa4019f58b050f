// The elements of tensors as bytes, and files made of them: what the writers of file formats share.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/tensor.h"

namespace tessera {

// Computes the tensor and copies its elements, row-major, from wherever it lies.
std::vector<uint8_t> BytesOf(const Tensor& tensor);

// Writes the parts to a file beside `path` and puts it in its place, so that no reader sees half.
absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view> parts);

}  // namespace tessera
