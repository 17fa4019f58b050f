// Steps of a composition that are the same graph: one LOOP, or a few written out.
#pragma once

#include <vector>

#include "graph/loop.h"

namespace tessera::internal {

// What `step` makes of what is carried and an element of each sequence, in order, so many times:
// as Loop, but that its calls are part of the call under way. Few steps are written out, and so
// are all where something lies on several places; of no steps nothing is stacked.
Looped Repeat(int64_t times, const std::vector<Tensor>& carried,
              const std::vector<Tensor>& sequences, const TensorsToTensors& step);

// The values of all steps, stacked along a new first axis, along another one: [..., times, ...]
// instead of rows or columns of extent 1.
Tensor JoinedAlong(const Tensor& stacked, int axis);

}  // namespace tessera::internal
