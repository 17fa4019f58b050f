// Movement functions of Tensor: shapes, slices, windows and joins.
#include <algorithm>
#include <numeric>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

Tensor Counted(const Dims& dims) {
  return Tensor::Arange(Shape(dims.extents()).Elements()).Reshape(dims);
}

TEST(TensorMovement, Reshape) {
  const Tensor x = Counted({2, 6});
  EXPECT_THAT(Sizes(x.Reshape({3, -1})), ElementsAre(3, 4));
  EXPECT_THAT(Sizes(x.Reshape({-1})), ElementsAre(12));
  EXPECT_THAT(Sizes(x.View({2, 3, 2, 1})), ElementsAre(2, 3, 2, 1));
  EXPECT_EQ(x.Reshape({2, 6}).uop(), x.uop());
  EXPECT_THAT(Sizes(Tensor::Zeros({0, 3}).Reshape({3, 0})), ElementsAre(3, 0));
  EXPECT_THAT(Sizes(Tensor::Zeros({0, 4}).Reshape({-1, 2})), ElementsAre(0, 2));
  EXPECT_THAT(Sizes(Tensor::Zeros({1}).Reshape({})), ElementsAre());
  EXPECT_THAT(Sizes(Tensor::Zeros({}).Reshape({1, 1})), ElementsAre(1, 1));
  EXPECT_ERROR(x.Reshape({5}), "Reshape", "12 elements are not 5");
  EXPECT_ERROR(x.Reshape({5, -1}), "Reshape", "cannot infer -1");
  EXPECT_ERROR(x.Reshape({-1, -1}), "Reshape", "only one");
  EXPECT_ERROR(x.Reshape({-2, -6}), "Reshape", "negative");
  EXPECT_ERROR(Tensor::Zeros({0}).Reshape({0, -1}), "Reshape", "an extent is 0");
}

TEST(TensorMovement, NarrowCountsFromTheEndToo) {
  const Tensor x = Counted({2, 6});
  EXPECT_THAT(Values(x.Narrow(1, -2, 2)), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(Values(x.Narrow(-1, 1, 2)), ElementsAre(1, 2, 7, 8));
  EXPECT_THAT(Sizes(x.Narrow(0, 2, 0)), ElementsAre(0, 6));
}

// What moves axes needs them to be there; only what looks along them takes them for one.
TEST(TensorMovement, OfRankZeroThereIsNoAxisToMove) {
  const Tensor x = Tensor::Scalar(3.0);
  EXPECT_ERROR(x.MoveAxis({0}, {-1}), "MoveAxis", "there is no axis 0");
  EXPECT_ERROR(x.TensorDot(Tensor::Ones({2}), {0}, {0}), "TensorDot", "there is no axis 0");
  EXPECT_ERROR(x.Transpose(0, -1), "Transpose", "there is no axis");
  EXPECT_ERROR(x.Window({0}, {1}), "Window", "there is no axis 0");
  EXPECT_ERROR(x.Select(0, 0), "Select", "there is no axis 0");
}

TEST(TensorMovement, FlattenAndAxes) {
  const Tensor x = Counted({2, 3, 4});
  EXPECT_THAT(Sizes(x.Flatten()), ElementsAre(24));
  EXPECT_THAT(Sizes(x.Flatten(1)), ElementsAre(2, 12));
  EXPECT_THAT(Sizes(x.Flatten(0, -2)), ElementsAre(6, 4));
  EXPECT_THAT(Sizes(x.Unflatten(-1, {2, -1})), ElementsAre(2, 3, 2, 2));
  EXPECT_THAT(Sizes(x.Unsqueeze(0)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Sizes(x.Unsqueeze(-1)), ElementsAre(2, 3, 4, 1));
  EXPECT_THAT(Sizes(Tensor::Zeros({1, 2, 1}).Squeeze()), ElementsAre(2));
  EXPECT_THAT(Sizes(Tensor::Zeros({1, 2, 1}).Squeeze(-1)), ElementsAre(1, 2));
  EXPECT_ERROR(x.Squeeze(0), "Squeeze", "extent 1");
  EXPECT_ERROR(x.Unsqueeze(5), "Unsqueeze", "no axis 5");
  EXPECT_ERROR(x.Flatten(2, 1), "Flatten", "after");
  EXPECT_THAT(Sizes(Tensor::Scalar(1).Flatten()), ElementsAre(1));
}

TEST(TensorMovement, Permute) {
  const Tensor x = Counted({2, 3});
  EXPECT_THAT(Values(x.T()), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Values(x.Permute({1, 0})), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Values(x.Transpose()), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(x.Permute({0, 1}).uop(), x.uop());
  EXPECT_THAT(Sizes(Tensor::Zeros({2, 3, 4}).Permute({2, 0, -2})), ElementsAre(4, 2, 3));
  EXPECT_THAT(Sizes(Tensor::Zeros({2, 3, 4}).Transpose(0, 2)), ElementsAre(4, 3, 2));
  EXPECT_THAT(Sizes(Tensor::Scalar(1).T()), ElementsAre());
  EXPECT_ERROR(x.Permute({0, 0}), "Permute", "given twice");
  EXPECT_ERROR(x.Permute({0}), "Permute", "names 1 axes");
  EXPECT_ERROR(x.Permute({0, 2}), "Permute", "no axis 2");
}

TEST(TensorMovement, ExpandAndRepeat) {
  const Tensor x = Tensor::From({{1}, {2}});
  EXPECT_THAT(Values(x.Expand({2, 2})), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(Sizes(x.Expand({3, -1, 2})), ElementsAre(3, 2, 2));
  EXPECT_THAT(Sizes(x.BroadcastTo({2, 0})), ElementsAre(2, 0));
  EXPECT_ERROR(x.Expand({3, 2}), "Expand", "do not broadcast");
  EXPECT_ERROR(x.Expand({2}), "Expand", "cannot expand");
  const Tensor y = Tensor::From({1, 2});
  EXPECT_THAT(Values(y.Repeat({2})), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(Values(y.Repeat({2, 1})), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(Sizes(y.Repeat({2, 3})), ElementsAre(2, 6));
  EXPECT_THAT(Sizes(y.Repeat({0})), ElementsAre(0));
  EXPECT_THAT(Values(y.RepeatInterleave(2, 0)), ElementsAre(1, 1, 2, 2));
  EXPECT_ERROR(Tensor::Zeros({2, 2}).Repeat({2}), "Repeat", "count for each axis");
}

TEST(TensorMovement, Pad) {
  const Tensor x = Counted({2, 2}) + 1;
  EXPECT_THAT(Values(x.Pad({{0, 0}, {1, 1}})), ElementsAre(0, 1, 2, 0, 0, 3, 4, 0));
  EXPECT_THAT(Values(x.Pad({{1, 0}, {0, 0}}, 9)), ElementsAre(9, 9, 1, 2, 3, 4));
  EXPECT_THAT(Values(Tensor::From({1.0}).Pad({{1, 0}}, -kInf)), ElementsAre(-kInf, 1));
  EXPECT_EQ(x.Pad({{0, 0}, {0, 0}}).uop(), x.uop());
  EXPECT_THAT(Values(Tensor::Zeros({0}).Pad({{1, 1}}, 3)), ElementsAre(3, 3));
  // The padding of an operand takes part in what comes after.
  EXPECT_THAT(Values(Tensor::From({1.0}).Pad({{1, 0}}).Exp())[0], 1);
  EXPECT_THAT(Values(Tensor::From({-1}).Pad({{1, 0}}) > -1), ElementsAre(1, 0));
  EXPECT_ERROR(x.Pad({{0, 0}}), "Pad", "pair for each axis");
  EXPECT_ERROR(x.Pad({{-1, 0}, {0, 0}}), "Pad", "use Slice");
  EXPECT_ERROR(x.Pad({{1, 0}, {0, 0}}, 1.5), "Pad", "1.5 does not fit i32");
}

TEST(TensorMovement, Shrink) {
  const Tensor x = Counted({3, 4});
  EXPECT_THAT(Values(x.Shrink({{1, 3}, {0, 1}})), ElementsAre(4, 8));
  EXPECT_THAT(Sizes(x.Shrink({{1, 1}, {0, 4}})), ElementsAre(0, 4));
  EXPECT_ERROR(x.Shrink({{0, 4}, {0, 4}}), "Shrink", "past its extent 3");
  EXPECT_ERROR(x.Shrink({{2, 1}, {0, 4}}), "Shrink", "2 to 1");
  EXPECT_ERROR(x.Shrink({{0, 1}}), "Shrink", "pair for each axis");
}

// Extents of sums are as many however the factors of the terms are written.
TEST(TensorMovement, ReshapesSumsOfVariables) {
  const Variable n("n", 1, 8);
  const Extent more = Extent(n) + 1, twice = Extent(n) * 2 + 2;
  const Tensor rows = Tensor::Arange(more).Reshape({more, 1, 1, 1});
  const Tensor pairs = rows.Expand({more, 2, more, 2});
  EXPECT_EQ(pairs.Reshape({twice, twice}).shape(), Shape({twice, twice}));
  EXPECT_ERROR(pairs.Reshape({twice, twice + 2}), "Reshape", "elements are not");
  EXPECT_ERROR(pairs.Reshape({twice, Extent(n) * 2 + 1}), "Reshape", "elements are not");
}

// Elements that are not there for some values of the variables cannot be asked for.
TEST(TensorMovement, ShrinkAlongVariables) {
  const Variable n("n", 1, 8), m("m", 0, 8);
  const Tensor x = Counted({8, 2}), some = x.Shrink({{0, n}, {0, 2}});
  EXPECT_ERROR(some.Shrink({{0, 4}, {0, 2}}), "Shrink", "ends at 4, past its extent n");
  EXPECT_ERROR(some.Shrink({{0, m}, {0, 2}}), "Shrink", " is -1 at n = 1, m = 2");
  EXPECT_ERROR(some.Shrink({{0, n + Extent(1)}, {0, 2}}), "Shrink", "past its extent n");
  EXPECT_ERROR(x.Shrink({{n - Extent(4), n}, {0, 2}}), "Shrink", "cannot take elements");
  EXPECT_ERROR(x.Shrink({{n, m}, {0, 2}}), "Shrink", "after its end");
  EXPECT_ERROR(x.Slice({{n, {}}}).Shrink({{0, n}, {0, 2}}), "Shrink", "past its extent");
  // These are there, whatever it is.
  some.Shrink({{0, 1}, {0, 2}});
  some.Shrink({{n - Extent(1), n}, {0, 2}});
  some.Shrink({{0, Min(n, m)}, {0, 2}});
  x.Shrink({{Max(n - Extent(4), 0), n}, {0, 2}});
  some.Slice({{0, m}}).Shrink({{0, Min(n, m)}, {0, 2}});
}

// Every slice of a short axis, against a loop that follows Python's rules.
TEST(TensorMovement, SlicesAreThoseOfNumPy) {
  for (int n : {0, 1, 5}) {
    const Tensor x = Tensor::Arange(n);
    for (int step : {1, 2, 3, -1, -2, -7}) {
      for (int begin = -7; begin <= 7; ++begin) {
        for (int end = -7; end <= 7; ++end) {
          for (int given = 0; given < 4; ++given) {
            Slice s{std::nullopt, std::nullopt, step};
            if (given & 1) s.begin = begin;
            if (given & 2) s.end = end;
            // The positions that the slice starts from and stops before.
            const auto normal = [&](int v) {
              if (v < 0) v += n;
              return step > 0 ? std::clamp(v, 0, n) : std::clamp(v, -1, n - 1);
            };
            const int from = given & 1 ? normal(begin) : step > 0 ? 0 : n - 1;
            const int to = given & 2 ? normal(end) : step > 0 ? n : -1;
            std::vector<double> expected;
            for (int i = from; step > 0 ? i < to : i > to; i += step) expected.push_back(i);
            ASSERT_EQ(Values(x.Slice({s})), expected)
                << n << " " << begin << ":" << end << ":" << step << " " << given;
          }
        }
      }
    }
  }
}

TEST(TensorMovement, Indexing) {
  const Tensor x = Counted({3, 4});
  EXPECT_THAT(Values(x[1]), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Values(x[-1]), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(Values(x[{0, 0}]), ElementsAre(0));
  EXPECT_EQ((x[{0, 0}]).rank(), 0);
  EXPECT_THAT(Values(x[{Slice{1, 3}, -1}]), ElementsAre(7, 11));
  EXPECT_THAT(Values(x[{Slice{}, Slice{std::nullopt, std::nullopt, -2}}]),
              ElementsAre(3, 1, 7, 5, 11, 9));
  EXPECT_THAT(Values(x[Slice{-1}]), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(Values(x.SliceAxis(1, {1, 2})), ElementsAre(1, 5, 9));
  EXPECT_THAT(Values(x.Select(1, -1)), ElementsAre(3, 7, 11));
  EXPECT_ERROR(x[3], "Index", "position 3 lies outside axis 0 of i32[3, 4]");
  EXPECT_ERROR(x[-4], "Index", "outside");
  EXPECT_ERROR((x[{0, 0, 0}]), "Index", "3 indices do not fit");
  EXPECT_ERROR(x.Slice({{0, 1, 0}}), "Slice", "step of axis 0 is 0");
  EXPECT_ERROR(Tensor::Scalar(1)[0], "Index", "do not fit");
}

// The expected values are PyTorch's.
TEST(TensorMovement, IndexingByAllAtOnce) {
  const Tensor x = Counted({2, 3, 4}), k = Tensor::From({0, 1, 1}), i = Tensor::From({1, 0, -1});
  const Tensor j = Tensor::From({{2}, {0}});
  const auto is = [](const Tensor& t, const Ints& dims, const std::vector<int>& values) {
    EXPECT_THAT(Sizes(t), ::testing::ElementsAreArray(dims));
    EXPECT_EQ(t.ToVector<int>(), values);
  };
  is(x[{Ellipsis, 1}], {2, 3}, {1, 5, 9, 13, 17, 21});
  is(x[{NewAxis, 0, Ellipsis, NewAxis}], {1, 3, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  is(x[{Slice{}, j, Slice{1, 3}}], {2, 2, 1, 2}, {9, 10, 1, 2, 21, 22, 13, 14});
  is(x[{k, Ellipsis, 3}], {3, 3}, {3, 7, 11, 15, 19, 23, 15, 19, 23});
  is(x[{Slice{}, i, k}], {2, 3}, {4, 1, 9, 16, 13, 21});
  is(x[{k, Slice{}, i}], {3, 3}, {1, 5, 9, 12, 16, 20, 15, 19, 23});
  is(x[{1, Slice{}, i}], {3, 3}, {13, 12, 15, 17, 16, 19, 21, 20, 23});
  is(x[{k, NewAxis, i, 0}], {3, 1}, {4, 12, 20});
  is(x[{0, j, i}], {2, 3}, {9, 8, 11, 1, 0, 3});
  is(x[i.Abs()], {3, 3, 4}, x.Take(i.Abs()).ToVector<int>());
  is(x[{}], {2, 3, 4}, x.ToVector<int>());
  is(x.PutAt({Slice{}, i, 1}, Tensor::From({100, 200, 300})), {2, 3, 4},
     {0,  200, 2,  3,  4,  100, 6,  7,  8,  300, 10, 11,
      12, 200, 14, 15, 16, 100, 18, 19, 20, 300, 22, 23});
  is(x.PutAt({Tensor::From({0, 0})}, Tensor::From(1), true)[0], {3, 4},
     {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
  is(x.PutAt({1, Slice{1, {}, 2}, Ellipsis}, Tensor::From({7, 8, 9, 6}))[1], {3, 4},
     {12, 13, 14, 15, 7, 8, 9, 6, 20, 21, 22, 23});
  is(x[{0, Tensor::From({3, -4, -1}).Cast(kInt8), 0}], {3}, {0, 0, 8});  // outside
  is(x.PutAt({0, 0, Tensor::From({4, -5, 3})}, Tensor::From({7, 8, 9}))[{0, 0}], {4}, {0, 1, 2, 9});
  EXPECT_ERROR((x[{Ellipsis, 0, Ellipsis}]), "Index", "two Ellipsis");
  EXPECT_ERROR((x[{Ellipsis, 0, 0, 0, 0}]), "Index", "4 indices do not fit");
  EXPECT_ERROR((x[{Slice{}, k == 0}]), "Index", "MaskedSelect");
  EXPECT_ERROR((x[{Slice{}, k.Cast(kFloat32)}]), "Index", "integer dtype");
  EXPECT_ERROR((x[{k, Tensor::From({0, 1})}]), "Index", "broadcast");
  EXPECT_ERROR(x.PutAt({0}, Tensor::From({1, 2, 3})), "PutAt", "[3]");
}

TEST(TensorMovement, SymbolicExtents) {
  const Variable start("start", 0, 3);
  const Tensor x = Counted({8, 2});
  EvaluateOptions options;
  const Tensor s = x.Slice({{start, start + 2}});
  EXPECT_THAT(Sizes(s), ElementsAre(2, 2));
  const Tensor grown = x.Slice({{0, start + 1}});
  EXPECT_FALSE(grown.shape().is_static());
  const Tensor row = x[start];
  const Tensor joined = grown.Reshape({start + 1, 1, 2}).Sum({0});
  for (int v = 0; v <= 3; ++v) {
    options.vars["start"] = v;
    EXPECT_THAT(Values(s, options), ElementsAre(2 * v, 2 * v + 1, 2 * v + 2, 2 * v + 3));
    EXPECT_EQ(Values(grown, options).size(), 2u * (v + 1));
    EXPECT_THAT(Values(row, options), ElementsAre(2 * v, 2 * v + 1));
    EXPECT_THAT(Values(joined, options), ElementsAre(v * (v + 1), (v + 1) * (v + 1)));
    EXPECT_EQ(Values(grown.Reshape({-1}), options).size(), 2u * (v + 1));
    EXPECT_EQ(Values(grown.Reshape({-1, 2, 1}), options).size(), 2u * (v + 1));
    ExpectNear(Values(grown.Mean(0), options), {v * 1.0, v + 1.0});
    EXPECT_THAT(Values(grown.Flip(0).Slice({{0, 1}}), options), ElementsAre(2 * v, 2 * v + 1));
  }
  EXPECT_ERROR(grown.size(0), "Tensor", "symbolic");
  // Cut to the axis, as integers are.
  const Tensor cut = x.Slice({{start, start + 6}}), back = grown.SliceAxis(0, {-3, {}});
  const Tensor none = x.SliceAxis(0, {start + 2, 3});
  for (int v = 0; v <= 3; ++v) {
    options.vars["start"] = v;
    EXPECT_EQ(Values(cut, options).size(), 2u * (std::min(8, v + 6) - v));
    EXPECT_EQ(Values(cut, options).back(), 2.0 * std::min(8, v + 6) - 1);
    EXPECT_EQ(Values(back, options).size(), 2u * std::min(3, v + 1));
    EXPECT_EQ(Values(back, options).back(), 2 * v + 1);
    EXPECT_EQ(Values(none, options).size(), v == 0 ? 2u : 0u);
  }
  options.vars["start"] = 1;
  EXPECT_THAT(Values(x.Slice({{start, 8, 2}}), options), ElementsAre(2, 3, 6, 7, 10, 11, 14, 15));
  EXPECT_ERROR(x.Slice({{start, 8, -1}}), "Slice", "backwards only as a whole");
  EXPECT_ERROR(x.Slice({{0, start, 2}}), "Slice", "may be empty");
  EXPECT_ERROR(Variable("v", 3, 2), "Variable", "v has a lowest value");
}

TEST(TensorMovement, FlipRollAndWindow) {
  const Tensor x = Counted({2, 3});
  EXPECT_THAT(Values(x.Flip(1)), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(Values(x.Flip({0, 1})), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(Values(x.Roll(1, 1)), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(Values(x.Roll(-1, 1)), ElementsAre(1, 2, 0, 4, 5, 3));
  EXPECT_THAT(Values(x.Roll(7, 1)), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(Values(x.Roll({1, 1, 1}, {1, 0, 1})), ElementsAre(4, 5, 3, 1, 2, 0));
  EXPECT_EQ(Tensor::Zeros({0, 3}).Split(2).size(), 1u);
  EXPECT_THAT(Values(Tensor::Arange(5).Window(0, {3}, {2})), ElementsAre(0, 1, 2, 2, 3, 4));
  EXPECT_THAT(Values(Tensor::Arange(5).Window(0, {2}, {1}, {3})), ElementsAre(0, 3, 1, 4));
  EXPECT_THAT(Sizes(Counted({4, 5}).Window({0, 1}, {2, 3})), ElementsAre(3, 3, 2, 3));
  EXPECT_ERROR(x.Window(1, {4}), "Window", "does not fit axis 1");
  EXPECT_ERROR(x.Window(1, {0}), "Window", "at least 1");
  EXPECT_ERROR(x.Window(1, {1, 1}), "Window", "for each windowed axis");
}

TEST(TensorMovement, SplitAndJoin) {
  const Tensor x = Tensor::Arange(7);
  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> out;
    for (const Tensor& t : parts) out.push_back(t.size(0));
    return out;
  };
  EXPECT_THAT(sizes(x.Split(3)), ElementsAre(3, 3, 1));
  EXPECT_THAT(sizes(x.Split(std::vector<int64_t>{0, 5, 2})), ElementsAre(0, 5, 2));
  EXPECT_THAT(sizes(x.Chunk(3)), ElementsAre(3, 3, 1));
  EXPECT_THAT(sizes(x.Chunk(5)), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(sizes(x[Slice(0, 0)].Chunk(2)), ElementsAre(0, 0));
  EXPECT_THAT(sizes(x.ArraySplit(3)), ElementsAre(3, 2, 2));
  EXPECT_THAT(sizes(x[Slice(0, 2)].ArraySplit(3)), ElementsAre(1, 1, 0));
  EXPECT_THAT(Values(Cat(x.Chunk(3))), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values(Cat(x.ArraySplit(3))), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_ERROR(x.Split(std::vector<int64_t>{3, 5}), "Split", "8 elements");
  EXPECT_ERROR(x.Split(0), "Split", "size 0");
  const Tensor a = Tensor::From({{1, 2}}), b = Tensor::From({{3.5, 4.5}});
  EXPECT_THAT(Values(Cat({a, b})), ElementsAre(1, 2, 3.5, 4.5));
  EXPECT_THAT(Sizes(Cat({a, b}, 1)), ElementsAre(1, 4));
  EXPECT_THAT(Sizes(Cat({a, Tensor::Zeros({0, 2})})), ElementsAre(1, 2));
  EXPECT_THAT(Sizes(Stack({a, a}, -1)), ElementsAre(1, 2, 2));
  EXPECT_THAT(Values(Stack({Tensor::Scalar(1), Tensor::Scalar(2)})), ElementsAre(1, 2));
  // An expanded and a plain tensor side by side.
  EXPECT_THAT(Values(-Cat({Tensor::Ones({1, 1}).Expand({1, 2}), b})),
              ElementsAre(-1, -1, -3.5, -4.5));
  EXPECT_ERROR(Cat({}), "Cat", "at least one");
  EXPECT_ERROR(Cat({a, Tensor::Zeros({1, 3})}), "Cat", "may differ only on axis 0");
  EXPECT_ERROR(Cat({a, Tensor::Zeros({2})}), "Cat", "differ");
  EXPECT_ERROR(Cat({a, a}, 2), "Cat", "no axis 2");
  EXPECT_ERROR(Stack({a, b.T()}), "Stack", "shapes");
}

TEST(TensorMovement, Triangles) {
  const Tensor x = Counted({2, 3}) + 1;
  EXPECT_THAT(Values(x.Tril()), ElementsAre(1, 0, 0, 4, 5, 0));
  EXPECT_THAT(Values(x.Triu()), ElementsAre(1, 2, 3, 0, 5, 6));
  EXPECT_THAT(Values(x.Tril(1)), ElementsAre(1, 2, 0, 4, 5, 6));
  EXPECT_THAT(Values(x.Triu(1)), ElementsAre(0, 2, 3, 0, 0, 6));
  EXPECT_THAT(Values(x.Tril(-1)), ElementsAre(0, 0, 0, 4, 0, 0));
  EXPECT_EQ(x.Tril().dtype(), kInt32);
  EXPECT_EQ(Tensor::Full({2, 2}, kInf).Tril().dtype(), kFloat32);
  EXPECT_EQ(Values(Tensor::Full({2, 2}, kInf).Tril())[1], 0);
  EXPECT_ERROR(Tensor::Arange(3).Tril(), "Tril", "takes matrices");
}

}  // namespace
}  // namespace tessera
