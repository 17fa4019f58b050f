// What the cotangents of windows are made of: products, and values that repeat.
#pragma once

#include <optional>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// Runs of axes that hold the same elements before and after a reshape: [from, from_end) and
// [to, to_end). An axis of 1 that comes or goes is a run of its own.
struct AxisRun {
  int from, from_end, to, to_end;
};
std::optional<std::vector<AxisRun>> RunsOf(const Shape& from, const Shape& to);

inline bool Varies(const Tensor& t, int axis) { return !t.shape()[axis].is_int(1); }

// A value with the axes along which it only repeats as 1.
Tensor Narrowed(const UOp& u);

// The sum over the axes behind those of the value of a * b. Either is 1 along axes over which it
// does not vary.
struct ProductOfTwo {
  Tensor a, b;
};
std::optional<ProductOfTwo> ProductOf(const UOp& u);

// With zeros there; negative numbers remove as many.
Tensor PaddedAlong(const Tensor& t, int axis, int64_t before, int64_t after);

// Whether an axis of a value is divided among places.
inline bool Shards(const Tensor& t, int axis) {
  return t.device().is_sharding() && !t.device().sharding().DimsOf(axis).empty();
}

}  // namespace tessera
