// The C functions of the CUDA driver, of NVRTC and of NCCL that we call, as tables; own
// declarations.
//
// A table is filled from the libraries of a machine (DriverFromLibrary and the like) or by the
// simulated driver (runtime/sim/sim.h). Nothing of CUDA is needed to build or to start; a test
// compares these declarations with the vendor's headers where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"

namespace tessera::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUkernel = struct CUkern_st*;
using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;
using ncclResult_t = int;
using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
struct NcclConfig {  // the first fields of ncclConfig_t, as of 2.18; later versions take it by its
                     // size
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUnset, min_ctas = kUnset, max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  static constexpr int kUnset = INT32_MIN;
};

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};
struct MemLocation {  // CUmemLocation
  int type;
  int id;
};
struct MemAccessDesc {  // CUmemAccessDesc
  MemLocation location;
  int flags;
};

enum : CUresult {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kUnsupportedPtx = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kPeerAccessEnabled = 704,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kSystemDriverMismatch = 803,
};
enum : int {  // CUdevice_attribute
  kMaxThreadsPerBlock = 1,
  kMultiprocessorCount = 16,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kL2Bytes = 38,
  kSharedPerBlockOptin = 97,
  kPoolsSupported = 115,
};
enum : int {
  kFuncMaxDynamicShared = 8,  // CUfunction_attribute
  kPoolReleaseThreshold = 4,  // CUmemPool_attribute
  kPoolReservedCurrent = 5,
  kPoolUsedCurrent = 7,
  kStreamNonBlocking = 1,
  kEventDisableTiming = 2,
  kLocationDevice = 1,
  kAccessReadWrite = 3,
};

// X(member, exported symbol, type)
#define TESSERA_DRIVER_FUNCTIONS(X)                                                            \
  X(cuInit, "cuInit", CUresult(unsigned))                                                      \
  X(cuDriverGetVersion, "cuDriverGetVersion", CUresult(int*))                                  \
  X(cuGetErrorName, "cuGetErrorName", CUresult(CUresult, const char**))                        \
  X(cuGetErrorString, "cuGetErrorString", CUresult(CUresult, const char**))                    \
  X(cuDeviceGetCount, "cuDeviceGetCount", CUresult(int*))                                      \
  X(cuDeviceGet, "cuDeviceGet", CUresult(CUdevice*, int))                                      \
  X(cuDeviceGetName, "cuDeviceGetName", CUresult(char*, int, CUdevice))                        \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", CUresult(int*, int, CUdevice))               \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", CUresult(size_t*, CUdevice))                      \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUresult(CUcontext*, CUdevice))      \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", CUresult(CUcontext))                                   \
  X(cuMemGetInfo, "cuMemGetInfo_v2", CUresult(size_t*, size_t*))                               \
  X(cuModuleLoadData, "cuModuleLoadData", CUresult(CUmodule*, const void*))                    \
  X(cuModuleUnload, "cuModuleUnload", CUresult(CUmodule))                                      \
  X(cuModuleGetFunction, "cuModuleGetFunction", CUresult(CUfunction*, CUmodule, const char*))  \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", CUresult(CUfunction, int, int))                  \
  X(cuStreamCreate, "cuStreamCreate", CUresult(CUstream*, unsigned))                           \
  X(cuStreamSynchronize, "cuStreamSynchronize", CUresult(CUstream))                            \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", CUresult(CUstream, CUevent, unsigned))             \
  X(cuEventCreate, "cuEventCreate", CUresult(CUevent*, unsigned))                              \
  X(cuEventDestroy, "cuEventDestroy_v2", CUresult(CUevent))                                    \
  X(cuEventRecord, "cuEventRecord", CUresult(CUevent, CUstream))                               \
  X(cuEventSynchronize, "cuEventSynchronize", CUresult(CUevent))                               \
  X(cuEventQuery, "cuEventQuery", CUresult(CUevent))                                           \
  X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", CUresult(CUmemoryPool*, CUdevice)) \
  X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", CUresult(CUmemoryPool, int, void*))        \
  X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", CUresult(CUmemoryPool, int, void*))        \
  X(cuMemPoolSetAccess, "cuMemPoolSetAccess",                                                  \
    CUresult(CUmemoryPool, const MemAccessDesc*, size_t))                                      \
  X(cuMemPoolTrimTo, "cuMemPoolTrimTo", CUresult(CUmemoryPool, size_t))                        \
  X(cuMemAllocAsync, "cuMemAllocAsync", CUresult(CUdeviceptr*, size_t, CUstream))              \
  X(cuMemFreeAsync, "cuMemFreeAsync", CUresult(CUdeviceptr, CUstream))                         \
  X(cuMemHostAlloc, "cuMemHostAlloc", CUresult(void**, size_t, unsigned))                      \
  X(cuMemFreeHost, "cuMemFreeHost", CUresult(void*))                                           \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                 \
    CUresult(CUdeviceptr, const void*, size_t, CUstream))                                      \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", CUresult(void*, CUdeviceptr, size_t, CUstream)) \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                 \
    CUresult(CUdeviceptr, CUdeviceptr, size_t, CUstream))                                      \
  X(cuMemcpyPeerAsync, "cuMemcpyPeerAsync",                                                    \
    CUresult(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                \
  X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", CUresult(int*, CUdevice, CUdevice))        \
  X(cuStreamWriteValue32, "cuStreamWriteValue32_v2",                                           \
    CUresult(CUstream, CUdeviceptr, uint32_t, unsigned))                                       \
  X(cuLaunchKernel, "cuLaunchKernel",                                                          \
    CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
             CUstream, void**, void**))                                                        \
  X(cuGraphCreate, "cuGraphCreate", CUresult(CUgraph*, unsigned))                              \
  X(cuGraphDestroy, "cuGraphDestroy", CUresult(CUgraph))                                       \
  X(cuGraphAddKernelNode, "cuGraphAddKernelNode_v2",                                           \
    CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const KernelNodeParams*))      \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                         \
    CUresult(CUgraphExec*, CUgraph, unsigned long long))                                       \
  X(cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2",                       \
    CUresult(CUgraphExec, CUgraphNode, const KernelNodeParams*))                               \
  X(cuGraphLaunch, "cuGraphLaunch", CUresult(CUgraphExec, CUstream))                           \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", CUresult(CUgraphExec))

#define TESSERA_NVRTC_FUNCTIONS(X)                                                        \
  X(nvrtcVersion, "nvrtcVersion", nvrtcResult(int*, int*))                                \
  X(nvrtcGetErrorString, "nvrtcGetErrorString", const char*(nvrtcResult))                 \
  X(nvrtcCreateProgram, "nvrtcCreateProgram",                                             \
    nvrtcResult(nvrtcProgram*, const char*, const char*, int, const char* const*,         \
                const char* const*))                                                      \
  X(nvrtcDestroyProgram, "nvrtcDestroyProgram", nvrtcResult(nvrtcProgram*))               \
  X(nvrtcCompileProgram, "nvrtcCompileProgram",                                           \
    nvrtcResult(nvrtcProgram, int, const char* const*))                                   \
  X(nvrtcGetCUBINSize, "nvrtcGetCUBINSize", nvrtcResult(nvrtcProgram, size_t*))           \
  X(nvrtcGetCUBIN, "nvrtcGetCUBIN", nvrtcResult(nvrtcProgram, char*))                     \
  X(nvrtcGetPTXSize, "nvrtcGetPTXSize", nvrtcResult(nvrtcProgram, size_t*))               \
  X(nvrtcGetPTX, "nvrtcGetPTX", nvrtcResult(nvrtcProgram, char*))                         \
  X(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize", nvrtcResult(nvrtcProgram, size_t*)) \
  X(nvrtcGetProgramLog, "nvrtcGetProgramLog", nvrtcResult(nvrtcProgram, char*))

enum : ncclResult_t {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum : int {
  kNcclInt8 = 0,  // ncclDataType_t
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBFloat16 = 9,
  kNcclSum = 0,  // ncclRedOp_t
  kNcclProd = 1,
  kNcclMax = 2,
  kNcclMin = 3,
};

#define TESSERA_NCCL_FUNCTIONS(X)                                                            \
  X(ncclGetVersion, "ncclGetVersion", ncclResult_t(int*))                                    \
  X(ncclGetErrorString, "ncclGetErrorString", const char*(ncclResult_t))                     \
  X(ncclGetUniqueId, "ncclGetUniqueId", ncclResult_t(ncclUniqueId*))                         \
  X(ncclCommInitRankConfig, "ncclCommInitRankConfig",                                        \
    ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, NcclConfig*))                          \
  X(ncclCommGetAsyncError, "ncclCommGetAsyncError", ncclResult_t(ncclComm_t, ncclResult_t*)) \
  X(ncclCommAbort, "ncclCommAbort", ncclResult_t(ncclComm_t))                                \
  X(ncclGroupStart, "ncclGroupStart", ncclResult_t())                                        \
  X(ncclGroupEnd, "ncclGroupEnd", ncclResult_t())                                            \
  X(ncclAllReduce, "ncclAllReduce",                                                          \
    ncclResult_t(const void*, void*, size_t, int, int, ncclComm_t, CUstream))                \
  X(ncclReduceScatter, "ncclReduceScatter",                                                  \
    ncclResult_t(const void*, void*, size_t, int, int, ncclComm_t, CUstream))                \
  X(ncclReduce, "ncclReduce",                                                                \
    ncclResult_t(const void*, void*, size_t, int, int, int, ncclComm_t, CUstream))           \
  X(ncclAllGather, "ncclAllGather",                                                          \
    ncclResult_t(const void*, void*, size_t, int, ncclComm_t, CUstream))                     \
  X(ncclSend, "ncclSend", ncclResult_t(const void*, size_t, int, int, ncclComm_t, CUstream)) \
  X(ncclRecv, "ncclRecv", ncclResult_t(void*, size_t, int, int, ncclComm_t, CUstream))

#define TESSERA_TABLE_MEMBER(name, symbol, type) std::add_pointer_t<type> name = nullptr;
struct DriverTable {
  TESSERA_DRIVER_FUNCTIONS(TESSERA_TABLE_MEMBER)
};
struct NvrtcTable {
  TESSERA_NVRTC_FUNCTIONS(TESSERA_TABLE_MEMBER)
};
struct NcclTable {
  TESSERA_NCCL_FUNCTIONS(TESSERA_TABLE_MEMBER)
};
#undef TESSERA_TABLE_MEMBER

// From the libraries of this machine, each looked for once; the pointers live as long as the
// process. Unavailable says which files were looked for where, and what was wrong with each.
absl::StatusOr<const DriverTable*> DriverFromLibrary();  // after cuInit
absl::StatusOr<const NvrtcTable*> NvrtcFromLibrary();
absl::StatusOr<const NcclTable*> NcclFromLibrary();
// The same of a given file, or of where libraries are if it is empty; opened anew at each call.
absl::StatusOr<std::unique_ptr<const DriverTable>> OpenDriver(const std::string& file);
// Of NVRTC, the first that is new enough, and whose images a driver of this version (as
// cuDriverGetVersion gives it; 0: any) loads.
absl::StatusOr<std::unique_ptr<const NvrtcTable>> OpenNvrtc(const std::string& file,
                                                            int driver = 0);
absl::StatusOr<std::unique_ptr<const NcclTable>> OpenNccl(const std::string& file);

}  // namespace tessera::cuda
