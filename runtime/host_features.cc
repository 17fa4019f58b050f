// Detection of features: cpuid and xgetbv bits by a table, those of ARM by the system's words.
#include "runtime/host_features.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/flags.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
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

std::vector<absl::string_view> Detected() {
  const uint64_t saved = SavedStates();
  auto all = [saved](uint64_t bits) { return (saved & bits) == bits; };
  bool usable[4] = {true, all(0x6), all(0xe6), all(0x60000)};
  usable[kTile] = usable[kTile] && RequestTileState();
  std::vector<absl::string_view> names;
  for (const Feature& feature : kFeatures) {
    if (usable[feature.state] && CpuHas(feature)) names.push_back(feature.name);
  }
  return names;
}

#else

struct Feature {
  const char* name;  // as Clang spells it
  int word;          // of the auxiliary vector, and the bit of it
  int bit;
};

#if defined(__aarch64__)

// What generated text has a use for.
constexpr Feature kFeatures[] = {{"neon", AT_HWCAP, 1},
                                 {"lse", AT_HWCAP, 8},
                                 {"dotprod", AT_HWCAP, 20},
                                 {"i8mm", AT_HWCAP2, 13}};

std::vector<absl::string_view> Detected() {
  std::vector<absl::string_view> names;
  for (const Feature& feature : kFeatures) {
    if (getauxval(feature.word) >> feature.bit & 1) names.push_back(feature.name);
  }
  return names;
}

#else

constexpr std::array<Feature, 0> kFeatures = {};

std::vector<absl::string_view> Detected() { return {}; }

#endif

// Whether a CPU without `base` cannot have this one.
bool IsBuiltOn(const Feature& feature, absl::string_view base) {
  const bool is_vectors = feature.name != absl::string_view("lse");
  return base == "neon" && is_vectors;
}

#endif

}  // namespace

std::vector<absl::string_view> HostFeatures() {
  std::string ignored;
  std::vector<absl::string_view> names =
      AdjustFeatures(Detected(), TextFlag(Flag::kCpuFeatures), ignored);
  if (!ignored.empty()) std::fprintf(stderr, "tessera: CPU_FEATURES: %s\n", ignored.c_str());
  return names;
}

#if defined(__x86_64__)

std::string ArchOf(const std::vector<absl::string_view>& have) {
  // The levels of the x86-64 psABI, highest first, with the features that each needs over the next.
  struct Level {
    const char* arch;
    std::vector<absl::string_view> needs;
  };
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

std::string ArchOf(const std::vector<absl::string_view>&) { return "generic"; }

#endif

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

}  // namespace tessera
