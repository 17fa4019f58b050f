// Walks over graphs, and the maps that they keep.
#include "graph/walk.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "tests/testing.h"

namespace tessera {
namespace {

UOp Var(const std::string& name) { return UOp::Make(Op::kVar, kInt64, {}, VarArg{name, 0, 9}); }
UOp Add(const UOp& a, const UOp& b) { return UOp::Make(Op::kAdd, {a, b}); }

TEST(NodeMap, KeepsWhatItWasGivenAsItGrows) {
  std::vector<UOp> nodes;
  for (int i = 0; i < 2000; ++i) nodes.push_back(Var(absl::StrCat("v", i)));
  NodeMap<int> map;
  EXPECT_EQ(map.Find(nodes[0].get()), nullptr);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(map.TryEmplace(nodes[i].get(), i).second);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(map.At(nodes[i].get()), i);
    EXPECT_FALSE(map.TryEmplace(nodes[i].get(), -1).second);
    EXPECT_EQ(*map.Find(nodes[i].get()), i);
    EXPECT_FALSE(map.Contains(nodes[1000 + i].get()));
  }
  *map.TryEmplace(nodes[7].get()).first = 70;
  EXPECT_EQ(map.At(nodes[7].get()), 70);
}

TEST(Walk, SourcesComeFirstAndOnce) {
  const UOp a = Var("a"), b = Var("b"), sum = Add(a, b), twice = Add(sum, sum),
            root = Add(b, twice);
  EXPECT_EQ(TopoSort({&root, 1}), (std::vector<UOp>{b, a, sum, twice, root}));
  const std::vector<UOp> roots = {twice, UOp(), root, a};
  EXPECT_EQ(TopoSort(roots), (std::vector<UOp>{a, b, sum, twice, root}));
}

TEST(Walk, ExtentsComeBeforeTheNodesThatHaveThem) {
  const UOp n = Var("n"), m = Var("m");
  const UOp param =
      UOp::Make(Op::kParam, kFloat32, {}, ParamArg{0, {Extent(n), Extent(Add(n, m))}, Device()});
  const UOp root = UOp::Make(Op::kNeg, {param});
  EXPECT_EQ(TopoSort({&root, 1}), (std::vector<UOp>{param, root}));
  EXPECT_EQ(TopoSort({&root, 1}, /*with_extents=*/true),
            (std::vector<UOp>{n, m, Add(n, m), param, root}));
}

TEST(Walk, StopsAtTheFirstNodeThatIsWanted) {
  const UOp a = Var("a"), b = Var("b"), sum = Add(a, b), root = Add(sum, Add(b, a));
  int looked_at = 0;
  const UOp* found = FindBelow({&root, 1}, [&](const UOp& u) {
    ++looked_at;
    return u.is(Op::kAdd);
  });
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, sum);
  EXPECT_EQ(looked_at, 3);
  EXPECT_EQ(FindBelow({&root, 1}, [](const UOp& u) { return u.is(Op::kMul); }), nullptr);
}

}  // namespace
}  // namespace tessera
