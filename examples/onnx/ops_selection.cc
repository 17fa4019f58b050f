// What is kept of data, as much as the data say: these are read while the graph is built.
#include <algorithm>
#include <array>
#include <cmath>

#include "examples/onnx/call.h"
#include "examples/onnx/import.h"
#include "graph/statistics.h"

namespace tessera::onnx {
namespace {

void Compress(Call& c) {
  Tensor x = c.In(0);
  const std::vector<int64_t> condition = c.HostInts(1);
  int axis = 0;
  if (c.Find("axis") == nullptr) {
    x = x.Flatten();
  } else {
    axis = c.Axis(c.Int("axis"), x.rank());
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) kept.push_back(static_cast<int64_t>(i));
  }
  const Tensor index = Tensor::From(kept, {static_cast<int64_t>(kept.size())}, "CPU");
  c.Out(x.Take(c.all_known() ? index : c.importer().Placed(index), axis));
}

void NonZero(Call& c) {
  const Tensor x = c.Read(0);
  const Tensor y = x.rank() == 0 ? x.Reshape({1}) : x;
  const auto n = y.CountNonzero().Item<int64_t>();
  const Tensor places = y.NonZero(n).Transpose().Cast(kInt64);
  c.Out(x.rank() == 0 ? places.SliceAxis(0, {0, 0}) : places);  // there is no axis to be along
}

void Unique(Call& c) {
  const Tensor x = c.Read(0);
  const bool flat = c.Find("axis") == nullptr;
  const int axis = flat ? 0 : c.Axis(c.Int("axis"), x.rank());
  const Tensor y = flat ? x.Flatten() : x;
  UniqueElements u = UniqueRows(y, y.size(axis), axis);
  const auto n = (u.counts > 0).Cast(kInt64).Sum().Item<int64_t>();
  u.values = u.values.SliceAxis(axis, {0, n});
  u.indices = u.indices.SliceAxis(0, {0, n});
  u.counts = u.counts.SliceAxis(0, {0, n});
  if (c.Int("sorted", 1) == 0) {  // in the order in which they come first
    const Tensor order = u.indices.ArgSort();
    u.values = u.values.Take(order, axis);
    u.indices = u.indices.Take(order);
    u.counts = u.counts.Take(order);
    u.inverse = order.ArgSort().Take(u.inverse);
  }
  c.Out(u.values);
  for (const Tensor& t : {u.indices, u.inverse, u.counts}) c.Out(t.Cast(kInt64));
}

// ---- NonMaxSuppression
struct Box {
  float x0, y0, x1, y1;
  float area() const { return (x1 - x0) * (y1 - y0); }
};
Box BoxOf(const double* v, bool centred) {
  const std::array<float, 4> f = {static_cast<float>(v[0]), static_cast<float>(v[1]),
                                  static_cast<float>(v[2]), static_cast<float>(v[3])};
  if (centred) {  // x, y, width, height
    return {f[0] - f[2] / 2, f[1] - f[3] / 2, f[0] + f[2] / 2, f[1] + f[3] / 2};
  }
  return {std::min(f[1], f[3]), std::min(f[0], f[2]), std::max(f[1], f[3]), std::max(f[0], f[2])};
}
float Overlap(const Box& a, const Box& b) {
  const float width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  const float height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  if (!(width > 0 && height > 0)) return 0;
  const float both = width * height;
  const float either = a.area() + b.area() - both;
  return a.area() > 0 && b.area() > 0 && either > 0 ? both / either : 0;
}

// Of the boxes of a batch, by falling score, those that overlap none that is kept by more than a
// threshold; for each class by itself.
void NonMaxSuppression(Call& c) {
  const std::vector<int64_t> boxes_shape = Sizes(c.Input(0).tensor);
  const std::vector<int64_t> scores_shape = Sizes(c.Input(1).tensor);
  if (boxes_shape.size() != 3 || scores_shape.size() != 3 || boxes_shape[2] != 4 ||
      boxes_shape[0] != scores_shape[0] || boxes_shape[1] != scores_shape[2]) {
    c.Fail("boxes ", c.Input(0).tensor.shape().ToString(), " and scores ",
           c.Input(1).tensor.shape().ToString(), "; they are (B, N, 4) and (B, classes, N)");
  }
  const int64_t most = c.HostIntOr(2, 0);
  const float threshold = c.Has(3) ? static_cast<float>(c.HostFloat(3)) : 0;
  const std::optional<double> above = c.Has(4) ? std::optional(c.HostFloat(4)) : std::nullopt;
  const bool centred = c.Int("center_point_box", 0) != 0;
  const std::vector<double> corners = c.HostFloats(0), scores = c.HostFloats(1);
  const int64_t count = boxes_shape[1], classes = scores_shape[1];
  std::vector<int64_t> out;
  for (int64_t row = 0; row < boxes_shape[0] * classes; ++row) {
    const int64_t batch = row / classes;
    const double* const score = scores.data() + row * count;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i) {
      if (above ? score[i] > *above : !std::isnan(score[i])) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    std::vector<Box> kept;
    for (const int64_t i : order) {
      if (static_cast<int64_t>(kept.size()) >= most) break;
      const Box box = BoxOf(corners.data() + (batch * count + i) * 4, centred);
      const auto overlaps = [&](const Box& b) { return Overlap(b, box) > threshold; };
      if (std::any_of(kept.begin(), kept.end(), overlaps)) continue;
      kept.push_back(box);
      out.insert(out.end(), {batch, row % classes, i});
    }
  }
  const auto rows = static_cast<int64_t>(out.size() / 3);
  c.Out(Value{Tensor::From(out, {rows, 3}, "CPU"), true});
}

constexpr OpRow kRows[] = {
    {"Compress", Compress, HostInput({1})},
    {"NonMaxSuppression", NonMaxSuppression, kAllHost},
    {"NonZero", NonZero},
    {"Unique", Unique},
};

}  // namespace

absl::Span<const OpRow> SelectionOps() { return kRows; }

}  // namespace tessera::onnx
