// Target::Key tells apart all chips that would get different code.
#include "graph/target.h"

#include <algorithm>
#include <string>

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
  for (const char* arch : {"sm_80", "sm_90a", "sm_90", "compute_90", "sm_120"}) {
    const auto of_warps = [&](int64_t warps) {
      const auto& mma = of(arch).mma;
      return std::count_if(mma.begin(), mma.end(), [&](auto& m) { return m.warps == warps; });
    };
    EXPECT_EQ(of_warps(1), 3) << arch;
    EXPECT_EQ(of_warps(4), std::string(arch).rfind("sm_90", 0) == 0 ? 2 : 0) << arch;
    EXPECT_TRUE(of(arch).fetches);
    const SetFlagForTest tf32(Flag::kTf32, "1");
    EXPECT_EQ(of_warps(1), 4);
    EXPECT_EQ(of(arch).mma.back().steps(), 8);
  }
  Target without = of("sm_90"), with = without;
  without.mma.clear();
  EXPECT_NE(with.Key(), without.Key());
}

}  // namespace
}  // namespace tessera
