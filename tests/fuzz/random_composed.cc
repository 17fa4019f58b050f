// Random applications of the functions that are composed of others.
#include <algorithm>
#include <cmath>

#include "tests/fuzz/random_tensors.h"
#include "tests/support/composite_rows.h"

namespace tessera {

// By positions that this draws: some of them are outside.
Tensor RandomTensors::ByIndex(const Tensor& a) {
  if (a.rank() == 0) return Tensor();
  const int axis = static_cast<int>(Int(0, a.rank() - 1));
  const auto position = [&](const std::vector<int64_t>& shape, int64_t n) {
    const Tensor any = LeafOf(kInt32, shape).Abs();
    return any % (n + (Chance(0.2) ? 2 : 0) + (n == 0 ? 1 : 0));
  };
  std::vector<int64_t> shape;
  for (int i = 0; i < a.rank(); ++i) shape.push_back(a.size(i));
  const int64_t n = shape[axis];
  constexpr ScatterMode kModes[] = {ScatterMode::kSet, ScatterMode::kAdd, ScatterMode::kMul,
                                    ScatterMode::kMax, ScatterMode::kMin, ScatterMode::kMean};
  const ScatterMode mode = kModes[Int(0, 5)];
  switch (Int(0, 5)) {
    case 0: {
      shape[axis] = Int(1, 4);
      const Tensor src = LeafOf(a.dtype(), shape);
      return a.Scatter(axis, position(shape, n), src, mode, Chance(0.7));
    }
    case 1: {
      const int64_t k = Int(1, std::min(a.rank(), 2));
      std::vector<int64_t> updates = {3};
      updates.insert(updates.end(), shape.begin() + k, shape.end());
      const Tensor index = position({3, k}, *std::min_element(shape.begin(), shape.begin() + k));
      return Chance(0.5) ? a.GatherND(index) : a.ScatterND(index, LeafOf(a.dtype(), updates), mode);
    }
    case 2: {
      shape[axis] = 3;
      const Tensor rows = LeafOf(a.dtype(), shape), index = position({3}, n);
      return Chance(0.5) ? a.IndexAdd(axis, index, rows) : a.IndexCopy(axis, index, rows);
    }
    case 3:
      return a.IndexFill(axis, position({2}, n), 1);
    case 4:
      return a.IndexGet({position({3}, n)});
    default:
      return a.Cast(kInt32).BinCount(Int(0, 6));
  }
}

Tensor RandomTensors::Ordered(const Tensor& a) {
  if (a.rank() == 0) return a.Sort().values;
  const int axis = static_cast<int>(Int(0, a.rank() - 1));
  switch (Int(0, 7)) {
    case 0:
      return a.Sort(axis, Chance(0.5)).values;
    case 1:
      return a.ArgSort(axis, Chance(0.5));
    case 2:
      return a.TopK(Int(0, std::min<int64_t>(3, a.size(axis))), axis, Chance(0.5)).values;
    case 3:
      return a.Median(axis).values;
    case 4:
      return a.CumMax(axis).values;
    case 5:
      return a.CumMin(axis).indices;
    case 6:
      return a.CumProd(axis, {Chance(0.5), Chance(0.5)});
    default:
      return a.CumSum(axis, {Chance(0.5), Chance(0.5)});
  }
}

Tensor RandomTensors::Pooled(const Tensor& a) {
  // Not as one conditional expression: GCC 12 destroys the elements of a list in it twice where a
  // later one throws, as that of a symbolic shape does.
  if (a.rank() == 0) return Tensor();
  if (a.rank() < 3) return Pooled(a.Reshape({1, 1, a.elements()}));
  PoolOptions o{.size = {Int(1, 3)}, .stride = {Int(1, 3)}, .padding = {Int(0, 1)}};
  o.dilation = {Int(1, 2)};
  o.ceil_mode = Chance(0.3);
  o.count_padding = Chance(0.5);
  switch (Int(0, 6)) {
    case 0:
      return a.MaxPool(o);
    case 1:
      return a.MaxPoolWithIndices(o).indices;
    case 2:
      return a.AvgPool(o);
    case 3:
      return a.Im2Col(o);
    case 4:
      return a.AdaptiveMaxPool({Int(1, 3)});
    case 5: {
      const Tensor w = LeafOf(a.dtype(), [&] {
        std::vector<int64_t> shape(a.rank(), Int(1, 2));
        shape[0] = a.size(1);
        return shape;
      }());
      ConvTransposeOptions options;
      options.stride = {Int(1, 2)};
      return a.ConvTranspose(w, options);
    }
    default:
      return a.Resize({Int(1, 6)}, {.coordinates = Chance(0.5) ? ResizeCoordinates::kAsymmetric
                                                               : ResizeCoordinates::kHalfPixel});
  }
}

Tensor RandomTensors::Arranged(const Tensor& a) {
  if (a.rank() == 0) return a.AtLeast(2);
  const int axis = static_cast<int>(Int(0, a.rank() - 1));
  switch (Int(0, 8)) {
    case 0: {
      constexpr PadMode kModes[] = {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate,
                                    PadMode::kCircular};
      Pairs pairs(a.rank(), {0, 0});
      pairs[axis] = {Int(-1, 4), Int(-1, 4)};
      return a.PadBy(kModes[Int(0, 3)], pairs);
    }
    case 1:
      return a.rank() < 2 ? a.Diag(Int(-1, 1)) : a.Diagonal(Int(-2, 2), 0, a.rank() - 1);
    case 2:
      return a.rank() < 2 ? a.DiagEmbed(1) : a.Rot90(Int(-1, 2), axis, (axis + 1) % a.rank());
    case 3:
      return a.MoveAxis(axis, 0);
    case 4:
      return a.Tile({Int(0, 2)});
    case 5:
      return a.Diff(1, axis);
    case 6:
      return a.Unfold(axis, std::min<int64_t>(2, a.size(axis)), Int(1, 2));
    case 7:
      return a.rank() == 2 ? Einsum("ij,kj->ik", {a, a}) : Einsum("...i->...", {a});
    default:
      return a.TensorSplit({1}, axis)[Int(0, 1)];
  }
}

Tensor RandomTensors::Special(const Tensor& a) {
  if (style_ == kSmooth && a.dtype().IsFloat()) {
    switch (Int(0, 9)) {
      case 0:
        return a.Asinh();
      case 1:
        return (a.Abs() + 1).Acosh();
      case 2:
        return a.Tanh().Atanh();
      case 3:
        return a.Atan2(a.Cos());
      case 4:
        return a.Hypot(a + 1);
      case 5:
        return a.LogAddExp(a.Neg());
      case 6:
        return a.Selu();
      case 7:
        return a.Celu();
      case 8:
        return a.Norm(2, a.rank() > 0 ? Axes(0) : Axes());
      default:
        return a.Swish(1.5);
    }
  }
  switch (Int(0, 8)) {
    case 0:
      return a.SignBit();
    case 1:
      return a.IsNegInf();
    case 2:
      return a.CopySign(-1.0);
    case 3:
      return a.Hardshrink();
    case 4:
      return a.NanMax();
    case 5:
      return a.CountNonzero();
    case 6:
      return a.Heaviside(1);
    case 7:
      return a.MaskedFill(a > 1, 1);
    default:
      return a.Clamp(-1, 3);
  }
}

Tensor RandomTensors::Loss(const Tensor& a) {
  if (!a.dtype().IsFloat() || a.rank() == 0) return Tensor();
  std::vector<int64_t> shape;
  for (int i = 0; i < a.rank(); ++i) shape.push_back(a.size(i));
  const Tensor target = LeafOf(a.dtype(), shape);
  constexpr LossReduction kWays[] = {LossReduction::kNone, LossReduction::kMean,
                                     LossReduction::kSum};
  const LossReduction way = kWays[Int(0, 2)];
  switch (Int(0, 8)) {
    case 0:
      return a.MseLoss(target, way);
    case 1:
      return a.L1Loss(target, way);
    case 2:
      return a.HuberLoss(target, 1, way);
    case 3:
      return a.SmoothL1Loss(target, 2, way);
    case 4:
      return a.HingeLoss(target.Sign(), way);
    case 5:
      return a.Sigmoid().BinaryCrossEntropy(target.Sigmoid(), way);
    case 6:
      return a.BinaryCrossEntropyWithLogits(target.Sigmoid(), way);
    case 7:
      return a.LogSoftmax().KlDivLoss(target.Softmax(), way);
    default: {
      if (a.rank() < 2 || a.size(1) == 0) return Tensor();
      const Tensor classes = LeafOf(kInt32, {a.size(0)}).Abs() % a.size(1);
      if (a.rank() > 2) return Tensor();
      return a.CrossEntropy(classes, {.label_smoothing = Chance(0.5) ? 0.1 : 0, .reduction = way});
    }
  }
}

Tensor RandomTensors::Normed(const Tensor& given) {
  const Tensor a = given.dtype().IsFloat() ? given : given.Cast(kFloat32);
  if (a.rank() == 0) return Tensor();
  switch (Int(0, 6)) {
    case 0:
      return a.LayerNorm({}, {}, 0.5, static_cast<int>(Int(1, a.rank())));
    case 1:
      return a.RmsNorm({}, 0.5);
    case 2:
      return a.rank() < 2 ? Tensor() : a.InstanceNorm({}, {}, 0.5);
    case 3:
      return a.rank() < 2 ? Tensor() : a.LocalResponseNorm(Int(1, 3));
    case 4:
      return a.LpNormalize(Chance(0.5) ? 1 : 2, static_cast<int>(Int(0, a.rank() - 1)), 0.5);
    case 5:
      return a.rank() < 2 ? Tensor() : a.BatchNormTraining({}, {}, 0.5).output;
    default:
      if (a.rank() < 2) return Tensor();
      return a.GroupNorm(a.size(1) % 2 == 0 && a.size(1) > 0 ? 2 : 1, {}, {}, 0.5);
  }
}

Tensor RandomTensors::Sampled(const Tensor& a) {
  if (a.rank() != 4 || !a.dtype().IsFloat()) return Tensor();
  const Tensor grid = LeafOf(kFloat32, {a.size(0), Int(1, 3), Int(1, 3), 2}) / 8;
  GridSampleOptions o;
  o.mode = Chance(0.5) ? ResizeMode::kLinear : ResizeMode::kNearest;
  o.padding = Chance(0.5) ? PadMode::kConstant : PadMode::kReplicate;
  o.align_corners = Chance(0.5);
  return a.GridSample(grid, o);
}

// The bits are those of their count, wherever they are made.
Tensor RandomTensors::Drawn(const Tensor& a) {
  std::vector<int64_t> shape;
  for (int i = 0; i < a.rank(); ++i) shape.push_back(a.size(i));
  switch (Int(0, 4)) {
    case 0:
      return Tensor::RandInt(-3, 9, Dims(shape)) + Tensor::Permutation(1);
    case 1:
      return a.dtype().IsFloat() ? a + Tensor::Rand(Dims(shape), a.dtype()) : Tensor();
    case 2:
      return a.dtype().IsFloat() ? a.Dropout(0.5) : Tensor();
    case 3:
      return a.rank() > 0 ? a.Shuffle(static_cast<int>(Int(0, a.rank() - 1))) : Tensor();
    default:
      return (Tensor::Rand(Dims(shape)) / 2).Bernoulli();
  }
}

// A row of the table of composed functions, of leaves or what is computed from them. Positions stay
// of the row's dtype; other numbers are of any.
Tensor RandomTensors::FromTable(DType type) {
  static const std::vector<CompositeRow>& rows = *new std::vector<CompositeRow>(CompositeRows());
  const CompositeRow& row = rows[Int(0, static_cast<int64_t>(rows.size()) - 1)];
  std::vector<Tensor> inputs;
  for (const CompositeInput& in : row.inputs) {
    if (in.dtype.IsInt()) {
      const auto low = static_cast<int64_t>(in.low), high = static_cast<int64_t>(in.high);
      const Tensor any = LeafOf(kInt32, in.shape);
      inputs.push_back((any % (high - low) + low).Cast(in.dtype));
      continue;
    }
    const Tensor leaf = LeafOf(type, in.shape);
    inputs.push_back(Chance(0.4) ? Unary(leaf) : leaf);
  }
  const std::vector<Tensor> out = row.fn(inputs);
  return out[Int(0, static_cast<int64_t>(out.size()) - 1)];
}

Tensor RandomTensors::Composed(const Tensor& a) {
  if (Chance(0.4)) return FromTable(Chance(0.7) ? FloatType() : AnyType());
  switch (Int(0, 8)) {
    case 0:
      return ByIndex(a);
    case 1:
      return Ordered(a);
    case 2:
      return Pooled(a);
    case 3:
      return Arranged(a);
    case 4:
      return Loss(a);
    case 5:
      return Normed(a);
    case 6:
      return Sampled(a);
    case 7:
      return Drawn(a);
    default:
      return Special(a);
  }
}

}  // namespace tessera
