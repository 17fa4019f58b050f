// Our declarations of NCCL's functions against the vendor's header, where it is installed.
#include "runtime/cuda_tables.h"
#include "tests/runtime/same_function.h"
#include "tests/testing.h"

namespace tessera::cuda {
#define X(member, symbol, type) using NcclType_##member = type;
TESSERA_NCCL_FUNCTIONS(X)
#undef X
}  // namespace tessera::cuda

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define TESSERA_NCCL_HEADER 1
#endif

namespace tessera {
namespace {

TEST(NcclTables, DeclarationsAgreeWithTheVendorsHeader) {
#ifdef TESSERA_NCCL_HEADER
#define X(member, symbol, type)                                                                   \
  EXPECT_TRUE(                                                                                    \
      (SameFunction<cuda::NcclType_##member, std::remove_pointer_t<decltype(&::member)>>::value)) \
      << symbol;
  TESSERA_NCCL_FUNCTIONS(X)
#undef X
  EXPECT_EQ(sizeof(cuda::ncclUniqueId), sizeof(::ncclUniqueId));
  EXPECT_LE(sizeof(cuda::NcclConfig), sizeof(ncclConfig_t));
  const cuda::NcclConfig ours;
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(cuda::NcclConfig::kUnset, NCCL_CONFIG_UNDEF_INT);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(offsetof(cuda::NcclConfig, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(cuda::NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(cuda::NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(cuda::NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
  EXPECT_EQ(cuda::kNcclInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(cuda::kNcclInProgress, ncclInProgress);
  EXPECT_EQ(cuda::kNcclUint8, ncclUint8);
  EXPECT_EQ(cuda::kNcclUint64, ncclUint64);
  EXPECT_EQ(cuda::kNcclFloat16, ncclFloat16);
  EXPECT_EQ(cuda::kNcclFloat64, ncclFloat64);
  EXPECT_EQ(cuda::kNcclBFloat16, ncclBfloat16);
  EXPECT_EQ(cuda::kNcclSum, ncclSum);
  EXPECT_EQ(cuda::kNcclProd, ncclProd);
  EXPECT_EQ(cuda::kNcclMax, ncclMax);
  EXPECT_EQ(cuda::kNcclMin, ncclMin);
#else
  GTEST_SKIP() << "nccl.h or cuda_runtime.h is not installed";
#endif
}

TEST(NcclTables, TheLibraryIsNewEnough) {
  const auto nccl = cuda::NcclFromLibrary();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  int version = 0;
  EXPECT_EQ((*nccl)->ncclGetVersion(&version), cuda::kNcclSuccess);
  EXPECT_GE(version, 21800);
}

}  // namespace
}  // namespace tessera
