// Windows over the axes after [N, C]: what convolutions and pools have in common.
#pragma once

#include "graph/tensor.h"

namespace tessera::internal {

// One entry for each axis after the second.
struct Windowing {
  Ints size, stride, dilation, before, after;
  int axes() const { return static_cast<int>(size.size()); }
  // How many windows there are along an axis of n elements.
  int64_t Positions(int i, int64_t n) const {
    const int64_t reach = dilation[i] * (size[i] - 1) + 1;
    return (before[i] + n + after[i] - reach) / stride[i] + 1;
  }
};

// The options checked and written out for each axis of x; an Error where no window fits, or where
// the first one would reach over the end by a stride, if windows may reach over it.
Windowing NormalWindowing(const Tensor& x, const Ints& size, const Ints& stride,
                          const Ints& padding, const Ints& dilation, bool over = false);
// The same for pools. With ceil_mode `after` is what the windows that begin within the axis or
// before it need, and no more.
Windowing PoolWindowing(const Tensor& x, const PoolOptions& options);
// [N, C, positions ..., window ...] over x with `padding` around.
Tensor WindowsOf(const Tensor& x, const Windowing& w, Number padding);
// One axis of x cut into n windows of nearly equal size: for a new axis before it of so many
// positions, which elements are in each window, and how many.
struct EvenWindows {
  Tensor inside, count;
  EvenWindows(const Tensor& x, int axis, int64_t n);
};
// An Error unless the extents are those of the last axes of x, as pools of given results take them.
void CheckExtents(const Tensor& x, const Ints& extents);
// Numbers of an option, one for each of `axes`: `absent` if there are none, one for all, or as
// many.
Ints PerAxis(const char* what, const Ints& given, int axes, int64_t absent, int64_t least);

}  // namespace tessera::internal
