// Which elements there are, the most frequent, and quantiles by each method: NumPy's values.
#include <algorithm>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;

TEST(TensorUnique, OfAllElements) {
  const Tensor x = Tensor::From({{3, 1, 3}, {7, 1, 3}});
  const UniqueElements all = x.Unique(5, -1);
  EXPECT_THAT(Values(all.values), ElementsAre(1, 3, 7, -1, -1));
  EXPECT_THAT(Values(all.indices), ElementsAre(1, 0, 3, 0, 0));
  EXPECT_THAT(Values(all.counts), ElementsAre(2, 3, 1, 0, 0));
  EXPECT_THAT(Values(all.inverse), ElementsAre(1, 0, 1, 2, 0, 1));
  EXPECT_EQ(all.inverse.shape(), x.shape());
  EXPECT_EQ(all.values.dtype(), kInt32);
  EXPECT_THAT(Values(x.CountUnique()), ElementsAre(3));
  const UniqueElements first = x.Unique(2);
  EXPECT_THAT(Values(first.values), ElementsAre(1, 3));
  EXPECT_THAT(Values(first.counts), ElementsAre(2, 3));
  EXPECT_THAT(Values(first.inverse), ElementsAre(1, 0, 1, 2, 0, 1));
  EXPECT_EQ(x.Unique(0).values.shape(), Shape({0}));
}

TEST(TensorUnique, OfFloatsAndBools) {
  const Tensor x = Tensor::From({kNan, 0.0, -0.0, 2.0, kNan, -kInf, 2.0});
  const UniqueElements all = x.Unique(5);
  EXPECT_THAT(Values(all.values), ElementsAre(-kInf, 0, 2, IsNan(), 0));
  EXPECT_THAT(Values(all.counts), ElementsAre(1, 2, 2, 2, 0));
  EXPECT_THAT(Values(x.CountUnique()), ElementsAre(4));
  EXPECT_THAT(Values(Tensor::From({true, false, true}).Unique(2).values), ElementsAre(0, 1));
  EXPECT_THAT(Values(Tensor::Scalar(4).Unique(2).values), ElementsAre(4, 0));
  EXPECT_EQ(Tensor::Scalar(4).Unique(2).inverse.shape(), Shape());
}

TEST(TensorUnique, OfNothing) {
  const UniqueElements none = Tensor::Zeros({0, 2}).Unique(2, 5);
  EXPECT_THAT(Values(none.values), ElementsAre(5, 5));
  EXPECT_THAT(Values(none.counts), ElementsAre(0, 0));
  EXPECT_EQ(none.inverse.shape(), Shape({0, 2}));
  EXPECT_THAT(Values(Tensor::Zeros({0}).CountUnique()), ElementsAre(0));
  EXPECT_ERROR(Tensor::Zeros({3}).Unique(-1), "Unique", "-1");
}

// Enough for the ways in which long rows are sorted.
TEST(TensorUnique, OfManySlow) {
  std::vector<int32_t> v;
  std::vector<double> counts(50, 0.0);
  uint32_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    state = state * 1664525 + 1013904223;
    v.push_back(static_cast<int32_t>((state >> 16) % 50));
    ++counts[v.back()];
  }
  const UniqueElements all = Tensor::From(v).Unique(50);
  const auto values = Values(all.values), inverse = Values(all.inverse);
  EXPECT_EQ(Values(all.counts), counts);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(values[static_cast<size_t>(inverse[i])], v[i]);
  const auto most = std::max_element(counts.begin(), counts.end()) - counts.begin();
  const ValuesAndIndices mode = Tensor::From(v).Mode();
  EXPECT_THAT(Values(mode.values), ElementsAre(most));
  EXPECT_EQ(v[static_cast<size_t>(Values(mode.indices)[0])], most);
}

TEST(TensorUnique, Mode) {
  const Tensor x = Tensor::From({{2, 1, 2, 1, 5}, {4, 3, 9, 8, 7}, {6, 6, 6, 6, 6}});
  const ValuesAndIndices rows = x.Mode();
  EXPECT_THAT(Values(rows.values), ElementsAre(1, 3, 6));
  EXPECT_THAT(Values(rows.indices), ElementsAre(3, 1, 4));
  EXPECT_EQ(x.Mode(0, true).values.shape(), Shape({1, 5}));
  EXPECT_THAT(Values(x.Mode(0).values), ElementsAre(2, 1, 2, 1, 5));
  const Tensor nan = Tensor::From({kNan, 1.0, kNan});
  EXPECT_THAT(Values(nan.Mode().values), ElementsAre(IsNan()));
  EXPECT_THAT(Values(nan.Mode().indices), ElementsAre(2));
  EXPECT_THAT(Values(Tensor::Scalar(3.0).Mode().values), ElementsAre(3));
  EXPECT_ERROR(Tensor::Zeros({2, 0}).Mode(), "Mode", "of nothing");
}

TEST(TensorUnique, QuantileMethods) {
  const Tensor x = Tensor::From({4.0, 1.0, 3.0, 8.0});  // at 0, 1/3, 2/3, 1
  const auto all = [&](double q) {
    std::vector<double> out;
    for (const QuantileMethod m :
         {QuantileMethod::kLinear, QuantileMethod::kLower, QuantileMethod::kHigher,
          QuantileMethod::kNearest, QuantileMethod::kMidpoint}) {
      out.push_back(Values(x.Quantile(q, 0, false, m))[0]);
      EXPECT_EQ(Values(x.NanQuantile(q, 0, false, m))[0], out.back());
      const Tensor longer = Cat({Tensor::From({kNan}), x, Tensor::From({kNan, kNan})});
      EXPECT_EQ(Values(longer.NanQuantile(q, {}, false, m))[0], out.back());
    }
    return out;
  };
  EXPECT_THAT(all(0.5), ElementsAre(3.5, 3, 4, 4, 3.5));  // halfway, to the even position
  EXPECT_THAT(all(0.25), ElementsAre(2.5, 1, 3, 3, 2));
  EXPECT_THAT(all(1), ElementsAre(8, 8, 8, 8, 8));
  EXPECT_THAT(all(0), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_ERROR(x.NanQuantile(1.5), "NanQuantile", "share");
}

// What lies behind a place that is met exactly does not count, infinite as it may be.
TEST(TensorUnique, NanQuantileBesideInfinities) {
  const Tensor x = Tensor::From({0.5, 2.0, kInf});
  EXPECT_EQ(Values(x.NanQuantile(0.5))[0], 2);
  EXPECT_EQ(Values(x.NanQuantile(0.75))[0], kInf);
  EXPECT_EQ(Values(x.NanQuantile(0.3, 0, false, QuantileMethod::kHigher))[0], 2);
  EXPECT_EQ(Values(Tensor::From({1.0, kInf}).NanQuantile(0.0))[0], 1);
  EXPECT_EQ(Values(Tensor::From({3.0, kNan, kInf}).NanQuantile(1.0))[0], kInf);
  EXPECT_EQ(Values(Tensor::From({-kInf, 3.0, kNan}).NanQuantile(0.0))[0], -kInf);
}

TEST(TensorUnique, WithoutNans) {
  const Tensor x = Tensor::From({{kNan, 2.0, 8.0, kNan}, {kNan, kNan, kNan, kNan}});
  EXPECT_THAT(Values(x.NanQuantile(0.5, 1)), ElementsAre(5, IsNan()));
  EXPECT_EQ(x.NanQuantile(0.5, 1, true).shape(), Shape({2, 1}));
  EXPECT_EQ(x.NanQuantile(0.5, {}, true).shape(), Shape({1, 1}));
  EXPECT_THAT(Values(x.NanArgMax(1)), ElementsAre(2, -1));
  EXPECT_THAT(Values(x.NanArgMin(1)), ElementsAre(1, -1));
  EXPECT_THAT(Values(x.NanArgMax()), ElementsAre(2));
  EXPECT_THAT(Values(Tensor::From({kNan, -kInf, -kInf}).NanArgMax()), ElementsAre(1));
  EXPECT_THAT(Values(Tensor::From({3, 9, 9}).NanArgMax()), ElementsAre(1));
  EXPECT_THAT(Values(Tensor::From({3, 9, 9}).NanQuantile(0.5)), ElementsAre(9));
}

}  // namespace
}  // namespace tessera
