// Ops that are made of others: those of com.microsoft join or quantise ops of ONNX.
#pragma once

#include <string>
#include <vector>

#include "examples/onnx/call.h"

namespace tessera::onnx {

// The outputs of an op (after its domain and a dot, as in OpRow), as of that version, on these
// inputs (empty: left out) with this node's attributes.
std::vector<Value> RunAs(Call& c, const std::string& op, int64_t opset,
                         const std::vector<Tensor>& inputs);

// [N, D1, ..., C] as [N, C, D1, ...], and back.
Tensor ChannelsFirst(const Tensor& x);
Tensor ChannelsLast(const Tensor& x);

// The activation that the attribute `activation` names, without regard to case, with its numbers
// in order; x where there is no such attribute.
Tensor Activated(Call& c, const Tensor& x, const std::vector<double>& numbers);

}  // namespace tessera::onnx
