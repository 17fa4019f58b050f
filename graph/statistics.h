// What NumPy has for samples, curves and rows, beside the members of Tensor: several quantiles,
// histograms of several variables, rows in order, curves at uneven distances, polynomials.
#pragma once

#include <string>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// Quantile of each of the shares, along a new first axis.
Tensor Quantiles(const Tensor& x, const std::vector<double>& shares, std::optional<int> axis = {},
                 bool keepdim = false, QuantileMethod method = QuantileMethod::kLinear,
                 CallSite at = CallSite::Here());
// How many of the points, the rows of [N, D], lie in each box of a grid of so many equal intervals
// along each of D axes, from low to high, both included; or the sum of their weights [N]. Points
// outside, or with a NaN, count nowhere.
struct HistogramAxis {
  int64_t bins;
  double low, high;
};
Tensor HistogramDd(const Tensor& points, const std::vector<HistogramAxis>& axes,
                   const Tensor& weights = {}, CallSite at = CallSite::Here());

// How many lie between each edge and the next, the last one included, or the sum of their weights,
// of the shape of x; or that over all of it and over the width. Edges ascend, which is not checked.
struct HistogramOptions {
  Tensor weights = {};
  bool density = false;
};
Tensor Histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options = {},
                 CallSite at = CallSite::Here());
// So many equal intervals from the least to the largest element; half a unit to both sides of one
// number, and of none from 0 to 1.
Tensor HistogramEdges(const Tensor& x, int64_t bins, CallSite at = CallSite::Here());

// Tensor::Cov of samples [N] that count so many times, as integers, and in proportion to weights.
struct CovOptions {
  int correction = 1;
  Tensor frequencies = {}, weights = {};
};
Tensor Cov(const Tensor& x, const CovOptions& options, CallSite at = CallSite::Here());

// ---- rows: what lies at each position of an axis, compared by its first element, then the next.
// The different rows, ascending, as Tensor::Unique gives the different elements: its indices,
// counts and inverse are of positions along the axis.
UniqueElements UniqueRows(const Tensor& x, int64_t n, int axis = 0, Number fill = 0,
                          CallSite at = CallSite::Here());
// Of a vector, of each run of equal elements one: the first n, then `fill`.
UniqueElements UniqueConsecutive(const Tensor& x, int64_t n, Number fill = 0,
                                 CallSite at = CallSite::Here());
// The positions of N in order by several keys [K, N], of which the last counts most.
Tensor LexSort(const Tensor& keys, CallSite at = CallSite::Here());
// Positions along each axis of a tensor of that shape as flat ones; outside it -1.
Tensor RavelIndex(absl::Span<const Tensor> positions, const Ints& extents,
                  CallSite at = CallSite::Here());

// ---- curves through points (x, y) along an axis of y; x is a vector, or of the shape of y, or of
// 1 along other axes
Tensor Trapezoid(const Tensor& y, const Tensor& x, int axis = -1, CallSite at = CallSite::Here());
Tensor CumTrapezoid(const Tensor& y, const Tensor& x, int axis = -1,
                    CallSite at = CallSite::Here());
Tensor Gradient(const Tensor& y, const Tensor& x, int axis = -1, CallSite at = CallSite::Here());
// With multiples of the period added, so that no step is longer than half of it.
Tensor Unwrap(const Tensor& x, double period = 6.283185307179586, int axis = -1,
              CallSite at = CallSite::Here());
// Tensor::Diff of what stands before x, x, and what stands after it, each of which may be empty or
// one number.
Tensor Diff(const Tensor& x, const Tensor& before, const Tensor& after, int n = 1, int axis = -1,
            CallSite at = CallSite::Here());
// CumSum and CumProd, ignoring NaNs.
Tensor NanCumSum(const Tensor& x, int axis, CallSite at = CallSite::Here());
Tensor NanCumProd(const Tensor& x, int axis, CallSite at = CallSite::Here());
// Of vectors: the sum of products at each distance of one from the other; modes are Convolve's.
Tensor Correlate(const Tensor& a, const Tensor& b, absl::string_view mode = "valid",
                 CallSite at = CallSite::Here());
// The distances by the p-norm between the rows of [N, E], each pair once: [N (N - 1) / 2].
Tensor PDist(const Tensor& x, double p = 2, CallSite at = CallSite::Here());

// ---- polynomials, as vectors of coefficients from that of the highest power on
// Of that degree through points x [N], y [N] or [N, K], with the least squares; by LstSq.
Tensor PolyFit(const Tensor& x, const Tensor& y, int degree, CallSite at = CallSite::Here());
Tensor PolyVal(const Tensor& coefficients, const Tensor& x, CallSite at = CallSite::Here());
Tensor PolyDer(const Tensor& coefficients, CallSite at = CallSite::Here());
Tensor PolyInt(const Tensor& coefficients, CallSite at = CallSite::Here());  // 0 at 0

}  // namespace tessera
