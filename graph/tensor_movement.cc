// Movement: reshapes, order of axes, repetition and joins.
#include <algorithm>
#include <limits>
#include <vector>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_moved.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::Fail;
using internal::NormalAxes;
using internal::NormalAxis;
using internal::ReshapeTo;
using internal::Show;

namespace {

constexpr size_t kMostFactors = 64;  // of a product of symbolic extents

// Takes a product apart: its integer, and the symbolic factors.
void TakeApart(const Extent& e, int64_t& number, std::vector<Extent>& factors) {
  if (e.is_int()) {
    constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();
    if (__builtin_mul_overflow(number, e.value(), &number)) number = kTooMany;
  } else if (e.expr().is(Op::kMul) && factors.size() < kMostFactors) {
    for (const UOp& s : e.expr().srcs()) TakeApart(Extent(s), number, factors);
  } else {
    factors.push_back(e);
  }
}

// The extents with the one that is -1 worked out, of `u` or of an axis of it. Symbolic factors must
// occur on both sides.
Extents InferredDims(const UOp& u, absl::Span<const Extent> from, Extents dims) {
  int unknown = -1;
  int64_t all = 1, known = 1;
  std::vector<Extent> rest, given;  // what the known extents leave, and theirs
  for (const Extent& e : from) TakeApart(e, all, rest);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].is_int(-1)) {
      if (unknown >= 0) Fail("only one extent may be -1 in ", Shape(dims).ToString());
      unknown = static_cast<int>(i);
    } else if (dims[i].is_int() && dims[i].value() < 0) {
      Fail("the shape ", Shape(dims).ToString(), " has a negative extent");
    } else {
      TakeApart(dims[i], known, given);
    }
  }
  if (unknown < 0) return dims;
  for (const Extent& e : given) {
    if (auto it = std::find(rest.begin(), rest.end(), e); it != rest.end()) rest.erase(it);
  }
  if (known == 0 || all % known != 0) {
    Fail("cannot infer -1 in ", Shape(dims).ToString(), " from ", Show(Tensor(u)),
         known == 0 ? ": an extent is 0" : ": the elements do not divide evenly");
  }
  Extent symbolic = 1;
  for (const Extent& e : rest) symbolic = symbolic * e;
  dims[unknown] = symbolic * Extent(all / known);
  return dims;
}

}  // namespace

// ---- reshapes

Tensor Tensor::Reshape(const Dims& to, CallSite at) const {
  Call call("Reshape", at, *this);
  const Extents dims = InferredDims(uop(), shape().dims(), to.extents());
  if (!SurelyAsMany(Shape(dims), shape()) && !(Shape(dims).Elements() == shape().Elements())) {
    Fail("cannot make ", Shape(dims).ToString(), " of ", Show(*this), ": ",
         shape().Elements().ToString(), " elements are not ", Shape(dims).Elements().ToString());
  }
  return Moved([&](const UOp& u) { return ReshapeTo(u, dims); });
}

Tensor Tensor::View(const Dims& to, CallSite at) const {
  Call call("View", at, *this);
  return Reshape(to, at);
}

Tensor Tensor::Flatten(int first, int last, CallSite at) const {
  Call call("Flatten", at, *this);
  if (rank() == 0) return Reshape({1});
  const int a = NormalAxis(first, rank()), b = NormalAxis(last, rank());
  if (a > b) Fail("axis ", first, " comes after axis ", last, " in ", Show(*this));
  Extents dims;
  Extent merged = 1;
  for (int i = 0; i < rank(); ++i) {
    if (i < a || i > b) {
      dims.push_back(shape()[i]);
      continue;
    }
    merged = merged * shape()[i];
    if (i == b) dims.push_back(merged);
  }
  return Moved([&](const UOp& u) { return ReshapeTo(u, dims); });
}

Tensor Tensor::Unflatten(int axis, const Dims& to, CallSite at) const {
  Call call("Unflatten", at, *this);
  const int a = NormalAxis(axis, rank());
  const Shape own({shape()[a]}), parts(InferredDims(uop(), own.dims(), to.extents()));
  if (!SurelyAsMany(parts, own) && !(parts.Elements() == own.Elements())) {
    Fail("cannot make ", parts.ToString(), " of axis ", a, " of ", Show(*this));
  }
  Extents dims(shape().begin(), shape().begin() + a);
  dims.insert(dims.end(), parts.begin(), parts.end());
  dims.insert(dims.end(), shape().begin() + a + 1, shape().end());
  return Reshape(dims);
}

Tensor Tensor::Unsqueeze(int axis, CallSite at) const {
  Call call("Unsqueeze", at, *this);
  const int a = NormalAxis(axis, rank() + 1);
  Extents dims = shape().ToExtents();
  dims.insert(dims.begin() + a, 1);
  return Moved([&](const UOp& u) { return ReshapeTo(u, dims); });
}

Tensor Tensor::Squeeze(CallSite at) const {
  Call call("Squeeze", at, *this);
  Extents dims;
  for (const Extent& e : shape()) {
    if (!e.is_int(1)) dims.push_back(e);
  }
  return Moved([&](const UOp& u) { return ReshapeTo(u, dims); });
}

Tensor Tensor::Squeeze(const Axes& axes, CallSite at) const {
  Call call("Squeeze", at, *this);
  const Ints drop = internal::AxesAlong(axes, rank());
  Extents dims;
  for (int i = 0; i < rank(); ++i) {
    if (std::find(drop.begin(), drop.end(), i) == drop.end()) {
      dims.push_back(shape()[i]);
    } else if (!shape()[i].is_int(1)) {
      Fail("axis ", i, " of ", Show(*this), " has not the extent 1");
    }
  }
  return Moved([&](const UOp& u) { return ReshapeTo(u, dims); });
}

// ---- order of axes and repetition

Tensor Tensor::Permute(const Axes& order, CallSite at) const {
  Call call("Permute", at, *this);
  if (static_cast<int>(order.axes().size()) != rank()) {
    Fail("the order names ", order.axes().size(), " axes of ", Show(*this));
  }
  const Ints axes = NormalAxes(order, rank());
  return Moved([&](const UOp& u) { return internal::PermuteTo(u, axes); });
}

Tensor Tensor::Transpose(int a, int b, CallSite at) const {
  Call call("Transpose", at, *this);
  Ints order = NormalAxes({}, rank());
  std::swap(order[NormalAxis(a, rank())], order[NormalAxis(b, rank())]);
  return Moved([&](const UOp& u) { return internal::PermuteTo(u, order); });
}

Tensor Tensor::T(CallSite at) const {
  Call call("T", at, *this);
  Ints order = NormalAxes({}, rank());
  std::reverse(order.begin(), order.end());
  return Moved([&](const UOp& u) { return internal::PermuteTo(u, order); });
}

Tensor Tensor::Expand(const Dims& to, CallSite at) const {
  Call call("Expand", at, *this);
  Extents dims = to.extents();
  const int extra = static_cast<int>(dims.size()) - rank();
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i].is_int(-1) && i >= extra) dims[i] = shape()[i - extra];
    if (dims[i].is_int() && dims[i].value() < 0) Fail("a new axis needs an extent, not -1");
  }
  const Shape wanted(dims);
  if (extra < 0 || !(internal::BroadcastShape(shape(), wanted) == wanted)) {
    Fail("cannot expand ", Show(*this), " to ", wanted.ToString());
  }
  return Moved([&](const UOp& u) { return internal::BroadcastTo(u, wanted, false); });
}

Tensor Tensor::BroadcastTo(const Dims& to, CallSite at) const {
  Call call("BroadcastTo", at, *this);
  return Expand(to, at);
}

Tensor Tensor::Repeat(const Ints& counts, CallSite at) const {
  Call call("Repeat", at, *this);
  const int extra = static_cast<int>(counts.size()) - rank();
  if (extra < 0) Fail("needs a count for each axis of ", Show(*this), ", has ", counts.size());
  Extents ones, wide, merged;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) Fail("cannot repeat ", counts[i], " times");
    const Extent n = static_cast<int>(i) < extra ? Extent(1) : shape()[static_cast<int>(i) - extra];
    ones.insert(ones.end(), {1, n});
    wide.insert(wide.end(), {counts[i], n});
    merged.push_back(n * Extent(counts[i]));
  }
  return Tensor(
      ReshapeTo(internal::BroadcastTo(ReshapeTo(uop(), ones), Shape(wide), false), merged));
}

Tensor Tensor::RepeatInterleave(int64_t count, CallSite at) const {
  Call call("RepeatInterleave", at, *this);
  return Flatten().RepeatInterleave(count, 0);
}

Tensor Tensor::RepeatInterleave(int64_t count, int axis, CallSite at) const {
  Call call("RepeatInterleave", at, *this);
  if (count < 0) Fail("cannot repeat ", count, " times");
  const int a = NormalAxis(axis, rank());
  Extents ones = shape().ToExtents(), wide, merged = ones;
  ones.insert(ones.begin() + a + 1, 1);
  wide = ones;
  wide[a + 1] = count;
  merged[a] = merged[a] * Extent(count);
  return Tensor(
      ReshapeTo(internal::BroadcastTo(ReshapeTo(uop(), ones), Shape(wide), false), merged));
}

// ---- of several tensors

namespace {

// Whether the kernel of a piece would have a loop of its own to sum over, as far as is soon seen.
bool IsSum(const UOp& piece) {
  constexpr size_t kMostLooked = 64;
  std::vector<const UOp*> stack = {&piece};
  for (size_t looked = 0; !stack.empty() && looked < kMostLooked; ++looked) {
    const UOp& u = *stack.back();
    stack.pop_back();
    if (u.is(Op::kReduce)) return true;
    if (u.is(Op::kContiguous) || u.realized()) continue;
    for (const UOp& s : u.srcs()) stack.push_back(&s);
  }
  return false;
}

}  // namespace

Tensor Cat(absl::Span<const Tensor> tensors, int axis, CallSite at) {
  Call call("Cat", at, tensors);
  if (tensors.empty()) Fail("needs at least one tensor");
  const int rank = tensors[0].rank();
  if (rank == 0) Fail("joins along an axis, and ", Show(tensors[0]), " has none; use Stack");
  const int a = NormalAxis(axis, rank);
  DType type = tensors[0].dtype();
  for (const Tensor& t : tensors) type = Promote(type, t.dtype());
  std::vector<UOp> srcs;
  for (const Tensor& t : tensors) {
    bool fits = t.rank() == rank;
    for (int i = 0; fits && i < rank; ++i) fits = i == a || t.shape()[i] == tensors[0].shape()[i];
    if (!fits) {
      Fail(Show(tensors[0]), " and ", Show(t), " may differ only on axis ", a);
    }
    srcs.push_back(internal::CastTo(t.uop(), type));
  }
  // Many pieces in stages, of as many each as can be: one kernel then makes all of those that are
  // alike, and none is so long that compiling it takes longer than running.
  constexpr size_t kMostPieces = 32, kMostSums = 16;
  while (srcs.size() > kMostPieces) {
    const size_t most = std::any_of(srcs.begin(), srcs.end(), IsSum) ? kMostSums : kMostPieces;
    const size_t n = srcs.size(), groups = (n + most - 1) / most;
    std::vector<UOp> joined;
    for (size_t g = 0; g < groups; ++g) {
      const size_t begin = n * g / groups, end = n * (g + 1) / groups;
      const auto some = absl::MakeSpan(srcs).subspan(begin, end - begin);
      const UOp one = some.size() == 1 ? some[0] : Build(Op::kCat, some, int64_t{a});
      joined.push_back(Build(Op::kContiguous, {one}));
    }
    srcs = std::move(joined);
  }
  return Tensor(srcs.size() == 1 ? srcs[0] : Build(Op::kCat, srcs, int64_t{a}));
}

Tensor Stack(absl::Span<const Tensor> tensors, int axis, CallSite at) {
  Call call("Stack", at, tensors);
  if (tensors.empty()) Fail("needs at least one tensor");
  const int a = NormalAxis(axis, tensors[0].rank() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) {
    if (!(t.shape() == tensors[0].shape())) {
      Fail("the shapes of ", Show(t), " and ", Show(tensors[0]), " differ");
    }
    rows.push_back(t.Unsqueeze(a));
  }
  return Cat(rows, a);
}

}  // namespace tessera
