// Values of the reference evaluator: arrays of scalars, and what the ops over several axes give.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

// A value on the way: its elements are shared where a node only renames them.
struct Value {
  Ints dims;
  std::shared_ptr<const std::vector<Scalar>> data;
};

// How many elements extents make; an error where that is too many for the evaluator.
absl::StatusOr<int64_t> Count(const Ints& dims);

Ints RowMajor(const Ints& dims);  // strides in elements

// Calls fn(offset) for each point of the box in row-major order; the offset starts at base and
// moves by the strides.
template <typename Fn>
void Walk(const Ints& dims, const Ints& strides, int64_t base, Fn fn) {
  for (int64_t d : dims) {
    if (d == 0) return;
  }
  const int rank = static_cast<int>(dims.size());
  Ints at(dims.size(), 0);
  for (int64_t offset = base;;) {
    fn(offset);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++at[axis] < dims[axis]) break;
      offset -= strides[axis] * dims[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

Value MakeValue(Ints dims, std::vector<Scalar> data);

// The elements of v at base + point * strides, for the points of the box.
absl::StatusOr<Value> Strided(const Value& v, Ints dims, const Ints& strides, int64_t base);

// What these nodes give for the values of their sources. Floats are combined in f64, integers in 64
// bits; both are rounded once, at the end.
absl::StatusOr<Value> Reduced(const UOp& reduce, const Value& v);
absl::StatusOr<Value> Gathered(const UOp& gather, const Value& table, const Value& index);
absl::StatusOr<Value> Scattered(const UOp& scatter, const Value& base, const Value& index,
                                const Value& updates);

}  // namespace tessera
