// tools/spec-check: what it prints, and how it exits.
#include <cstdio>
#include <fstream>

#include "tests/build_paths.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit = -1;
  std::string out;
};

// Runs spec-check on files of these texts, which are named 0.txt, 1.txt, ...
Outcome SpecCheckOn(const std::string& flags, const std::vector<std::string>& texts) {
  std::string command = std::string(kBinDir) + "/spec-check " + flags;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string path = OwnTempDir() + "/spec_check_" + std::to_string(i) + ".txt";
    std::ofstream(path) << texts[i];
    command += " " + path;
  }
  Outcome o;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return o;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) o.out.append(buffer, n);
  o.exit = WEXITSTATUS(pclose(pipe));
  return o;
}

constexpr char kGood[] = "%0 = CONST f32 () 1.0\n";
constexpr char kBad[] = "%0 = CONST f32 () 1.0\n%1 = SHL f32 (%0, %0)\n";

TEST(SpecCheck, AcceptsAndRejects) {
  const Outcome good = SpecCheckOn("", {kGood});
  EXPECT_EQ(good.exit, 0);
  EXPECT_EQ(good.out, "ok\n");
  const Outcome bad = SpecCheckOn("", {kGood, std::string(kGood) + "---\n" + kBad});
  EXPECT_EQ(bad.exit, 1);
  EXPECT_THAT(bad.out,
              HasSubstr("spec_check_1.txt:4: %1 = SHL f32 (%0, %0): operand-class (level 1): "));
  EXPECT_THAT(bad.out, ::testing::Not(HasSubstr("ok\n")));
}

TEST(SpecCheck, SaysOnceWhatAnOpReadsTwice) {
  const std::string out = SpecCheckOn("", {"%1 = ADD f32 (%0, %0)\n"}).out;
  const size_t found = out.find("%0 is not defined");
  ASSERT_NE(found, out.npos) << out;
  EXPECT_EQ(out.find("%0 is not defined", found + 1), out.npos) << out;
}

TEST(SpecCheck, TakesALevelAndAStage) {
  EXPECT_EQ(SpecCheckOn("--level 0", {kBad}).exit, 0);
  EXPECT_EQ(SpecCheckOn("--level 1", {kBad}).exit, 1);
  EXPECT_EQ(SpecCheckOn("--stage kernel", {kGood}).exit, 1);
  EXPECT_EQ(SpecCheckOn("--stage tensor", {kGood}).exit, 0);
}

// A kernel of 64 threads is one of a GPU.
TEST(SpecCheck, TakesTheLimitsOfWhereTheParametersAre) {
  const auto kernel = [](const std::string& device) {
    return "%0 = PARAM f32 () slot 0 [64] @" + device + R"(
%1 = CONST i64 () 64
%2 = RANGE i64 (%1) r0:thread
%3 = INDEX f32 (%0, %2)
%4 = STORE void (%3, %3, %2) 0
%5 = SINK void (%4)
)";
  };
  EXPECT_EQ(SpecCheckOn("", {kernel("SIM:1")}).out, "ok\n");
  EXPECT_EQ(SpecCheckOn("", {kernel("CUDA") + "---\n" + kGood}).out, "ok\n");
  EXPECT_THAT(SpecCheckOn("", {kernel("CUDA") + "---\n" + kernel("CPU")}).out,
              HasSubstr("64 threads of a block; the target takes 1"));
  EXPECT_EQ(SpecCheckOn("--target cpu", {kernel("CUDA")}).exit, 1);
  EXPECT_EQ(SpecCheckOn("--target gpu", {kernel("CPU")}).exit, 0);
  EXPECT_EQ(SpecCheckOn("--target tpu", {kGood}).exit, 2);
}

TEST(SpecCheck, WrongUsageAndUnreadableFilesExitWith2) {
  EXPECT_EQ(SpecCheckOn("", {}).exit, 2);
  EXPECT_EQ(SpecCheckOn("--level 3", {kGood}).exit, 2);
  EXPECT_EQ(SpecCheckOn("--level", {}).exit, 2);
  EXPECT_EQ(SpecCheckOn("--stage loop", {kGood}).exit, 2);
  EXPECT_EQ(SpecCheckOn("--what", {kGood}).exit, 2);
  EXPECT_EQ(SpecCheckOn("/does/not/exist", {kGood}).exit, 2);
  EXPECT_EQ(SpecCheckOn(OwnTempDir(), {kGood}).exit, 2);  // a folder
}

}  // namespace
}  // namespace tessera
