// Matrices in 8-bit floats, as folders have them, with their scales beside them.
#pragma once

#include "absl/status/statusor.h"
#include "examples/llm/model.h"
#include "runtime/weight_file.h"

namespace tessera::llm {

bool IsFloat8(WeightFormat format);

// A matrix [rows, columns] in 8-bit floats times its scale: one number, one for each row, or one
// for each block of rows and columns, of which the last may be short. As blocks that begin with
// theirs (kF8E4M3Scaled), which is a copy of what the file has; or as f32 where rows are no such
// blocks.
absl::StatusOr<Matrix> TimesScale(const Weight& matrix, const Weight& scale);

}  // namespace tessera::llm
