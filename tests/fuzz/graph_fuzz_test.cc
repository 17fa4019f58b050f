// Random graphs: the reference evaluator against scheduler, compiler and CPU.
//
// A failure prints its seed and a graph made as small as possible. FUZZ_SEED=n tries that seed
// alone; FUZZ_GRAPHS=n tries that many. With a FAULT planted, the first failure ends the run and is
// printed as it is.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <random>

#include "graph/flags.h"
#include "runtime/jit.h"
#include "runtime/runtime.h"
#include "tests/fuzz/generator.h"
#include "tests/testing.h"

namespace tessera {
namespace {

volatile uint64_t now_seed = 0;

// The seed is worth more than anything else that a crash may say.
void NameSeed(int signal) {
  char text[64];
  const int n = std::snprintf(text, sizeof(text), "\nfuzz: signal %d at FUZZ_SEED=%llu\n", signal,
                              static_cast<unsigned long long>(now_seed));
  if (write(2, text, n) < 0) _exit(3);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// By what a failure showed itself, for those who planted it.
const char* Kind(const std::string& failure) {
  const auto has = [&](const char* part) { return failure.find(part) != std::string::npos; };
  if (has("spec: ")) return "SPEC";
  return has("root ") ? "values" : has("memory beside") ? "memory" : "an error";
}

// Tries the seeds; gives the number that failed, of which it reports the first few.
int TrySeeds(uint64_t first, int64_t count, Compared& compared) {
  for (int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(s, NameSeed);
  int failures = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    now_seed = seed;
    const FuzzCase c = RandomCase(seed);
    const std::string failure = RunCase(c, &compared);
    if (failure.empty()) continue;
    if (const std::string fault = TextFlag(Flag::kFault); !fault.empty()) {
      ADD_FAILURE() << "FAULT=" << fault << " found by " << Kind(failure) << " in graph "
                    << seed - first + 1 << ", FUZZ_SEED=" << seed << "\n"
                    << failure;
      return 1;
    }
    if (++failures > 5) break;
    const FuzzCase small = Shrink(c, [](const FuzzCase& x) { return !RunCase(x).empty(); });
    ClearPlans();  // so that DEBUG=4 shows its kernels last
    ADD_FAILURE() << "FUZZ_SEED=" << seed << "\n" << ToString(small) << RunCase(small);
  }
  for (int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(s, SIG_DFL);
  return failures;
}

void Report(const Compared& c, std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << "elements: " << c.exact << " exact, " << c.within << " within a bound, " << c.unknown
            << " unknown; kernels run: " << GetRuntimeStats().kernels_run
            << ", compiled: " << GetJitStats().compiles << "; " << took.count() << " s\n";
}

// The seeds that a run tries: as the flags have it, else these.
void Fuzz(uint64_t first, int64_t count) {
  if (IntFlag(Flag::kFuzzSeed) >= 0) {
    first = IntFlag(Flag::kFuzzSeed);
    count = 1;
  }
  if (IntFlag(Flag::kFuzzGraphs) > 0) count = IntFlag(Flag::kFuzzGraphs);
  const auto start = std::chrono::steady_clock::now();
  Compared compared;
  EXPECT_EQ(TrySeeds(first, count, compared), 0);
  Report(compared, start);
  if (count < 50) return;
  // A bound that says nothing tests nothing.
  EXPECT_LT(compared.unknown * 5, compared.exact + compared.within);
  EXPECT_GT(compared.exact, compared.within);
}

TEST(GraphFuzz, Few) { Fuzz(1, 60); }
TEST(GraphFuzz, ManySlow) { Fuzz(1000, 2000); }
TEST(GraphFuzz, FreshSeedsLong) {
  const uint64_t seed = uint64_t{std::random_device()()} << 16;
  std::cout << "from FUZZ_SEED=" << seed << "\n";
  Fuzz(seed, 50000);
}

}  // namespace
}  // namespace tessera
