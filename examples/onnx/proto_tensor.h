// Reading one TensorProto.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "examples/onnx/proto.h"
#include "examples/onnx/wire.h"

namespace tessera::onnx {

absl::StatusOr<TensorData> ReadTensor(WireReader& in);

// Why its data, raw or collected from typed fields, does not fit a tensor's shape; empty: it does,
// and of a narrow type it is values from now on. The dtype is known.
std::string FitData(TensorData& t, bool raw);

}  // namespace tessera::onnx
