// Quantised numbers, for the ops that compute with them.
#pragma once

#include "examples/onnx/call.h"

namespace tessera::onnx {

// An output: numbers in the quantised range as a type of integers, rounded to even and saturated.
void OutQuantised(Call& c, const Tensor& y, const Tensor& zero_point, int64_t to);

// An input less its zero point, as i32; a vector of them is along `axis`, from the last where
// negative.
Tensor Integers(Call& c, int input, int zero_point, int axis);
// A scale beside a result of that rank.
Tensor ScaleAlong(Call& c, int input, int axis, int rank);

// All of x as u8, whose scale and zero point follow from the least and the largest.
struct Quantised {
  Tensor y, scale, zero_point;  // y and the zero point are whole numbers in x's dtype
};
Quantised QuantisedByRange(const Tensor& x);

}  // namespace tessera::onnx
