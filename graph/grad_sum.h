// What a node's cotangents add up to.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace tessera {

// The sum of cotangents of one node. Of slices along one axis, as of a sequence whose steps are
// read one by one, those that do not overlap are joined: what each step wants is then written once,
// where a sum of padded slices is as long as the whole for each.
Tensor SumOfCotangents(absl::Span<const Tensor> cotangents);

}  // namespace tessera
