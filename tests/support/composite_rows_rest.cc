// Rows of what is written every day: members that operators also name, tensors of numbers beside
// others, pieces, layers, attention.
#include "tests/support/composite_rows.h"

namespace tessera {

namespace {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

void AddMembers(std::vector<CompositeRow>& rows) {
  const std::vector<CompositeInput> two = {{{3, 5}}, {{3, 5}}};
  rows.push_back({"Arithmetic", two, [](In x) -> Out {
                    const Tensor y = x[1].Abs() + 3;
                    return {x[0].Add(x[1]), x[0].Sub(x[1]),       x[0].Mul(x[1]),
                            x[0].Div(y),    x[0].FloorDiv(y),     x[0].Mod(y),
                            x[0].Fmod(y),   x[0].Lerp(x[1], 0.2), y.Pow(x[0])};
                  }});
  const std::vector<CompositeInput> whole = {{{3, 5}, -40, 40, kInt32}, {{3, 5}, -9, 9, kInt32}};
  rows.push_back({"Bits", whole,
                  [](In x) -> Out {
                    return {x[0].BitAnd(x[1]),     x[0].BitOr(x[1]),     x[0].BitXor(x[1]),
                            x[0].Shl(x[1]),        x[0].Shr(x[1]),       x[0].TruncDiv(x[1]),
                            x[0].LogicalAnd(x[1]), x[0].LogicalOr(x[1]), x[0].BitNot()};
                  },
                  false});
  rows.push_back({"MoreActivations", {{{3, 5}, -4, 4}}, [](In x) -> Out {
                    return {x[0].Elu(0.7),
                            x[0].GeluTanh(),
                            x[0].HardSwish(),
                            x[0].LogSigmoid(),
                            x[0].Mish(),
                            x[0].Relu6(),
                            x[0].QuickGelu(),
                            x[0].Gelu(),
                            x[0].Sigmoid(),
                            x[0].Silu(),
                            x[0].Softplus(),
                            x[0].Relu(),
                            x[0].LeakyRelu(),
                            (x[0].Abs() + 1).Rsqrt(),
                            x[0].NanToNum(),
                            x[0].NanToNum(1, 2, -2),
                            (x[0].Abs() + 1).Log10()};
                  }});
  rows.push_back(
      {"Spread", {{{4, 6}}}, [](In x) -> Out {
         return {x[0].Std(1), x[0].Std(), x[0].Var(0, 0), x[0].Mean(1), x[0].LogSumExp(0)};
       }});
  rows.push_back({"StoodFor", {{{3, 5}}, {{3, 5}}}, [](In x) -> Out {
                    return {x[0].Square().WithDerivativeOf(x[0] * x[0]),
                            (x[0] + x[1]).WithDerivativeOf(x[1] + x[0]) * x[1]};
                  }});
  rows.push_back(
      {"Detached",
       {{{3, 5}}},
       [](In x) -> Out {
         return {x[0].Detach() * 2, x[0].Trunc(), x[0].IsNan(), x[0].Cast(kInt32).OneHot(3)};
       },
       false});
}

void AddCreated(std::vector<CompositeRow>& rows) {
  rows.push_back({"Created", {{{4, 6}}}, [](In x) -> Out {
                    return {x[0] + Tensor::Zeros({6}),
                            x[0] * Tensor::Ones({4, 1}),
                            x[0] * Tensor::Linspace(0.5, 3, 6) + Tensor::Arange(6),
                            x[0] + Tensor::Logspace(0, 1, 6),
                            x[0] + Tensor::GeomSpace(1, 32, 6),
                            x[0] * Tensor::Tri(4, 6, 1),
                            x[0] * Tensor::HannWindow(6),
                            x[0] * Tensor::HammingWindow(6, false),
                            x[0] * Tensor::BlackmanWindow(6),
                            x[0] * Tensor::BartlettWindow(6),
                            x[0] * Tensor::Scalar(2.0) + Tensor::FromExtent(x[0].shape()[1]),
                            x[0].ZerosLike() - x[0],
                            x[0].OnesLike() + x[0],
                            x[0].FullLike(3) * x[0]};
                  }});
  rows.push_back({"Positions", {{{4, 6}}}, [](In x) -> Out {
                    const Device place = x[0].device();
                    const Tensor low = Tensor::TrilIndices(4, 6).To(place),
                                 high = Tensor::TriuIndices(4, 6).To(place);
                    return {x[0].IndexGet({low.Select(0, 0), low.Select(0, 1)}),
                            x[0].IndexGet({high.Select(0, 0), high.Select(0, 1)})};
                  }});
  rows.push_back(
      {"Emptied",
       {{{4, 6}}},
       [](In x) -> Out {
         Tensor like = x[0].EmptyLike(), empty = Tensor::Empty({4, 6}, x[0].dtype(), x[0].device());
         like.Assign(x[0]);
         empty.Assign(x[0] * 3);
         return {like, empty + 1};
       },
       false});
  rows.push_back({"DrawnLike",
                  {{{4, 6}}},
                  [](In x) -> Out {
                    Tensor::ManualSeed(7);
                    const Tensor of = x[0].Cast(kFloat32);
                    return {of + Tensor::RandN({4, 6}),
                            of + Tensor::Uniform(-1, 2, {6}),
                            of + Tensor::GlorotUniform({4, 6}),
                            of + Tensor::KaimingUniform({4, 6}),
                            of + of.RandLike(),
                            of * of.RandNLike()};
                  },
                  false});
}

void AddPieces(std::vector<CompositeRow>& rows) {
  rows.push_back({"Pieces", {{{4, 6}}, {{4, 1, 1}}}, [](In x) -> Out {
                    const std::vector<Tensor> two = x[0].Split(4, 1), given = x[0].Split({1, 0, 3}),
                                              three = x[0].Chunk(3, 1),
                                              even = x[0].ArraySplit(4, 1),
                                              met = BroadcastTensors({x[0], x[1]});
                    return {two[0],
                            two[1],
                            given[0],
                            given[2],
                            three[1],
                            even[2],
                            met[0],
                            met[1],
                            x[1].Squeeze(),
                            x[1].Squeeze({1}),
                            x[0].SwapAxes(0, 1),
                            x[1].BroadcastTo({4, 2, 3}),
                            x[0].Slice({Slice{1, {}, 2}, Slice{-1, 0, -3}})};
                  }});
  rows.push_back({"Picked", {{{4, 3, 2}}, {{4, 2, 2}, 0, 3, kInt32}, {{4, 2, 2}}}, [](In x) -> Out {
                    return {x[0].Gather(1, x[1]), x[0].ScatterAdd(1, x[1], x[2]),
                            x[0].Take(x[1], 1), x[0].Flatten(1).Embedding(x[1])};
                  }});
  rows.push_back({"Rearranged", {{{4, 6}}, {{4, 6}}}, [](In x) -> Out {
                    return {Stack({x[0], x[1]}, 1),
                            Cat({x[0], x[1]}, 1),
                            x[0].View({8, 3}),
                            x[0].Permute({1, 0}),
                            x[0].Repeat({2, 1}),
                            x[0].RepeatInterleave(2, 1),
                            x[0].RepeatInterleave(3),
                            x[0].Tril(1),
                            x[0].Triu(-1),
                            x[0].TensorSplit({1, -1}, 1)[1],
                            x[0].AtLeast(3),
                            x[0].Contiguous(),
                            x[0].Unflatten(1, {2, 3}),
                            (x[1].Abs() + 1).Reciprocal()};
                  }});
  rows.push_back({"Restacked", {{{5, 4}}}, [](In x) -> Out {
                    const Device d = x[0].device();
                    if (!d.is_sharding()) return {x[0].To(d) * 2};
                    std::vector<Tensor> parts;
                    for (int i = 0; i < d.sharding().size(); ++i) {
                      parts.push_back(x[0].ShardAt(i) * 2);
                    }
                    return {Tensor::FromShards(parts, d.sharding())};
                  }});
}

void AddLayers(std::vector<CompositeRow>& rows) {
  rows.push_back({"BatchNorm", {{{2, 4, 3}}, {{4}}, {{4}, 0.25, 2}, {{4}}, {{4}}}, [](In x) -> Out {
                    return {x[0].BatchNorm(x[1], x[2], x[3], x[4]), x[0].BatchNorm(x[1], x[2])};
                  }});
  rows.push_back({"LayerNorm", {{{2, 4, 3}}, {{3}}, {{4, 3}}}, [](In x) -> Out {
                    return {x[0].LayerNorm(x[1], x[1]), x[0].LayerNorm(x[2], {}, 1e-3, 2),
                            x[0].RmsNorm(x[1]), x[0].RmsNorm(x[2], 1e-3, 2)};
                  }});
  rows.push_back({"Linear", {{{3, 4}}, {{5, 4}}, {{5}}}, [](In x) -> Out {
                    return {x[0].Linear(x[1], x[2]), x[0].Dot(x[1].T()), x[0].MatMul(x[1].T())};
                  }});
  rows.push_back({"Pools2d", {{{1, 2, 5, 4}}}, [](In x) -> Out {
                    const PoolOptions wide{.size = {2}, .stride = {2}, .padding = {2}};
                    return {x[0].MaxPool2d({}), x[0].AvgPool2d({.size = {3, 2}}),
                            x[0].AvgPool2d(wide), x[0].MaxPool2d(wide).Clip(-9, 9)};
                  }});
  const std::vector<CompositeInput> in = {{{2, 3, 4}}, {{2, 5, 4}}, {{2, 5, 6}}, {{3, 5}}};
  rows.push_back({"Attention", in, [](In x) -> Out {
                    AttentionOptions added, seen, causal;
                    added.mask = x[3];
                    seen.mask = x[3] > -1;
                    causal.causal = true;
                    causal.scale = 0.3;
                    return {x[0].ScaledDotProductAttention(x[1], x[2]),
                            x[0].ScaledDotProductAttention(x[1], x[2], added),
                            x[0].ScaledDotProductAttention(x[1], x[2], seen),
                            x[0].ScaledDotProductAttention(x[1], x[2], causal)};
                  }});
}

}  // namespace

void AddRestOfRows(std::vector<CompositeRow>& rows) {
  AddMembers(rows);
  AddCreated(rows);
  AddPieces(rows);
  AddLayers(rows);
}

}  // namespace tessera
