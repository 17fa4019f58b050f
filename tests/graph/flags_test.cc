// The flag table: defaults, off, overrides, broken values, the cache folder.
#include "graph/flags.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "graph/pass.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(Flags, OverrideHoldsUntilItsScopeEnds) {
  const int64_t before = IntFlag(Flag::kStrict);
  {
    SetFlagForTest set(Flag::kStrict, "7");
    EXPECT_EQ(IntFlag(Flag::kStrict), 7);
    {
      SetFlagForTest inner(Flag::kStrict, "8");
      EXPECT_EQ(IntFlag(Flag::kStrict), 8);
    }
    EXPECT_EQ(IntFlag(Flag::kStrict), 7);
  }
  EXPECT_EQ(IntFlag(Flag::kStrict), before);
}

TEST(Flags, ZeroIsOffAndEmptyIsTheDefault) {
  SetFlagForTest spec_off(Flag::kSpec, "0");
  EXPECT_EQ(IntFlag(Flag::kSpec), 0);
  SetFlagForTest spec_unset(Flag::kSpec, "");
  EXPECT_EQ(IntFlag(Flag::kSpec), 1);
  SetFlagForTest dump_off(Flag::kDump, "0");
  EXPECT_EQ(TextFlag(Flag::kDump), "");
  SetFlagForTest dump(Flag::kDump, "out");
  EXPECT_EQ(TextFlag(Flag::kDump), "out");
}

TEST(Flags, BrokenIntegerTakesTheDefault) {
  SetFlagForTest set(Flag::kCache, "yes");
  EXPECT_EQ(IntFlag(Flag::kCache), 1);
}

TEST(Flags, BelowZeroTakesTheDefaultAndSaysSo) {
  testing::internal::CaptureStderr();
  SetFlagForTest cores(Flag::kCores, "-1"), bisect(Flag::kBisect, "-1");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: CORES=-1 is below 0; taking 0\n");
  EXPECT_EQ(IntFlag(Flag::kCores), 0);
  EXPECT_EQ(IntFlag(Flag::kBisect), -1);
}

TEST(Flags, WrongKindIsABug) { EXPECT_DEATH(IntFlag(Flag::kDump), "DUMP"); }

TEST(Flags, CacheFolder) {
  SetFlagForTest set(Flag::kCacheDir, "/some/where");
  EXPECT_EQ(CacheRoot(), "/some/where");
  SetFlagForTest unset(Flag::kCacheDir, "");
  EXPECT_THAT(CacheRoot(), EndsWith("/tessera"));
}

TEST(Flags, HelpListsEveryRow) {
  const std::string help = FlagHelp();
#define EXPECT_LISTED(id, name, kind, default_text, meaning) \
  EXPECT_THAT(help, HasSubstr(name "=" default_text));       \
  EXPECT_THAT(help, HasSubstr(meaning));
  TESSERA_FLAGS(EXPECT_LISTED)
#undef EXPECT_LISTED
}

TEST(Flags, OptionalPassesAreLeftOutByName) {
  const Target target;
  PassRunner passes("test", SpecStage::kTensor, target);
  PassRunner::Roots roots;
  int runs = 0;
  const auto run = [&] {
    return passes.RunOptional(
        "sink_reshapes", roots, [&](const PassRunner::Roots& r) { return ++runs, r; },
        /*check=*/false);
  };
  {
    SetFlagForTest skip(Flag::kSkipPass, "optimise,sink_reshapes");
    EXPECT_OK(run());
    EXPECT_EQ(runs, 0);
  }
  {
    SetFlagForTest skip(Flag::kSkipPass, "sink_reshape");
    EXPECT_THAT(std::string(run().message()),
                HasSubstr("there is no optional pass 'sink_reshape'; there are merge"));
    EXPECT_EQ(runs, 0);
  }
  EXPECT_OK(run());
  EXPECT_EQ(runs, 1);
}

// Of passes that are counted over the process: the first that is left out says which it is.
TEST(Flags, BisectNamesTheFirstThatIsLeftOut) {
  const Target target;
  PassRunner passes("test", SpecStage::kTensor, target);
  PassRunner::Roots roots;
  int runs = 0;
  SetFlagForTest bisect(Flag::kBisect, "1000");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1200; ++i) {
    EXPECT_OK(passes.RunOptional(
        i % 2 == 0 ? "optimise" : "matrix", roots,
        [&](const PassRunner::Roots& r) { return ++runs, r; }, /*check=*/false));
  }
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_LE(runs, 1000);
  EXPECT_THAT(printed,
              HasSubstr(runs % 2 == 0 ? "left out is test.optimise" : "out is test.matrix"));
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
}

TEST(Flags, ThreadsReadWhileOneSets) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 1000; ++k) {
        const std::string text = TextFlag(Flag::kSkipPass);
        EXPECT_TRUE(text.empty() || text == "fuse");
        const int64_t number = IntFlag(Flag::kBisect);
        EXPECT_TRUE(number == -1 || number == 5);
      }
    });
  }
  for (int k = 0; k < 1000; ++k) {
    SetFlagForTest text(Flag::kSkipPass, "fuse");
    SetFlagForTest number(Flag::kBisect, "5");
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera
