// Parts of tensors by name: read, replaced, selected by masks, and dealt out.
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::NormalAxis;
using internal::Show;

Tensor Tensor::Narrow(int axis, const Extent& start, const Extent& length, CallSite at) const {
  Call call("Narrow", at, *this);
  const int a = NormalAxis(axis, rank());
  const Extent& n = shape()[a];
  const Extent begin = start.is_int() && start.value() < 0 ? n + start : start;
  const bool known = n.is_int() && start.is_int() && length.is_int();
  if (begin.min() < 0 || length.min() < 0 ||
      (known ? begin.value() > n.value() - length.value() : (begin + length - n).max() > 0)) {
    Fail(length.ToString(), " elements from ", start.ToString(), " are not all within axis ", a,
         " of ", Show(*this));
  }
  return SliceAxis(a, {begin, begin + length});
}

Tensor Tensor::ExpandAs(const Tensor& other, CallSite at) const {
  Call call("ExpandAs", at, *this, other);
  return Expand(other.shape());
}

Tensor Tensor::FlipLr(CallSite at) const {
  Call call("FlipLr", at, *this);
  return Flip(NormalAxis(1, rank()));
}

Tensor Tensor::FlipUd(CallSite at) const {
  Call call("FlipUd", at, *this);
  return Flip(NormalAxis(0, rank()));
}

std::vector<Tensor> Tensor::Unbind(int axis, CallSite at) const {
  Call call("Unbind", at, *this);
  const int a = NormalAxis(axis, rank());
  std::vector<Tensor> out;
  if (!shape()[a].is_int()) {
    Fail("how many pieces axis ", a, " of ", Show(*this), " has is not known; use Select");
  }
  internal::CheckPieces(*this, a, size(a));
  for (int64_t i = 0; i < size(a); ++i) out.push_back(Select(a, i));
  return out;
}

Tensor Tensor::ChannelShuffle(int64_t groups, CallSite at) const {
  Call call("ChannelShuffle", at, *this);
  const auto each = rank() < 2 ? std::nullopt : internal::Divided(shape()[1], groups);
  if (!each) Fail(groups, " groups do not divide axis 1 of ", Show(*this));
  return Unflatten(1, {groups, *each}).Transpose(1, 2).Flatten(1, 2);
}

Tensor Tensor::SelectScatter(const Tensor& src, int axis, int64_t position, CallSite at) const {
  Call call("SelectScatter", at, *this, src);
  const int a = NormalAxis(axis, rank());
  const Tensor part = Select(a, position);
  const Tensor chosen = FromExtent(internal::NormalPosition(*this, a, position), kInt64);
  const Tensor at_position = CountAlong(a, rank(), shape()[a], kInt64) == chosen;
  return Where(at_position, src.Cast(dtype()).Expand(part.shape()).Unsqueeze(a), *this);
}

Tensor Tensor::SliceScatter(const Tensor& src, int axis, const tessera::Slice& slice,
                            CallSite at) const {
  Call call("SliceScatter", at, *this, src);
  const int a = NormalAxis(axis, rank());
  const Shape part = SliceAxis(a, slice).shape();
  const Tensor positions = Arange(shape()[a]).SliceAxis(0, slice);
  return IndexCopy(a, positions, src.Cast(dtype()).Expand(part));
}

Tensor Tensor::FillDiagonal(Number value, CallSite at) const {
  Call call("FillDiagonal", at, *this);
  if (rank() < 2) Fail("takes matrices, not ", Show(*this));
  const Tensor row = CountAlong(0, 2, shape()[rank() - 2], kInt64);
  const Tensor column = CountAlong(1, 2, shape()[rank() - 1], kInt64);
  return MaskedFill((row == column).Expand(shape()), value);
}

namespace {

// How many hold up to each element, less one: the place of those that do.
Tensor PlaceAmong(const Tensor& mask) { return mask.Flatten().Cast(kInt32).CumSum(0) - 1; }

// Where the first n that hold are, counted through the tensor; then -1.
Tensor FirstThatHold(const Tensor& mask, int64_t n) {
  if (n < 0) Fail("cannot find ", n, " elements");
  const Tensor flat = mask.Flatten();
  const Extent elements = flat.shape()[0];
  const DType type = elements.max() > MaxInt(kInt32) ? kInt64 : kInt32;
  const Tensor to = Where(flat, PlaceAmong(flat), -1);
  return Tensor::Full({n}, -1, type).Scatter(0, to, Tensor::Arange(elements, type));
}

// A mask over each element of t.
Tensor MaskOf(const Tensor& mask, const Tensor& t) {
  bool fits = mask.dtype().IsBool() && mask.rank() <= t.rank();
  for (int i = 1; fits && i <= mask.rank(); ++i) {
    const Extent& n = mask.shape()[mask.rank() - i];
    fits = n.is_int(1) || n == t.shape()[t.rank() - i];
  }
  if (!fits) Fail("the mask ", Show(mask), " must be bool and broadcast to ", Show(t));
  return Tensor(internal::BroadcastTo(mask.uop(), t.shape(), /*keep_scalar=*/false));
}

}  // namespace

std::vector<Tensor> Tensor::UnravelIndex(const Ints& extents, CallSite at) const {
  Call call("UnravelIndex", at, *this);
  internal::CheckIndex(*this);
  std::vector<Tensor> out(extents.size());
  bool fits = true;  // extents in the dtype of the positions
  for (int64_t n : extents) fits &= n <= MaxInt(dtype());
  Tensor rest = fits ? *this : Cast(kInt64);
  for (size_t i = extents.size(); i-- > 0;) {
    if (extents[i] < 1) Fail("axis ", i, " has the extent ", extents[i]);
    out[i] = i == 0 ? rest : rest % extents[i];
    rest = rest.FloorDiv(extents[i]);
  }
  return out;
}

Tensor Tensor::NonZero(int64_t n, CallSite at) const {
  Call call("NonZero", at, *this);
  const Tensor place = FirstThatHold(Cast(kBool), n);
  if (rank() == 0) return place.Unsqueeze(1).SliceAxis(1, {0, 0});
  std::vector<Tensor> columns(rank());
  Tensor rest = place;
  for (int i = rank(); i-- > 0;) {
    const Tensor extent = FromExtent(shape()[i], place.dtype());
    columns[i] = Where(place < 0, -1, i == 0 ? rest : rest % extent);
    rest = rest.FloorDiv(extent);
  }
  return Stack(columns, 1);
}

Tensor Tensor::MaskedSelect(const Tensor& mask, int64_t n, Number fill, CallSite at) const {
  Call call("MaskedSelect", at, *this, mask);
  const Tensor place = FirstThatHold(MaskOf(mask, *this), n);
  return Flatten().Take(place).MaskedFill(place < 0, fill);
}

Tensor Tensor::MaskedScatter(const Tensor& mask, const Tensor& src, CallSite at) const {
  Call call("MaskedScatter", at, *this, mask, src);
  const Tensor each = MaskOf(mask, *this);
  const Tensor values = src.Cast(dtype()).Flatten().Take(PlaceAmong(each));
  return Where(each, values.Reshape(shape()), *this);
}

// ---- of several tensors

Tensor DStack(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("DStack", at, tensors);
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    const Tensor rows = t.AtLeast(2);
    parts.push_back(rows.rank() == 2 ? rows.Unsqueeze(2) : rows);
  }
  return Cat(parts, 2);
}

Tensor ColumnStack(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("ColumnStack", at, tensors);
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) parts.push_back(t.rank() < 2 ? t.AtLeast(1).Unsqueeze(1) : t);
  return Cat(parts, 1);
}

Tensor BlockDiag(absl::Span<const Tensor> matrices, CallSite at) {
  Call call("BlockDiag", at, matrices);
  int64_t columns = 0, before = 0;
  for (const Tensor& m : matrices) {
    if (m.rank() > 2) Fail("takes matrices, not ", Show(m));
    columns += m.AtLeast(2).size(1);
  }
  std::vector<Tensor> rows;
  for (const Tensor& t : matrices) {
    const Tensor m = t.AtLeast(2);
    const int64_t after = columns - before - m.size(1);
    rows.push_back(m.Pad({{0, 0}, {before, after}}));
    before += m.size(1);
  }
  return Cat(rows, 0);
}

Tensor CartesianProd(absl::Span<const Tensor> vectors, CallSite at) {
  Call call("CartesianProd", at, vectors);
  std::vector<Tensor> columns;
  for (const Tensor& grid : MeshGrid(vectors)) columns.push_back(grid.Flatten());
  return columns.size() == 1 ? columns[0] : Stack(columns, 1);
}

}  // namespace tessera
