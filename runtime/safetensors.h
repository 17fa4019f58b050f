// Safetensors files: a JSON header with names, dtypes, shapes and offsets, then bytes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/weight_file.h"

namespace tessera {

// The tensors of one file's bytes; `file` is put into the weights and may be null in tests. The
// tensors must cover the bytes after the header exactly, without holes or overlaps.
absl::StatusOr<WeightSet> ParseSafetensors(absl::string_view bytes, const std::string& name,
                                           std::shared_ptr<const MappedFile> file);

// The tensors of a folder: model.safetensors, or the files that model.safetensors.index.json
// names, each tensor in the file that the index says.
absl::StatusOr<WeightSet> OpenSafetensorsFolder(const std::string& folder);

}  // namespace tessera
