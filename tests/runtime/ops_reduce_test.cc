// Reductions and what is composed of them.
#include <cmath>
#include <limits>

#include "tests/support/check.h"

namespace tessera {
namespace {

// Numbers in [-2, 2], different ones, with all bits of their mantissas.
Tensor Random(const std::vector<int64_t>& shape, DType dtype = kFloat32, uint64_t seed = 1) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-2, 2, shape).Realize().Cast(dtype);
}

Tensor Ints(const std::vector<int64_t>& shape, DType dtype) {
  Tensor::ManualSeed(3);
  return Tensor::RandInt(dtype.IsUnsigned() || dtype.IsBool() ? 0 : -120, 120, shape)
      .Realize()
      .Cast(dtype);
}

TEST(OpsReduce, EveryOpAndAxis) {
  const Tensor x = Random({3, 4, 5});
  for (bool keep : {false, true}) {
    std::vector<Tensor> r;
    for (const Axes& a :
         {Axes(), Axes(0), Axes(1), Axes(-1), Axes({0, 2}), Axes({1, 2}), Axes({0, 1})}) {
      for (Tensor t : {x.Sum(a, keep), x.Prod(a, keep), x.Max(a, keep), x.Min(a, keep),
                       x.Mean(a, keep), x.Var(a, 1, keep), x.Std(a, 0, keep), x.LogSumExp(a, keep),
                       (x > 1).Any(a, keep), (x > -1).All(a, keep)}) {
        r.push_back(t);
      }
    }
    Compared compared;
    EXPECT_EQ(Mismatch(r, &compared), "");
    EXPECT_EQ(compared.unknown, 0);
  }
}

TEST(OpsReduce, EveryDtype) {
  for (DType t : {kBool, kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64,
                  kFloat8E4M3, kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = t.IsFloat() ? Random({6, 37}, t) : Ints({6, 37}, t);
    std::vector<Tensor> r = {x.Sum(1), x.Sum(0),    x.Max(1),    x.Min(0),    x.Mean(1),   x.Any(1),
                             x.All(0), x.ArgMax(1), x.ArgMin(0), x.CumSum(1), x.Softmax(), x.Sum()};
    if (!t.IsBool()) r.push_back(x.Prod(0));
    const std::string mismatch = Mismatch(r);
    EXPECT_TRUE(mismatch.empty()) << t.ToString() << ": " << mismatch;
  }
}

TEST(OpsReduce, NarrowIntegersAreSummedWide) {
  const Tensor x = Tensor::Full({200}, 127, kInt8).Contiguous();
  EXPECT_EQ(x.Sum().Item<int>(), 25400);
  EXPECT_EQ((x.Cast(kInt64) * x).Sum().Item<int64_t>(), 200 * 127 * 127);
  EXPECT_EQ(Tensor::Full({300}, true).Contiguous().Sum().Item<int>(), 300);
  EXPECT_EQ(Tensor::Full({4098}, 1, kFloat16).Contiguous().Sum().Item(), 4096);
}

TEST(OpsReduce, NanAndZeros) {
  const float nan = std::nanf(""), inf = INFINITY;
  for (int n : {1, 3, 8, 16, 17, 40}) {
    for (int at : {0, n / 2, n - 1}) {
      std::vector<float> v(n, 1), w(n, -0.0f), z(n, -0.0f);
      v[at] = nan;
      w[at] = 0.0f;
      const Tensor x = Tensor::From(v), y = Tensor::From(w), m = Tensor::From(z);
      EXPECT_REFERENCE(x.Max(), x.Min(), x.Sum(), x.Prod(), x.ArgMax(), x.ArgMin(), x.Softmax(),
                       y.Max(), y.Min(), y.Sum(), y.Prod(), m.Max(), m.Min(), m.Sum(), m.Prod(),
                       (m + 0.0).Sum());
      v[at] = inf;
      v[0] -= inf;
      const Tensor i = Tensor::From(v);
      EXPECT_REFERENCE(i.Max(), i.Min(), i.Sum(), i.Softmax(), i.LogSumExp(), i.Mean());
    }
  }
}

TEST(OpsReduce, FullyMaskedRowIsNan) {
  Tensor x = Where(Tensor::Arange(3).Reshape({3, 1}) == 1, -INFINITY, Random({3, 9}));
  EXPECT_REFERENCE(x.Softmax(), x.LogSoftmax(), x.LogSumExp(1), x.Softmax() * 2);
}

TEST(OpsReduce, OfNothing) {
  const Tensor x = Tensor::Zeros({0, 4});
  EXPECT_REFERENCE(x.Sum(0), x.Prod(0), x.Mean(0), (x > 0).Any(0), (x > 0).All(0), x.Sum(1),
                   x.Max(1));
  EXPECT_THROW(x.Max(0), Error);
  EXPECT_THROW(x.Min(0), Error);
}

TEST(OpsReduce, OverAxesOfExtentOne) {
  const Tensor x = Tensor::From(std::vector<float>{-0.0f, 2, std::nanf("")}, {3, 1});
  EXPECT_REFERENCE(x.Sum(1), x.Prod(1), x.Max(1), x.Mean(1), x.Var(1, 0), x.Softmax(), x.CumSum(1));
}

TEST(OpsReduce, SeveralReductionsOfOneRange) {
  const Tensor x = Random({6, 33});
  EXPECT_REFERENCE(x.Sum(1) + x.Max(1), x.Sum(1) / x.Min(1), x - x.Mean(1, true),
                   (x - x.Max(1, true)) / (x.Sum(1, true) + 20), x.Sum() + x.Max());
  EXPECT_REFERENCE(x.Sum(0) + x.Max(1).Sum(), x.Sum(1, true) * x.Sum(0, true));
  EXPECT_REFERENCE((x * x.Sum(0)).Sum(0), (x.Max(1, true) - x).Max(0), x.Sum(1).Sum(),
                   x.Sum(0).Max());
}

TEST(OpsReduce, SoftmaxAndNorms) {
  for (int64_t n : {1, 2, 7, 16, 33, 257}) {
    const Tensor x = Random({5, n}), w = Random({n}, kFloat32, 5), b = Random({n}, kFloat32, 6);
    EXPECT_REFERENCE(x.Softmax(), x.Softmax(0), x.LogSoftmax(), x.LayerNorm(w, b), x.RmsNorm(w),
                     x.LayerNorm(), x.Cast(kFloat16).Softmax(), x.Cast(kBFloat16).RmsNorm(w));
  }
  const Tensor y = Random({4, 3, 2, 2});
  EXPECT_REFERENCE(y.LayerNorm({}, {}, 1e-5, 3), y.Softmax(1),
                   y.BatchNorm(Random({3}), Random({3}).Abs(), Random({3}), Random({3})));
}

TEST(OpsReduce, LongAxes) {
  const Tensor x = Random({100003});
  EXPECT_REFERENCE(x.Sum(), x.Max(), x.ArgMax(), x.Mean(), x.Var(), x.Prod());
  const Tensor y = Random({3, 40000});
  EXPECT_REFERENCE(y.Sum(1), y.Softmax(), y.ArgMin(1), y.Sum(0), y.Sum());
  const Tensor z = Random({2, 65536, 2});
  EXPECT_REFERENCE(z.Sum(1), z.Max({0, 1}), z.Sum({1, 2}), z.Sum());
}

TEST(OpsReduce, CumulativeSums) {
  for (int64_t n : {1, 2, 5, 511, 513, 1500}) {
    EXPECT_REFERENCE(Ints({2, n}, kInt32).CumSum(1), Ints({n, 2}, kInt64).CumSum(0),
                     Random({2, n}).CumSum(-1));
  }
}

TEST(OpsReduce, ArgExtremesTakeTheFirst) {
  const Tensor x = Tensor::From({3, 7, 7, 1, 1, 7}, kFloat32);
  EXPECT_EQ(x.ArgMax().Item<int>(), 1);
  EXPECT_EQ(x.ArgMin().Item<int>(), 3);
  EXPECT_EQ(x.Flip(0).ArgMax().Item<int>(), 0);
  const Tensor k = Ints({4, 5}, kInt8);
  EXPECT_REFERENCE(k.ArgMax(), k.ArgMax(0), k.ArgMin(1, true), k.ArgMax({}, true),
                   (k > 0).ArgMax(1), k.Cast(kFloat16).ArgMax(1));
}

// An expensive value that a reduction and what follows it read over several loops each.
TEST(Reduce, Seed10794) {
  const Tensor mask = (Tensor::Arange(18) % 2).Cast(kBool).Realize();
  const Tensor x = Tensor::Uniform(-1, 1, {2, 3, 1, 3}).Realize();
  const Tensor y = x.Asin().Reshape({18});
  EXPECT_REFERENCE(Where(mask, y, y.Min({0}, true).Expand({18})));
}

// The index of what is never read need not exist.
TEST(Reduce, Seed13336) {
  const Tensor x = Tensor::Uniform(-1, 1, {4, 2, 33}).Realize();
  EXPECT_REFERENCE(x.Slice({Slice(0, 0)}).Reshape({0}).Flip({0}).Sum({0}));
}

}  // namespace
}  // namespace tessera
