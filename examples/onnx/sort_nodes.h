// Nodes in an order in which each comes after what it takes.
#pragma once

#include "examples/onnx/proto.h"

namespace tessera::onnx {

// The standard asks for that order, but some tools append nodes where they like and leave the rest
// to ONNX Runtime. What is in order stays as it is; nodes that take each other's results do, too.
void SortNodes(Model& model);

}  // namespace tessera::onnx
