// Convolutions of any number of axes: products of windows and weights.
#include <numeric>
#include <vector>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"
#include "graph/tensor_part.h"
#include "graph/tensor_windows.h"

namespace tessera {

using internal::Call;
using internal::Divided;
using internal::Fail;
using internal::Show;
using internal::Windowing;

Ints internal::PerAxis(const char* what, const Ints& given, int axes, int64_t absent,
                       int64_t least) {
  Ints out = given;
  if (given.empty()) out.assign(axes, absent);
  if (given.size() == 1) out.assign(axes, given[0]);
  bool fits = static_cast<int>(out.size()) == axes;
  for (int64_t v : out) fits &= v >= least;
  if (!fits) {
    Fail("the ", what, " must be one number, or one for each of the ", axes,
         " axes after [N, C], from ", least, " up");
  }
  return out;
}

Windowing internal::NormalWindowing(const Tensor& x, const Ints& size, const Ints& stride,
                                    const Ints& padding, const Ints& dilation, bool over) {
  const int axes = x.rank() - 2;
  if (axes < 1) Fail("takes [N, C, D1, ...], not ", Show(x));
  Windowing w;
  w.size = PerAxis("size", size, axes, 2, 1);
  w.stride = PerAxis("stride", stride, axes, 1, 1);
  w.dilation = PerAxis("dilation", dilation, axes, 1, 1);
  if (static_cast<int>(padding.size()) == 2 * axes) {
    w.before = PerAxis("padding", Ints(padding.begin(), padding.begin() + axes), axes, 0, 0);
    w.after = PerAxis("padding", Ints(padding.begin() + axes, padding.end()), axes, 0, 0);
  } else {
    w.before = w.after = PerAxis("padding", padding, axes, 0, 0);
  }
  for (int i = 0; i < axes; ++i) {
    const int64_t n = x.shape()[2 + i].min(), reach = w.dilation[i] * (w.size[i] - 1) + 1;
    if (w.before[i] + n + w.after[i] < (over ? reach - w.stride[i] + 1 : reach)) {
      Fail("a window of ", reach, " elements does not fit axis ", 2 + i, " of ", Show(x),
           " with padding of ", w.before[i], " and ", w.after[i]);
    }
  }
  return w;
}

Tensor internal::WindowsOf(const Tensor& x, const Windowing& w, Number padding) {
  Pairs pairs(x.rank(), {0, 0});
  Ints axes;
  for (int i = 0; i < w.axes(); ++i) {
    pairs[2 + i] = {w.before[i], w.after[i]};
    axes.push_back(2 + i);
  }
  return x.Pad(pairs, padding).Window(axes, w.size, w.stride, w.dilation);
}

namespace {

void CheckChannels(const Tensor& x, const Tensor& weight, int64_t groups, bool transposed) {
  if (x.rank() < 3 || weight.rank() != x.rank()) {
    Fail("takes [N, C, D1, ...] and a weight of as many axes, not ", Show(x), " and ",
         Show(weight));
  }
  const int64_t g = groups;
  const Extent in = x.shape()[1], out = weight.shape()[0];
  if (g < 1) Fail("takes groups from 1 up, not ", g);
  const auto each = Divided(in, g);
  if (each && (transposed ? out == in : Divided(out, g) && weight.shape()[1] == *each)) return;
  if (transposed) {
    Fail("the weight ", Show(weight), " does not fit ", Show(x), " in ", g, " groups: it must be [",
         in.ToString(), ", out / groups, ...], and ", in.ToString(), " a multiple of the groups");
  }
  Fail("the weight ", Show(weight), " does not fit ", Show(x), " in ", g,
       " groups: it must be [out, ", tessera::FloorDiv(in, g).ToString(), ", ...], and both ",
       in.ToString(), " and ", out.ToString(), " multiples of the groups");
}

// Products over [N, groups, out / groups, in / groups, positions ..., window ...].
Tensor Convolved(const Tensor& x, const Tensor& weight, const Windowing& w, int64_t groups) {
  const DType result = SumType(Promote(x.dtype(), weight.dtype()));
  const DType wide = AccumulateType(result);
  const Tensor windows = internal::WindowsOf(x.Cast(wide), w, 0);
  const Extent n = x.shape()[0];
  const Extent out = weight.shape()[0];
  const Extent in_each = *Divided(x.shape()[1], groups), out_each = *Divided(out, groups);
  Extents of_x = {n, groups, 1, in_each}, of_weight = {1, groups, out_each, in_each};
  Extents dims = {n, out};
  Ints summed = {3};
  for (int i = 0; i < w.axes(); ++i) {
    of_x.push_back(windows.shape()[2 + i]);
    of_weight.push_back(1);
    dims.push_back(windows.shape()[2 + i]);
    summed.push_back(4 + w.axes() + i);
  }
  for (int i = 0; i < w.axes(); ++i) {
    of_x.push_back(w.size[i]);
    of_weight.push_back(w.size[i]);
  }
  const Tensor product = windows.Reshape(of_x) * weight.Cast(wide).Reshape(of_weight);
  return product.Sum(summed).Reshape(dims).Cast(result);
}

Tensor WithBias(const Tensor& y, const Tensor& bias) {
  if (!bias) return y;
  if (!(bias.shape().Elements() == y.shape()[1])) {
    Fail("the bias ", Show(bias), " must have one element for each channel of ", Show(y));
  }
  Extents dims(y.rank() - 1, 1);
  dims[0] = y.shape()[1];
  return y + bias.Reshape(dims);
}

Ints SizeOf(const Tensor& weight) {
  Ints size;
  for (int i = 2; i < weight.rank(); ++i) size.push_back(weight.size(i));
  return size;
}

Tensor ConvOf(const Tensor& x, const Tensor& weight, const ConvOptions& o) {
  CheckChannels(x, weight, o.groups, /*transposed=*/false);
  const Windowing w = internal::NormalWindowing(x, SizeOf(weight), o.stride, o.padding, o.dilation);
  return WithBias(Convolved(x, weight, w, o.groups), o.bias);
}

void CheckRank(const Tensor& x, int rank, const char* what) {
  if (x.rank() != rank) Fail("takes ", what, ", not ", Show(x));
}

// Zeros between the elements of each axis after [N, C], so that they are `stride` apart.
Tensor Spaced(Tensor x, const Ints& stride) {
  for (int i = 0; i < static_cast<int>(stride.size()); ++i) {
    const int axis = 2 + i;
    const Extent n = x.shape()[axis];
    if (stride[i] == 1 || n.is_int(0)) continue;
    x = x.Unsqueeze(axis + 1);
    Pairs pairs(x.rank(), {0, 0});
    pairs[axis + 1] = {0, stride[i] - 1};
    x = x.Pad(pairs)
            .Flatten(axis, axis + 1)
            .SliceAxis(axis, {0, (n - Extent(1)) * Extent(stride[i]) + Extent(1)});
  }
  return x;
}

}  // namespace

Tensor Tensor::Conv(const Tensor& weight, CallSite at) const {
  return Conv(weight, ConvOptions(), at);
}
Tensor Tensor::Conv(const Tensor& weight, const ConvOptions& o, CallSite at) const {
  Call call("Conv", at, *this, weight);
  return ConvOf(*this, weight, o);
}
Tensor Tensor::Conv1d(const Tensor& weight, CallSite at) const {
  return Conv1d(weight, ConvOptions(), at);
}
Tensor Tensor::Conv1d(const Tensor& weight, const ConvOptions& o, CallSite at) const {
  Call call("Conv1d", at, *this, weight);
  CheckRank(*this, 3, "signals [N, C, L]");
  return ConvOf(*this, weight, o);
}
Tensor Tensor::Conv2d(const Tensor& weight, CallSite at) const {
  return Conv2d(weight, ConvOptions(), at);
}
Tensor Tensor::Conv2d(const Tensor& weight, const ConvOptions& o, CallSite at) const {
  Call call("Conv2d", at, *this, weight);
  CheckRank(*this, 4, "images [N, C, H, W]");
  return ConvOf(*this, weight, o);
}
Tensor Tensor::Conv3d(const Tensor& weight, CallSite at) const {
  return Conv3d(weight, ConvOptions(), at);
}
Tensor Tensor::Conv3d(const Tensor& weight, const ConvOptions& o, CallSite at) const {
  Call call("Conv3d", at, *this, weight);
  CheckRank(*this, 5, "volumes [N, C, D, H, W]");
  return ConvOf(*this, weight, o);
}

Tensor Tensor::ConvTranspose(const Tensor& weight, CallSite at) const {
  return ConvTranspose(weight, ConvTransposeOptions(), at);
}

namespace {

// One axis of a transposed convolution. An element of the input reaches every dilation-th of the
// result; what both the stride and the dilation are multiples of lies between all that is reached.
// But for that, of every `dealt` neighbours in the result each is reached by other elements of the
// weight: they are so many channels, which are then dealt out.
struct TransposedAxis {
  int64_t between, dealt, dilation, size;  // size: elements of the weight that reach one
  int64_t later = 0;                      // positions by which the last channel is behind the first
  Extent made;                            // of the result: what is dealt out
  std::pair<int64_t, int64_t> pad, rest;  // of the input; of the result, which may lose some
};

TransposedAxis TransposedOf(const Extent& n, int64_t kernel, int64_t stride, int64_t dilation,
                            int64_t before, int64_t after, int64_t more) {
  TransposedAxis t;
  t.between = std::gcd(stride, dilation);
  t.dealt = stride / t.between;
  t.dilation = dilation / t.between;
  t.size = (kernel + t.dealt - 1) / t.dealt;
  t.later = t.dilation * (t.dealt - 1) / t.dealt;
  const int64_t edge = t.dilation * (t.size - 1);
  // Of the result there are n strides, and so many more: as wanted, and as the convolution gives.
  const int64_t wanted = dilation * (kernel - 1) + 1 + more - before - after - stride;
  t.pad = {edge, edge};
  t.rest = {0, 0};
  int64_t made = wanted;
  if (stride == 1) {
    t.pad = {edge - before, edge + more - after};
  } else {
    const bool none = n.is_int(0) && edge + t.later == 0;
    made = (edge + t.later) * stride - (none ? 0 : t.between - 1);
    t.rest = {-before, wanted + before - made};
  }
  t.made = n * Extent(t.dealt) + Extent(stride == 1 ? made : (edge + t.later) * t.dealt);
  return t;
}

// The channels of an axis in the order in which they are dealt out, each as much later as it is.
Tensor InTurn(const Tensor& y, const TransposedAxis& t, int axis, int positions) {
  if (t.dealt == 1 || t.dilation == 1) return y;
  std::vector<Tensor> turns(t.dealt);
  for (int64_t r = 0; r < t.dealt; ++r) {
    const int64_t at = t.dilation * r, later = at / t.dealt;
    Pairs pairs(y.rank(), {0, 0});
    pairs[positions] = {later, t.later - later};
    turns[at % t.dealt] = y.SliceAxis(axis, {r, r + 1}).Pad(pairs);
  }
  return Cat(turns, axis);
}

}  // namespace

// A convolution under the weight reversed, with input and output channels exchanged within each
// group.
Tensor Tensor::ConvTranspose(const Tensor& weight, const ConvTransposeOptions& o,
                             CallSite at) const {
  Call call("ConvTranspose", at, *this, weight);
  CheckChannels(*this, weight, o.groups, /*transposed=*/true);
  const int axes = rank() - 2;
  const Ints kernel = SizeOf(weight), stride = internal::PerAxis("stride", o.stride, axes, 1, 1);
  const Ints more = internal::PerAxis("output padding", o.output_padding, axes, 0, 0);
  const bool both = static_cast<int>(o.padding.size()) == 2 * axes;
  const Ints padding = both ? o.padding : internal::PerAxis("padding", o.padding, axes, 0, 0);
  Windowing w;
  w.stride.assign(axes, 1);
  w.dilation = internal::PerAxis("dilation", o.dilation, axes, 1, 1);
  w.before = w.after = Ints(axes, 0);
  const int64_t g = o.groups;
  const Extent in_each = *Divided(shape()[1], g), out = weight.shape()[1];
  Extent channels = out * Extent(g);
  Ints between, reversed;
  std::vector<TransposedAxis> along;
  Pairs pad(2, {0, 0}), rest = pad, whole = pad;
  // The weight as [g, in, out, (size, dealt) ...]; what the convolution gives as [N, channels,
  // dealt ..., positions ...].
  Extents split = {g, in_each, out}, sizes, parts = {shape()[0], channels}, result = parts;
  Ints dealt_first = {0, 2}, size_last = {1}, joined = {0, 1};
  for (int i = 0; i < axes; ++i) {
    const int64_t before = padding[i], after = padding[both ? axes + i : i];
    const int64_t reached = w.dilation[i] * (kernel[i] - 1) + 1 + more[i] - before - after;
    const int64_t gives = (shape()[2 + i].min() - 1) * stride[i] + reached;
    if (gives < (stride[i] == 1 ? 1 : 0)) {
      Fail("axis ", 2 + i, " of ", Show(*this), " would become ", gives,
           " elements with padding of ", before, " and ", after, "; pad it less");
    }
    const TransposedAxis t =
        TransposedOf(shape()[2 + i], kernel[i], stride[i], w.dilation[i], before, after, more[i]);
    along.push_back(t);
    w.size.push_back(t.size);
    w.dilation[i] = t.dilation;
    between.push_back(t.between);
    reversed.push_back(2 + i);
    pad.push_back(t.pad);
    rest.push_back(t.rest);
    whole.push_back({0, t.size * t.dealt - kernel[i]});
    channels = channels * Extent(t.dealt);
    split.insert(split.end(), {t.size, t.dealt});
    sizes.push_back(t.size);
    dealt_first.push_back(4 + 2 * i);
    size_last.push_back(3 + 2 * i);
    parts.push_back(t.dealt);
    joined.insert(joined.end(), {2 + axes + i, 2 + i});
    result.push_back(t.made);
  }
  dealt_first.insert(dealt_first.end(), size_last.begin(), size_last.end());
  sizes.insert(sizes.begin(), {channels, in_each});
  const Tensor turned = weight.Pad(whole).Reshape(split).Permute(dealt_first);
  const Tensor x = PadBy(PadMode::kConstant, pad);
  const Tensor y = Convolved(x, turned.Reshape(sizes).Flip(reversed), w, g);
  parts.insert(parts.end(), y.shape().begin() + 2, y.shape().end());
  Tensor dealt = y.Reshape(parts);
  for (int i = 0; i < axes; ++i) dealt = InTurn(dealt, along[i], 2 + i, 2 + axes + i);
  dealt = Spaced(dealt.Permute(joined).Reshape(result), between);
  return WithBias(dealt.PadBy(PadMode::kConstant, rest), o.bias);
}

}  // namespace tessera
