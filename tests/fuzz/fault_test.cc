// Planted faults: the fuzz test of random graphs finds every one of the table.
//
// Each runs GraphFuzz.ManySlow, as it is, in a process of its own with FAULT set; without a fault,
// the same seeds find nothing, or that test fails. What was found and by what is printed.
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <iostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "runtime/host_target.h"
#include "tests/testing.h"

namespace tessera {
namespace {

struct Outcome {
  int exit = -1;
  std::string out;  // and what it printed as errors
};

// This binary with a fault planted and a filter on its tests.
Outcome RunWithFault(const std::string& fault, const std::string& filter) {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return {};
  const std::string command =
      absl::StrCat("FAULT=", fault, " '", self, "' --gtest_filter=", filter, " 2>&1");
  Outcome o;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return o;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) o.out.append(buffer, n);
  o.exit = WEXITSTATUS(pclose(pipe));
  return o;
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
  const Outcome o = RunWithFault("NoSuchFault", "GraphFuzz.Few");
  EXPECT_EQ(o.exit, 2);
  EXPECT_THAT(o.out, testing::HasSubstr("FAULT=NoSuchFault is none of"));
  EXPECT_THAT(o.out, testing::HasSubstr("ZeroTimesFloat"));
}

class EveryFault : public testing::TestWithParam<FaultInfo> {};

TEST_P(EveryFault, IsFoundSlow) {
  const std::string name = GetParam().name;
  if (name == "SecondStepSums" || name == "LastChunkLost") {
    if (HostTarget().cores < 2) GTEST_SKIP() << "one core shares nothing";
  }
  const Outcome o = RunWithFault(name, "GraphFuzz.ManySlow");
  EXPECT_NE(o.exit, 0);
  EXPECT_THAT(o.out, testing::HasSubstr(absl::StrCat("FAULT=", name, " is planted")));
  std::string found = LineWith(o.out, absl::StrCat("FAULT=", name, " found by"));
  if (found.empty()) found = LineWith(o.out, "fuzz: signal");  // a CHECK, or worse
  EXPECT_FALSE(found.empty()) << GetParam().meaning << "\n" << o.out;
  std::cout << found << "\n";
}

INSTANTIATE_TEST_SUITE_P(, EveryFault, testing::ValuesIn(AllFaults()),
                         [](const testing::TestParamInfo<FaultInfo>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace tessera
