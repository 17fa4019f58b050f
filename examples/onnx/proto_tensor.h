// Reading one TensorProto.
#pragma once

#include "absl/status/statusor.h"
#include "examples/onnx/proto.h"
#include "examples/onnx/wire.h"

namespace tessera::onnx {

absl::StatusOr<TensorData> ReadTensor(WireReader& in);

}  // namespace tessera::onnx
