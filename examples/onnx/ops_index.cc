// Gathers, scatters and what else takes positions as data.
#include <algorithm>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

void Gather(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", 0), x.rank());
  c.Out(x.Take(Wrapped(c.In(1), x.size(axis)), axis));
}

void GatherElements(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", 0), x.rank());
  c.Out(x.Gather(axis, Wrapped(c.In(1), x.size(axis))));
}

// The positions in the last axis of an index, each counted from the end of its axis where negative.
Tensor WrappedTuples(Call& c, const Tensor& x, const Tensor& index, int first) {
  const int64_t n = index.size(-1);
  if (first + n > x.rank()) {
    c.Fail("indices name ", n, " axes after ", first, " of ", x.shape().ToString());
  }
  std::vector<int64_t> extents;
  for (int64_t i = 0; i < n; ++i) extents.push_back(x.size(first + static_cast<int>(i)));
  // Made of numbers alone, this has no device and follows that of the index.
  Tensor limit = Tensor::Zeros({n}, index.dtype());
  for (int64_t i = 0; i < n; ++i) {
    limit = Where(Tensor::Arange(n) == i, Tensor::Full({}, extents[i], index.dtype()), limit);
  }
  return Where(index < 0, index + limit, index);
}
void GatherND(Call& c) {
  const Tensor x = c.In(0), index = c.In(1);
  const int batch = static_cast<int>(c.Int("batch_dims", 0));
  c.Out(x.GatherND(WrappedTuples(c, x, index, batch), batch));
}

ScatterMode ModeOf(Call& c) {
  const std::string reduction = c.String("reduction", "none");
  if (reduction == "none") return ScatterMode::kSet;
  if (reduction == "add") return ScatterMode::kAdd;
  if (reduction == "mul") return ScatterMode::kMul;
  if (reduction == "max") return ScatterMode::kMax;
  if (reduction == "min") return ScatterMode::kMin;
  c.Fail("reduction '", reduction, "' is none; it is none, add, mul, max or min");
}
void ScatterElements(Call& c) {
  const Tensor x = c.In(0);
  const int axis = c.Axis(c.Int("axis", 0), x.rank());
  c.Out(x.Scatter(axis, Wrapped(c.In(1), x.size(axis)), c.In(2), ModeOf(c)));
}
void ScatterND(Call& c) {
  const Tensor x = c.In(0);
  c.Out(x.ScatterND(WrappedTuples(c, x, c.In(1), 0), c.In(2), ModeOf(c)));
}

// Rows of `update` written into a cache along an axis, from a position for each batch.
void TensorScatter(Call& c) {
  const Tensor past = c.In(0), update = c.In(1);
  const int axis = c.Axis(c.Int("axis", -2), past.rank());
  if (axis == 0) c.Fail("axis 0 is that of batches");
  const std::string mode = c.String("mode", "linear");
  if (mode != "linear" && mode != "circular") c.Fail("mode '", mode, "' is none");
  std::vector<int64_t> along(past.rank(), 1), batch(past.rank(), 1);
  along[axis] = past.size(axis);
  batch[0] = past.size(0);
  const Tensor begin =
      c.Has(2) ? c.In(2).Cast(kInt64).Reshape(batch) : Tensor::Zeros(batch, kInt64);
  // Element t of the cache is row t - begin of the update, where there is one.
  Tensor row = Tensor::Arange(past.size(axis), kInt64).Reshape(along) - begin;
  if (mode == "circular") row = row.Mod(past.size(axis));
  const Tensor written = (row >= 0) & (row < update.size(axis));
  std::vector<int64_t> shape = Sizes(update);
  shape[axis] = past.size(axis);
  const Tensor rows = update.Gather(axis, Where(written, row, 0).BroadcastTo(shape));
  c.Out(Where(written, rows, past));
}

void OneHot(Call& c) {
  const Tensor index = c.In(0), values = c.In(2);
  const double given = c.HostFloat(1);
  if (!(given >= 0 && given <= 1e15)) c.Fail("the depth is ", given, ", and no number of classes");
  const auto depth = static_cast<int64_t>(given);
  const int axis = c.Axis(c.Int("axis", -1), index.rank() + 1);
  std::vector<int64_t> along(index.rank() + 1, 1);
  along[axis] = depth;
  // Indices may be of any numeric type; those outside -depth to depth-1 give a row without a one.
  const Tensor at = Wrapped(index.Cast(kInt64), depth).Unsqueeze(axis);
  const Tensor hot = at == Tensor::Arange(depth, kInt64).Reshape(along);
  c.Out(Where(hot, values[1], values[0]));
}

constexpr OpRow kRows[] = {
    {"Gather", Gather},           {"GatherElements", GatherElements},
    {"GatherND", GatherND},       {"OneHot", OneHot, HostInput({1})},
    {"Scatter", ScatterElements}, {"ScatterElements", ScatterElements},
    {"ScatterND", ScatterND},     {"TensorScatter", TensorScatter},
};

}  // namespace

absl::Span<const OpRow> IndexOps() { return kRows; }

}  // namespace tessera::onnx
