// What is read and written by position, and is no member of Tensor.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// ---- positions from -n on count from the end; others outside read 0 and write nothing
// The elements at positions among all of x, in order, in the shape of the index; and x with values,
// as many as positions, there, or added to what is there. Of several for an element the last is
// kept.
Tensor TakeFlat(const Tensor& x, const Tensor& index, CallSite at = CallSite::Here());
Tensor PutFlat(const Tensor& x, const Tensor& index, const Tensor& values, bool accumulate = false,
               CallSite at = CallSite::Here());
// Tensor::Gather and Scatter of what broadcasts together on all axes but one.
Tensor TakeAlong(const Tensor& x, const Tensor& index, int axis, CallSite at = CallSite::Here());
Tensor PutAlong(const Tensor& x, const Tensor& index, const Operand& values, int axis,
                ScatterMode = ScatterMode::kSet);

// Tensor::IndexAdd by another mode, and, unless include_self is false, with what x has there.
Tensor IndexReduce(const Tensor& x, int axis, const Tensor& index, const Tensor& src,
                   ScatterMode mode, bool include_self = true, CallSite at = CallSite::Here());

// Each element of an axis, which has no others than these counts [N], that often: `total` of them
// altogether, then zeros.
Tensor RepeatInterleave(const Tensor& x, const Tensor& counts, int64_t total, int axis,
                        CallSite at = CallSite::Here());
// What becomes of the rows of x that have the same of the numbers 0 to n-1, [n, ...]; of none of
// them 0, 1, the dtype's lowest or highest number, and for kMean NaN, or 0 of integers.
Tensor SegmentReduce(const Tensor& x, const Tensor& numbers, int64_t n,
                     ScatterMode mode = ScatterMode::kAdd, CallSite at = CallSite::Here());
// x with values, which broadcast, in place of what Diagonal reads.
Tensor DiagonalScatter(const Tensor& x, const Tensor& src, int64_t offset = 0, int a = 0, int b = 1,
                       CallSite at = CallSite::Here());

}  // namespace tessera
