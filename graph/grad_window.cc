// Cotangents of windows as convolutions, by residues of strides.
#include "graph/grad_window.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/grad_product.h"
#include "graph/index_math.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"

namespace tessera {
namespace {

// ---- convolutions

// One of the window's axes: where it begins, how far apart its elements are, and the axes of
// positions and elements in the cotangent. Of what the windows lie in, [begin, end) is wanted.
struct Along {
  int position, element;
  int64_t size, stride, dilation;
  Extent begin, end;
  // Counted so that what is wanted begins with r = 0: i + shift = s q + r, of the q those from
  // first on, of which `more` are beyond the last position.
  int64_t shift = 0, first = 0, more = 0;
};

// False where no window reaches what is wanted.
bool Place(Along& w, const Extent& positions) {
  if (!positions.is_int() || !w.begin.is_int() || !w.end.is_int()) {
    w.more = (w.size - 1) * w.dilation;  // without strides
    return true;
  }
  const int64_t n = positions.value(), begin = w.begin.value(), end = w.end.value();
  w.shift = (w.stride - begin % w.stride) % w.stride;
  w.first = (begin + w.shift) / w.stride;
  const int64_t reach = (CeilDiv(w.size + w.shift, w.stride) - 1) * w.dilation;
  const int64_t last = std::min(CeilDiv(end + w.shift, w.stride), n + reach);
  w.more = last - n;
  return last > w.first;
}

// The elements of the window with one r, every s-th from `element` on: k + shift = s j + r, j from
// `before` on.
struct Residue {
  int64_t element = 0, count = 0, before = 0;
};

Residue ResidueOf(const Along& w, int64_t r) {
  Residue out;
  out.element = (r + w.stride - w.shift) % w.stride;
  out.count = std::max<int64_t>(0, CeilDiv(w.size - out.element, w.stride));
  out.before = (out.element + w.shift) / w.stride;
  return out;
}

// Whether some position meets one of these elements where something is wanted.
bool Meets(const Along& w, const Residue& r, const Extent& positions) {
  if (r.count == 0 || !positions.is_int()) return r.count > 0;
  const int64_t n = positions.value();
  return w.first - r.before - (r.count - 1) * w.dilation < n && n + w.more > r.before;
}

// Positions become windows, of the elements that meet at each place.
Tensor Positions(const Tensor& t, const Along& w, const Residue& r) {
  const int64_t reach = (r.count - 1) * w.dilation;
  return PaddedAlong(t, w.position, reach + r.before - w.first, w.more - r.before)
      .Window(w.position, {r.count}, {1}, {w.dilation})
      .Squeeze({w.element})
      .MoveAxis({-1}, {w.element});
}

Tensor Elements(const Tensor& t, const Along& w, const Residue& r) {
  const Tensor own =
      w.stride == 1 ? t : t.SliceAxis(w.element, {r.element, Extent(w.size), w.stride});
  return own.Flip({w.element});
}

constexpr int64_t kMostResidues = 64;

// What comes to the elements with each r, a last axis for each stride; nothing where windows do not
// reach them.
std::optional<Tensor> ByResidues(const ProductOfTwo& p, const std::vector<Along>& windows, int rank,
                                 DType dtype) {
  Ints strides, over;
  int64_t count = 1;
  for (const Along& w : windows) {
    if (w.stride > 1) strides.push_back(w.stride);
    count *= w.stride;
    if (count > kMostResidues) return std::nullopt;
  }
  for (int i = rank; i < p.a.rank(); ++i) over.push_back(i);
  std::vector<Tensor> parts(count);
  Tensor some;
  for (int64_t c = 0; c < count; ++c) {
    Tensor a = p.a, b = p.b;
    bool meets = true;
    int64_t rest = c;
    for (size_t i = windows.size(); i-- > 0;) {
      const Along& w = windows[i];
      const Residue r = ResidueOf(w, rest % w.stride);
      rest /= w.stride;
      const bool first = Varies(p.a, w.position);
      Tensor &of_positions = first ? a : b, &of_elements = first ? b : a;
      meets = meets && Meets(w, r, of_positions.shape()[w.position]);
      if (!meets) break;
      of_positions = Positions(of_positions, w, r);
      if (Varies(of_elements, w.element)) of_elements = Elements(of_elements, w, r);
    }
    if (!meets) continue;
    // In order in memory, as products are made, before they are put between one another.
    parts[c] = (a * b).Sum(Axes(over)).Cast(dtype);
    if (count > 1) parts[c] = parts[c].Contiguous();
    some = parts[c];
  }
  if (!some) return std::nullopt;
  if (count == 1) return some;
  for (Tensor& part : parts) {
    if (!part) part = Tensor::Zeros(Dims(some.shape().ToExtents()), dtype);
  }
  return Stack(parts, -1).Unflatten(-1, Dims(Extents(strides.begin(), strides.end())));
}

// What is wanted of x along an axis of the windows, of which it has those q on.
Tensor Wanted(const Tensor& x, const Along& w) {
  const int axis = w.position;
  const Tensor flat = w.stride == 1 ? x : x.MoveAxis({-1}, {axis + 1}).Flatten(axis, axis + 1);
  const Extent begin = w.begin - (w.stride * w.first - w.shift);
  if (begin.is_int(0)) return internal::FittedTo(flat, axis, w.end - w.begin);
  const Tensor all = internal::FittedTo(flat, axis, begin + (w.end - w.begin));
  return internal::KnownPart(all, axis, begin, begin + (w.end - w.begin));
}

// A cotangent that is the same for all elements of a window, as that of their sum, times one.
std::optional<ProductOfTwo> Repeated(const Tensor& g, const std::vector<Along>& windows) {
  const Tensor narrow = Narrowed(g.uop());
  Extents dims = narrow.shape().ToExtents();
  const Dims ones(Extents(dims.size(), 1));
  for (const Along& w : windows) {
    if (w.size > 1 && Varies(narrow, w.element)) return std::nullopt;
  }
  const size_t elements = dims.size() - windows.size();  // where their axes begin
  for (size_t axis = 0; axis < elements; ++axis) dims[axis] = g.shape()[static_cast<int>(axis)];
  return ProductOfTwo{
      Tensor(internal::BroadcastTo(narrow.uop(), Shape(dims), /*keep_scalar=*/false)),
      Tensor::Ones(ones, g.dtype())};
}

// A cotangent before it was reshaped, as far as that leaves the axes of windows as they are, and
// where their positions are there; their elements are last. (What a convolution's groups have one
// of is not repeated for each of their channels there.)
struct BeforeReshapes {
  Tensor value;
  Ints positions;
};

BeforeReshapes Before(const Tensor& g, const Ints& positions) {
  BeforeReshapes out{g, positions};
  while (out.value.uop().is(Op::kReshape)) {
    const UOp from = out.value.uop().src(0);
    const auto runs = RunsOf(from.shape(), out.value.shape());
    if (!runs) break;
    const auto axis_before = [&](int64_t axis) -> int64_t {
      for (const AxisRun& r : *runs) {
        if (r.to == axis && r.to_end == r.to + 1 && r.from_end == r.from + 1) return r.from;
      }
      return -1;
    };
    Ints there;
    for (const int64_t axis : out.positions) there.push_back(axis_before(axis));
    bool same = std::find(there.begin(), there.end(), -1) == there.end();
    for (int i = 1; i <= static_cast<int>(positions.size()); ++i) {
      same &= axis_before(out.value.rank() - i) == from.rank() - i;
    }
    if (!same) break;
    out = {Tensor(from), there};
  }
  return out;
}

// `part`: of each axis of the source what is wanted.
std::optional<Tensor> Convolved(const UOp& u, const Tensor& given, const Pairs& part) {
  const WindowArg& arg = u.arg<WindowArg>();
  const Shape& from = u.src(0).shape();
  const auto [g, positions] = Before(given, Ints(arg.axes.begin(), arg.axes.end()));
  const int rank = g.rank() - static_cast<int>(positions.size());
  std::vector<Along> windows;
  bool overlap = false;
  for (size_t i = 0; i < arg.axes.size(); ++i) {
    const auto& [begin, end] = part[arg.axes[i]];
    Along w{static_cast<int>(positions[i]),
            rank + static_cast<int>(i),
            arg.size[i],
            arg.stride[i],
            arg.dilation[i],
            begin,
            end};
    const Extent& n = g.shape()[w.position];
    if (w.stride > 1 && (w.dilation > 1 || !n.is_int() || !from[arg.axes[i]].is_int())) {
      return std::nullopt;
    }
    // What crosses the borders of shards is less where windows were added up first.
    if (n.is_int(0) || Shards(g, w.position) || !Place(w, n)) return std::nullopt;
    overlap |= w.size > w.stride;
    windows.push_back(w);
  }
  if (!overlap) return std::nullopt;
  std::optional<ProductOfTwo> p = Repeated(g, windows);
  const bool repeats = p.has_value();
  if (!p) p = ProductOf(g.uop());
  if (!p) return std::nullopt;

  for (const Along& w : windows) {
    if (Varies(p->a, w.position) == Varies(p->b, w.position)) return std::nullopt;
    const bool first = Varies(p->a, w.position);
    const Tensor &of_positions = first ? p->a : p->b, &of_elements = first ? p->b : p->a;
    if (w.size > 1 &&
        (Varies(of_positions, w.element) || Varies(of_elements, w.element) == repeats)) {
      return std::nullopt;
    }
  }
  const std::optional<Tensor> made = ByResidues(*p, windows, rank, g.dtype());
  if (!made) return std::nullopt;
  Tensor x = *made;
  Extents dims = given.shape().ToExtents();
  dims.resize(from.rank());
  for (size_t i = windows.size(); i-- > 0;) {
    x = Wanted(x, windows[i]);
    dims[arg.axes[i]] = x.shape()[windows[i].position];
  }
  x = x.Reshape(dims);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto& [begin, end] = part[axis];
    if (!(x.shape()[axis] == end - begin)) x = internal::KnownPart(x, axis, begin, end);
  }
  return x;
}

// A cotangent that is a product of matrices, kept in memory as such: its columns are the positions,
// if these are more than a window's elements, which are rows.
Tensor KeptAsProduct(const UOp& window, const Tensor& given) {
  const WindowArg& arg = window.arg<WindowArg>();
  const auto [g, positions] = Before(given, Ints(arg.axes.begin(), arg.axes.end()));
  const int rank = g.rank() - static_cast<int>(positions.size());
  Extent elements = 1, places = 1;
  for (size_t i = 0; i < positions.size(); ++i) {
    elements = elements * g.shape()[rank + static_cast<int>(i)];
    places = places * g.shape()[static_cast<int>(positions[i])];
  }
  if (elements.is_int(1) || places.max() < elements.max() || !ProductOf(g.uop())) return given;
  Ints order, back(g.rank());
  const auto add = [&](bool of_positions) {
    for (int axis = 0; axis < rank; ++axis) {
      const bool is = std::find(positions.begin(), positions.end(), axis) != positions.end();
      if (is == of_positions) order.push_back(axis);
    }
  };
  add(false);
  for (int axis = rank; axis < g.rank(); ++axis) order.push_back(axis);
  add(true);
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  const Tensor kept = g.Permute(Axes(order)).Contiguous();
  return kept.Permute(Axes(back)).Reshape(given.shape());
}

// What is wanted of a WINDOW's source: of a PAD, what it pads.
Pairs PartOf(const UOp& source, bool of_padded) {
  Pairs out;
  for (int a = 0; a < source.rank(); ++a) {
    const Extent begin = of_padded ? source.arg<Pairs>()[a].first : Extent(0);
    out.emplace_back(begin, begin + (of_padded ? source.src(0) : source).shape()[a]);
  }
  return out;
}

}  // namespace

Tensor WindowCotangent(const UOp& u, const Tensor& g, bool of_padded) {
  const Pairs part = PartOf(u.src(0), of_padded);
  if (const std::optional<Tensor> x = Convolved(u, g, part)) return *x;
  if (const std::optional<Tensor> x = CotangentByElements(u, g))
    return of_padded ? x->Shrink(part) : *x;
  const WindowArg& w = u.arg<WindowArg>();
  Tensor x = KeptAsProduct(u, g);
  for (size_t i = w.axes.size(); i-- > 0;) {
    const int axis = static_cast<int>(w.axes[i]);
    x = internal::OverlapAdd(x, axis, u.src(0).shape()[axis], w.stride[i], w.dilation[i]);
  }
  return of_padded ? x.Shrink(part) : x;
}

}  // namespace tessera
