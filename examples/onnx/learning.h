// What the ops of ai.onnx.ml share.
#pragma once

#include "absl/strings/string_view.h"
#include "examples/onnx/call.h"

namespace tessera::onnx {

// Scores [N, C] as one of the transforms makes them, by its name.
Tensor PostTransformed(Call& c, const Tensor& scores, absl::string_view transform);
// [N, F], of [F] one row; an Error for others.
Tensor Rows(Call& c, const Tensor& x);

void TreeEnsemble(Call& c);
void TreeEnsembleRegressor(Call& c);

}  // namespace tessera::onnx
