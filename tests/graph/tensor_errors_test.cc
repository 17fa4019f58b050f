// Mistakes in calls of every function: each is an Error that begins with the function's name, shows
// what it was given, and leaves everything usable.
#include <string>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Mistake {
  std::string text;  // the call
  std::function<void()> call;
  std::string part = "";   // what the message has in it, beside the name
  bool of_tensor = false;  // and then a tensor's dtype and shape

  std::string name() const { return text.substr(0, text.find_first_of("( ")); }
};

// x is f32[3, 4], m f32[4, 4], i i32[3, 4], b bool[3, 4], image f32[1, 2, 5, 6], v f32[5].
struct Given {
  Tensor x = Tensor::Zeros({3, 4}), m = Tensor::Zeros({4, 4}), i = Tensor::Zeros({3, 4}, kInt32);
  Tensor b = Tensor::Zeros({3, 4}, kBool), image = Tensor::Zeros({1, 2, 5, 6});
  Tensor v = Tensor::Zeros({5}), elsewhere = Tensor::Zeros({3, 4}, kFloat32, "CPU:1");
};

const Given& G() {
  static const Given& given = *new Given;
  return given;
}

void Expect(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.text);
    const std::string message = ErrorOf(mistake.call);
    EXPECT_THAT(message, AllOf(StartsWith(mistake.name() + ": "), HasSubstr(mistake.part)));
    EXPECT_GT(message.size(), mistake.name().size() + 15);  // says something
    if (mistake.of_tensor) {
      EXPECT_THAT(message, ContainsRegex("(f32|i32|bool)\\[[0-9, ]*\\]"));
    }
  }
  EXPECT_EQ((G().x + 1).Sum().Item(), 12);
}

#define OF(object, ...)                                    \
  Mistake {                                                \
#__VA_ARGS__, [] { G().object.__VA_ARGS__; }, "", true \
  }
#define SAYS(part, object, ...)                              \
  Mistake {                                                  \
#__VA_ARGS__, [] { G().object.__VA_ARGS__; }, part, true \
  }
#define STATIC(...)                           \
  Mistake {                                   \
#__VA_ARGS__, [] { Tensor::__VA_ARGS__; } \
  }
#define FREE(...)                     \
  Mistake {                           \
#__VA_ARGS__, [] { __VA_ARGS__; } \
  }

// An axis that a matrix does not have.
TEST(TensorErrors, AxesThatAreNone) {
  const std::vector<Mistake> mistakes = {
      OF(x, Sum(2)),
      OF(x, Prod(-3)),
      OF(x, Mean(2)),
      OF(x, Max(5)),
      OF(x, Min(2)),
      OF(x, Any(2)),
      OF(x, All(2)),
      OF(x, Var(2)),
      OF(x, Std(2)),
      OF(x, VarMean(2)),
      OF(x, Norm(2, 2)),
      OF(x, Rfft(2)),
      OF(x, FftShift(2)),
      OF(x, IfftShift(-3)),
      OF(x, CountNonzero(2)),
      OF(x, NanSum(2)),
      OF(x, NanMean(2)),
      OF(x, NanMax(2)),
      OF(x, NanMin(2)),
      OF(x, NanProd(2)),
      OF(x, NanVar(2)),
      OF(x, NanStd(2)),
      OF(x, Ptp(2)),
      OF(x, Average(G().x, 2)),
      OF(x, MaxWithIndices(2)),
      OF(x, MinWithIndices(-3)),
      OF(x, LogSumExp(2)),
      OF(x, Softmax(2)),
      OF(x, LogSoftmax(2)),
      OF(x, Softmin(2)),
      OF(x, ArgMax(2)),
      OF(x, ArgMin(-3)),
      OF(x, Hardmax(2)),
      OF(x, Glu(2)),
      OF(x, CumSum(2)),
      OF(x, CumProd(2)),
      OF(x, CumMax(2)),
      OF(x, CumMin(2)),
      OF(x, LogCumSumExp(2)),
      OF(x, Diff(1, 2)),
      OF(x, Trapezoid(1, 2)),
      OF(x, CumTrapezoid(1, 2)),
      OF(x, Gradient(1, 2)),
      OF(x, Sort(2)),
      OF(x, ArgSort(2)),
      OF(x, TopK(1, 2)),
      OF(x, KthValue(1, 2)),
      OF(x, Median(2)),
      OF(x, NanMedian(2)),
      OF(x, Quantile(0.5, 2)),
      OF(x, NanQuantile(0.5, 2)),
      OF(x, NanArgMax(2)),
      OF(x, NanArgMin(-3)),
      OF(x, Mode(2)),
      OF(x, Categorical(2)),
      OF(x, Choice(1, true, {}, 2)),
      OF(x, Take(G().i, 2)),
      OF(x, Gather(2, G().i)),
      OF(x, Scatter(2, G().i, G().x)),
      OF(x, ScatterAdd(2, G().i, G().x)),
      OF(x, IndexSelect(2, G().v.Cast(kInt32))),
      OF(x, IndexAdd(2, G().v.Cast(kInt32), G().x)),
      OF(x, IndexCopy(2, G().v.Cast(kInt32), G().x)),
      OF(x, IndexFill(2, G().v.Cast(kInt32), 1)),
      OF(x, Flatten(0, 2)),
      OF(x, Unflatten(2, {1})),
      OF(x, Unsqueeze(4)),
      OF(x, Squeeze(2)),
      OF(x, Permute({0, 2})),
      OF(x, Transpose(0, 2)),
      OF(x, SwapAxes(0, 2)),
      OF(x, Flip(2)),
      OF(x, SliceAxis(2, {0, 1})),
      OF(x, Select(2, 0)),
      OF(x, Window(2, {1})),
      OF(x, Unfold(2, 1)),
      OF(x, MoveAxis(2, 0)),
      OF(x, Rot90(1, 0, 2)),
      OF(x, Diagonal(0, 0, 2)),
      OF(x, Trace(0, 0, 2)),
      OF(x, RepeatInterleave(2, 2)),
      OF(x, Roll(1, 2)),
      OF(x, Split(1, 2)),
      OF(x, Chunk(2, 2)),
      OF(x, ArraySplit(2, 2)),
      OF(x, TensorSplit({1}, 2)),
      OF(x, Unbind(2)),
      OF(x, Narrow(2, 0, 1)),
      OF(x, SelectScatter(G().v, 2, 0)),
      OF(x, SliceScatter(G().x, 2, {0, 1})),
      OF(x, Shuffle(2)),
      OF(x, GumbelSoftmax(1, false, 2)),
      OF(x, LpNormalize(2, 2)),
      OF(x, CosineSimilarity(G().x, 2)),
      OF(x, Cross(G().x, 2)),
      FREE(Cat({G().x, G().x}, 2)),
      FREE(Stack({G().x, G().x}, 3)),
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.text);
    EXPECT_THAT(ErrorOf(mistake.call), ContainsRegex("ax(i|e)s"));
  }
  Expect(mistakes);
}

TEST(TensorErrors, DTypesThatDoNotFit) {
  Expect({
      SAYS("f32", x, BitAnd(G().x)),
      SAYS("f32", x, BitOr(1)),
      SAYS("f32", x, BitXor(G().x)),
      SAYS("f32", x, Shl(1)),
      SAYS("f32", x, Shr(1)),
      SAYS("f32", x, BitNot()),
      SAYS("bool", b, Sub(G().b)),
      SAYS("bool", b, Mod(G().b)),
      SAYS("bool", b, FloorDiv(G().b)),
      SAYS("bool", b, Neg()),
      SAYS("f32", x, Gcd(G().x)),
      SAYS("f32", x, Lcm(G().i * 1.0)),
      SAYS("f32", x, PopCount()),
      SAYS("bool", x, LdExp(G().b)),
      SAYS("i32", i, RoundTo(-1)),
      SAYS("f32", x, MaskedFill(G().x, 0)),
      SAYS("f32", x, Gather(0, G().x)),
      SAYS("f32", x, Take(G().x)),
      SAYS("f32", x, Scatter(0, G().x, G().x)),
      SAYS("f32", x, IndexAdd(0, G().v, G().x)),
      SAYS("f32", x, OneHot(3)),
      SAYS("f32", x, BinCount(3)),
      SAYS("f32", x, Embedding(G().x)),
      SAYS("f32", x, GatherND(G().x)),
      SAYS("f32", x, MaskedSelect(G().x, 3)),
      SAYS("i32", x, MaskedScatter(G().i, G().x)),
      SAYS("f32", v, UnravelIndex({2, 3})),
      SAYS("bool", b, CumMax(0)),
      SAYS("f32", x, Bitcast(kBool)),
      SAYS("f32", x, CrossEntropy(G().v)),
      SAYS("f32", x, MultiMarginLoss(G().v)),
      STATIC(Rand({2}, kInt32)),
      STATIC(RandN({2}, kInt8)),
      STATIC(Uniform(0, 1, {2}, kBool)),
      STATIC(RandInt(0, 5, {2}, kFloat32)),
      STATIC(Permutation(3, kFloat32)),
      STATIC(Normal(0, 1, {2}, kInt32)),
      STATIC(Exponential(1, {2}, kInt32)),
      STATIC(HannWindow(4, true, kInt32)),
  });
}

TEST(TensorErrors, ShapesThatDoNotFit) {
  Expect({
      SAYS("[3, 4]", x, Add(G().v)),
      SAYS("[5]", x, Mul(G().v)),
      SAYS("[5]", x, Maximum(G().v)),
      SAYS("[5]", x, Atan2(G().v)),
      SAYS("[5]", x, LogAddExp(G().v)),
      SAYS("[5]", x, FMax(G().v)),
      SAYS("[3, 4]", x, Reshape({5, -1})),
      SAYS("[3, 4]", x, Expand({3, 5})),
      SAYS("[3, 4]", x, BroadcastTo({2, 3, 5})),
      SAYS("[3, 4]", x, ExpandAs(G().v)),
      SAYS("[3, 4]", x, Pad({{1, 1}})),
      SAYS("[3, 4]", x, Shrink({{0, 5}, {0, 1}})),
      SAYS("[3, 4]", x, PadBy(PadMode::kReflect, {{1, 1}})),
      SAYS("[3, 4]", x, Narrow(0, 2, 2)),
      SAYS("2 elements from -1", x, Narrow(0, -1, 2)),
      SAYS("[3, 4]", x, Select(0, 3)),
      SAYS("[3, 4]", x, MatMul(G().x)),
      SAYS("axis -3 of f32[1, 2, 5, 6]", image, MatMul(Tensor::Ones({3, 6, 5}))),
      SAYS("[3, 4]", x, TensorDot(G().m)),
      SAYS("[3, 4]", x, Inner(G().v)),
      SAYS("[3, 4]", x, Linear(G().v.Unsqueeze(0))),
      SAYS("[3, 4]", x, Det()),
      SAYS("[3, 4]", x, SlogDet()),
      SAYS("[3, 4]", x, Inverse()),
      SAYS("[3, 4]", x, Cholesky()),
      SAYS("[3, 4]", x, MatrixPower(2)),
      SAYS("[3, 4]", x, Eigh()),
      SAYS("[5]", v, Qr()),
      SAYS("[5]", v, Svd()),
      SAYS("[5]", v, PInverse()),
      SAYS("[5]", v, MatrixRank()),
      SAYS("[5]", x, LstSq(G().v)),
      SAYS("[3, 4]", x, Solve(G().v)),
      SAYS("[5]", m, Solve(G().v)),
      SAYS("[5]", m, SolveTriangular(G().v)),
      SAYS("[3, 4]", x, Convolve(G().v)),
      SAYS("[3, 4]", x, Fft()),
      SAYS("[3, 4]", x, Ifft()),
      SAYS("[3, 4]", x, Irfft()),
      SAYS("2 lengths do not fit 1 axes", x, Rfft(0, {2, 3})),
      SAYS("[1, 2, 5, 6]", image, Cov()),
      SAYS("[3, 4]", x, MseLoss(G().v)),
      SAYS("[3, 4]", x, L1Loss(G().m)),
      SAYS("[3, 4]", x, HuberLoss(G().v)),
      SAYS("[3, 4]", x, BinaryCrossEntropy(G().v)),
      SAYS("[3, 4]", x, KlDivLoss(G().v)),
      SAYS("[3, 4]", x, SoftMarginLoss(G().v)),
      SAYS("[3, 4]", x, GaussianNllLoss(G().m, G().m)),
      SAYS("[3, 4]", x, TripletMarginLoss(G().v, G().x)),
      SAYS("[3, 4]", x, CrossEntropy(G().v.Cast(kInt32))),
      SAYS("[1, 2, 5, 6]", image, Conv2d(Tensor::Zeros({3, 3, 2, 2}))),
      SAYS("[1, 2, 5, 6]", image, Conv1d(Tensor::Zeros({3, 2, 2}), {})),
      SAYS("[1, 2, 5, 6]", image, MaxPool({.size = {9}})),
      SAYS("[3, 4]", x, AvgPool({.size = {2}})),
      SAYS("[1, 2, 5, 6]", image, GroupNorm(3)),
      SAYS("[1, 2, 5, 6]", image, PixelShuffle(2)),
      SAYS("[1, 2, 5, 6]", image, ChannelShuffle(3)),
      SAYS("[3, 4]", x, BatchNorm(G().v, G().v)),
      SAYS("[3, 4]", x, LayerNorm(G().v)),
      SAYS("[3, 4]", x, SearchSorted(G().v)),
      SAYS("[3, 4]", v, Bucketize(G().x)),
      SAYS("[3, 4]", v, Interp(G().x, G().x)),
      SAYS("[3, 4]", x, KthValue(5)),
      SAYS("[3, 4]", x, TopK(5)),
      SAYS("[5]", v, FillDiagonal(1)),
      SAYS("[5]", v, Tril()),
      SAYS("[3, 4]", x, Gather(0, G().v.Cast(kInt32))),
      SAYS("[3, 4]", x, Scatter(0, G().i, G().v)),
      SAYS("[3, 4]", x, MaskedSelect(G().m > 0, 2)),
      SAYS("[3, 4]", x, Roll({1}, {0, 1})),
      SAYS("[3, 4]", x, Split({1, 1})),
      FREE(Cat({G().x, G().v})),
      FREE(Stack({G().x, G().v})),
      FREE(Where(G().b, G().x, G().v)),
      FREE(Einsum("ij,jk->ik", {G().x, G().x})),
      FREE(Einsum("ij->k", {G().x})),
      FREE(BlockDiag({G().image})),
      FREE(MeshGrid({G().x})),
  });
}

TEST(TensorErrors, NumbersOutOfRange) {
  Expect({
      OF(x, Dropout(1.5)),
      OF(x, Quantile(2)),
      OF(x, Multinomial(-1)),
      OF(x, Chunk(0)),
      OF(x, ArraySplit(0)),
      OF(x, Split(0)),
      OF(x, Histogram(0, 0, 1)),
      OF(x, Histogram(3, 1, 1)),
      OF(x, NonZero(-1)),
      OF(x, GumbelSoftmax(0)),
      OF(x, DropoutChannels(-1)),
      OF(x, RRelu(2, 1)),
      OF(x, Convolve(G().v, "half")),
      OF(x, Rfft(0, {0})),
      OF(x, Rfft(0, {}, "half")),
      STATIC(FftFreq(0)),
      STATIC(RfftFreq(0)),
      OF(i, OneHot(-1)),
      OF(i, BinCount(-1)),
      OF(v, UnravelIndex({0})),
      OF(x, Diff(-1)),
      OF(x, SliceAxis(0, {0, 3, 0})),
      OF(image, MaxPool({.size = {0}})),
      OF(image, AdaptiveAvgPool({-1, 1})),
      OF(image, Resize({-1, 2})),
      OF(x, Unfold(0, 0)),
      OF(x, Repeat({-1, 1})),
      STATIC(Zeros({-1})),
      STATIC(RandInt(3, 3, {2})),
      STATIC(Linspace(0, 1, -1)),
      STATIC(Eye(-2)),
      STATIC(Permutation(-1)),
      STATIC(Exponential(0, {2})),
      STATIC(Normal(0, -1, {2})),
      STATIC(Uniform(1, 0, {2})),
      STATIC(GeomSpace(-1, 1, 3)),
      STATIC(TrilIndices(-1, 2)),
      STATIC(TrilIndices(INT64_MAX, INT64_MAX)),
      STATIC(TriuIndices(INT64_MAX, INT64_MAX)),
      STATIC(HammingWindow(-1)),
      STATIC(KaimingUniform({})),
      STATIC(Arange(0, 5, 0)),
      STATIC(Arange(3000000000)),
      STATIC(Full({2}, 300, kInt8)),
  });
}

// Counts that no memory or patience holds are refused before anything is made of them.
TEST(TensorErrors, CountsBeyondAnyUse) {
  struct Huge {
    Tensor one = Tensor::Zeros({INT64_MAX}), none = Tensor::Zeros({INT64_MAX, 0});
    Tensor rows = Tensor::Zeros({int64_t{1} << 40, 1, 1});
  };
  static const Huge& huge = *new Huge;
  const auto at_huge = [](const char* text, std::function<void()> call, const char* part) {
    return Mistake{text, std::move(call), part, true};
  };
  Expect({
      at_huge(
          "Sort", [] { huge.one.Sort(); }, "longer than anything that is sorted"),
      at_huge(
          "ArgSort", [] { huge.one.ArgSort(0); }, "longer than anything"),
      at_huge(
          "TopK", [] { huge.one.TopK(3); }, ""),
      at_huge(
          "Mode", [] { huge.one.Mode(); }, ""),
      at_huge(
          "NanMedian", [] { huge.one.NanMedian(0); }, ""),
      at_huge(
          "Shuffle", [] { huge.none.Shuffle(); }, ""),
      at_huge(
          "Unbind", [] { huge.rows.Unbind(0); }, "1099511627776 pieces"),
      at_huge(
          "Split", [] { huge.rows.Split(1, 0); }, "1099511627776 pieces"),
      at_huge(
          "ArraySplit", [] { huge.rows.ArraySplit(INT64_MAX, 0); }, "pieces along axis 0"),
      SAYS("pieces along axis 0", v, PadBy(PadMode::kReflect, {{INT64_MAX, 0}})),
      OF(x, AtLeast(INT32_MAX)),
      OF(x, size(7)),
      STATIC(Permutation(INT64_MAX, kInt64)),
  });
  EXPECT_EQ(huge.none.Sort(1).values.size(0), INT64_MAX);
}

// Diagonals outside of a matrix have all of it, or nothing, on one side.
TEST(TensorErrors, DiagonalsBeyondTheMatrix) {
  const Tensor ones = Tensor::Ones({3, 4});
  for (const int64_t beyond : {int64_t{4}, INT64_MAX - 1, INT64_MAX}) {
    EXPECT_EQ(Tensor::TrilIndices(3, 4, beyond).size(1), 12);
    EXPECT_EQ(Tensor::TriuIndices(3, 4, beyond).size(1), 0);
    EXPECT_EQ(ones.Tril(beyond).Sum().Item(), 12);
    EXPECT_EQ(ones.Triu(beyond).Sum().Item(), 0);
    EXPECT_EQ(Tensor::Tri(3, 4, beyond).Sum().Item(), 12);
  }
  for (const int64_t beyond : {int64_t{-3}, INT64_MIN + 1, INT64_MIN}) {
    EXPECT_EQ(Tensor::TrilIndices(3, 4, beyond).size(1), 0);
    EXPECT_EQ(Tensor::TriuIndices(3, 4, beyond).size(1), 12);
    EXPECT_EQ(ones.Tril(beyond).Sum().Item(), 0);
    EXPECT_EQ(ones.Triu(beyond).Sum().Item(), 12);
  }
  EXPECT_EQ(Tensor::TrilIndices(INT64_MAX, 0).size(1), 0);
  EXPECT_EQ(Tensor::TriuIndices(INT64_MAX, 2).size(1), 3);
  for (int64_t d = -4; d <= 5; ++d) {
    EXPECT_EQ(Tensor::TrilIndices(3, 4, d).size(1), ones.Tril(d).Sum().Item());
    EXPECT_EQ(Tensor::TriuIndices(3, 4, d).size(1), ones.Triu(d).Sum().Item());
  }
}

// Where the variables of an extent have values that make it negative, the call says so.
TEST(TensorErrors, ExtentsThatMayBeNegative) {
  static const Variable low("negative_n", -2, 2), other("negative_m", 0, 3);
  Expect({
      STATIC(Ones({low})),
      STATIC(Rand({low, 3})),
      {"Expand(a row)",
       [] {
         G().v.Unsqueeze(0).Expand({low + 1, 5});
       },
       "(negative_n+1) is -1 at negative_n = -2"},
      SAYS("((negative_m*-1)+2)", v, Pad({{0, Extent(2) - other}})),
      SAYS("may begin at negative_m after its end 2", v, Shrink({{other, 2}})),
      SAYS("3 elements from negative_m are not all within", v, Narrow(0, other, 3)),
  });
  const Extent left = Extent(3) - other;  // 0 or more, though each part alone does not show it
  EXPECT_EQ(Tensor::Ones({left, 2}).shape()[0].max(), 3);
  EXPECT_EQ(G().v.Unsqueeze(0).Expand({other + left, 5}).shape()[0], Extent(3));
}

// Placement is checked where the call is written.
TEST(TensorErrors, PlacesThatDiffer) {
  const Tensor here = Tensor::Zeros({3, 4}, kFloat32, "CPU:0");
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { here + G().elsewhere; }, [&] { here.MatMul(G().elsewhere.T()); },
           [&] {
             Cat({here, G().elsewhere});
           },
           [&] { Where(here > 0, here, G().elsewhere); }, [&] { here.MseLoss(G().elsewhere); },
           [&] { here.Gather(0, G().elsewhere.Cast(kInt32)); }}) {
    EXPECT_THAT(ErrorOf(call), HasSubstr("on different devices, CPU and CPU:1"));
  }
  // The shapes are those that were given, not what is made of them.
  const Tensor images = Tensor::Zeros({3, 4, 7, 8}, kFloat32, Sharding({"CPU:0", "CPU:1"}, 0)),
               weight = Tensor::Zeros({2, 4, 3, 3}, kFloat32, "CPU:0");
  EXPECT_EQ(ErrorOf([&] { images.Conv2d(weight); }),
            "Conv2d: the operands are on different devices, CPU:0-1 and CPU; move one of them with "
            ".To(...); got f32[3/2, 4, 7, 8] on CPU:0-1, f32[2, 4, 3, 3] on CPU");
}

// What only reductions and per-place programs make is no place for a new tensor.
TEST(TensorErrors, NothingIsPutWherePartsAreNotWhole) {
  const Mesh mesh({"CPU:0", "CPU:1"});
  const Sharding partial(mesh, {Placement::Partial(Op::kAdd)}), own(mesh, {Placement::Manual()});
  const Tensor x = G().x;
  for (const Sharding& s : {partial, own}) {
    const Device d = s;
    const char* why = s == partial ? "{P:ADD} is partial, as only a reduction is before its "
                                     "ALLREDUCE; give a Sharding of Replicate"
                                   : "{M} is each place's own, as tensors are only inside a "
                                     "ShardMap: pass the tensor to it as an argument";
    const std::vector<std::pair<const char*, std::function<void()>>> calls = {
        {"Empty", [&] { Tensor::Empty({4}, kFloat32, d); }},
        {"Zeros", [&] { Tensor::Zeros({4}, kFloat32, d); }},
        {"Ones", [&] { Tensor::Ones({4}, kFloat32, d); }},
        {"Full", [&] { Tensor::Full({4}, 2, kFloat32, d); }},
        {"Scalar", [&] { Tensor::Scalar(2, kFloat32, d); }},
        {"From",
         [&] {
           Tensor::From({1, 2}, kFloat32, d);
         }},
        {"Rand", [&] { Tensor::Rand({4}, kFloat32, d); }},
        {"RandInt", [&] { Tensor::RandInt(0, 4, {4}, kInt32, d); }},
        {"FromShards",
         [&] {
           Tensor::FromShards({x, x}, s);
         }},
        {"Shard", [&] { x.Shard(s); }},
        {"To", [&] { x.To(d); }}};
    for (const auto& [name, call] : calls) {
      EXPECT_THAT(ErrorOf(call),
                  AllOf(StartsWith(absl::StrCat(name, ": CPU:0-1")), HasSubstr(why)));
    }
  }
}

}  // namespace
}  // namespace tessera
