// Movement by names that users know: axes moved, turned, joined, and diagonals.
#include <algorithm>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_moved.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Call;
using internal::CountAlong;
using internal::Fail;
using internal::NormalAxes;
using internal::NormalAxis;
using internal::Show;

Tensor Tensor::Unfold(int axis, int64_t size, int64_t step, CallSite at) const {
  Call call("Unfold", at, *this);
  return Window(NormalAxis(axis, rank()), {size}, {step});
}

Tensor Tensor::MoveAxis(const Axes& from, const Axes& to, CallSite at) const {
  Call call("MoveAxis", at, *this);
  const size_t n = from.axes().size();
  if (n != to.axes().size()) {
    Fail("moves ", n, " axes of ", Show(*this), " to ", to.axes().size(), " places");
  }
  if (n == 0) return Tensor(uop());
  const Ints source = NormalAxes(from, rank()), target = NormalAxes(to, rank());
  Ints order(rank(), -1);
  for (size_t i = 0; i < n; ++i) order[target[i]] = source[i];
  int next = 0;
  for (int64_t& place : order) {
    if (place >= 0) continue;
    while (std::find(source.begin(), source.end(), next) != source.end()) ++next;
    place = next++;
  }
  return Permute(order);
}

Tensor Tensor::SwapAxes(int a, int b, CallSite at) const {
  Call call("SwapAxes", at, *this);
  return Transpose(a, b);
}

Tensor Tensor::AtLeast(int least, CallSite at) const {
  Call call("AtLeast", at, *this);
  if (rank() >= least) return *this;
  if (least > kMaxRank) Fail("a rank of ", least, " is above the limit of ", kMaxRank);
  Extents dims(least - rank(), 1);
  dims.insert(dims.end(), shape().begin(), shape().end());
  return Reshape(dims);
}

Tensor Tensor::Rot90(int64_t k, int a, int b, CallSite at) const {
  Call call("Rot90", at, *this);
  const int from = NormalAxis(a, rank()), to = NormalAxis(b, rank());
  if (from == to) Fail("turns from one axis to another, not from ", a, " to ", b);
  switch ((k % 4 + 4) % 4) {
    case 0:
      return *this;
    case 1:
      return Flip(to).Transpose(from, to);
    case 2:
      return Flip({from, to});
    default:
      return Transpose(from, to).Flip(to);
  }
}

namespace {

// The diagonal of matrices in the last two axes, whose extents vary: positions in the rows joined.
Tensor VaryingDiagonal(const Tensor& x, int64_t offset) {
  const Extent rows = x.shape()[x.rank() - 2], columns = x.shape()[x.rank() - 1];
  const int64_t down = std::max<int64_t>(0, -offset), right = std::max<int64_t>(0, offset);
  const Extent length = Max(Min(rows - Extent(down), columns - Extent(right)), 0);
  const Tensor i = Tensor::Arange(length, kInt64);
  const Tensor row = (i + down) * Tensor::FromExtent(columns, kInt64);
  return x.Flatten(-2).Take(row + i + right, x.rank() - 2);
}

}  // namespace

// Every (columns + 1)-th element of the rows joined, from where the diagonal begins.
Tensor Tensor::Diagonal(int64_t offset, int a, int b, CallSite at) const {
  Call call("Diagonal", at, *this);
  const int row = NormalAxis(a, rank()), column = NormalAxis(b, rank());
  if (row == column) Fail("takes two axes, not ", a, " and ", b);
  const Tensor moved = MoveAxis({row, column}, {-2, -1});
  if (!shape()[row].is_int() || !shape()[column].is_int()) return VaryingDiagonal(moved, offset);
  const int64_t rows = size(row), columns = size(column);
  const int64_t length = std::max<int64_t>(
      0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
  if (length == 0) return moved.SliceAxis(-2, {0, 0}).Flatten(-2);
  const int64_t begin = offset >= 0 ? offset : -offset * columns;
  const int64_t end = begin + (length - 1) * (columns + 1) + 1;
  return moved.Flatten(-2).SliceAxis(-1, {begin, end, columns + 1});
}

Tensor Tensor::Tile(const Ints& counts, CallSite at) const {
  Call call("Tile", at, *this);
  Ints all = counts;
  while (static_cast<int>(all.size()) < rank()) all.insert(all.begin(), 1);
  return Repeat(all);
}

Tensor Tensor::DiagEmbed(int64_t offset, CallSite at) const {
  Call call("DiagEmbed", at, *this);
  if (rank() == 0) Fail("takes at least one axis");
  const Extent side = shape()[rank() - 1] + Extent(std::abs(offset));
  const Tensor at_row = Pad([&] {
                          Pairs pairs(rank(), {0, 0});
                          pairs.back() = offset >= 0 ? std::pair<Extent, Extent>(0, offset)
                                                     : std::pair<Extent, Extent>(-offset, 0);
                          return pairs;
                        }())
                            .Unsqueeze(-1);
  const Tensor row = Arange(side, kInt64).Unsqueeze(1), column = Arange(side, kInt64);
  return Where(column - row == offset, at_row, false);
}

Tensor Tensor::Diag(int64_t offset, CallSite at) const {
  Call call("Diag", at, *this);
  if (rank() == 1) return DiagEmbed(offset);
  if (rank() != 2) Fail("takes a vector or a matrix, not ", Show(*this));
  return Diagonal(offset);
}

Tensor Tensor::PixelShuffle(int64_t r, CallSite at) const {
  Call call("PixelShuffle", at, *this);
  if (rank() < 3 || r < 1 || size(-3) % (r * r) != 0) {
    Fail("takes [..., C, H, W] with C a multiple of ", r, " * ", r, ", not ", Show(*this));
  }
  const int c = rank() - 3;
  const Extent h = shape()[rank() - 2], w = shape()[rank() - 1];
  Ints order;
  for (int i = 0; i < c; ++i) order.push_back(i);
  for (int i : {c, c + 3, c + 1, c + 4, c + 2}) order.push_back(i);
  Extents dims(shape().begin(), shape().begin() + c);
  dims.insert(dims.end(), {Extent(size(-3) / (r * r)), h * Extent(r), w * Extent(r)});
  return Unflatten(c, {size(-3) / (r * r), r, r}).Permute(order).Reshape(dims);
}

Tensor Tensor::PixelUnshuffle(int64_t r, CallSite at) const {
  Call call("PixelUnshuffle", at, *this);
  const int c = rank() - 3;
  const auto h = c < 0 ? std::nullopt : internal::Divided(shape()[c + 1], r);
  const auto w = c < 0 ? std::nullopt : internal::Divided(shape()[c + 2], r);
  if (!h || !w) Fail("takes [..., C, H, W] with H and W multiples of ", r, ", not ", Show(*this));
  Ints order;
  for (int i = 0; i < c; ++i) order.push_back(i);
  for (int i : {c, c + 2, c + 4, c + 1, c + 3}) order.push_back(i);
  Extents dims(shape().begin(), shape().begin() + c);
  dims.insert(dims.end(), {shape()[c] * Extent(r * r), *h, *w});
  return Unflatten(c + 2, {*w, r}).Unflatten(c + 1, {*h, r}).Permute(order).Reshape(dims);
}

std::vector<Tensor> Tensor::TensorSplit(const std::vector<int64_t>& positions, int axis,
                                        CallSite at) const {
  Call call("TensorSplit", at, *this);
  const int a = NormalAxis(axis, rank());
  const Extent& n = shape()[a];
  std::vector<Tensor> pieces;
  Extent begin = 0;
  for (size_t i = 0; i <= positions.size(); ++i) {
    Extent end = n;
    if (i < positions.size()) {
      end = positions[i] < 0 ? n + Extent(positions[i]) : Extent(positions[i]);
      end = tessera::Min(tessera::Max(end, 0), n);
    }
    pieces.push_back(SliceAxis(a, {tessera::Min(begin, end), end}));
    begin = end;
  }
  return pieces;
}

// ---- of several tensors

Tensor HStack(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("HStack", at, tensors);
  std::vector<Tensor> parts;
  int rank = 1;
  for (const Tensor& t : tensors) {
    parts.push_back(t.AtLeast(1));
    rank = std::max(rank, t.rank());
  }
  return Cat(parts, rank == 1 ? 0 : 1);
}

Tensor VStack(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("VStack", at, tensors);
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) parts.push_back(t.AtLeast(2));
  return Cat(parts, 0);
}

std::vector<Tensor> BroadcastTensors(absl::Span<const Tensor> tensors, CallSite at) {
  Call call("BroadcastTensors", at, tensors);
  Shape shape;
  for (const Tensor& t : tensors) shape = internal::BroadcastShape(shape, t.shape());
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(t.Expand(shape));
  return out;
}

std::vector<Tensor> MeshGrid(absl::Span<const Tensor> vectors, absl::string_view indexing,
                             CallSite at) {
  Call call("MeshGrid", at, vectors);
  if (indexing != "ij" && indexing != "xy") {
    Fail("the indexing is \"ij\" or \"xy\", not \"", indexing, "\"");
  }
  const int n = static_cast<int>(vectors.size());
  std::vector<Tensor> along;
  for (int i = 0; i < n; ++i) {
    if (vectors[i].rank() > 1) Fail("takes vectors, not ", Show(vectors[i]));
    int axis = i;
    if (indexing == "xy" && n > 1 && i < 2) axis = 1 - i;
    Extents dims(n, 1);
    dims[axis] = vectors[i].shape().Elements();
    along.push_back(vectors[i].Reshape(dims));
  }
  return BroadcastTensors(along);
}

// ---- creation

Tensor Tensor::Logspace(double start, double stop, int64_t n, double base, DType dtype,
                        CallSite at) {
  Call call("Logspace", at);
  if (!dtype.IsFloat()) Fail("gives floats, not ", dtype.ToString(), "; cast the result");
  const DType wide = AccumulateType(dtype);
  return Full({}, base, wide).Pow(Linspace(start, stop, n, wide)).Cast(dtype);
}

Tensor Tensor::Tri(int64_t rows, int64_t columns, int64_t diagonal, DType dtype, CallSite at) {
  Call call("Tri", at);
  if (columns == -1) columns = rows;
  if (rows < 0 || columns < 0) Fail("cannot make ", rows, " rows and ", columns, " columns");
  return Ones({rows, columns}, dtype).Tril(diagonal);
}

// By repeated products, as whole powers are: 1 is exact, and so is the element itself.
Tensor Tensor::Vander(int64_t n, bool increasing, CallSite at) const {
  Call call("Vander", at, *this);
  if (rank() != 1) Fail("takes a vector, not ", Show(*this));
  if (n < -1) Fail("cannot make ", n, " columns");
  const Extent columns = n == -1 ? shape()[0] : Extent(n);
  const DType type = SumType(dtype());
  const Tensor column = CountAlong(1, 2, columns, kInt64);
  const Tensor power = increasing ? column : (FromExtent(columns, kInt64) - 1) - column;
  const Tensor factors = Where(power.Unsqueeze(-1) > Arange(internal::LessOne(columns), kInt64),
                               Cast(type).Reshape({shape()[0], 1, 1}), 1);
  return factors.Prod(-1);
}

}  // namespace tessera
