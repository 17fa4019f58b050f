// Tensors of a model whose data lies in other files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/onnx/proto.h"
#include "runtime/mapped_file.h"

namespace tessera::onnx {

// Finds the data of all tensors that lie elsewhere, in files of the model's folder or of folders in
// it. The model points into the files, which must outlive it as its own bytes must.
absl::StatusOr<std::vector<std::shared_ptr<const MappedFile>>> ReadOtherFiles(
    Model& model, const std::string& folder);

}  // namespace tessera::onnx
