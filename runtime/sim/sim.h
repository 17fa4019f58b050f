// The simulated driver: the tables of CUDA, filled by a GPU that runs on the CPU of this process.
//
// Streams are queues; what is ready runs in a random order that SIM_SEED makes repeat, often only
// when somebody waits for it. Memory is alive between the points of its stream where it is
// allocated and freed, and holds NaNs at first. Kernels are the text that NVRTC would get, compiled
// for the CPU with another prelude. A wrong access loses the device, as on a GPU.
#pragma once

#include <cstdint>

#include "runtime/cuda_tables.h"

namespace tessera::sim {

const cuda::DriverTable* Driver();
const cuda::NvrtcTable* Nvrtc();
const cuda::NcclTable* Nccl();
// The same as one that may be missing.
absl::StatusOr<const cuda::NcclTable*> FindNccl();

// ---- for tests

enum class Fault : uint8_t {
  kAllocation,        // cuMemAllocAsync finds no memory
  kPinned,            // cuMemHostAlloc finds no memory
  kLaunch,            // a kernel cannot be launched
  kOldDriver,         // the driver does not know the image of a kernel
  kCompile,           // the compiler refuses a text
  kDeviceLost,        // a kernel that runs takes its device along
  kDropWait,          // cuStreamWaitEvent waits for nothing
  kDropBarrier,       // a text is compiled without its first barrier
  kDropFetchWait,     // a text is compiled without its first wait for what it fetches
  kCommunicator,      // a communicator of NCCL is never ready
  kCollectiveStalls,  // one rank never arrives at a collective
  kCollectiveFails,   // a communicator reports that a peer is gone
  kNoCounter,         // cuStreamWriteValue32 is not supported
  kPeerRefused,       // cuMemcpyPeerAsync copies nothing
  kPeerCorrupt,       // copies between devices change a byte in silence, from now on
};
// The call after `skip` more of its kind meets the fault, and only that one; kPeerCorrupt stays.
void Plant(Fault fault, int skip = 0);
// Removes what is planted.
void ClearFaults();
// Whether this machine has an NCCL; it has.
void HaveNccl(bool have);
// Random orders start anew from this seed.
void Seed(uint64_t seed);
// Gives a device this much memory in all.
void SetMemory(int device, int64_t bytes);

struct Counts {
  int64_t compiles = 0;  // of texts
  int64_t modules = 0;   // that were loaded
  int64_t kernels = 0;   // that ran, graphs included
  int64_t graph_launches = 0;
  int64_t host_waits = 0;  // synchronisations by the host
  int64_t allocations = 0;
  int64_t communicators = 0;  // of NCCL that were made
  int64_t collectives = 0;  // that all their ranks have run; what is sent in one group counts once
};
Counts GetCounts();

}  // namespace tessera::sim
