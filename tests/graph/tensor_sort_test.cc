// Order and running results, against the standard library and plain loops.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

// NaN above all, -0 and 0 alike.
bool Less(double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); }

std::vector<int64_t> Order(const std::vector<double>& v, bool descending) {
  std::vector<int64_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return descending ? Less(v[b], v[a]) : Less(v[a], v[b]);
  });
  return order;
}

std::vector<double> Special(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const double odd[] = {0.0, -0.0, kNan, kInf, -kInf, 5e-324, -1e-40, 1e308, -1e308};
  std::vector<double> out(n);
  for (double& v : out) {
    v = random() % 3 == 0 ? odd[random() % 9] : static_cast<double>(random() % 9) - 4;
  }
  return out;
}

std::vector<double> AsFloats(std::vector<double> v) {
  for (double& x : v) x = static_cast<double>(static_cast<float>(x));
  return v;
}

TEST(TensorSort, AgreesWithTheStandardLibrary) {
  for (int64_t n : {1, 2, 3, 64, 255, 256, 257, 300, 700, 1025}) {
    const auto v = Special(n, static_cast<uint32_t>(n));
    const Tensor x = Tensor::From(v);
    for (bool descending : {false, true}) {
      const auto order = Order(v, descending);
      const auto [values, indices] = x.Sort(0, descending);
      const std::vector<double> got = Values(values), at = Values(indices);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(at[i], order[i]) << n << ", " << i;
        ASSERT_TRUE(got[i] == v[order[i]] || std::isnan(v[order[i]])) << n << ", " << i;
        ASSERT_EQ(std::signbit(got[i]), std::signbit(v[order[i]])) << n << ", " << i;
      }
    }
  }
}

TEST(TensorSort, EveryDtype) {
  for (DType t : {kBool, kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64,
                  kFloat8E4M3, kFloat8E5M2, kFloat16, kBFloat16, kFloat32}) {
    const Tensor x = Tensor::From(Special(40, 3), {4, 10}).Cast(t);
    const auto v = Values(x);
    const auto got = Values(x.Sort(1).values);
    EXPECT_EQ(x.Sort().values.dtype(), t);
    for (int64_t row = 0; row < 4; ++row) {
      const std::vector<double> line(v.begin() + row * 10, v.begin() + row * 10 + 10);
      const auto order = Order(line, false);
      for (int64_t i = 0; i < 10; ++i) {
        EXPECT_TRUE(got[row * 10 + i] == line[order[i]] || std::isnan(line[order[i]]))
            << t.ToString();
      }
    }
  }
  // Neighbours that no float tells apart.
  const Tensor large = Tensor::From(std::vector<int64_t>{INT64_MAX, INT64_MIN, INT64_MAX - 1, -1});
  EXPECT_THAT(Values(large.ArgSort()), ElementsAre(1, 3, 2, 0));
  const Tensor unsigned_ones = Tensor::From(std::vector<uint64_t>{UINT64_MAX, 0, UINT64_MAX - 1});
  EXPECT_THAT(Values(unsigned_ones.ArgSort(0, true)), ElementsAre(0, 2, 1));
}

TEST(TensorSort, LongRowsOfBatches) {
  const auto v = Special(3 * 300 * 2, 9);
  const Tensor x = Tensor::From(v, {3, 300, 2});
  const auto at = Values(x.ArgSort(1));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 2; ++k) {
      std::vector<double> line;
      for (int64_t j = 0; j < 300; ++j) line.push_back(v[(i * 300 + j) * 2 + k]);
      const auto order = Order(line, false);
      for (int64_t j = 0; j < 300; ++j) ASSERT_EQ(at[(i * 300 + j) * 2 + k], order[j]);
    }
  }
}

// A few of a long axis are found without sorting it: the same ones, ties and NaN included.
TEST(TensorSort, FewOfMany) {
  const int64_t rows = 3, n = 400;
  const auto v = Special(rows * n, 5);
  const Tensor x = Tensor::From(v).Cast(kFloat32).Reshape({rows, n}), wide = x.Cast(kFloat64);
  for (const bool descending : {false, true}) {
    for (const int64_t k : {1, 7, 64, 65}) {
      EXPECT_EQ(Values(wide.TopK(k, 1, descending).indices),
                Values(x.TopK(k, 1, descending).indices));
      const std::vector<double> at = Values(x.TopK(k, 1, descending).indices);
      const std::vector<double> along = Values(x.T().TopK(k, 0, descending).indices.T());
      ASSERT_EQ(at.size(), rows * k);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> line(v.begin() + r * n, v.begin() + (r + 1) * n);
        const auto order = Order(AsFloats(line), descending);
        for (int64_t i = 0; i < k; ++i) {
          ASSERT_EQ(at[r * k + i], order[i]) << descending << ", " << k << ", " << r << ", " << i;
          ASSERT_EQ(along[r * k + i], order[i]);
        }
      }
    }
  }
}

// Of many of them the last is found first, bit by bit; and of its equals as many as are wanted.
TEST(TensorSort, ManyOfMoreSlow) {
  const int64_t rows = 2, n = 15000;
  std::vector<double> v = Special(rows * n, 9);
  for (int64_t i = n; i < 2 * n; ++i) v[i] = static_cast<double>(i * 7919 % 11);  // most are alike
  const Tensor x = Tensor::From(v).Cast(kFloat32).Reshape({rows, n});
  for (const DType type : {kFloat32, kFloat64, kInt64}) {
    const bool whole = type == kInt64;
    const Tensor t = (whole ? x.SliceAxis(0, {1, 2}) : x).Cast(type);
    for (const bool descending : {false, true}) {
      for (const int64_t k : {700}) {
        const std::vector<double> at = Values(t.TopK(k, 1, descending).indices);
        for (int64_t r = 0; r < t.size(0); ++r) {
          const auto begin = v.begin() + (whole ? 1 : r) * n;
          const auto order = Order(AsFloats({begin, begin + n}), descending);
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(at[r * k + i], order[i]) << descending << ", " << k << ", " << r << ", " << i;
          }
        }
      }
    }
  }
}

// So are those of longer ones, which are in the blocks whose least elements come first.
TEST(TensorSort, FewOfMuchMore) {
  const int64_t rows = 2, n = 15000;
  const auto v = Special(rows * n, 8);
  const Tensor x = Tensor::From(v).Cast(kFloat32).Reshape({rows, n});
  for (const int64_t k : {65, 100}) {
    const auto [values, indices] = x.TopK(k);
    const std::vector<double> got = Values(values), at = Values(indices);
    for (int64_t r = 0; r < rows; ++r) {
      const auto line = AsFloats({v.begin() + r * n, v.begin() + (r + 1) * n});
      const auto order = Order(line, true);
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(at[r * k + i], order[i]) << r << ", " << i;
        ASSERT_TRUE(got[r * k + i] == line[order[i]] || std::isnan(line[order[i]]));
      }
    }
  }
}

// Single ranks of long rows are found without sorting: ties as they come, NaN above all.
TEST(TensorSort, RanksOfLongRows) {
  const int64_t rows = 2, n = 75;
  const auto v = Special(rows * n, 11);
  for (const DType type : {kFloat64, kFloat32, kInt64, kInt32, kUInt8}) {
    const bool floats = type.IsFloat();
    std::vector<double> whole = v;
    for (double& x : whole) {
      if (!floats) x = std::isfinite(x) ? std::clamp(std::trunc(std::abs(x)), 0.0, 4.0) : 3;
    }
    const Tensor x = Tensor::From(whole).Cast(type).Reshape({rows, n});
    const std::vector<double> cast = Values(x);
    for (const int64_t k : {1, 20, 38, 75}) {
      const auto [values, indices] = x.KthValue(k);
      const std::vector<double> got = Values(values), at = Values(indices);
      const std::vector<double> along = Values(x.T().KthValue(k, 0, true).indices);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> line(cast.begin() + r * n, cast.begin() + (r + 1) * n);
        const int64_t there = Order(line, false)[k - 1];
        ASSERT_EQ(at[r], there) << type.ToString() << ", " << k << ", " << r;
        ASSERT_EQ(along[r], there);
        ASSERT_TRUE(got[r] == line[there] || std::isnan(line[there]));
        ASSERT_EQ(std::signbit(got[r]), std::signbit(line[there]));
      }
    }
  }
  const Tensor line = Tensor::Arange(101).Cast(kFloat64).Flip(0);
  EXPECT_THAT(Values(line.Median().values), ElementsAre(50));
  EXPECT_THAT(Values(line.Median().indices), ElementsAre(50));
  EXPECT_THAT(Values(line.Quantile(0.305)), ElementsAre(::testing::DoubleEq(30.5)));
  const double inf = std::numeric_limits<double>::infinity();
  const auto of = [](const std::vector<double>& v, double q) {
    return Values(Tensor::From(v).Quantile(q))[0];
  };
  EXPECT_EQ(of({-inf, -3, -2, -1}, 0.25), -inf);
  EXPECT_EQ(of({-inf, 1}, 0.75), -inf);
  EXPECT_EQ(of({1, inf}, 0.25), inf);
  EXPECT_EQ(of({inf, inf}, 0.25), inf);
  EXPECT_EQ(of({-inf, 1}, 1), 1);
  EXPECT_TRUE(std::isnan(of({-inf, inf}, 0.5)));
  EXPECT_THAT(Values(Where(line == 7, kNan, line).Quantile(0.5)), ElementsAre(::testing::IsNan()));
}

TEST(TensorSort, WhatFollowsFromOrder) {
  const Tensor x = Tensor::From({{3, 1, 2, 2}, {7, 9, 8, 9}});
  const auto top = x.TopK(2);
  EXPECT_THAT(Values(top.values), ElementsAre(3, 2, 9, 9));
  EXPECT_THAT(Values(top.indices), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(Values(x.TopK(1, 0, false).values), ElementsAre(3, 1, 2, 2));
  EXPECT_EQ(Sizes(x.TopK(0).values), (std::vector<int64_t>{2, 0}));
  EXPECT_THAT(Values(x.KthValue(2).values), ElementsAre(2, 8));
  EXPECT_THAT(Values(x.KthValue(2).indices), ElementsAre(2, 2));
  EXPECT_THAT(Values(x.Median().values), ElementsAre(2, 8));
  EXPECT_EQ(Sizes(x.Median(0, true).values), (std::vector<int64_t>{1, 4}));
  const Tensor f = Tensor::From({4.0, 1.0, 3.0, 2.0}, kFloat64);
  EXPECT_THAT(Values(f.Quantile(0.5)), ElementsAre(2.5));
  EXPECT_THAT(Values(f.Quantile(0)), ElementsAre(1));
  EXPECT_THAT(Values(f.Quantile(1)), ElementsAre(4));
  EXPECT_THAT(Values(f.Quantile(0.1, 0, true)), ElementsAre(::testing::DoubleEq(1.3)));
  const Tensor nan = Tensor::From({1.0, kNan, 0.0}, kFloat32);
  EXPECT_TRUE(std::isnan(Values(nan.Median().values)[0]));
  EXPECT_THAT(Values(nan.Median().indices), ElementsAre(1));
  EXPECT_TRUE(std::isnan(Values(nan.Quantile(0))[0]));
  EXPECT_THAT(Values(nan.ArgSort()), ElementsAre(2, 0, 1));
  EXPECT_THAT(Values(nan.ArgSort(0, true)), ElementsAre(1, 0, 2));
  const Tensor sorted = Tensor::From({1, 3, 3, 5});
  const Tensor wanted = Tensor::From({{0, 3}, {4, 9}});
  EXPECT_THAT(Values(sorted.SearchSorted(wanted)), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(Values(sorted.SearchSorted(wanted, true)), ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(Values(x.Sort(1).values.SearchSorted(Tensor::From({{2}, {9}}))), ElementsAre(1, 2));
  EXPECT_THAT(Values(Tensor::Scalar(3).Sort().indices), ElementsAre(0));
  EXPECT_EQ(Sizes(Tensor::Zeros({0, 3}).Sort(0).values), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(Sizes(Tensor::Zeros({3, 0}).Sort(0).values), (std::vector<int64_t>{3, 0}));
  EXPECT_ERROR(x.TopK(5), "TopK", "cannot take 5 of the 4 elements");
  EXPECT_ERROR(x.KthValue(0), "KthValue", "no element 0");
  EXPECT_ERROR(x.Sort(2), "Sort", "axis");
  EXPECT_ERROR(x.Quantile(1.5), "Quantile", "1.5");
  EXPECT_ERROR(Tensor::Zeros({0}).Median(), "Median", "of nothing");
}

EvaluateOptions With(int64_t n) {
  EvaluateOptions options;
  options.vars["sort_n"] = n;
  return options;
}

TEST(TensorSort, OfAVariableExtent) {
  const Variable n("sort_n", 0, 6);
  const Tensor x = Tensor::From({5, 3, 4, 1, 2, 0}).SliceAxis(0, {0, n});
  EXPECT_THAT(Values(x.Sort().values, With(4)), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(Values(x.ArgSort(0, true), With(3)), ElementsAre(0, 2, 1));
  EXPECT_THAT(Values(x.Sort().values, With(0)), ElementsAre());
}

// ---- running results

std::vector<double> Running(const std::vector<double>& v, double first, const ScanOptions& o,
                            const std::function<double(double, double)>& combine) {
  const auto n = static_cast<int64_t>(v.size());
  std::vector<double> out(n);
  double sum = first;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = o.reverse ? n - 1 - i : i;
    if (o.exclusive) out[at] = sum;
    sum = combine(sum, v[at]);
    if (!o.exclusive) out[at] = sum;
  }
  return out;
}

TEST(TensorScan, SumsAndProducts) {
  for (int64_t n : {1, 2, 5, 511, 513, 1300}) {
    std::vector<double> v(n), f(n);
    std::mt19937 random(7);
    for (int64_t i = 0; i < n; ++i) {
      v[i] = static_cast<double>(random() % 9) - 4;
      f[i] = 1 + (static_cast<double>(random() % 9) - 4) / 64;
    }
    for (bool exclusive : {false, true}) {
      for (bool reverse : {false, true}) {
        const ScanOptions o{exclusive, reverse};
        ExpectNear(Values(Tensor::From(v).CumSum(0, o)), Running(v, 0, o, std::plus<double>()), 0);
        ExpectNear(Values(Tensor::From(f).CumProd(0, o)),
                   Running(f, 1, o, std::multiplies<double>()), 1e-12);
      }
    }
  }
  const Tensor x = Tensor::From({{1, 2, 3}, {4, 5, 6}});
  EXPECT_THAT(Values(x.CumSum(0, {.exclusive = true})), ElementsAre(0, 0, 0, 1, 2, 3));
  EXPECT_THAT(Values(x.CumProd(-1)), ElementsAre(1, 2, 6, 4, 20, 120));
  EXPECT_EQ(x.Cast(kUInt8).CumProd(0).dtype(), kUInt32);
  EXPECT_EQ(Sizes(Tensor::Zeros({0, 2}).CumProd(0)), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(Sizes(Tensor::Zeros({0, 2}).CumSum(0, {.exclusive = true})),
            (std::vector<int64_t>{0, 2}));
  EXPECT_ERROR(x.CumProd(2), "CumProd", "axis");
  EXPECT_ERROR(Tensor::Scalar(1).CumSum(1), "CumSum", "axis");
}

TEST(TensorScan, ExtremesAndTheirPositions) {
  for (int64_t n : {1, 6, 600}) {
    const auto v = Special(n, 11);
    for (bool max : {true, false}) {
      const Tensor x = Tensor::From(v);
      const auto [values, indices] = max ? x.CumMax(0) : x.CumMin(0);
      const auto got = Values(values), at = Values(indices);
      double best = v[0];
      int64_t where = 0;
      for (int64_t i = 0; i < n; ++i) {
        const bool better =
            std::isnan(v[i]) || (!std::isnan(best) && (max ? v[i] >= best : v[i] <= best));
        if (better) best = v[i], where = i;
        ASSERT_TRUE(got[i] == best || (std::isnan(got[i]) && std::isnan(best))) << i;
        ASSERT_EQ(at[i], where) << i;
      }
    }
  }
  EXPECT_THAT(Values(Tensor::From({3, 1, 3, 2}).CumMax(0).indices), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(Values(Tensor::From({3, 1, 3, 2}).Cast(kUInt8).CumMin(0).values),
              ElementsAre(3, 1, 1, 1));
  EXPECT_ERROR(Tensor::From({true}).CumMax(0), "CumMax", "cast it to u8");
}

TEST(TensorScan, LogarithmsOfSums) {
  std::vector<double> v(700), expected(700);
  double sum = 0;
  for (int64_t i = 0; i < 700; ++i) {
    v[i] = std::sin(static_cast<double>(i)) * 3 + static_cast<double>(i) / 2;
    sum = i == 0 ? v[0] : std::max(sum, v[i]) + std::log1p(std::exp(-std::fabs(sum - v[i])));
    expected[i] = sum;
  }
  ExpectNear(Values(Tensor::From(v).LogCumSumExp(0)), expected, 1e-12);
  ExpectNear(Values(Tensor::From({-kInf, -kInf, 1.0, -kInf}, kFloat64).LogCumSumExp(0)),
             {-kInf, -kInf, 1, 1});
}

TEST(TensorScan, Differences) {
  const Tensor x = Tensor::From({{1, 4, 9, 16}, {0, 1, 1, 2}});
  EXPECT_THAT(Values(x.Diff()), ElementsAre(3, 5, 7, 1, 0, 1));
  EXPECT_THAT(Values(x.Diff(2)), ElementsAre(2, 2, -1, 1));
  EXPECT_THAT(Values(x.Diff(1, 0)), ElementsAre(-1, -3, -8, -14));
  EXPECT_EQ(Sizes(x.Diff(9)), (std::vector<int64_t>{2, 0}));
  EXPECT_THAT(Values(Tensor::From({true, false, false}).Diff()), ElementsAre(1, 0));
}

}  // namespace
}  // namespace tessera
