// Detection of the host: cpuid and xgetbv bits by a table, caches from sysfs, cores from the mask.
#include "runtime/host_target.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "graph/flags.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera {
namespace {

#if defined(__x86_64__)

// Register state that the system must save before a feature may be used.
enum State : uint8_t { kNone, kYmm, kZmm, kTile };

enum Register : uint8_t { kEax, kEbx, kEcx, kEdx };

struct Feature {
  const char* name;  // as Clang spells it
  uint32_t leaf;
  uint32_t subleaf;
  Register reg;
  uint8_t bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"sse2", 1, 0, kEdx, 26, kNone},
    {"sse3", 1, 0, kEcx, 0, kNone},
    {"pclmul", 1, 0, kEcx, 1, kNone},
    {"ssse3", 1, 0, kEcx, 9, kNone},
    {"fma", 1, 0, kEcx, 12, kYmm},
    {"cx16", 1, 0, kEcx, 13, kNone},
    {"sse4.1", 1, 0, kEcx, 19, kNone},
    {"sse4.2", 1, 0, kEcx, 20, kNone},
    {"movbe", 1, 0, kEcx, 22, kNone},
    {"popcnt", 1, 0, kEcx, 23, kNone},
    {"aes", 1, 0, kEcx, 25, kNone},
    {"avx", 1, 0, kEcx, 28, kYmm},
    {"f16c", 1, 0, kEcx, 29, kYmm},
    {"bmi", 7, 0, kEbx, 3, kNone},
    {"avx2", 7, 0, kEbx, 5, kYmm},
    {"bmi2", 7, 0, kEbx, 8, kNone},
    {"avx512f", 7, 0, kEbx, 16, kZmm},
    {"avx512dq", 7, 0, kEbx, 17, kZmm},
    {"adx", 7, 0, kEbx, 19, kNone},
    {"avx512ifma", 7, 0, kEbx, 21, kZmm},
    {"avx512cd", 7, 0, kEbx, 28, kZmm},
    {"sha", 7, 0, kEbx, 29, kNone},
    {"avx512bw", 7, 0, kEbx, 30, kZmm},
    {"avx512vl", 7, 0, kEbx, 31, kZmm},
    {"avx512vbmi", 7, 0, kEcx, 1, kZmm},
    {"avx512vbmi2", 7, 0, kEcx, 6, kZmm},
    {"gfni", 7, 0, kEcx, 8, kNone},
    {"vaes", 7, 0, kEcx, 9, kYmm},
    {"vpclmulqdq", 7, 0, kEcx, 10, kYmm},
    {"avx512vnni", 7, 0, kEcx, 11, kZmm},
    {"avx512bitalg", 7, 0, kEcx, 12, kZmm},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kZmm},
    {"avx512fp16", 7, 0, kEdx, 23, kZmm},
    {"amx-bf16", 7, 0, kEdx, 22, kTile},
    {"amx-tile", 7, 0, kEdx, 24, kTile},
    {"amx-int8", 7, 0, kEdx, 25, kTile},
    {"avxvnni", 7, 1, kEax, 4, kYmm},
    {"avx512bf16", 7, 1, kEax, 5, kZmm},
    {"sahf", 0x80000001, 0, kEcx, 0, kNone},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNone},
    {"prfchw", 0x80000001, 0, kEcx, 8, kNone},
};

// The levels of the x86-64 psABI, highest first, with the features that each needs over the next.
struct Level {
  const char* arch;
  std::vector<absl::string_view> needs;
};

// Asks the kernel for AMX tile state; it is granted to the whole process, later threads included.
bool RequestTileState() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

// The registers of one cpuid leaf; zeros where the CPU has no such leaf.
struct Leaf {
  uint32_t leaf;
  uint32_t subleaf;
  uint32_t regs[4];
};

// Each leaf is read once: under a hypervisor every cpuid is an exit.
std::array<Leaf, 4> ReadLeaves() {
  std::array<Leaf, 4> leaves = {Leaf{1, 0, {}}, Leaf{7, 0, {}}, Leaf{7, 1, {}},
                                Leaf{0x80000001, 0, {}}};
  for (Leaf& leaf : leaves) {
    uint32_t* r = leaf.regs;
    if (__get_cpuid_max(leaf.leaf & 0x80000000u, nullptr) < leaf.leaf) continue;
    if (leaf.subleaf > 0 && leaves[1].regs[kEax] < leaf.subleaf) continue;  // leaf 7 counts them
    __cpuid_count(leaf.leaf, leaf.subleaf, r[0], r[1], r[2], r[3]);
  }
  return leaves;
}

bool CpuHas(const Feature& feature) {
  static const std::array<Leaf, 4> leaves = ReadLeaves();
  for (const Leaf& leaf : leaves) {
    if (leaf.leaf == feature.leaf && leaf.subleaf == feature.subleaf) {
      return (leaf.regs[feature.reg] >> feature.bit & 1) != 0;
    }
  }
  return false;
}

// Bits of XCR0: which register states the system saves.
uint64_t SavedStates() {
  constexpr Feature kOsxsave = {"osxsave", 1, 0, kEcx, 27, kNone};
  if (!CpuHas(kOsxsave)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

// Whether a CPU without `base` cannot have this one.
bool IsBuiltOn(const Feature& feature, absl::string_view base) {
  if (base == "amx-tile") return feature.state == kTile;
  if (base == "avx512f") return feature.state == kZmm;
  if (base == "avx2") return feature.state == kZmm || feature.name == absl::string_view("avxvnni");
  if (base == "avx") return feature.state == kYmm || feature.state == kZmm;
  if (base != "avx512bw") return false;
  for (const char* wide :
       {"avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512bf16", "avx512fp16"}) {
    if (feature.name == absl::string_view(wide)) return true;
  }
  return false;
}

std::vector<absl::string_view> FeatureNames() {
  const uint64_t saved = SavedStates();
  auto all = [saved](uint64_t bits) { return (saved & bits) == bits; };
  bool usable[4] = {true, all(0x6), all(0xe6), all(0x60000)};
  usable[kTile] = usable[kTile] && RequestTileState();
  std::vector<absl::string_view> names;
  for (const Feature& feature : kFeatures) {
    if (usable[feature.state] && CpuHas(feature)) names.push_back(feature.name);
  }
  std::string ignored;
  names = AdjustFeatures(std::move(names), TextFlag(Flag::kCpuFeatures), ignored);
  if (!ignored.empty()) std::fprintf(stderr, "tessera: CPU_FEATURES: %s\n", ignored.c_str());
  return names;
}

std::string ArchOf(const std::vector<absl::string_view>& have) {
  const Level levels[] = {
      {"x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
      {"x86-64-v3", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}},
      {"x86-64-v2", {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}},
  };
  const char* best = "x86-64";
  for (int i = 2; i >= 0; --i) {
    for (absl::string_view need : levels[i].needs) {
      if (std::find(have.begin(), have.end(), need) == have.end()) return best;
    }
    best = levels[i].arch;
  }
  return best;
}

#else

std::vector<absl::string_view> FeatureNames() { return {}; }
std::string ArchOf(const std::vector<absl::string_view>&) { return "generic"; }

#endif

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
  const std::vector<absl::string_view> names = FeatureNames();
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

#if defined(__x86_64__)

std::vector<absl::string_view> AdjustFeatures(std::vector<absl::string_view> names,
                                              absl::string_view wanted, std::string& ignored) {
  for (const absl::string_view each : absl::StrSplit(wanted, ',', absl::SkipEmpty())) {
    const absl::string_view name = each.substr(1);
    const auto* known = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                     [&](const Feature& f) { return name == f.name; });
    if (known == std::end(kFeatures) || (each[0] != '+' && each[0] != '-')) {
      absl::StrAppend(&ignored, ignored.empty() ? "" : ", ", "'", each, "'");
      continue;
    }
    const auto goes = [&](absl::string_view has) {
      const auto* of = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                    [&](const Feature& f) { return has == f.name; });
      return has == name || (each[0] == '-' && IsBuiltOn(*of, name));
    };
    names.erase(std::remove_if(names.begin(), names.end(), goes), names.end());
    if (each[0] == '+') names.push_back(known->name);
  }
  if (!ignored.empty()) {
    const auto add = [](std::string* out, const Feature& f) { out->append(f.name); };
    absl::StrAppend(&ignored,
                    " is ignored; write +name or -name, of: ", absl::StrJoin(kFeatures, " ", add));
  }
  return names;
}

#else

std::vector<absl::string_view> AdjustFeatures(std::vector<absl::string_view> names,
                                              absl::string_view wanted, std::string& ignored) {
  if (!wanted.empty()) ignored = "is for x86-64 alone";
  return names;
}

#endif

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
