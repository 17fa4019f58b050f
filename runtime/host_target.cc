// The host: caches from sysfs, cores from the mask.
#include "runtime/host_target.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "graph/flags.h"
#include "runtime/host_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Size of the data or unified cache of a level as sysfs tells it ("48K"), else what sysconf says.
int64_t CacheBytes(int level, int sysconf_name, int64_t otherwise) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    if (ReadLine(dir + "level") != absl::StrCat(level)) continue;
    if (ReadLine(dir + "type") == "Instruction") continue;
    std::string size = ReadLine(dir + "size");
    int64_t unit = 1;
    if (absl::EndsWith(size, "K")) unit = 1 << 10;
    if (absl::EndsWith(size, "M")) unit = 1 << 20;
    if (unit > 1) size.pop_back();
    int64_t count = 0;
    if (absl::SimpleAtoi(size, &count) && count > 0 && count < (1 << 30)) return count * unit;
  }
  const int64_t told = sysconf(sysconf_name);
  return told > 0 ? told : otherwise;
}

// Whole cores that a cgroup's "quota period" grants; a large number where there is no limit.
int QuotaCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  int64_t quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return INT32_MAX;
  return static_cast<int>(std::clamp<int64_t>((quota + period - 1) / period, 1, INT32_MAX));
}

int MaskCores() {
  for (int limit = 1024; limit <= 1 << 16; limit *= 4) {
    std::vector<char> bytes(CPU_ALLOC_SIZE(limit), 0);
    cpu_set_t* set = reinterpret_cast<cpu_set_t*>(bytes.data());
    if (sched_getaffinity(0, bytes.size(), set) == 0) return CPU_COUNT_S(bytes.size(), set);
  }
  return 1;
}

// Of the last cache, what one of our cores may count on: a virtual machine of two cores is told the
// whole chip's, which others use as well (480 MiB, of which 64 were read at 30 GB/s and 256 at 17).
constexpr int64_t kMostOfLastCache = 16 << 20;

// Whether this is one of Intel's, on which products gain from tiles of three vectors (5 to 10 %)
// and from panels asked for 2 KiB before they are read (5 to 10 %), and so do sums from memory (5
// %). AMD's reach 97 % of their peak with neither.
bool IsIntel() {
#if defined(__x86_64__)
  uint32_t most, b, c, d;
  __cpuid(0, most, b, c, d);
  return b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
#else
  return false;
#endif
}

Target DetectHost() {
  Target target;
  const std::vector<absl::string_view> names = HostFeatures();
  auto has = [&](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  target.dialect = Dialect::kCpp;
  target.arch = ArchOf(names);
  target.features = absl::StrJoin(names, ",", [](std::string* out, absl::string_view name) {
    absl::StrAppend(out, "+", name);
  });
  const bool wide = target.arch == "x86-64-v4";
  target.vector_bytes = wide ? 64 : has("avx2") ? 32 : 16;
  target.vector_registers = wide ? 32 : 16;
#if defined(__aarch64__)
  target.vector_registers = 32;
#endif
  if (IsIntel()) {
    target.stream_ahead = 2048;
    if (target.vector_registers >= 32) target.tile_vectors = 3;
  }
  target.cores = CountCores();
  target.max_grid = INT64_MAX;  // its points are iterations of a loop
  target.l1_bytes = CacheBytes(1, _SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  target.l2_bytes = CacheBytes(2, _SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  const int64_t own = target.l2_bytes * target.cores;
  target.cache_bytes = std::min(CacheBytes(3, _SC_LEVEL3_CACHE_SIZE, own),
                                std::max(kMostOfLastCache * target.cores, own));
  return target;
}

}  // namespace

const Target& HostTarget() {
  static const Target* const target = new Target(DetectHost());
  return *target;
}

int CountCores() {
  int cores = std::max(1, std::min(MaskCores(), QuotaCores()));
  const int64_t limit = IntFlag(Flag::kCores);
  if (limit > 0 && limit < cores) cores = static_cast<int>(limit);
  return cores;
}

}  // namespace tessera
