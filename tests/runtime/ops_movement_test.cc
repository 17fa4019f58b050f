// Movement functions, alone and fused with what surrounds them.
#include <cmath>

#include "graph/flags.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"
#include "tests/testing.h"

namespace tessera {
namespace {

TEST(OpsMovement, EachAlone) {
  const Tensor x = Count({3, 4, 5});
  EXPECT_REFERENCE(x.Reshape({5, 12}), x.Reshape({60}), x.Permute({2, 0, 1}), x.T(), x.Transpose(),
                   x.Flip(0), x.Flip({0, 2}), x.Flip({}), x.Unsqueeze(1),
                   x.Pad({{1, 0}, {0, 2}, {3, 1}}), x.Pad({{1, 0}, {0, 2}, {0, 0}}, 2.5),
                   x.Shrink({{1, 3}, {0, 4}, {2, 2}}), x.Slice({{1, 2}, {}, {{}, {}, -2}}),
                   x.Window({1, 2}, {2, 3}), x.Window({2}, {2}, {2}, {3}));
  EXPECT_REFERENCE(x.Select(1, 2), x[{2, Slice{1, 3}}], x[-1], x.Repeat({2, 1, 3}),
                   x.RepeatInterleave(3, 1), x.Roll(2, 2), x.Roll(-7, 1), x.Tril(), x.Triu(1),
                   x.Tril(-2), x.Flatten(1), x.Unflatten(1, {2, 2}));
}

// Blocks that turn in registers, with rows and columns left over, of every width of element.
TEST(OpsMovement, Transpositions) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const DType t : {kUInt8, kBool, kFloat16, kInt32, kFloat32, kInt64, kFloat64}) {
    for (const int64_t n : {3, 4, 15, 16, 17, 35}) {
      Tensor x = Count({n, 20}, t).Realize(), y = Count({20, n}, t).Realize();
      EXPECT_REFERENCE(x.T().Contiguous(), x.T() + y, Where(x.T() == y, y, x.T()));
    }
    Tensor z = Count({2, 18, 3, 17}, t).Realize();
    EXPECT_REFERENCE(z.Transpose(1, 3).Contiguous(), z.Permute({0, 2, 3, 1}) + 1,
                     z.Permute({3, 1, 0, 2}).Contiguous(), z.Transpose(1, 3).Flip(1) + 1,
                     z.Pad({{0, 0}, {1, 1}, {0, 0}, {2, 0}}).Transpose(1, 3).Contiguous());
  }
}

// Rows of the result lie a multiple of 1024 bytes apart, and are written in blocks: whole ones,
// some with a rest, and by several cores.
TEST(OpsMovement, TranspositionsToRowsThatCrowd) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const DType t : {kUInt8, kFloat16, kFloat32, kFloat64}) {
    const int64_t n = 1024 / t.bytes();
    const Tensor x = Count({3 * n, 37}, t).Realize(), y = Count({37, 3 * n}, t).Realize();
    const Tensor few = Count({10 * n, 5}, t).Realize();
    EXPECT_REFERENCE(x.T().Contiguous(), x.T() + y, y.T().Contiguous(), few.T().Contiguous());
    const Tensor rest = Count({523, 64, 5}, t).Realize();
    EXPECT_REFERENCE(rest.Permute({2, 1, 0}).Pad({{0, 0}, {0, n - 64}, {0, 0}}),
                     rest.Pad({{0, 0}, {n - 64, 0}, {0, 0}}).Permute({2, 1, 0}).Contiguous());
  }
}

// Few channels that end up side by side, with points left over.
TEST(OpsMovement, Interleaved) {
  SetFlagForTest guard(Flag::kGuardPages, "1");
  for (const DType t : {kUInt8, kFloat16, kFloat32, kInt64}) {
    for (const int64_t n : {2, 3, 5, 6, 8}) {
      const Tensor x = Count({2, n, 139}, t).Realize(), y = Count({2, 139}, t).Realize();
      const Tensor turned = x.Transpose(1, 2);
      EXPECT_REFERENCE(turned.Contiguous(), turned + y.Unsqueeze(2), turned.Flip({1, 2}) + 1,
                       Stack(std::vector<Tensor>(n, y), 2) + turned, turned.Sum(2));
    }
  }
}

// Loops that reductions run over as well are no blocks.
TEST(OpsMovement, TranspositionsBesideReductions) {
  const Tensor x = Count({33, 36}), y = Count({36, 33});
  EXPECT_REFERENCE(x.Softmax() + y.T(), x - x.Max(1, true) * y.T(), x / (y.T() + x.Sum(0, true)),
                   Where(x == x.Max(1, true), y.T(), x));
}

TEST(OpsMovement, PiecesOfOneTensor) {
  const Tensor x = Count({7, 3});
  std::vector<Tensor> all = x.Split(3);
  for (const Tensor& t : x.Chunk(4)) all.push_back(t);
  for (const Tensor& t : x.ArraySplit(4)) all.push_back(t);
  for (const Tensor& t : x.Split({1, 0, 2}, 1)) all.push_back(t);
  for (Tensor& t : all) t = t + 1;
  EXPECT_EQ(Mismatch(all), "");
}

TEST(OpsMovement, Chained) {
  const Tensor x = Count({4, 6});
  EXPECT_REFERENCE(x.T().Reshape({2, 12}).Flip(1),
                   x.Reshape({2, 2, 6}).Permute({1, 2, 0}).Flatten(),
                   x.Pad({{1, 1}, {2, 0}}).Shrink({{0, 5}, {1, 7}}).T(),
                   x.Pad({{1, 1}, {2, 0}}).Flip({0, 1}).Pad({{0, 1}, {0, 1}}, -1),
                   x.Slice({{{}, {}, 2}, {{}, {}, -1}}).Reshape({3, 4}).T(),
                   x.Window({0, 1}, {2, 3}).Permute({0, 2, 1, 3}).Reshape({6, 12}),
                   x.Flip(0).Window({1}, {4}).Flip(2).Reshape({3, 16}));
}

TEST(OpsMovement, ReshapesThatSplitNothingEvenly) {
  const Tensor x = Count({6, 10});
  EXPECT_REFERENCE(x.Reshape({4, 15}) + 1, x.Reshape({15, 4}).T() * 2, x.T().Reshape({4, 15}) - 1,
                   x.Reshape({4, 15}).T().Reshape({10, 6}).Sum(0), x.Reshape({1, 60, 1}) * 3,
                   x.T().Reshape({3, 1, 20}).Max(2));
}

TEST(OpsMovement, ExpandedViews) {
  const Tensor x = Count({3, 1, 4}).Expand({3, 5, 4});
  EXPECT_REFERENCE(x.Sum(1), x.Sum(0), x.Reshape({15, 4}).T(), x.Flip({1, 2}) + 1,
                   x.Pad({{0, 0}, {1, 1}, {0, 0}}).Sum({1, 2}), x.Reshape({5, 12}).Sum(1),
                   x.Shrink({{0, 3}, {1, 4}, {0, 2}}).Max({0, 1}), x.Prod(1), x.Window({1}, {2}));
  const Tensor scalar = Tensor::From(std::vector<float>{3}).Reshape({1, 1}).Expand({4, 5});
  EXPECT_REFERENCE(scalar.Sum(), scalar.T().Flip(0) + scalar.Reshape({5, 4}), scalar.CumSum(1));
}

TEST(OpsMovement, ReversedThenReduced) {
  const Tensor x = Count({5, 7});
  EXPECT_REFERENCE(x.Flip(1).Sum(1), x.Flip(0).Max(0), x.Flip({0, 1}).ArgMax(1),
                   x.Flip(1).CumSum(1), x.Flip(1) + x, x.Slice({{}, {{}, {}, -1}}).Min(1),
                   x.Flip(1).Softmax());
}

TEST(OpsMovement, PaddingIsZeroWhateverFollows) {
  const Tensor x = Count({3, 5});
  const Tensor p = x.Pad({{1, 2}, {2, 1}});
  EXPECT_REFERENCE(p > -5, p.Exp(), (p + 1).Sum(), p.Cos().Sum(1), p.Max(), p.Min(0), p.Prod(1),
                   (p == 0).Sum(0), p.Softmax(), 1 / p, p.ArgMin(1), p.Cast(kBool).LogicalNot());
  // The padded value is computed outside its bounds nowhere: 1/0 and log(0) stay out.
  EXPECT_REFERENCE((1 / (x + 98)).Pad({{1, 1}, {1, 1}}), (x + 100).Log().Pad({{0, 1}, {0, 1}}) * 0);
  EXPECT_REFERENCE((x.Pad({{1, 1}, {0, 0}}) + 1).Pad({{0, 0}, {2, 2}}).Sum(0));
}

// Each piece is a loop nest of its own: one has lanes along what is summed, another along the rows
// that all have.
TEST(OpsMovement, CatOfSumsAndRows) {
  const Tensor x = Count({48, 20}).Cast(kFloat32).Realize(), v = x.Select(1, 3).Exp2().Realize();
  for (int sums : {2, 4, 7}) {
    std::vector<Tensor> pieces(1, v);
    for (int i = 0; i < sums; ++i) pieces.push_back((x * (i + 0.5)).Sum(1));
    EXPECT_REFERENCE(Stack(pieces) + 1);
    pieces.push_back(v * 3);
    EXPECT_REFERENCE(Stack(pieces), Stack(pieces, 1));
  }
}

TEST(OpsMovement, Cat) {
  const Tensor a = Count({2, 3}), b = Count({1, 3}) * 10, c = Count({4, 3}) - 7;
  EXPECT_REFERENCE(Cat({a, b, c}, 0), Cat({a, a}, 1), Cat({c, a, b}) * 2, Cat({a + 1, b.Exp()}),
                   Cat({a, b}).Sum(0), Cat({a, b}, 0).Flip(0), Stack({a, a + 1}, 2),
                   Cat({a.T(), b.T(), c.T()}, 1).Max(1));
  const Tensor wide = Count({1, 3}).Expand({5, 3});
  EXPECT_REFERENCE(Cat({wide, a}).Sqrt(), Cat({a, wide, a}).Neg(), Cat({wide, wide.Flip(1)}, 1));
  const Tensor empty = Tensor::Zeros({0, 3});
  EXPECT_REFERENCE(Cat({empty, a, empty}), Cat({empty, empty}), Cat({a}, 1));
  EXPECT_REFERENCE(Cat({Cat({a, b}), Cat({b, c})}, 0), Cat({a.Pad({{1, 1}, {0, 0}}), b}));
  Tensor zeros =
      Cat({Tensor::From(std::vector<float>{-0.0f, 1}), Tensor::From(std::vector<float>{2})});
  EXPECT_TRUE(std::signbit(zeros.ToVector<float>()[0]));
}

TEST(OpsMovement, ZeroSizedAndScalar) {
  const Tensor none = Tensor::Zeros({0, 3}),
               scalar = Tensor::From(std::vector<float>{4}).Reshape(Dims{});
  EXPECT_REFERENCE(none, none + 1, none.T(), none.Reshape({3, 0, 2}), none.Sum(0), none.Prod(0),
                   none.Sum(), none.Pad({{1, 1}, {0, 0}}), none.Flip(0), none.Expand({0, 3}),
                   none.Cast(kInt32).Any(0), none.Cast(kInt32).All(0), none.Sum(1));
  EXPECT_REFERENCE(scalar, scalar.Sum(), scalar.Reshape({1, 1}).Expand({2, 3}), scalar.Exp(),
                   scalar.Max(), scalar.Softmax(), scalar.ArgMax(),
                   scalar.Unsqueeze(0).Pad({{2, 2}}));
  EXPECT_REFERENCE(none.MatMul(Tensor::Zeros({3, 0})), Tensor::Zeros({2, 0}).MatMul(none),
                   Count({4, 3}).MatMul(Tensor::Zeros({3, 0})));
  const Tensor some = Count({3, 3}).Shrink({{1, 1}, {0, 3}});
  EXPECT_REFERENCE(some, some.Sum(0) + 1, Cat({some, Count({2, 3})}), some.Mean(0));
}

TEST(OpsMovement, ManyAxes) {
  Tensor x = Count({2, 1, 3, 1, 2, 1, 2, 1, 1, 2});
  EXPECT_REFERENCE(x.Permute({9, 7, 8, 5, 6, 3, 4, 1, 2, 0}), x.Sum({0, 2, 4}), x.Flip({0, 2, 9}),
                   x.T().Reshape({6, 8}) + 1, x.Squeeze().Max({1, 3}));
  std::vector<int64_t> ones(40, 1);
  ones[7] = 2, ones[31] = 3;
  EXPECT_REFERENCE(Count({6}).Reshape(ones).Expand(ones) + 1, Count({6}).Reshape(ones).T().Sum());
  std::vector<int64_t> twos(14, 2);
  const Tensor deep = Count({1 << 14}).Reshape(twos);
  EXPECT_REFERENCE(deep.T() + deep, deep.T().Sum({0, 1, 2, 3, 4, 5, 6}));
}

TEST(OpsMovement, TooManyAxes) {
  const Tensor x = Count({6});
  const std::vector<int64_t> ones(60, 1);
  EXPECT_REFERENCE(x.Sum().Reshape(ones).Sum({3, 59}) + 1);
  EXPECT_THROW(x.Sum().Reshape(std::vector<int64_t>(61, 1)), Error);
}

// A kernel has a limited number of loops: what needs more is cut into several.
TEST(OpsMovement, MoreAxesThanAKernelHasLoops) {
  std::vector<Tensor> sums;
  for (int i = 2; i < 90; ++i) sums.push_back(Count({i}).Sum(0, true));
  EXPECT_REFERENCE(Cat(sums));
  Tensor all = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) all = all + sums[i];
  EXPECT_REFERENCE(all);
}

// Many pieces are joined in stages, whose kernels are the same where the pieces are alike.
TEST(OpsMovement, CatOfManyPieces) {
  constexpr int64_t kPieces = 70;
  std::vector<Tensor> pieces;
  for (int64_t i = 0; i < kPieces; ++i) {
    pieces.push_back(
        Tensor::From(std::vector<int32_t>(6, static_cast<int32_t>(i))).Reshape({3, 2}));
  }
  EXPECT_REFERENCE(Cat(pieces, 0).Flip(0) * 2, Cat(pieces, 1));
  const std::vector<int64_t> rows = Cat(pieces, 0).ToVector<int64_t>();
  const std::vector<int64_t> columns = Cat(pieces, 1).ToVector<int64_t>();
  for (int64_t i = 0; i < kPieces * 6; ++i) {
    ASSERT_EQ(rows[i], i / 6);
    ASSERT_EQ(columns[i], i % (2 * kPieces) / 2);
  }
  pieces[40] = Tensor::Full({3, 5}, 1000);
  EXPECT_REFERENCE(Cat(pieces, 1));
}

TEST(OpsMovement, LargeExtents) {
  const Tensor x = Count({70000});
  EXPECT_REFERENCE(x.Reshape({70000, 1}).T() + 1, x.Reshape({2, 35000}).T().Flip(0),
                   x.Reshape({35000, 2}).Sum(1), x.Cast(kInt16), x.Slice({{{}, {}, -3}}) * 2);
}

}  // namespace
}  // namespace tessera
