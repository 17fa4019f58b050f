// Windows over the axes after [N, C], as ONNX writes them down, and convolutions by them.
#pragma once

#include <vector>

#include "examples/onnx/call.h"

namespace tessera::onnx {

// One entry for each windowed axis; `padding` has all befores, then all afters.
struct Windows {
  Ints size, stride, dilation, padding;
};
// From the attributes kernel_shape (or `size`), strides, dilations, pads and auto_pad, for a source
// of these extents.
Windows WindowsOf(Call& c, const std::vector<int64_t>& extents, const std::vector<int64_t>& size);

// The extents after [N, C].
std::vector<int64_t> SpatialExtents(const Tensor& x);

// x under w with the attributes of Conv; the bias may be empty.
Tensor Convolution(Call& c, const Tensor& x, const Tensor& w, const Tensor& bias);

}  // namespace tessera::onnx
