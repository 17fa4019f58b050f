// What a model must be before it is imported, whatever its inputs, and its values after that.
#pragma once

#include "examples/onnx/call.h"
#include "examples/onnx/proto.h"

namespace tessera::onnx {

// Throws tessera::Error where a version of ai.onnx is none that is known, a graph's names are made
// twice, or taken where nothing makes them, or a node has other inputs, outputs or attributes than
// its op of that version (signatures.h). Nodes are in order (sort_nodes.h). A graph may give a name
// of those around it a new meaning, as ONNX Runtime lets it.
void CheckModel(const Model& model);

// Throws where inputs of a node differ in type that its op has of one type.
void CheckTypes(const Node& node, int64_t version, absl::Span<const Value> inputs);

// How a value is none that an input, an output or a value_info of its name says; empty: it is one.
// Extents that are open fit any, as does what says nothing.
std::string Contradiction(const ValueInfo& info, const Value& value, bool shapes);

}  // namespace tessera::onnx
