// Movement: parts of tensors, padding and windows.
#include <algorithm>
#include <cmath>

#include "graph/simplify.h"
#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_moved.h"
#include "graph/tensor_part.h"

namespace tessera {

using internal::Build;
using internal::Call;
using internal::Fail;
using internal::NormalAxes;
using internal::NormalAxis;
using internal::ReshapeTo;
using internal::Show;

Tensor internal::BeforeShrink(const UOp& shrink, const Tensor& part) {
  const Shape& from = shrink.src(0).shape();
  Pairs pairs;
  bool none = true;
  for (int i = 0; i < shrink.rank(); ++i) {
    const auto& [begin, end] = shrink.arg<Pairs>()[i];
    pairs.emplace_back(begin, from[i] - end);
    none &= begin.is_int(0) && pairs.back().second.is_int(0);
  }
  return none ? part : Tensor(Build(Op::kPad, {part.uop()}, std::move(pairs)));
}

Tensor Tensor::Pad(const Pairs& pairs, Number value, CallSite at) const {
  Call call("Pad", at, *this);
  if (static_cast<int>(pairs.size()) != rank()) {
    Fail("needs a pair for each axis of ", Show(*this), ", has ", pairs.size());
  }
  bool none = true;
  for (const auto& [before, after] : pairs) {
    if (before.min() < 0 || after.min() < 0) {
      Fail("cannot add ", before.ToString(), " and ", after.ToString(),
           " elements to an axis; use Slice to remove some");
    }
    none &= before.is_int(0) && after.is_int(0);
  }
  const Tensor padded = Moved([&](const UOp& u) { return none ? u : Build(Op::kPad, {u}, pairs); });
  const double given = value.AsDouble();
  if (none || (given == 0 && !std::signbit(given))) return padded;
  const UOp inside = internal::BroadcastTo(UOp::Const(kBool, int64_t{1}), shape(), false);
  return Where(Tensor(Build(Op::kPad, {inside}, pairs)), padded,
               Tensor(internal::NumberAs(value, dtype())));
}

Tensor Tensor::Shrink(const Pairs& pairs, CallSite at) const {
  Call call("Shrink", at, *this);
  if (static_cast<int>(pairs.size()) != rank()) {
    Fail("needs a pair for each axis of ", Show(*this), ", has ", pairs.size());
  }
  bool whole = true;
  for (int i = 0; i < rank(); ++i) {
    const auto& [begin, end] = pairs[i];
    whole &= begin.is_int(0) && end == shape()[i];
    if (begin.min() < 0 || (end - begin).max() < 0) {
      Fail("cannot take elements ", begin.ToString(), " to ", end.ToString(), " of axis ", i,
           " of ", Show(*this));
    }
  }
  return Moved([&](const UOp& u) { return whole ? u : Build(Op::kShrink, {u}, pairs); });
}

namespace {

// The elements of one axis that a Slice means: begin..end, reversed if the step is negative, and
// every |step|-th of them.
struct Span {
  Extent begin, end;
  int64_t step = 1;
};

Extent Folded(Op op, const Extent& a, const Extent& b) {
  return Extent(Simplify(UOp::Make(op, {a.ToUOp(), b.ToUOp()})));
}

// Begin and end cut to 0 .. n, as far as they are not known to lie there.
Span Cut(Extent begin, Extent end, const Extent& n, int64_t step) {
  for (Extent* e : {&begin, &end}) {
    if (e->min() < 0) *e = Folded(Op::kMax, *e, 0);
    if (e->max() > n.min() && (n - *e).min() < 0) *e = Folded(Op::kMin, *e, n);
  }
  if ((end - begin).min() < 0) end = begin + Folded(Op::kMax, end - begin, 0);
  return {begin, end, step};
}

// As Python's slice.indices.
Span NormalSlice(const Slice& s, const Extent& extent, int axis) {
  if (s.step == 0) Fail("the step of axis ", axis, " is 0");
  const bool symbolic = (s.begin && !s.begin->is_int()) || (s.end && !s.end->is_int());
  if (symbolic || !extent.is_int()) {
    if (s.step < 0 && (s.begin || s.end)) {
      Fail("axis ", axis, " has symbolic bounds and so is taken backwards only as a whole");
    }
    const auto bound = [&](const Extent& e) {
      return e.is_int() && e.value() < 0 ? extent + e : e;
    };
    return Cut(s.begin ? bound(*s.begin) : Extent(0), s.end ? bound(*s.end) : extent, extent,
               s.step);
  }
  const int64_t n = extent.value();
  const bool down = s.step < 0;
  const auto bound = [&](const std::optional<Extent>& e, int64_t absent) {
    if (!e) return absent;
    const int64_t v = e->value() < 0 ? std::max<int64_t>(e->value() + n, -1) : e->value();
    return std::clamp<int64_t>(v, down ? -1 : 0, down ? n - 1 : n);
  };
  const int64_t begin = bound(s.begin, down ? n - 1 : 0), end = bound(s.end, down ? -1 : n);
  if (down ? begin <= end : begin >= end) return {0, 0, 1};
  // What goes beyond the axis goes beyond it.
  const int64_t step = std::clamp<int64_t>(s.step, -n, n);
  if (!down) return {begin, end, step};
  return {end + 1, begin + 1, step};
}

// Every step-th element of an axis, by a window of one element.
UOp Strided(const UOp& u, int axis, int64_t step) {
  const Extent& n = u.shape()[axis];
  if (step == 1 || n.is_int(0)) return u;
  if (n.min() < 1) {
    Fail("axis ", axis,
         " may be empty, and so takes only steps of 1; a Variable from 1 up would do");
  }
  const UOp w = Build(Op::kWindow, {u}, WindowArg{{axis}, {1}, {step}, {1}});
  Extents dims = u.shape().ToExtents();
  dims[axis] = w.shape()[axis];
  return ReshapeTo(w, dims);
}

UOp SlicedBy(const UOp& u, absl::Span<const Span> spans) {
  Pairs pairs;
  Ints flips;
  bool whole = true;
  for (int i = 0; i < u.rank(); ++i) {
    pairs.emplace_back(spans[i].begin, spans[i].end);
    whole &= spans[i].begin.is_int(0) && spans[i].end == u.shape()[i];
    if (spans[i].step < 0) flips.push_back(i);
  }
  UOp v = whole ? u : Build(Op::kShrink, {u}, pairs);
  if (!flips.empty()) v = Build(Op::kFlip, {v}, flips);
  for (int i = 0; i < u.rank(); ++i) {
    if (spans[i].step != 1) v = Strided(v, i, std::abs(spans[i].step));
  }
  return v;
}

std::vector<Span> NormalSlices(const Tensor& t, absl::Span<const Slice> slices) {
  if (static_cast<int>(slices.size()) > t.rank()) {
    Fail(slices.size(), " slices do not fit ", Show(t));
  }
  std::vector<Span> spans;
  for (int i = 0; i < t.rank(); ++i) {
    const Slice s = i < static_cast<int>(slices.size()) ? slices[i] : Slice();
    spans.push_back(NormalSlice(s, t.shape()[i], i));
  }
  return spans;
}

// A position counted from the end where it is negative; an Error outside the axis.
}  // namespace

Extent internal::NormalPosition(const Tensor& t, int axis, const Extent& position) {
  const Extent& n = t.shape()[axis];
  const Extent p = position.max() < 0 ? n + position : position;
  if (p.min() < 0 || p.max() >= n.max()) {
    Fail("position ", position.ToString(), " lies outside axis ", axis, " of ", Show(t));
  }
  return p;
}

Tensor Tensor::Slice(const std::vector<tessera::Slice>& slices, CallSite at) const {
  Call call("Slice", at, *this);
  const std::vector<Span> spans = NormalSlices(*this, slices);
  return Moved([&](const UOp& u) { return SlicedBy(u, spans); });
}

Tensor Tensor::SliceAxis(int axis, const tessera::Slice& slice, CallSite at) const {
  Call call("SliceAxis", at, *this);
  std::vector<tessera::Slice> slices(NormalAxis(axis, rank()) + 1);
  slices.back() = slice;
  return Slice(slices, at);
}

Tensor Tensor::Select(int axis, const Extent& position, CallSite at) const {
  Call call("Select", at, *this);
  const int a = NormalAxis(axis, rank());
  const Extent p = internal::NormalPosition(*this, a, position);
  return SliceAxis(a, {p, p + Extent(1)}).Squeeze(a);
}

Tensor Tensor::Flip(const Axes& axes, CallSite at) const {
  Call call("Flip", at, *this);
  const Ints flipped = internal::AxesAlong(axes, rank());
  return Moved([&](const UOp& u) { return flipped.empty() ? u : Build(Op::kFlip, {u}, flipped); });
}

Tensor Tensor::Window(const Axes& axes, const Ints& size, const Ints& stride, const Ints& dilation,
                      CallSite at) const {
  Call call("Window", at, *this);
  const Ints windowed = NormalAxes(axes, rank());
  const Ints ones(windowed.size(), 1);
  const WindowArg arg{windowed, size, stride.empty() ? ones : stride,
                      dilation.empty() ? ones : dilation};
  return Moved([&](const UOp& u) { return Build(Op::kWindow, {u}, arg); });
}

void internal::CheckPieces(const Tensor& t, int axis, int64_t pieces) {
  if (pieces <= kMostPieces) return;
  Fail(pieces, " pieces along axis ", axis, " of ", Show(t), " are more than the ", kMostPieces,
       " that there may be; Unflatten makes them rows of one tensor");
}

std::vector<Tensor> Tensor::Split(const std::vector<int64_t>& sizes, int axis, CallSite at) const {
  Call call("Split", at, *this);
  const int a = NormalAxis(axis, rank());
  Extent all = 0;
  for (int64_t n : sizes) {
    if (n < 0) Fail("a piece cannot have the size ", n);
    all = all + n;
  }
  if (!all.is_int(size(a))) {
    Fail("pieces of ", all.ToString(), " elements in all do not make up axis ", axis, " of ",
         Show(*this));
  }
  std::vector<Tensor> out;
  int64_t begin = 0;
  for (int64_t n : sizes) {
    out.push_back(SliceAxis(a, {begin, begin + n}));
    begin += n;
  }
  return out;
}

Tensor Tensor::Roll(int64_t shift, CallSite at) const {
  Call call("Roll", at, *this);
  return Flatten().Roll(shift, 0).Reshape(shape());
}

Tensor Tensor::Roll(int64_t shift, int axis, CallSite at) const {
  Call call("Roll", at, *this);
  const int a = NormalAxis(axis, rank());
  if (!shape()[a].is_int()) {
    const Extent& all = shape()[a];
    return Take((Arange(all, kInt64) - shift) % Tensor::FromExtent(all, kInt64), a);
  }
  const int64_t n = size(a);
  const int64_t cut = n == 0 ? 0 : (n - shift % n) % n;
  if (cut == 0) return Tensor(uop());
  return Cat({SliceAxis(a, {cut, n}), SliceAxis(a, {0, cut})}, a);
}

Tensor Tensor::Roll(const Ints& shifts, const Axes& axes, CallSite at) const {
  Call call("Roll", at, *this);
  // An axis that is given twice is rolled twice.
  const Ints order = axes.axes().empty() ? internal::NormalAxes(axes, rank()) : axes.axes();
  if (shifts.size() != order.size()) {
    Fail(shifts.size(), " shifts do not fit ", order.size(), " axes of ", Show(*this));
  }
  Tensor t = *this;
  for (size_t i = 0; i < order.size(); ++i) t = t.Roll(shifts[i], static_cast<int>(order[i]));
  return t;
}

std::vector<Tensor> Tensor::Split(int64_t piece, int axis, CallSite at) const {
  Call call("Split", at, *this);
  if (piece < 1) Fail("pieces cannot have the size ", piece);
  if (!shape()[NormalAxis(axis, rank())].is_int()) {
    Fail("how many pieces of ", piece, " axis ", axis, " of ", Show(*this), " has is not known; ",
         "use Chunk or ArraySplit, which make a given number of them, or Narrow");
  }
  const int a = NormalAxis(axis, rank());
  internal::CheckPieces(*this, a, size(a) / piece);
  std::vector<int64_t> sizes;
  for (int64_t left = size(a); left > 0; left -= piece) sizes.push_back(std::min(left, piece));
  if (sizes.empty()) sizes.push_back(0);
  return Split(sizes, axis);
}

namespace {
// n pieces of an axis, the i-th of which ends at end(i).
template <typename Fn>
std::vector<Tensor> Pieces(const Tensor& x, int axis, int64_t n, Fn end) {
  if (n < 1) Fail("cannot make ", n, " pieces of axis ", axis, " of ", Show(x));
  internal::CheckPieces(x, axis, n);
  std::vector<Tensor> out;
  Extent begin = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Extent next = end(i);
    out.push_back(internal::KnownPart(x, axis, begin, next));
    begin = next;
  }
  return out;
}
}  // namespace

std::vector<Tensor> Tensor::Chunk(int64_t n, int axis, CallSite at) const {
  Call call("Chunk", at, *this);
  const int a = NormalAxis(axis, rank());
  const Extent& all = shape()[a];
  if (n > 0 && all.is_int() && !all.is_int(0)) return Split((size(a) - 1) / n + 1, a);
  return Pieces(*this, a, n, [&](int64_t i) {
    return tessera::Min(tessera::FloorDiv(all + Extent(n - 1), n) * Extent(i + 1), all);
  });
}

std::vector<Tensor> Tensor::ArraySplit(int64_t n, int axis, CallSite at) const {
  Call call("ArraySplit", at, *this);
  const int a = NormalAxis(axis, rank());
  Extent end = 0;
  return Pieces(*this, a, n, [&, all = shape()[a]](int64_t i) {
    return end = end + tessera::FloorDiv(all + Extent(n - 1 - i), n);
  });
}

}  // namespace tessera
