// What looks along a whole axis that is sharded: the same values, for no more bytes than moving the
// axis together once.
#include <functional>

#include "graph/flags.h"
#include "graph/least_bytes.h"
#include "graph/moved_bytes.h"
#include "graph/shard_map.h"
#include "runtime/mesh.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Make = std::function<std::vector<Tensor>(const Tensor&)>;

Tensor Drawn(const Dims& shape) {
  Tensor::ManualSeed(5);
  return Tensor::RandInt(-50, 50, shape).Cast(kFloat32).To("CPU").Realize();
}

std::vector<UOp> NodesOf(const std::vector<Tensor>& tensors) {
  std::vector<UOp> out;
  for (const Tensor& t : tensors) out.push_back(t.uop());
  return out;
}

// Bytes that the results of f move; their values are those of one place.
int64_t Moved(const Tensor& x, const Sharding& on, const Make& f) {
  Tensor s = x.Shard(on);
  s.Realize();
  const int64_t before = GetRuntimeStats().bytes_moved;
  std::vector<Tensor> got = f(s), want = f(x);
  EXPECT_LE(*LeastBytes(NodesOf(got)), MovedBytes(NodesOf(got)));
  Tensor::Realize(absl::MakeSpan(got));
  const int64_t moved = GetRuntimeStats().bytes_moved - before;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].ToVector<double>(), want[i].ToVector<double>()) << i;
    EXPECT_TRUE(got[i].device().is_sharding());
  }
  return moved;
}

std::vector<Tensor> Both(const ValuesAndIndices& pair) { return {pair.values, pair.indices}; }
std::vector<Tensor> Sorted(const Tensor& t) { return Both(t.Sort(-1)); }
std::vector<Tensor> Searched(const Tensor& t) {
  return {t.SearchSorted(Tensor::Arange(-10, 10, 3).Cast(kFloat32).To(t.device()))};
}

TEST(ShardedAlong, RowsStayWhereTheyAre) {
  for (int64_t n : {200, 1000}) {
    EXPECT_EQ(Moved(Drawn({8, n}), Line(4), Sorted), 0) << n;
    EXPECT_EQ(Moved(Drawn({8, n}), Line(3), Sorted), 0) << n;  // uneven
  }
}

// A vector is gathered once: 3 of 4 places lack each element.
TEST(ShardedAlong, VectorsAreGatheredOnce) {
  for (int64_t n : {200, 1000}) {
    const int64_t gathered = 3 * n * 4;
    EXPECT_EQ(Moved(Drawn({n}), Line(4), Sorted), gathered) << n;
    EXPECT_EQ(Moved(Drawn({n}), Line(4), [](const Tensor& t) { return Both(t.TopK(100)); }),
              gathered);
    EXPECT_LE(Moved(Drawn({n}), Line(4), [](const Tensor& t) { return Both(t.Median()); }),
              gathered);
    EXPECT_LE(Moved(Drawn({n}), Line(4),
                    [](const Tensor& t) { return std::vector<Tensor>{t.CumSum(0)}; }),
              gathered);
  }
}

// To the other axis, and values and positions back: a quarter of the elements stays.
TEST(ShardedAlong, MatricesGoToTheOtherAxis) {
  const Sharding columns(Line(4).devices(), 1);
  const int64_t n = 8 * 1000, quarter = n / 4;
  EXPECT_EQ(Moved(Drawn({8, 1000}), columns, Sorted), 3 * 3 * quarter * 4);
  EXPECT_LE(Moved(Drawn({8, 1000}), columns, [](const Tensor& t) { return Both(t.Median()); }),
            3 * quarter * 4);
  // Fewer rows than places.
  EXPECT_EQ(Moved(Drawn({2, 1000}), columns, Sorted), 3 * 2000 * 4);
}

// Of few elements the reductions that find them, of many a long axis stays as it is.
TEST(ShardedAlong, WhatMovesLittleAsItIsStays) {
  const Tensor x = Drawn({16384});
  EXPECT_LT(Moved(x, Line(4), [](const Tensor& t) { return Both(t.TopK(4)); }), 1000);
  EXPECT_LT(Moved(x, Line(4), [](const Tensor& t) { return Both(t.Median()); }), 4000);
  EXPECT_LT(Moved(x, Line(4), [](const Tensor& t) { return std::vector<Tensor>{t.CumSum(0)}; }),
            1000);
  EXPECT_LT(Moved(x.Sort().values, Line(4), Searched), 1000);
  EXPECT_EQ(Moved(Drawn({80}).Sort().values, Line(4),
                  [](const Tensor& t) {
                    const Tensor v = Tensor::Arange(500).Cast(kFloat32).To(t.device());
                    return std::vector<Tensor>{t.SearchSorted(v)};
                  }),
            3 * 80 * 4);
}

TEST(ShardedAlong, ResultsLieAsTheSourceDoes) {
  const Sharding columns(Line(4).devices(), 1);
  const Tensor x = Drawn({8, 30}).Shard(columns);
  EXPECT_EQ(x.Sort().values.device(), x.device());
  EXPECT_EQ(x.ArgSort(-1, true).device(), x.device());
  EXPECT_EQ(x.TopK(7).indices.device(), x.device());
  EXPECT_EQ(x.CumSum(1).device(), x.device());
  const Sharding sizes(Line(2).devices(), 0, Layout::Sizes({1, 9}));
  const Tensor y = Drawn({10}).Shard(sizes);
  EXPECT_EQ(y.Sort().values.device(), Device(sizes));
  EXPECT_EQ(y.TopK(3).values.device(), Device(Line(2)));
}

TEST(ShardedAlong, StrictModeNamesTheAxis) {
  const Tensor x = Drawn({8, 30}).Shard(Sharding(Line(4).devices(), 1)).Realize();
  const SetFlagForTest strict(Flag::kStrict, "1");
  EXPECT_THAT(ErrorOf([&] { x.Sort(); }),
              AllOf(StartsWith("Sort: axis 1, which is sharded, is looked along"),
                    HasSubstr("STRICT=1 forbids implicit moves")));
  EXPECT_OK(RealizeNodes({x.Sort(0).values.uop()}, {}));
}

TEST(ShardedAlong, InsidePerPlacePrograms) {
  const Tensor x = Drawn({8, 30}), s = x.Shard(Line(4));
  const Tensor y = ShardMap(
      {0}, {{Placement::Shard(0)}},
      [](const std::vector<Tensor>& own) {
        return std::vector<Tensor>{own[0].Sort(-1).values + own[0].CumSum(-1) + own[0].ZerosLike()};
      },
      {s})[0];
  EXPECT_EQ(y.ToVector<float>(), (x.Sort(-1).values + x.CumSum(-1)).ToVector<float>());
}

}  // namespace
}  // namespace tessera
