// How the loops of a kernel are divided over cores: two passes over its iteration space.
//
// The first makes every core's part fit, the second uses the cores that are left. A split divides
// its axis evenly and in whole sticks, so that no core has more than another and none cuts a vector
// or a cache line; what is left over by that is seen in Utilisation. Only an axis that may be split
// unevenly has parts of so many whole sticks each, and what is less than a stick for each of them
// after the last.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

inline constexpr int64_t kStickBytes = 64;  // of an adjacent axis, that stay together

// One loop. Of a symbolic one the size is the most it can be, and splits divide its granularity, of
// which every size that it takes is a multiple.
struct IterationAxis {
  int64_t size = 1;
  bool reduction = false;
  int64_t stick = 1;        // elements that stay together; 1 where sticks do not divide the axis
  int64_t granularity = 0;  // 0: the size is fixed
  bool uneven = false;      // may be split by what does not divide it, where that uses more cores
};

// A tensor that the kernel reads or writes: how far one step of each axis goes in it.
struct IterationAccess {
  int64_t element_bytes = 1;
  std::vector<int64_t> strides;  // in elements, one an axis
};

struct IterationSpace {
  std::vector<IterationAxis> axes;  // outermost first
  std::vector<IterationAccess> accesses;
};

struct DivisionLimits {
  int64_t cores = 1;
  int64_t span_bytes = INT64_MAX;  // between the first and the last byte that one core reaches
  int reduction_axes = 1;          // that may be split: their parts are combined in a second step
};

// Into how many parts each axis is split.
struct Division {
  std::vector<int64_t> splits;
  int64_t cores() const;  // their product
};

// The bytes between the first and the last that one core reaches of a tensor.
int64_t Span(const IterationSpace& space, const IterationAccess& access, const Division& division);

// Pass 1: the fewest cores with which every access keeps the span limit, tensor by tensor; what one
// has committed the next can only add to. An error where no split fits.
absl::StatusOr<Division> FitSpans(const IterationSpace& space, const DivisionLimits& limits);

// Pass 2: what is left of the cores, by output axes from the largest on, those last that are split
// already; then by the one reduction axis that uses most of them, unless one is split already.
Division UseCores(const IterationSpace& space, const DivisionLimits& limits, Division committed);

// How many of its elements each part of a split axis has; what remains is less than a stick a part.
int64_t EachPart(const IterationAxis& axis, int64_t split);

// How much of the cores is busy until the last of them is done, where n equal parts are shared out
// among so many of them.
double Utilisation(int64_t n, int64_t workers, int64_t cores);

}  // namespace tessera
