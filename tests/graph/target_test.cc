// Target::Key tells apart all chips that would get different code.
#include "graph/target.h"

#include "graph/flags.h"
#include "tests/testing.h"

namespace tessera {
namespace {

TEST(Target, KeyDependsOnTheChip) {
  Target small, large;
  large.vector_bytes = 64;
  EXPECT_NE(small.Key(), large.Key());
  EXPECT_EQ(small.Key(), Target().Key());
}

TEST(Target, MatrixUnitsAreThoseOfTheArch) {
  const auto of = [](const char* arch) {
    Target t;
    t.arch = arch;
    DescribeMatrixUnits(t);
    return t;
  };
  EXPECT_TRUE(of("sm_75").mma.empty());
  EXPECT_FALSE(of("sm_75").fetches);
  EXPECT_TRUE(of("znver4").mma.empty());
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    EXPECT_EQ(of(arch).mma.size(), 3u) << arch;
    EXPECT_TRUE(of(arch).fetches);
    const SetFlagForTest tf32(Flag::kTf32, "1");
    EXPECT_EQ(of(arch).mma.size(), 4u);
    EXPECT_EQ(of(arch).mma.back().steps(), 8);
  }
  Target without = of("sm_90"), with = without;
  without.mma.clear();
  EXPECT_NE(with.Key(), without.Key());
}

}  // namespace
}  // namespace tessera
