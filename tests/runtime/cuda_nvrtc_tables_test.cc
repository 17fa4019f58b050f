// Our declarations of CUDA's functions against the vendor's headers, where these are installed.
#include "runtime/cuda_tables.h"

#include "tests/runtime/same_function.h"
#include "tests/testing.h"

// Before the headers, whose macros rename some functions.
namespace tessera::cuda {
#define X(member, symbol, type) using Type_##member = type;
TESSERA_DRIVER_FUNCTIONS(X)
TESSERA_NVRTC_FUNCTIONS(X)
#undef X
}  // namespace tessera::cuda

#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#include <cuda.h>
#include <nvrtc.h>
#define TESSERA_CUDA_HEADERS 1
#endif

namespace tessera {
namespace {

static_assert(SameFunction<int(const char*), int(const char*)>::value);
static_assert(!SameFunction<int(const char*), int(char*)>::value);
static_assert(!SameFunction<int(int), int(size_t)>::value);
static_assert(!SameFunction<int(int), int()>::value);

TEST(CudaTables, DeclarationsAgreeWithTheVendorsHeaders) {
#ifdef TESSERA_CUDA_HEADERS
#define X(member, symbol, type)                                                               \
  EXPECT_TRUE(                                                                                \
      (SameFunction<cuda::Type_##member, std::remove_pointer_t<decltype(&::member)>>::value)) \
      << symbol;
  TESSERA_DRIVER_FUNCTIONS(X)
#undef X
#define X(member, symbol, type)                                                               \
  EXPECT_TRUE(                                                                                \
      (SameFunction<cuda::Type_##member, std::remove_pointer_t<decltype(&::member)>>::value)) \
      << symbol;
  TESSERA_NVRTC_FUNCTIONS(X)
#undef X
  EXPECT_EQ(sizeof(cuda::KernelNodeParams), sizeof(CUDA_KERNEL_NODE_PARAMS));
  EXPECT_EQ(offsetof(cuda::KernelNodeParams, kernelParams),
            offsetof(CUDA_KERNEL_NODE_PARAMS, kernelParams));
  EXPECT_EQ(sizeof(cuda::MemAccessDesc), sizeof(CUmemAccessDesc));
  EXPECT_EQ(cuda::kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  EXPECT_EQ(cuda::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cuda::kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(cuda::kSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  EXPECT_EQ(cuda::kFuncMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  EXPECT_EQ(cuda::kPoolReservedCurrent, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  EXPECT_EQ(cuda::kPoolUsedCurrent, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  EXPECT_EQ(cuda::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda::kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
  EXPECT_EQ(cuda::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuda::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
#else
  GTEST_SKIP() << "cuda.h or nvrtc.h is not installed";
#endif
}

// Whatever this machine has, the answer says what was looked for and what to do.
TEST(CudaTables, AMissingDriverIsNamed) {
  const auto driver = cuda::DriverFromLibrary();
  if (driver.ok()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_THAT(driver, StatusIs(absl::StatusCode::kUnavailable, "cuda: "));
  const std::string message(driver.status().message());
  EXPECT_TRUE(message.find("libcuda.so.1") != std::string::npos) << message;
  EXPECT_TRUE(message.find("; ") != std::string::npos) << message;
}

}  // namespace
}  // namespace tessera
