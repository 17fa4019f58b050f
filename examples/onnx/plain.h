// Which models are plain: their tensors are all of Tensor's dtypes, and they need no strings,
// sequences, optionals, control flow, shapes that follow from data, training or ai.onnx.ml.
#pragma once

#include <string>

#include "examples/onnx/proto.h"

namespace tessera::onnx {

struct Plainness {
  std::string reason;   // why the model is not plain; empty: it is
  bool may_run = true;  // it is worth a try: it needs nothing that the importer lacks altogether
};
// By rules on the model alone.
Plainness PlainnessOf(const Model& model);

}  // namespace tessera::onnx
