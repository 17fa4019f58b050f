// What users of other libraries write out of habit: it works as they mean it, or says why not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/grad.h"
#include "graph/tensor.h"
#include "runtime/realize.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

std::vector<double> Computed(const Tensor& t) { return t.Cast(kFloat64).ToVector<double>(); }

TEST(Habits, AssignmentToAnIndexedTensorWritesIntoIt) {
  const Tensor x = Tensor::Zeros({3, 2});
  x[0] = Tensor::From({1.0f, 2.0f});
  x[2] = 7;
  x.SliceAxis(0, {1, 2}) = x[0] + 2;
  EXPECT_EQ(Computed(x), (std::vector<double>{1, 2, 3, 4, 7, 7}));
  Tensor y = x[0];
  y = x[2];  // a variable becomes a handle to another tensor
  EXPECT_EQ(Computed(x), (std::vector<double>{1, 2, 3, 4, 7, 7}));
  EXPECT_EQ(Computed(y), (std::vector<double>{7, 7}));
}

// What is written into what nobody holds would be lost.
TEST(Habits, AssignmentToWhatIsLookedUpIsAnError) {
  Tensor x = Tensor::Zeros({3, 2}).Realize();
  const Tensor i = Tensor::From({0, -1});
  EXPECT_ERROR(x[{i}] = 5, "=", "PutAt");
  EXPECT_ERROR(x[{i}] += 5, "+=", "PutAt");
  EXPECT_ERROR((x[{i, i}] = 5), "=", "would be lost");
  EXPECT_ERROR((x + 1) = 5, "=", "would be lost");
  x[0] += 5;
  Tensor rows = x[{i}];
  rows += 1;
  EXPECT_EQ(Computed(rows), (std::vector<double>{6, 6, 1, 1}));
  EXPECT_EQ(Computed(x.PutAt({i, 1}, 7)), (std::vector<double>{5, 7, 0, 0, 0, 7}));
  EXPECT_ERROR(x[UINT64_MAX], "Index", "outside");
}

TEST(Habits, BracesAreAxes) {
  const Tensor x = Tensor::Ones({2, 3}), y = Tensor::Ones({2, 4});
  EXPECT_EQ(x.TensorDot(y, {0}, {0}).shape(), Shape({3, 4}));
  EXPECT_EQ(Tensor::Ones({1, 2, 1}).Squeeze({0}).shape(), Shape({2, 1}));
}

TEST(Habits, NoDTypeIsAnError) {
  const Tensor x = Tensor::Ones({2});
  EXPECT_ERROR(Tensor::Zeros({2, 3}, DType()), "Zeros", "kFloat32");
  EXPECT_ERROR(Tensor::Full({2}, 1, DType()), "Full", "kFloat32");
  EXPECT_ERROR(x.ZerosLike(DType()), "ZerosLike", "kFloat32");
  EXPECT_ERROR(Tensor::Full({2}, 1, kFloat32.WithLanes(4)), "Full", "kFloat32");
}

// Values of Python's float.__floordiv__.
TEST(Habits, FlooredQuotientsOfFloatsBelongToTheRemainder) {
  const std::vector<double> a = {1, 6, -1, 1, 7, -7, 7, -7, 0.3, 0, 5, -1, 1, 1e300, -0.5},
                            b = {0.1, 0.1, kInf,  kInf,  2, 2,    -2, -2,
                                 0.1, 3,   -kInf, -kInf, 3, 1e-3, 3},
                            want = {9, 59, -1, 0, 3, -4, -4, 3, 2, 0, -1, 0, 0, 1e303, -1};
  const Tensor x = Tensor::From(a), y = Tensor::From(b);
  const std::vector<double> got = x.FloorDiv(y).ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12 * std::abs(want[i])) << i;
  const std::vector<double> rest = x.Mod(y).ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(b[i]) || want[i] > 1e15) continue;
    EXPECT_NEAR(got[i] * b[i] + rest[i], a[i], 1e-12) << i;
  }
  EXPECT_TRUE(std::signbit(Tensor::From({-0.0}).FloorDiv(3.0).Item()));
  EXPECT_EQ(Tensor::From({1.0}).FloorDiv(0.0).Item(), kInf);
  EXPECT_TRUE(std::isnan(Tensor::From({kInf}).FloorDiv(2.0).Item()));
}

TEST(Habits, TwoVariablesAreReshapedApartAndTogether) {
  const Variable n("habit_n", 1, 5), m("habit_m", 1, 6);
  const Tensor all = Tensor::Arange(5 * 6 * 4, kFloat32).Reshape({5, 6, 4}).Realize();
  const Tensor x = all.Slice({{0, n}, {0, m}});
  const Tensor there = x.Flatten(1).Reshape({n, m, 4}), pairs = x.Reshape({-1, 2}),
               rows = x.Flatten().Reshape({-1, 4}), heads = x.Reshape({n, m, 2, 2}),
               merged = x.Flatten(0, 1).Reshape({n, m, 4});
  const Bindings values = {{"habit_n", 3}, {"habit_m", 2}};
  const std::vector<double> want = Computed(all.Slice({{0, 3}, {0, 2}}));
  for (const Tensor& t : {there, pairs, rows, heads, merged}) {
    EXPECT_EQ(Computed(Realize({t}, values)[0]), want);
  }
  EXPECT_ERROR(x.Reshape({m, n, 5}), "Reshape", "habit_n");
}

TEST(Habits, SymbolicAxesAreCutFromTheirEnd) {
  const Variable m("habit_cut", 1, 6);
  const Tensor all = Tensor::Arange(6, kFloat32).Realize();
  const Tensor x = all.Slice({{0, m}});
  const Tensor last = x.Slice({{-2, {}}}), middle = x.Slice({{-4, -1}}), one = x.Slice({{-1, {}}});
  for (int64_t v = 1; v <= 6; ++v) {
    const Tensor y = all.Slice({{0, v}});
    const auto got = [&](const Tensor& t) { return Computed(Realize({t}, {{"habit_cut", v}})[0]); };
    EXPECT_EQ(got(last), Computed(y.Slice({{-2, {}}}))) << v;
    EXPECT_EQ(got(middle), Computed(y.Slice({{-4, -1}}))) << v;
    EXPECT_EQ(got(one), Computed(y.Slice({{-1, {}}}))) << v;
  }
}

TEST(Habits, TheDeviationOfEqualElementsHasNoGradient) {
  const Tensor x = Tensor::Full({4}, 3.0f);
  EXPECT_EQ(Computed(Grad(x.Std(), {x})[0]), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Habits, ByABetaOfZeroNothingCounts) {
  const Tensor nan = Tensor::Full({2, 2}, kNan), eye = Tensor::Eye(2);
  EXPECT_EQ(Computed(nan.AddMatMul(eye, eye, 0)), (std::vector<double>{1, 0, 0, 1}));
}

// Long tables are searched by halves: as many steps as the length has bits.
TEST(Habits, LongTablesAreSearchedByHalves) {
  for (int64_t n : {65, 128, 1000, 4097}) {
    std::vector<double> table = Draw(n, 1, -2, 2), values = Draw(777, 2, -3, 3);
    std::sort(table.begin(), table.end());
    for (int i = 0; i < 20; ++i) table[n / 3 + i] = table[n / 3];  // equal ones
    for (int i = 0; i < 40; ++i) values[i] = table[n / 3 - 10 + i];
    const Tensor at = Tensor::From(table).SearchSorted(Tensor::From(values)),
                 after = Tensor::From(table).SearchSorted(Tensor::From(values), true);
    const Tensor rows = Tensor::From(table).Unsqueeze(0).Expand({2, n}) + 0.0,
                 wanted = Stack({Tensor::From(values), Tensor::From(values) - 0.5}, 0);
    const std::vector<double> left = Computed(at), right = Computed(after),
                              both = Computed(rows.SearchSorted(wanted));
    const auto rank = [&](double v) {
      return static_cast<double>(std::lower_bound(table.begin(), table.end(), v) - table.begin());
    };
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(left[i], rank(values[i]));
      EXPECT_EQ(right[i], std::upper_bound(table.begin(), table.end(), values[i]) - table.begin());
      EXPECT_EQ(both[i], rank(values[i]));
      EXPECT_EQ(both[values.size() + i], rank(values[i] - 0.5));
    }
  }
}

// A tensor without a device takes the value's, or says that it needs one first.
TEST(Habits, ShardedValuesAreAssignedToViewsOfWhatLiesNowhere) {
  const Sharding three({"CPU:0", "CPU:1", "CPU:2"}, 0);
  const auto value = [&](const Tensor& view) {
    return Tensor::Arange(view.elements(), kFloat32).Reshape(view.shape()).Shard(three).Realize();
  };
  const Tensor flipped = Tensor::Zeros({6});
  flipped.Flip(0).Assign(value(flipped));
  EXPECT_EQ(Computed(flipped), (std::vector<double>{5, 4, 3, 2, 1, 0}));
  const Tensor stepped = Tensor::Zeros({6});
  stepped.Slice({{0, 6, 2}}).Assign(value(Tensor::Zeros({3})));
  EXPECT_EQ(Computed(stepped), (std::vector<double>{0, 0, 1, 0, 2, 0}));
  const Tensor turned = Tensor::Zeros({6});
  EXPECT_ERROR(turned.Reshape({2, 3}).T().Assign(value(Tensor::Zeros({3, 2}))), "Assign",
               "no device yet");
  EXPECT_EQ(Computed(turned), std::vector<double>(6, 0.0));
}

}  // namespace
}  // namespace tessera
