// Where the parts of a tensor lie, as text.
#pragma once

#include <string>

#include "graph/tensor.h"

namespace tessera {

// The tensor's type, then a line for each part: the places that hold it, its box, its size.
//
//   f32[5/3, 4] on CPU:0-2
//     CPU    [0:2, 0:4]  2x4
//     CPU:1  [2:4, 0:4]  2x4
//     CPU:2  [4:5, 0:4]  1x4
std::string VisualizeSharding(const Tensor& tensor);

}  // namespace tessera
