// Windows added up where they came from: the adjoint of Window, and columns back to images.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"
#include "graph/tensor_windows.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Show;

namespace {

// Every stride-th element of an axis of `length`, from `begin`; zeros between. After the last one
// there are `most` elements at most.
Tensor Spread(const Tensor& g, int axis, int64_t stride, int64_t begin, const Extent& length,
              int64_t most) {
  Tensor t = g;
  if (stride > 1) {
    t = t.Unsqueeze(axis + 1);
    Pairs pairs(t.rank(), {0, 0});
    pairs[axis + 1] = {0, stride - 1};
    t = t.Pad(pairs).Flatten(axis, axis + 1);
  }
  Pairs pairs(t.rank(), {0, 0});
  if (length.is_int() && t.shape()[axis].is_int()) {
    const int64_t left = length.value() - begin;
    if (t.size(axis) > left) t = t.SliceAxis(axis, {0, left});
    pairs[axis] = {begin, left - t.size(axis)};
    return t.Pad(pairs);
  }
  // How many elements come after is no expression that is known not to be negative.
  pairs[axis] = {begin, most};
  return internal::KnownPart(t.Pad(pairs), axis, 0, length);
}

// Windows that do not overlap lie side by side, zeros after each where the stride is longer.
Tensor SideBySide(const Tensor& g, int axis, const Extent& n, int64_t stride) {
  const int64_t k = g.size(-1);
  Pairs rest(g.rank(), {0, 0});
  rest[g.rank() - 1] = {0, stride - k};
  Tensor t = g.Pad(rest).MoveAxis({-1}, {axis + 1}).Flatten(axis, axis + 1);
  if (!n.is_int() || !t.shape()[axis].is_int()) {
    Pairs after(t.rank(), {0, 0});
    after[axis] = {0, k - 1};  // of a window that is cut off, there may be so many
    t = t.Pad(after);
  }
  return internal::FittedTo(t, axis, n);
}

constexpr int64_t kFewTerms = 8;

}  // namespace

Tensor internal::OverlapAdd(const Tensor& g, int axis, const Extent& n, int64_t stride,
                            int64_t dilation) {
  const int64_t k = g.size(-1);
  if (k > kFewTerms && stride == 1 && dilation == 1) {
    // The diagonals of [positions, window] are the windows of its rows, joined, that step by a row.
    Pairs pairs(g.rank(), {0, 0});
    pairs[axis] = {k - 1, k - 1};
    Ints order;
    for (int i = 0; i < g.rank() - 1; ++i) {
      order.push_back(i);
      if (i == axis) order.push_back(g.rank() - 1);
    }
    const Tensor rows = g.Pad(pairs).Flip(-1).Permute(order).Flatten(axis, axis + 1);
    return rows.Window(axis, {k}, {k}, {k + 1}).Sum(-1).Cast(g.dtype());
  }
  if (k <= stride && dilation == 1) return SideBySide(g, axis, n, stride);
  if (k > kFewTerms && dilation == 1) {
    // Blocks as long as the stride overlap whole ones: as many terms as a window has blocks.
    const int64_t blocks = (k + stride - 1) / stride;
    Pairs rest(g.rank(), {0, 0});
    rest.back() = {0, blocks * stride - k};
    const Tensor of_blocks = g.Pad(rest).Unflatten(-1, {blocks, stride}).Transpose(-2, -1);
    const Extent count = g.shape()[axis] + Extent(blocks - 1);
    const Tensor added = OverlapAdd(of_blocks, axis, count, 1, 1);
    const Tensor t = added.MoveAxis({-1}, {axis + 1}).Flatten(axis, axis + 1);
    Pairs after(t.rank(), {0, 0});
    after[axis] = {0, stride - 1};  // there may be so many elements that no window reaches
    return internal::KnownPart(t.Pad(after), axis, 0, n);
  }
  Tensor sum;
  for (int64_t w = 0; w < k; ++w) {
    const int64_t most = (k - 1 - w) * dilation + stride - 1;
    const Tensor term = Spread(g.Select(-1, w), axis, stride, w * dilation, n, most);
    sum = sum ? sum + term : term;
  }
  return sum;
}

Tensor Tensor::Im2Col(const PoolOptions& o, CallSite at) const {
  Call call("Im2Col", at, *this);
  const internal::Windowing w = internal::PoolWindowing(*this, o);
  const Tensor windows = internal::WindowsOf(*this, w, 0);
  const int axes = w.axes();
  Ints order = {0, 1};
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  for (int i = 0; i < axes; ++i) order.push_back(2 + i);
  const Tensor columns = windows.Permute(order).Flatten(2 + axes, -1);
  return columns.Flatten(1, 1 + axes);
}

Tensor Tensor::Col2Im(const Ints& extents, const PoolOptions& o, CallSite at) const {
  Call call("Col2Im", at, *this);
  const int axes = static_cast<int>(extents.size());
  if (rank() != 3 || axes == 0) {
    Fail("takes columns [N, C d1 ..., positions] and the extents of one axis or more, not ",
         Show(*this));
  }
  const Tensor like = Zeros(std::vector<int64_t>(axes + 2, 1)).Expand([&] {
    Extents dims = {1, 1};
    for (int64_t n : extents) dims.push_back(n);
    return Dims(dims);
  }());
  const internal::Windowing w = internal::PoolWindowing(like, o);
  Extents dims = {shape()[0], 0};
  int64_t elements = 1, positions = 1;
  for (int i = 0; i < axes; ++i) {
    dims.push_back(w.size[i]);
    elements *= w.size[i];
  }
  for (int i = 0; i < axes; ++i) {
    dims.push_back(w.Positions(i, extents[i]));
    positions *= w.Positions(i, extents[i]);
  }
  if (size(1) % elements != 0 || size(2) != positions) {
    Fail(Show(*this), " must have a multiple of ", elements, " rows and ", positions,
         " columns for these extents and windows");
  }
  dims[1] = size(1) / elements;
  Ints order = {0, 1};
  for (int i = 0; i < axes; ++i) order.push_back(2 + axes + i);
  for (int i = 0; i < axes; ++i) order.push_back(2 + i);
  Tensor t = Reshape(dims).Permute(order);
  Pairs inner(2 + axes);
  inner[0] = {0, dims[0]};
  inner[1] = {0, dims[1]};
  for (int i = axes; i-- > 0;) {
    const int64_t padded = w.before[i] + extents[i] + w.after[i];
    t = internal::OverlapAdd(t, 2 + i, padded, w.stride[i], w.dilation[i]);
    inner[2 + i] = {w.before[i], w.before[i] + extents[i]};
  }
  return t.Shrink(inner);
}

}  // namespace tessera
