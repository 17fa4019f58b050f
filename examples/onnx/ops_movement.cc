// Ops that move elements and compute nothing.
#include <algorithm>
#include <limits>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

void Reshape(Call& c) {
  const Tensor x = c.In(0);
  std::vector<int64_t> shape = c.opset() < 5 ? c.Ints("shape") : c.HostInts(1);
  const bool zero_stays = c.Int("allowzero", 0) != 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 0 || zero_stays) continue;
    if (static_cast<int>(i) >= x.rank())
      c.Fail("extent ", i, " is 0, and the input has none there");
    shape[i] = x.size(static_cast<int>(i));
  }
  c.Out(x.Reshape(shape));
}

void Transpose(Call& c) {
  const Tensor x = c.In(0);
  c.Out(c.Find("perm") == nullptr || x.rank() == 0 ? x.T() : x.Permute(c.Ints("perm")));
}

void Squeeze(Call& c) {
  const Tensor x = c.In(0);
  const std::optional<std::vector<int64_t>> axes = c.IntsOf(1, "axes");
  c.Out(!axes ? x.Squeeze() : axes->empty() ? x : x.Squeeze(Axes(*axes)));
}

void Unsqueeze(Call& c) {
  Tensor x = c.In(0);
  std::vector<int64_t> axes = c.IntsOf(1, "axes").value_or(std::vector<int64_t>());
  const int rank = x.rank() + static_cast<int>(axes.size());
  for (int64_t& a : axes) a = c.Axis(a, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) c.Fail("an axis is there twice");
  for (const int64_t a : axes) x = x.Unsqueeze(static_cast<int>(a));
  c.Out(x);
}

void Flatten(Call& c) {
  const Tensor x = c.In(0);
  const int64_t given = c.Int("axis", 1);
  const int64_t axis = given < 0 ? given + x.rank() : given;
  if (axis < 0 || axis > x.rank()) c.Fail("axis ", given, " is none of rank ", x.rank());
  const std::vector<int64_t> s = Sizes(x);
  c.Out(x.Reshape(
      {Product(absl::MakeSpan(s).first(axis)), Product(absl::MakeSpan(s).subspan(axis))}));
}

void Concat(Call& c) {
  std::vector<Tensor> parts;
  for (int i = 0; i < c.inputs(); ++i) parts.push_back(c.In(i));
  if (parts.empty()) c.Fail("there is no input");
  const int64_t axis = c.opset() < 4 ? c.Int("axis", 1) : c.Int("axis");
  c.Out(Cat(parts, c.Axis(axis, parts[0].rank())));
}

void Split(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", 0), x.rank());
  const int64_t n = x.size(axis);
  std::vector<int64_t> sizes = c.IntsOf(1, "split").value_or(std::vector<int64_t>());
  if (sizes.empty()) {
    const auto count = c.Int("num_outputs", static_cast<int64_t>(c.node().outputs.size()));
    const auto outputs = static_cast<int64_t>(c.node().outputs.size());
    if (count < 1 || count > outputs)
      c.Fail("num_outputs is ", count, " for ", outputs, " outputs");
    const int64_t size = (n + count - 1) / count;
    for (int64_t i = 0; i < count; ++i) {
      sizes.push_back(std::clamp<int64_t>(n - i * size, 0, size));
    }
  }
  for (const Tensor& part : x.Split(sizes, axis)) c.Out(part);
}

// Bounds as NumPy reads them, given as positions: a backward slice down to the first element has no
// end.
tessera::Slice Bounds(int64_t begin, int64_t end, int64_t step, int64_t n) {
  if (begin < 0) begin = begin < -n ? -1 : begin + n;
  if (end < 0) end = end < -n ? -1 : end + n;
  if (step > 0) {
    begin = std::clamp<int64_t>(begin, 0, n);
    return {begin, std::clamp<int64_t>(end, begin, n), step};
  }
  begin = std::clamp<int64_t>(begin, -1, n - 1);
  end = std::clamp<int64_t>(end, -1, n - 1);
  if (begin <= end) return {0, 0, 1};  // nothing
  if (end < 0) return {begin, std::nullopt, step};
  return {begin, end, step};
}

void Slice(Call& c) {
  Tensor x = c.In(0);
  const bool inputs = c.opset() >= 10;
  const std::vector<int64_t> starts = inputs ? c.HostInts(1) : c.Ints("starts");
  const std::vector<int64_t> ends = inputs ? c.HostInts(2) : c.Ints("ends");
  std::vector<int64_t> axes = c.IntsOf(3, "axes").value_or(std::vector<int64_t>());
  std::vector<int64_t> steps = c.Has(4) ? c.HostInts(4) : std::vector<int64_t>(starts.size(), 1);
  for (size_t i = axes.size(); axes.size() < starts.size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    c.Fail("starts, ends, axes and steps differ in length");
  }
  std::vector<tessera::Slice> slices(x.rank());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = c.Axis(axes[i], x.rank());
    if (steps[i] == 0) c.Fail("a step is 0");
    // A step beyond any axis takes the first element alone.
    const int64_t step = std::clamp<int64_t>(steps[i], -(int64_t{1} << 40), int64_t{1} << 40);
    slices[axis] = Bounds(starts[i], ends[i], step, x.size(axis));
  }
  c.Out(x.Slice(slices));
}

// Elements before and after each axis, negative ones cut off.
Pairs PadPairs(Call& c, int rank) {
  const std::optional<std::vector<int64_t>> pads =
      c.opset() >= 11 ? c.HostInts(1)
                      : std::optional(c.Ints(c.Find("paddings") != nullptr ? "paddings" : "pads"));
  std::vector<int64_t> axes;
  if (c.Has(3)) {
    axes = c.HostInts(3);
  } else {
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  }
  if (pads->size() != 2 * axes.size()) {
    c.Fail(pads->size(), " pads for ", axes.size(), " axes; there are two for each");
  }
  Pairs out(rank);
  for (size_t i = 0; i < axes.size(); ++i) {
    out[c.Axis(axes[i], rank)] = {(*pads)[i], (*pads)[axes.size() + i]};
  }
  return out;
}

void Pad(Call& c) {
  const Tensor x = c.In(0);
  const Pairs pairs = PadPairs(c, x.rank());
  const std::string mode = c.String("mode", "constant");
  if (mode == "constant") {
    Number value = 0;
    if (c.Has(2)) {
      if (x.dtype().IsFloat()) {
        value = c.HostFloat(2);
      } else {
        value = c.HostInt(2);
      }
    } else if (c.Find("value") != nullptr) {
      value = c.Float("value", 0);
    }
    return c.Out(x.PadBy(PadMode::kConstant, pairs, value));
  }
  if (mode == "reflect") return c.Out(x.PadBy(PadMode::kReflect, pairs));
  if (mode == "edge") return c.Out(x.PadBy(PadMode::kReplicate, pairs));
  if (mode == "wrap") return c.Out(x.PadBy(PadMode::kCircular, pairs));
  c.Fail("mode '", mode, "' is none; it is constant, reflect, edge or wrap");
}

void Tile(Call& c) {
  const std::vector<int64_t> counts = c.HostInts(1);
  c.Out(c.In(0).Repeat(Ints(counts.begin(), counts.end())));
}

void Expand(Call& c) {
  const Tensor x = c.In(0);
  std::vector<int64_t> shape = c.HostInts(1);
  // The shape and the input's own broadcast to each other.
  const std::vector<int64_t> own = Sizes(x);
  while (shape.size() < own.size()) shape.insert(shape.begin(), 1);
  for (size_t i = 0; i < own.size(); ++i) {
    int64_t& extent = shape[shape.size() - own.size() + i];
    if (extent == 1) extent = own[i];
  }
  c.Out(x.BroadcastTo(shape));
}

void DepthToSpace(Call& c) {
  const Tensor x = c.In(0);
  const int64_t b = c.Int("blocksize");
  if (x.rank() != 4 || b < 1 || b > 1 << 15 || x.size(1) % (b * b) != 0) {
    c.Fail("blocks of ", b, " do not fit ", x.shape().ToString());
  }
  const int64_t n = x.size(0), d = x.size(1) / (b * b), h = x.size(2), w = x.size(3);
  const Tensor y = c.Choice("mode", {"DCR", "CRD"}) == "CRD"
                       ? x.Reshape({n, d, b, b, h, w}).Permute({0, 1, 4, 2, 5, 3})
                       : x.Reshape({n, b, b, d, h, w}).Permute({0, 3, 4, 1, 5, 2});
  c.Out(y.Reshape({n, d, h * b, w * b}));
}

void SpaceToDepth(Call& c) {
  const Tensor x = c.In(0);
  const int64_t b = c.Int("blocksize");
  if (x.rank() != 4 || b < 1 || b > 1 << 15 || x.size(2) % b != 0 || x.size(3) % b != 0) {
    c.Fail("blocks of ", b, " do not fit ", x.shape().ToString());
  }
  const int64_t n = x.size(0), d = x.size(1), h = x.size(2) / b, w = x.size(3) / b;
  const Axes order =
      c.Choice("mode", {"DCR", "CRD"}) == "DCR" ? Axes{0, 3, 5, 1, 2, 4} : Axes{0, 1, 3, 5, 2, 4};
  c.Out(x.Reshape({n, d, h, b, w, b}).Permute(order).Reshape({n, b * b * d, h, w}));
}

void CenterCropPad(Call& c) {
  const Tensor x = c.In(0);
  const std::vector<int64_t> shape = c.HostInts(1);
  std::vector<int64_t> axes = c.Ints("axes");
  if (axes.empty()) {
    for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
  }
  if (axes.size() != shape.size()) c.Fail(shape.size(), " extents for ", axes.size(), " axes");
  Pairs pairs(x.rank());
  std::vector<tessera::Slice> slices(x.rank());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = c.Axis(axes[i], x.rank());
    const int64_t n = x.size(axis), more = shape[i] - n;
    if (more > 0) pairs[axis] = {more / 2, more - more / 2};
    if (more < 0) slices[axis] = {-more / 2, -more / 2 + shape[i]};
  }
  c.Out(x.Slice(slices).Pad(pairs));
}

// Element t of a row of length n becomes n-1-t where it is within the length; lengths are data.
void ReverseSequence(Call& c) {
  const Tensor x = c.In(0), lengths = c.In(1);
  const int batch = c.Axis(c.Int("batch_axis", 1), x.rank());
  const int time = c.Axis(c.Int("time_axis", 0), x.rank());
  std::vector<int64_t> along_batch(x.rank(), 1), along_time(x.rank(), 1);
  along_batch[batch] = x.size(batch);
  along_time[time] = x.size(time);
  const Tensor n = lengths.Cast(kInt32).Reshape(along_batch);
  const Tensor t = Tensor::Arange(x.size(time)).Reshape(along_time);
  c.Out(x.Gather(time, Where(t < n, n - 1 - t, t).BroadcastTo(x.shape())));
}

void Trilu(Call& c) {
  const int64_t k = c.HostIntOr(1, 0);
  // Beyond this all diagonals of tensors that fit in memory are the same.
  const int64_t diagonal = std::clamp<int64_t>(k, -(int64_t{1} << 40), int64_t{1} << 40);
  c.Out(c.Int("upper", 1) != 0 ? c.In(0).Triu(diagonal) : c.In(0).Tril(diagonal));
}

constexpr OpRow kRows[] = {
    {"CenterCropPad", CenterCropPad, HostInput({1})},
    {"Concat", Concat},
    {"DepthToSpace", DepthToSpace, 0, Flow::kBatch},
    {"Expand", Expand, HostInput({1})},
    {"Flatten", Flatten},
    {"Pad", Pad, HostInput({1, 2, 3})},
    {"Reshape", Reshape, HostInput({1})},
    {"ReverseSequence", ReverseSequence},
    {"Slice", Slice, HostInput({1, 2, 3, 4})},
    {"SpaceToDepth", SpaceToDepth, 0, Flow::kBatch},
    {"Split", Split, HostInput({1})},
    {"Squeeze", Squeeze, HostInput({1})},
    {"Tile", Tile, HostInput({1})},
    {"Transpose", Transpose, 0, Flow::kPermute},
    {"Trilu", Trilu, HostInput({1})},
    {"Unsqueeze", Unsqueeze, HostInput({1})},
};

}  // namespace

absl::Span<const OpRow> MovementOps() { return kRows; }

}  // namespace tessera::onnx
