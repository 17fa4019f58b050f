// Planted faults: the fuzz test of random graphs finds every one of the table.
//
// Each runs GraphFuzz.ManySlow, or LoopFuzz.Few for one of loops, as it is, in a process of its own
// with FAULT set; without a fault, the same seeds find nothing, or that test fails. What was found
// and by what is printed.
#include <unistd.h>

#include <climits>
#include <iostream>
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

// This binary with a fault planted and a filter on its tests, for a CPU without those features.
ChildResult RunWithFault(const std::string& fault, const std::string& filter,
                         const std::string& without = "") {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return {};
  std::vector<std::string> command = {"/usr/bin/env", absl::StrCat("FAULT=", fault)};
  if (!without.empty()) command.push_back(absl::StrCat("CPU_FEATURES=", without));
  command.insert(command.end(), {self, absl::StrCat("--gtest_filter=", filter)});
  const auto ran = RunChild(command, /*input=*/"", /*seconds=*/300);
  return ran.ok() ? *ran : ChildResult{-1, ran.status().ToString()};
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
  const ChildResult o = RunWithFault(name, fuzzer, narrow ? "-avx512f,-avx2" : "");
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
