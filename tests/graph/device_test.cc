// Meshes, placements, shardings: what they are made of, how they print, and what cannot be one.
#include "graph/device.h"

#include "graph/box.h"
#include "graph/error.h"
#include "graph/infer.h"
#include "graph/infer_device.h"
#include "graph/uop.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::vector<Place> Cpus(int n) {
  std::vector<Place> out;
  for (int i = 0; i < n; ++i) out.emplace_back("CPU", i);
  return out;
}

TEST(Mesh, Golden) {
  // All-sum-reduce of 2x3x2 over dims {0, 2}.
  const Mesh grid(Cpus(12), {{2, "a"}, {3, "b"}, {2, "c"}});
  EXPECT_EQ(grid.Groups({{0, 2}}),
            (std::vector<std::vector<int>>{{0, 1, 6, 7}, {2, 3, 8, 9}, {4, 5, 10, 11}}));
  EXPECT_EQ(grid.Groups({}).size(), 12u);
  const Mesh tree = Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:2", "CPU:4"}}, {"dp", "tp"});
  EXPECT_EQ(tree.ToString(), "CPU:1,3,2,4[dp=2,tp=2]");
  EXPECT_EQ(tree.Slice(0, 1).ToString(), "CPU:2,4[tp=2]");
  EXPECT_EQ(tree.dim("tp"), 1);
}

TEST(Mesh, CoordinatesNeighboursAndParts) {
  const Mesh grid(Cpus(6), {{2}, {3}});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(grid.IndexAt(grid.Coordinates(i)), i);
  EXPECT_EQ(grid.Neighbours(4, 1), (std::pair{3, 5}));
  EXPECT_EQ(grid.Neighbours(4, 0), (std::pair{1, -1}));
  EXPECT_EQ(grid.CoordinateOver(5, {1}), 2);
  EXPECT_EQ(grid.Slice(1, 2).places(), (std::vector<Place>{{"CPU", 2}, {"CPU", 5}}));
  EXPECT_EQ(grid.Select({{"CPU", 4}, {"CPU", 0}}).ToString(), "CPU:4,0");
  EXPECT_EQ((Mesh(Cpus(2)) | Mesh({"CPU:1", "CPU:7"})).ToString(), "CPU:0-1,7");
  EXPECT_EQ(grid.Reshape({{3, "x"}, {2}}).ToString(), "CPU:0-5[x=3,2]");
  EXPECT_EQ(Mesh(Cpus(6)), Mesh({"CPU", "CPU:1", "CPU:2", "CPU:3", "CPU:4", "CPU:5"}));
  EXPECT_TRUE(Mesh({"CPU:1", "CPU"}).SamePlaces(Mesh(Cpus(2))));
  EXPECT_FALSE(Mesh({"CPU:1", "CPU"}) == Mesh(Cpus(2)));
}

TEST(Mesh, WhatIsNone) {
  EXPECT_THAT(ErrorOf([] { Mesh({"CPU:0", "CPU"}); }), HasSubstr("CPU is repeated"));
  EXPECT_THAT(ErrorOf([] { Mesh({"CPU:0", "NULL:1"}); }), HasSubstr("of different kinds"));
  EXPECT_THAT(ErrorOf([] { Mesh({"TPU:0"}); }), HasSubstr("no kind of device 'TPU'"));
  EXPECT_THAT(ErrorOf([] { Mesh(std::vector<Place>()); }), HasSubstr("at least one place"));
  EXPECT_THAT(ErrorOf([] {
                Mesh(Cpus(4), {{2}, {3}});
              }),
              HasSubstr("6 places in all do not fit 4"));
  EXPECT_THAT(ErrorOf([] { Mesh(Cpus(4), {{2, "a"}, {2, "a"}}); }), HasSubstr("are named a"));
  EXPECT_THAT(ErrorOf([] {
                Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:3", "CPU:4"}});
              }),
              HasSubstr("CPU:3 is repeated"));
  EXPECT_THAT(ErrorOf([] {
                Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:4"}});
              }),
              HasSubstr("2 and 1 children"));
  EXPECT_THAT(ErrorOf([] { Mesh(Cpus(2)).dim("dp"); }), HasSubstr("no dim named 'dp'"));
  EXPECT_THAT(ErrorOf([] { Mesh(Cpus(2)).Select({{"CPU", 7}}); }), HasSubstr("no place of"));
}

TEST(Mesh, WhatItDoesNotHave) {
  const Mesh grid(Cpus(4), {{2, "a"}, {2, "b"}});
  EXPECT_THAT(ErrorOf([&] { grid.DimName(9); }), HasSubstr("there is no dim 9"));
  EXPECT_THAT(ErrorOf([&] { grid.DimName(-1); }), HasSubstr("there is no dim -1"));
  EXPECT_THAT(ErrorOf([&] { grid.Coordinates(4); }), HasSubstr("there is no place 4"));
  EXPECT_THAT(ErrorOf([&] { grid.Coordinates(-1); }), HasSubstr("there is no place -1"));
  EXPECT_THAT(ErrorOf([&] { grid.IndexAt({1}); }), HasSubstr("1 coordinates for the 2 dims"));
  EXPECT_THAT(ErrorOf([&] { grid.IndexAt({1, 2}); }), HasSubstr("no coordinate 2 along dim b"));
  EXPECT_EQ(grid.IndexAt(grid.Coordinates(3)), 3);
}

TEST(Device, PrintsShortAndReadsBack) {
  const Mesh grid(Cpus(4), {{2, "dp"}, {2}});
  const std::vector<Device> devices = {
      Device(),
      Place("CPU", 0),
      Place("CUDA", 3),
      Sharding(Cpus(2), 0),
      Sharding(Cpus(1)),
      Sharding(PlaceList{"SIM:5", "SIM:1"}, 2, Layout::Sizes({3, 4})),
      Sharding(grid, {Placement::Shard(1, Layout::Aligned(4)), Placement::Partial(Op::kMax)}),
      Sharding(grid, {Placement::Manual(), Placement::Shard(0, Layout::Clip({}, 8, 1, 6))})};
  for (const Device& d : devices) EXPECT_THAT(Device::Parse(d.ToString()), IsOkAndHolds(d));
  EXPECT_EQ(devices[3].ToString(), "CPU:0-1{S0}");
  EXPECT_EQ(devices[6].ToString(), "CPU:0-3[dp=2,2]{S1:aligned(4),P:MAX}");
  EXPECT_EQ(
      Describe(kFloat32, {8, 4}, Sharding(Mesh({"CUDA:0", "CUDA:1"}, "dp"), {Placement::Shard(0)})),
      "f32[8/2@dp, 4] on CUDA:0-1[dp=2]");
  EXPECT_EQ(Describe(kFloat32, {8, 4}, Sharding(Cpus(2), 0)), "f32[8/2, 4] on CPU:0-1");
  EXPECT_EQ(Describe(kFloat32, {8, 4}, devices[6]),
            "f32[8, 4/2@dp:aligned(4)] on CPU:0-3[dp=2,2]{P:MAX@1}");
  for (const char* bad : {"", "CPU:0-1{S0", "CPU:0-1{S}", "CPU:0-1{S0,S1}", "CPU:1-0{R}",
                          "CPU:0,0{R}", "CPU:0-1{P:FOO}", "CPU:0-3[2]{R}", "CPU:0-1{S0:even}"}) {
    EXPECT_FALSE(Device::Parse(bad).ok()) << bad;
  }
}

TEST(Device, IsAskedForWhatItIs) {
  const Device two = Sharding(Cpus(2), 0), one = Place("CPU", 1);
  EXPECT_THAT(ErrorOf([&] { two.place(); }), HasSubstr("CPU:0-1{S0} is not one place; places()"));
  EXPECT_THAT(ErrorOf([] { Device().place(); }), HasSubstr("none is not one place"));
  EXPECT_THAT(ErrorOf([&] { one.sharding(); }), HasSubstr("CPU:1 is not a Sharding"));
}

TEST(Sharding, IsAnInternedValue) {
  const Sharding s(PlaceList{"CPU:0", "CPU:1"}, 0);
  EXPECT_EQ(s, Sharding(Cpus(2), 0));
  EXPECT_FALSE(s == Sharding(Cpus(2), 1));
  EXPECT_EQ(s.size(), 2);
  EXPECT_EQ(s[1], Place("CPU", 1));
  int n = 0;
  for (const Place& p : s) n += p.index();
  EXPECT_EQ(n, 1);
  EXPECT_EQ(Sharding(s.devices()), Sharding(Cpus(2)));
  EXPECT_EQ(s.axis(), 0);
  EXPECT_EQ(Device(s).id(), Device(Sharding(Cpus(2), 0)).id());
  EXPECT_THAT(ErrorOf([&] { s[2]; }), HasSubstr("no place 2; CPU:0-1{S0} has 2"));
  EXPECT_THAT(ErrorOf([&] { s[-1]; }), HasSubstr("no place -1"));
  EXPECT_THAT(ErrorOf([&] { s(1); }), HasSubstr("no dim 1 in CPU:0-1{S0}"));
  EXPECT_THAT(ErrorOf([&] { s(-1); }), HasSubstr("no dim -1"));
  EXPECT_THAT(ErrorOf([] { Sharding(Cpus(2), -1); }), HasSubstr("no axis -1"));
  EXPECT_THAT(ErrorOf([] { Sharding(Mesh(Cpus(2)), {}); }), HasSubstr("each of its 1 dims"));
}

TEST(Sharding, CutsThatAreEqualArePlacementsThatAreEqual) {
  const Sharding balanced(Cpus(4), 0), ceil(Cpus(4), 0, Layout::Ceil());
  EXPECT_TRUE(SamePlacement({8, 3}, balanced, ceil));
  EXPECT_FALSE(SamePlacement({10, 3}, balanced, ceil));
  EXPECT_EQ(CanonicalSharding({8, 3}, ceil), balanced);
  EXPECT_FALSE(CheckPlacement({8}, Sharding(Cpus(2), 1)).ok());
  EXPECT_FALSE(CheckPlacement({8}, Sharding(Cpus(2), 0, Layout::Sizes({3, 4}))).ok());
}

// Every move of random repartitions, element by element.
TEST(Boxes, MovesBringEachElementOnce) {
  const Mesh grid(Cpus(6), {{2}, {3}});
  const auto S = [](int axis, Layout l = {}) { return Placement::Shard(axis, l); };
  const Placement R = Placement::Replicate();
  const std::vector<Device> devices = {Place("CPU", 0),
                                       Place("CPU", 9),
                                       Sharding(Cpus(6), 0),
                                       Sharding(Cpus(4), 1, Layout::Ceil()),
                                       Sharding(grid, {S(0), S(1)}),
                                       Sharding(grid, {S(1), S(1)}),
                                       Sharding(grid, {R, S(0)}),
                                       Sharding(grid, {S(1, Layout::Aligned(2)), R}),
                                       Sharding(Cpus(3)),
                                       Sharding(PlaceList{"CPU:8", "CPU:2", "CPU:5"}, 0)};
  for (const Shape& shape : {Shape{5, 4}, Shape{1, 7}, Shape{0, 3}, Shape{6, 6}}) {
    for (const Device& a : devices) {
      for (const Device& b : devices) {
        const Boxes from = BoxesOf(shape, a), to = BoxesOf(shape, b);
        EXPECT_THAT(Boxes::Parse(from.ToString()), IsOkAndHolds(from));
        int64_t moved = 0;
        for (size_t j = 0; j < b.places().size(); ++j) {
          std::vector<int> seen(shape.MaxElements(), 0);
          for (const Move& m : MovesTo(from, to, static_cast<int>(j))) {
            const Box has = from.At(m.from), want = to.At(static_cast<int>(j));
            for (size_t k = 0; k < m.box.size(); ++k) {
              EXPECT_EQ(Intersect(m.box[k], has[k]), m.box[k]);
              EXPECT_EQ(Intersect(m.box[k], want[k]), m.box[k]);
            }
            for (int64_t r = m.box[0].begin; r < m.box[0].end; ++r) {
              for (int64_t c = m.box[1].begin; c < m.box[1].end; ++c) {
                ++seen[r * shape[1].value() + c];
              }
            }
            if (!(a.places()[m.from] == b.places()[j])) moved += Volume(m.box);
          }
          const Box want = to.At(static_cast<int>(j));
          for (int64_t r = 0; r < shape[0].value(); ++r) {
            for (int64_t c = 0; c < shape[1].value(); ++c) {
              const bool wanted =
                  r >= want[0].begin && r < want[0].end && c >= want[1].begin && c < want[1].end;
              EXPECT_EQ(seen[r * shape[1].value() + c], wanted);
            }
          }
        }
        EXPECT_EQ(moved, MovedElements(from, to)) << a.ToString() << " to " << b.ToString();
      }
    }
  }
}

}  // namespace
}  // namespace tessera
