// Writing by index and lookup by several indices, against plain loops.
#include <algorithm>
#include <random>

#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

std::vector<double> DrawWhole(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> out(n);
  for (double& v : out) v = static_cast<double>(static_cast<int>(random() % 17)) - 8;
  return out;
}

std::vector<int64_t> DrawIndex(int64_t n, int64_t below, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> out(n);
  // Some of them are outside.
  for (int64_t& v : out) v = static_cast<int64_t>(random() % (below + 2)) - 1;
  return out;
}

double Apply(ScatterMode mode, double a, double b) {
  switch (mode) {
    case ScatterMode::kSet:
      return b;
    case ScatterMode::kMul:
      return a * b;
    case ScatterMode::kMax:
      return std::max(a, b);
    case ScatterMode::kMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

// [a][b][c] with updates [i][m][k] along axis 1, i <= a and k <= c.
std::vector<double> Loops(std::vector<double> self, const std::vector<int64_t>& index,
                          const std::vector<double>& src, const int64_t (&n)[3],
                          const int64_t (&u)[3], ScatterMode mode, bool include_self) {
  std::vector<int> hits(self.size(), 0);
  for (int64_t i = 0; i < u[0]; ++i) {
    for (int64_t j = 0; j < u[1]; ++j) {
      for (int64_t k = 0; k < u[2]; ++k) {
        const int64_t from = (i * u[1] + j) * u[2] + k, row = index[from];
        if (row < 0 || row >= n[1]) continue;
        const int64_t to = (i * n[1] + row) * n[2] + k;
        const bool first = hits[to]++ == 0 && !include_self;
        self[to] = first ? src[from] : Apply(mode, self[to], src[from]);
      }
    }
  }
  if (mode == ScatterMode::kMean) {
    for (size_t i = 0; i < self.size(); ++i) {
      if (hits[i] > 0) self[i] /= hits[i] + (include_self ? 1 : 0);
    }
  }
  return self;
}

constexpr ScatterMode kModes[] = {ScatterMode::kSet, ScatterMode::kAdd, ScatterMode::kMul,
                                  ScatterMode::kMax, ScatterMode::kMin, ScatterMode::kMean};

TEST(TensorScatter, EveryModeWithDuplicatesAndWhatIsOutside) {
  const int64_t n[3] = {3, 4, 2};
  for (const auto& u : {std::to_array<int64_t>({3, 6, 2}), {2, 5, 1}, {3, 1, 2}, {1, 4, 2}}) {
    const int64_t m[3] = {u[0], u[1], u[2]};
    const int64_t updates = u[0] * u[1] * u[2];
    const auto self = DrawWhole(24, 1), src = DrawWhole(updates, 2);
    const auto index = DrawIndex(updates, n[1], 3);
    const Tensor x = Tensor::From(self, {3, 4, 2}), s = Tensor::From(src, {u[0], u[1], u[2]});
    const Tensor i = Tensor::From(index, {u[0], u[1], u[2]});
    for (ScatterMode mode : kModes) {
      for (bool include_self : {true, false}) {
        ExpectNear(Values(x.Scatter(1, i, s, mode, include_self)),
                   Loops(self, index, src, n, m, mode, include_self), 1e-15);
      }
    }
    ExpectNear(Values(x.Transpose(0, 1)
                          .Scatter(0, i.Cast(kInt8).Transpose(0, 1), s.Transpose(0, 1))
                          .Transpose(0, 1)),
               Loops(self, index, src, n, m, ScatterMode::kSet, true));
  }
}

TEST(TensorScatter, DtypesAndSpecialValues) {
  const Tensor i = Tensor::From({0, 2, 2, 1});
  const Tensor x = Tensor::From({1, 2, 3}), s = Tensor::From({4, 5, 6, 7});
  EXPECT_THAT(Values(x.ScatterAdd(0, i, s)), ElementsAre(5, 9, 14));
  EXPECT_THAT(Values(x.Scatter(0, i, s, ScatterMode::kMean)), ElementsAre(2, 4, 4));
  // 250 + 5 + 6 wraps.
  const Tensor bytes = Tensor::From({250, 2, 250}).Cast(kUInt8);
  EXPECT_THAT(Values(bytes.ScatterAdd(0, i, s.Cast(kUInt8))), ElementsAre(254, 9, 5));
  EXPECT_EQ(bytes.ScatterAdd(0, i, s.Cast(kUInt8)).dtype(), kUInt8);
  const Tensor flags = Tensor::From({true, false, false});
  const Tensor set = Tensor::From({false, true, false, false});
  EXPECT_THAT(Values(flags.Scatter(0, i, set)), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(flags.ScatterAdd(0, i, set)), ElementsAre(1, 0, 1));
  EXPECT_THAT(Values(flags.Scatter(0, i, set, ScatterMode::kMul)), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(flags.Scatter(0, i, set, ScatterMode::kMax)), ElementsAre(1, 0, 1));
  EXPECT_THAT(Values(flags.Scatter(0, i, set, ScatterMode::kMin)), ElementsAre(0, 0, 0));
  // What no index names keeps its bits, and no NaN comes from elsewhere.
  const Tensor odd = Tensor::From({-0.0, kNan, 1.0}, kFloat32);
  const Tensor one = Tensor::From({2});
  for (ScatterMode mode : kModes) {
    const auto v = Values(odd.Scatter(0, one, Tensor::From({kNan}, kFloat32), mode));
    EXPECT_TRUE(v[0] == 0 && std::signbit(v[0]));
    EXPECT_TRUE(std::isnan(v[1]) && std::isnan(v[2]));
  }
  EXPECT_THAT(Values(x.Scatter(0, Tensor::Zeros({0}, kInt32), Tensor::Zeros({0}, kInt32))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(Tensor::Scalar(3).Scatter(0, Tensor::Scalar(0), Tensor::Scalar(4))),
              ElementsAre(4));
  EXPECT_EQ(
      Sizes(Tensor::Zeros({0, 2}).Scatter(0, Tensor::Zeros({1, 2}, kInt32), Tensor::Zeros({1, 2}))),
      (std::vector<int64_t>{0, 2}));
  EXPECT_ERROR(x.Scatter(0, i.Cast(kFloat32), s), "Scatter", "integer dtype");
  EXPECT_ERROR(x.Scatter(0, i, s.Cast(kFloat32)), "Scatter", "do not fit");
  EXPECT_ERROR(x.Scatter(0, i.Unsqueeze(0), s), "Scatter", "must have the rank");
  EXPECT_ERROR(x.Scatter(0, i, s.SliceAxis(0, {0, 2})), "Scatter", "lie within the updates");
  EXPECT_ERROR(x.Scatter(1, i, s), "Scatter", "axis");
}

TEST(TensorScatter, RowsByVectors) {
  const Tensor x = Tensor::Arange(12).Reshape({4, 3});
  const Tensor i = Tensor::From({1, 3, 1}), rows = Tensor::Full({3, 3}, 100);
  EXPECT_THAT(Values(x.IndexAdd(0, i, rows)),
              ElementsAre(0, 1, 2, 203, 204, 205, 6, 7, 8, 109, 110, 111));
  EXPECT_THAT(Values(x.IndexCopy(0, i, Tensor::Arange(9).Reshape({3, 3}))),
              ElementsAre(0, 1, 2, 6, 7, 8, 6, 7, 8, 3, 4, 5));
  EXPECT_THAT(Values(x.IndexFill(1, Tensor::From({2, -1, 7}), 9)),
              ElementsAre(0, 1, 9, 3, 4, 9, 6, 7, 9, 9, 10, 9));
  EXPECT_THAT(Values(x.IndexSelect(1, Tensor::From({2, 0}))), ElementsAre(2, 0, 5, 3, 8, 6, 11, 9));
  EXPECT_ERROR(x.IndexAdd(0, i, rows.SliceAxis(1, {0, 2})), "IndexAdd", "must have the shape");
  EXPECT_ERROR(x.IndexSelect(0, rows), "IndexSelect", "must be a vector");
  const Tensor one = Tensor::Scalar(5.0).IndexSelect(0, Tensor::From({0}));
  EXPECT_EQ(one.rank(), 0);
  EXPECT_THAT(Values(one), ElementsAre(5));
}

TEST(TensorScatter, SeveralAxes) {
  const Tensor x = Tensor::Arange(24).Reshape({2, 3, 4});
  const Tensor i = Tensor::From({{0, 2}, {1, 0}, {1, 3}});
  EXPECT_THAT(Values(x.GatherND(i)), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0));
  EXPECT_THAT(Values(x.GatherND(Tensor::From({{1, 2, 3}}))), ElementsAre(23));
  EXPECT_EQ(Sizes(x.GatherND(Tensor::Zeros({5, 0}, kInt32))), (std::vector<int64_t>{5, 2, 3, 4}));
  EXPECT_THAT(Values(x.GatherND(Tensor::From({{{2}, {0}}, {{1}, {3}}}), 1)),
              ElementsAre(8, 9, 10, 11, 0, 1, 2, 3, 16, 17, 18, 19, 0, 0, 0, 0));
  const Tensor z = Tensor::Zeros({2, 3}, kInt32);
  const Tensor u = Tensor::From({5, 6, 7, 8});
  const Tensor at = Tensor::From({{0, 1}, {1, 2}, {0, 1}, {2, 0}});
  EXPECT_THAT(Values(z.ScatterND(at, u)), ElementsAre(0, 7, 0, 0, 0, 6));
  EXPECT_THAT(Values(z.ScatterND(at, u, ScatterMode::kAdd)), ElementsAre(0, 12, 0, 0, 0, 6));
  EXPECT_THAT(Values(z.ScatterND(Tensor::From({{1}}), Tensor::From({{1, 2, 3}}))),
              ElementsAre(0, 0, 0, 1, 2, 3));
  const Tensor r = Tensor::From({1, 0}), c = Tensor::From({{2}, {1}});
  EXPECT_THAT(Values(x.Select(2, 0).IndexGet({r, c})), ElementsAre(20, 8, 16, 4));
  EXPECT_THAT(Values(z.IndexPut({r, c}, Tensor::From({{1, 2}, {3, 4}}))),
              ElementsAre(0, 4, 2, 0, 3, 1));
  EXPECT_THAT(Values(z.IndexPut({Tensor::From({0, 0})}, Tensor::Scalar(3), true)),
              ElementsAre(6, 6, 6, 0, 0, 0));
  EXPECT_ERROR(x.GatherND(Tensor::Zeros({1, 4}, kInt32)), "GatherND", "at most 3 axes");
  EXPECT_ERROR(z.ScatterND(at, u.SliceAxis(0, {0, 3})), "ScatterND", "must have the shape [4]");
}

TEST(TensorScatter, Counting) {
  const Tensor i = Tensor::From({{0, 2, 2}, {5, -1, 1}});
  EXPECT_THAT(Values(i.BinCount(4)), ElementsAre(1, 1, 2, 0));
  EXPECT_THAT(Values(i.BinCount(4, Tensor::From({{0.5, 1, 2}, {3, 4, 5}}))),
              ElementsAre(0.5, 5, 3, 0));
  EXPECT_THAT(Values(i.BinCount(0)), ElementsAre());
  EXPECT_ERROR(i.BinCount(-1), "BinCount", "-1 bins");
}

TEST(TensorScatter, PositionsInNarrowIntegers) {
  const std::vector<Tensor> at = Tensor::From({0, 127, 255}).Cast(kUInt8).UnravelIndex({2, 1, 300});
  EXPECT_THAT(Values(at[0]), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(at[2]), ElementsAre(0, 127, 255));
  EXPECT_EQ(Tensor::From({7}).Cast(kUInt8).UnravelIndex({2, 5})[0].dtype(), kUInt8);
}

TEST(TensorScatter, MasksBroadcast) {
  const Tensor x = Tensor::Arange(6).Reshape({2, 3});
  const Tensor columns = Tensor::From({true, false, true}), rows = Tensor::From({{false}, {true}});
  EXPECT_THAT(Values(x.MaskedSelect(columns, 5, -1)), ElementsAre(0, 2, 3, 5, -1));
  EXPECT_THAT(Values(x.MaskedSelect(rows, 2)), ElementsAre(3, 4));
  const Tensor src = Tensor::From({9, 8, 7, 6});
  EXPECT_THAT(Values(x.MaskedScatter(columns, src)), ElementsAre(9, 1, 8, 7, 4, 6));
  EXPECT_THAT(Values(x.MaskedScatter(rows, src)), ElementsAre(0, 1, 2, 9, 8, 7));
  EXPECT_THAT(Values(x.MaskedScatter(Tensor::Scalar(true), src)), ElementsAre(9, 8, 7, 6, 0, 0));
  EXPECT_ERROR(x.MaskedSelect(rows.Reshape({2}), 1), "MaskedSelect", "broadcast to i32[2, 3]");
  EXPECT_ERROR(x.MaskedScatter(rows.Unsqueeze(0), src), "MaskedScatter", "bool[1, 2, 1]");
}

}  // namespace
}  // namespace tessera
