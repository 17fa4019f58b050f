// Lookup by positions, slices and index tensors, and masks made of counting.
#include <algorithm>
#include <utility>
#include <variant>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::CheckIndex;
using internal::Fail;
using internal::PositionType;
using internal::Show;

void internal::CheckIndex(const Tensor& index) {
  if (!index.dtype().IsInt()) {
    Fail("the index ", Show(index), " must be of an integer dtype; cast it");
  }
}

DType internal::PositionType(DType index, int64_t n) {
  const bool narrow = n <= INT32_MAX && MinInt(index) >= INT32_MIN && MaxInt(index) <= INT32_MAX;
  return narrow ? kInt32 : kInt64;
}

Tensor internal::CountAlong(int axis, int rank, const Extent& n, DType dtype) {
  Extents dims(rank, 1);
  dims[axis] = n;
  return Tensor::Arange(n, dtype).Reshape(dims);
}

Tensor Tensor::operator[](const Index& index) const { return (*this)[{index}]; }

namespace {

// What x[...] names, axis by axis: first the slices of x, of which those at positions are dropped,
// then new axes, then lookups; the last two by axes of what is there by then.
struct Indexed {
  std::vector<Slice> slices;
  Ints dropped, added, by_axis;
  std::vector<Tensor> lookups;
};

// Positions along an axis of n, of which negative ones count from the end.
Tensor FromTheFirst(const Tensor& positions, const Extent& n) {
  CheckIndex(positions);
  if (MinInt(positions.dtype()) == 0 || positions.uop().vmin() >= 0) return positions;
  const Tensor p = positions.Cast(PositionType(positions.dtype(), n.max()));
  return Where(p < 0, p + Tensor::FromExtent(n, p.dtype()), p);
}

Indexed AxisByAxis(const Tensor& x, std::initializer_list<Index> indices) {
  const auto names_axis = [](const Index& i) {
    return !std::holds_alternative<NewAxisEntry>(i.entry()) &&
           !std::holds_alternative<EllipsisEntry>(i.entry());
  };
  const int64_t named = std::count_if(indices.begin(), indices.end(), names_axis);
  if (named > x.rank()) Fail(named, " indices do not fit ", Show(x));
  Indexed out;
  int64_t kept = 0;  // axes so far, once those at positions are dropped
  bool rest = false;
  for (const Index& i : indices) {
    const int axis = static_cast<int>(out.slices.size());
    if (const auto* position = std::get_if<Extent>(&i.entry())) {
      const Extent p = internal::NormalPosition(x, axis, *position);
      out.slices.push_back({p, p + Extent(1)});
      out.dropped.push_back(axis);
    } else if (const auto* slice = std::get_if<Slice>(&i.entry())) {
      out.slices.push_back(*slice);
      ++kept;
    } else if (const auto* positions = std::get_if<UOp>(&i.entry())) {
      if (positions->dtype() == kBool) {
        Fail("the mask ", Show(Tensor(*positions)), " picks as many elements as hold, which no ",
             "shape can say; use MaskedSelect with a number of elements, or, to write there, ",
             "x = x.MaskedFill(mask, value) or Where");
      }
      out.lookups.push_back(FromTheFirst(Tensor(*positions), x.shape()[axis]));
      out.slices.emplace_back();
      out.by_axis.push_back(kept++);
    } else if (std::holds_alternative<NewAxisEntry>(i.entry())) {
      out.added.push_back(kept++);
    } else {
      if (std::exchange(rest, true)) Fail("has two Ellipsis; one stands for all axes not named");
      out.slices.resize(out.slices.size() + x.rank() - named);
      kept += x.rank() - named;
    }
  }
  return out;
}

// By several index tensors, which broadcast together.
Tensor LookedUp(const Tensor& x, const std::vector<Tensor>& lookups, const Ints& axes) {
  if (lookups.size() == 1) return x.Take(lookups[0], static_cast<int>(axes[0]));
  Ints order = axes;
  for (int a = 0; a < x.rank(); ++a) {
    if (std::find(axes.begin(), axes.end(), a) == axes.end()) order.push_back(a);
  }
  const Tensor found = x.Permute(order).IndexGet(lookups);
  const int own = x.rank() - static_cast<int>(axes.size());
  const int looked_up = found.rank() - own;
  const bool adjacent = axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
  if (!adjacent) return found;
  Ints back;
  for (int64_t a = 0; a < axes.front(); ++a) back.push_back(looked_up + a);
  for (int a = 0; a < looked_up; ++a) back.push_back(a);
  for (int a = static_cast<int>(back.size()); a < found.rank(); ++a) back.push_back(a);
  return found.Permute(back);
}

}  // namespace

Index::Index(const Index&) = default;
Index::Index(Index&&) noexcept = default;
Index& Index::operator=(const Index&) = default;
Index& Index::operator=(Index&&) noexcept = default;
Index::~Index() = default;

Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  Call call("Index", indices.size() == 0 ? CallSite::Here() : indices.begin()->site(), *this);
  const Indexed by = AxisByAxis(*this, indices);
  Tensor part = Slice(by.slices);
  if (!by.dropped.empty()) part = part.Squeeze(by.dropped);
  for (const int64_t axis : by.added) part = part.Unsqueeze(static_cast<int>(axis));
  return by.lookups.empty() ? part : LookedUp(part, by.lookups, by.by_axis);
}

Tensor Tensor::PutAt(std::initializer_list<Index> indices, const Operand& values, bool accumulate,
                     CallSite at) const {
  Call call("PutAt", at, *this, values);
  Tensor given(internal::AsNode(values, dtype()));
  // One more than it is, as 0 is what lookups outside give.
  const Tensor place = (Arange(shape().Elements(), kInt64) + 1).Reshape(shape())[indices] - 1;
  const ScatterMode mode = accumulate ? ScatterMode::kAdd : ScatterMode::kSet;
  while (given.rank() > place.rank() && given.shape()[0].is_int(1)) given = given.Squeeze(0);
  return Flatten()
      .ScatterND(place.Unsqueeze(-1), given.Expand(place.shape()), mode)
      .Reshape(shape());
}

Tensor Tensor::Take(const Tensor& index, int axis, CallSite at) const {
  Call call("Take", at, *this, index);
  CheckIndex(index);
  const int a = internal::AxisAlong(axis, rank());
  return Tensor(Build(Op::kGather, {AtLeast(1).uop(), index.uop()}, Ints{a, 0, 0}));
}

Tensor Tensor::Embedding(const Tensor& index, CallSite at) const {
  Call call("Embedding", at, *this, index);
  CheckIndex(index);
  if (rank() != 2) Fail("the table ", Show(*this), " must have two axes, rows and features");
  return Tensor(Build(Op::kGather, {uop(), index.uop()}, Ints{0, 0, 0}));
}

Tensor Tensor::Gather(int axis, const Tensor& index, CallSite at) const {
  Call call("Gather", at, *this, index);
  CheckIndex(index);
  const int a = internal::AxisAlong(axis, rank());
  if (rank() + index.rank() <= 1) {  // a single number is a vector of one
    return AtLeast(1).Gather(a, index.AtLeast(1)).Reshape(index.shape());
  }
  bool fits = index.rank() == rank();
  for (int i = 0; fits && i < rank(); ++i) {
    fits = i == a || index.shape()[i] == shape()[i] ||
           (index.shape()[i].is_int() && index.shape()[i].max() <= shape()[i].min());
  }
  if (!fits) {
    Fail("the index ", Show(index), " must have the rank of ", Show(*this),
         " and lie within it on every axis but ", a);
  }
  Pairs part;
  for (int i = 0; i < rank(); ++i) {
    part.emplace_back(Extent(0), i == a ? shape()[i] : index.shape()[i]);
  }
  return Tensor(Build(Op::kGather, {Shrink(part).uop(), index.uop()}, Ints{a, a, rank() - 1 - a}));
}

Tensor Tensor::OneHot(int64_t n, DType type, CallSite at) const {
  Call call("OneHot", at, *this);
  CheckIndex(*this);
  if (n < 0) Fail("cannot have ", n, " classes");
  const DType type_of_index = PositionType(dtype(), n);
  return (Cast(type_of_index).Unsqueeze(-1) == Arange(n, type_of_index)).Cast(type);
}

namespace {

// Whether an element of the last two axes lies on or below a diagonal, so many beyond the main one
// less `less`.
Tensor Below(const Tensor& t, int64_t diagonal, int64_t less = 0) {
  if (t.rank() < 2) Fail("takes matrices, not ", Show(t));
  constexpr int64_t kBeyondAll = int64_t{1} << 62;
  diagonal = std::clamp(diagonal, -kBeyondAll, kBeyondAll) - less;
  const Tensor row = Tensor::Arange(t.shape()[t.rank() - 2], kInt64).Unsqueeze(1);
  const Tensor column = Tensor::Arange(t.shape()[t.rank() - 1], kInt64);
  return column <= (diagonal == 0 ? row : row + diagonal);
}

}  // namespace

Tensor Tensor::Tril(int64_t diagonal, CallSite at) const {
  Call call("Tril", at, *this);
  return Where(Below(*this, diagonal), *this, false);
}

Tensor Tensor::Triu(int64_t diagonal, CallSite at) const {
  Call call("Triu", at, *this);
  return Where(Below(*this, diagonal, 1), false, *this);
}

}  // namespace tessera
