// The host target agrees with what the system and the compiler say about this machine.
#include "runtime/host_target.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "graph/flags.h"
#include "runtime/host_features.h"
#include "tests/testing.h"

namespace tessera {
namespace {

TEST(HostTarget, IsSane) {
  const Target& target = HostTarget();
  EXPECT_EQ(target.dialect, Dialect::kCpp);
  EXPECT_GE(target.cores, 1);
  EXPECT_LE(target.cores, std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_GE(target.l1_bytes, 4 << 10);
  EXPECT_LE(target.l1_bytes, 4 << 20);
  EXPECT_GT(target.l2_bytes, target.l1_bytes);
  // A share of the last cache, and not all that a chip of many cores has.
  EXPECT_LE(target.cache_bytes, std::max<int64_t>(16 << 20, target.l2_bytes) * target.cores);
  EXPECT_GE(target.cache_bytes, target.l2_bytes);
  EXPECT_TRUE(target.vector_bytes == 16 || target.vector_bytes == 32 || target.vector_bytes == 64);
  EXPECT_EQ(&target, &HostTarget());
}

TEST(HostTarget, CoresFlagLimits) {
  SetFlagForTest one(Flag::kCores, "1");
  EXPECT_EQ(CountCores(), 1);
  SetFlagForTest many(Flag::kCores, "100000");
  EXPECT_LE(CountCores(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

#if defined(__x86_64__)
// The compiler's run-time support detects features by code of its own.
TEST(HostTarget, FeaturesAgreeWithTheCompiler) {
  const std::vector<std::string> list = absl::StrSplit(HostTarget().features, ',');
  auto has = [&](const char* name) {
    return std::find(list.begin(), list.end(), std::string("+") + name) != list.end();
  };
  __builtin_cpu_init();
#define EXPECT_AGREES(theirs, ours) \
  EXPECT_EQ(__builtin_cpu_supports(theirs) != 0, has(ours)) << ours
  EXPECT_AGREES("sse2", "sse2");
  EXPECT_AGREES("sse3", "sse3");
  EXPECT_AGREES("ssse3", "ssse3");
  EXPECT_AGREES("sse4.1", "sse4.1");
  EXPECT_AGREES("sse4.2", "sse4.2");
  EXPECT_AGREES("popcnt", "popcnt");
  EXPECT_AGREES("aes", "aes");
  EXPECT_AGREES("pclmul", "pclmul");
  EXPECT_AGREES("avx", "avx");
  EXPECT_AGREES("avx2", "avx2");
  EXPECT_AGREES("fma", "fma");
  EXPECT_AGREES("bmi", "bmi");
  EXPECT_AGREES("bmi2", "bmi2");
  EXPECT_AGREES("avx512f", "avx512f");
  EXPECT_AGREES("avx512bw", "avx512bw");
  EXPECT_AGREES("avx512cd", "avx512cd");
  EXPECT_AGREES("avx512dq", "avx512dq");
  EXPECT_AGREES("avx512vl", "avx512vl");
  EXPECT_AGREES("avx512ifma", "avx512ifma");
  EXPECT_AGREES("avx512vbmi", "avx512vbmi");
  EXPECT_AGREES("avx512vbmi2", "avx512vbmi2");
  EXPECT_AGREES("avx512vnni", "avx512vnni");
  EXPECT_AGREES("avx512bitalg", "avx512bitalg");
  EXPECT_AGREES("avx512vpopcntdq", "avx512vpopcntdq");
  EXPECT_AGREES("gfni", "gfni");
  EXPECT_AGREES("vpclmulqdq", "vpclmulqdq");
#undef EXPECT_AGREES
  EXPECT_EQ(
      has("avx512f") && has("avx512bw") && has("avx512cd") && has("avx512dq") && has("avx512vl"),
      HostTarget().arch == "x86-64-v4");
  EXPECT_EQ(HostTarget().vector_bytes == 64, HostTarget().arch == "x86-64-v4");
}
#endif

#if defined(__x86_64__)
TEST(HostTarget, FeaturesByFlag) {
  using Names = std::vector<absl::string_view>;
  const Names have = {"sse2", "avx", "avx2", "avx512f", "avx512bw", "amx-tile", "amx-bf16"};
  const auto adjusted = [&](absl::string_view wanted) {
    std::string ignored;
    const Names names = AdjustFeatures(have, wanted, ignored);
    EXPECT_EQ(ignored, "") << wanted;
    return names;
  };
  EXPECT_EQ(adjusted(""), have);
  EXPECT_EQ(adjusted("-avx512bw,+amx-int8"),
            (Names{"sse2", "avx", "avx2", "avx512f", "amx-tile", "amx-bf16", "amx-int8"}));
  EXPECT_EQ(adjusted("-avx512f"), (Names{"sse2", "avx", "avx2", "amx-tile", "amx-bf16"}));
  EXPECT_EQ(adjusted("-avx,-amx-tile"), (Names{"sse2"}));
  EXPECT_EQ(adjusted("+avx2").size(), have.size());
  for (const absl::string_view wrong : {"+", "-", "avx2", "+nosuch", "++avx2", " +avx2"}) {
    std::string ignored;
    EXPECT_EQ(AdjustFeatures(have, wrong, ignored), have) << wrong;
    EXPECT_THAT(ignored, testing::HasSubstr("is ignored; write +name or -name"));
  }
}
#endif

}  // namespace
}  // namespace tessera
