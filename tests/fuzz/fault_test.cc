// Planted faults: the fuzz test of random graphs finds every one of the table.
//
// Each runs GraphFuzz.ManySlow, or LoopFuzz.Few for one of loops, as it is, in a process of its own
// with FAULT set, after the one graph that is likely to show it; without a fault, the same seeds
// find nothing, or that test fails. What was found and by what is printed.
#include <unistd.h>

#include <climits>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "runtime/child_process.h"
#include "runtime/host_target.h"
#include "tests/testing.h"

namespace tessera {

// In the names of tests.
void PrintTo(const FaultInfo& fault, std::ostream* out) { *out << fault.name; }

namespace {

// This binary with a fault planted and a filter on its tests, for a CPU without those features; of
// GraphFuzz's graphs that of the seed alone, if there is one.
ChildResult RunWithFault(const std::string& fault, const std::string& filter,
                         const std::string& without = "", const std::string& seed = "") {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return {};
  std::vector<std::string> command = {"/usr/bin/env", absl::StrCat("FAULT=", fault)};
  if (!without.empty()) command.push_back(absl::StrCat("CPU_FEATURES=", without));
  if (!seed.empty()) command.push_back(absl::StrCat("FUZZ_SEED=", seed));
  command.insert(command.end(), {self, absl::StrCat("--gtest_filter=", filter)});
  const auto ran = RunChild(command, /*input=*/"", /*seconds=*/300);
  return ran.ok() ? *ran : ChildResult{-1, ran.status().ToString()};
}

// Where a chip with AVX2 found what the first sixty graphs do not show; others may find it
// elsewhere.
std::string LikelySeed(const std::string& fault) {
  static const std::map<std::string, std::string>& seeds = *new std::map<std::string, std::string>{
      {"CastBounds", "2514"},          {"DilationIgnored", "1579"},
      {"FlipOneAxis", "1066"},         {"FloatPlusZero", "1232"},
      {"FloorDivTruncates", "1580"},   {"FreedEarly", "1140"},
      {"JoinDespitePath", "1132"},     {"JoinTransposed", "2056"},
      {"KernelTargetIgnored", "1197"}, {"LanesShareScratch", "2256"},
      {"LastChunkLost", "1121"},       {"MaxStartsAtZero", "1410"},
      {"ModuloOffByOne", "1320"},      {"MoveInPlace", "1201"},
      {"NarrowCastMerged", "1561"},    {"OldVersionNotCopied", "1132"},
      {"OverwrittenInPlace", "1102"},  {"PermuteInverted", "1078"},
      {"PlainCast", "1291"},           {"RangesNotSeparated", "1743"},
      {"ReaderEdgeLost", "1132"},      {"RemainderOfVariable", "1350"},
      {"RoundingSkipped", "1139"},     {"ScratchOverlaps", "1320"},
      {"SecondStepSums", "1073"},      {"WhereBounds", "1113"},
      {"WrapIgnored", "2276"},         {"ZeroTimesFloat", "1265"}};
  const auto at = seeds.find(fault);
  return at == seeds.end() ? "" : at->second;
}

// The line that has this part, or nothing.
std::string LineWith(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "";
  return text.substr(at, text.find('\n', at) - at);
}

TEST(Faults, AreManyAndDistinct) {
  EXPECT_GE(AllFaults().size(), 20u);
  std::set<std::string> names, meanings;
  for (const FaultInfo& f : AllFaults()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_TRUE(meanings.insert(f.meaning).second) << f.name;
  }
}

TEST(Faults, ANameThatIsNotInTheTableEndsTheProcess) {
  const ChildResult o = RunWithFault("NoSuchFault", "GraphFuzz.Few");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.output, testing::HasSubstr("FAULT=NoSuchFault is none of"));
  EXPECT_THAT(o.output, testing::HasSubstr("ZeroTimesFloat"));
}

class EveryFault : public testing::TestWithParam<FaultInfo> {};

TEST_P(EveryFault, IsFoundSlow) {
  const std::string name = GetParam().name;
  if (name == "SecondStepSums" || name == "LastChunkLost") {
    if (HostTarget().cores < 2) GTEST_SKIP() << "one core shares nothing";
  }
  // Rows that a vector holds are kept in no scratch: of wide ones all that are short enough.
  const bool narrow = name == "LanesShareScratch" && HostTarget().vector_bytes > 32;
  const char* fuzzer = name == "TurnTakesFirst" ? "LoopFuzz.Few" : "GraphFuzz.ManySlow";
  const std::string without = narrow ? "-avx512f,-avx2" : "", seed = LikelySeed(name);
  ChildResult o;
  if (!seed.empty()) o = RunWithFault(name, fuzzer, without, seed);
  if (o.exit_code == 0 || seed.empty()) o = RunWithFault(name, fuzzer, without);
  EXPECT_NE(o.exit_code, 0);
  EXPECT_THAT(o.output, testing::HasSubstr(absl::StrCat("FAULT=", name, " is planted")));
  std::string found = LineWith(o.output, absl::StrCat("FAULT=", name, " found by"));
  if (found.empty()) found = LineWith(o.output, "fuzz: signal");  // a CHECK, or worse
  EXPECT_FALSE(found.empty()) << GetParam().meaning << "\n" << o.output;
  std::cout << found << "\n";
}

INSTANTIATE_TEST_SUITE_P(, EveryFault, testing::ValuesIn(AllFaults()),
                         [](const testing::TestParamInfo<FaultInfo>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace tessera
