// One block of a simulated GPU: its threads as fibers of the calling thread, in many orders.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"

namespace tessera::sim {

constexpr int kWarp = 32;

// What a kernel's text knows of its thread: the fields of rt_sim_ in codegen/prelude/sim.h.
struct Thread {
  int32_t thread, row, block, blocks;
  int32_t lane;
  unsigned char* shared;
  unsigned char* exchange;  // of the warp, 16 bytes a lane
  void (*arrive_block)(Thread*);
  void (*arrive_warp)(Thread*);
  void (*fetch)(Thread*, void* to, const void* from, int32_t bytes);
  void (*commit)(Thread*);
  void (*wait)(Thread*, int32_t left);
  void (*fault)(Thread*, const void* at);
};
using Entry = void (*)(Thread* self, void* const* args);

struct Launch {
  Entry entry = nullptr;
  void* const* args = nullptr;
  int blocks = 1, threads = 1, rows = 1;
  int64_t shared_bytes = 0;
  std::string name;
};

// Runs all blocks one after another, in random order. A fetch is done at once or when its group is
// waited for, at random; one that nobody waits for may never be. The threads of a block take turns
// at their barriers: in order, in reverse, at random, or each warp as far as it gets; which, is
// drawn for each block. Shared memory starts as NaNs, ends at an unmapped page, and is as large as
// asked. DataLoss: an access to memory that is not the kernel's, with its address;
// FailedPrecondition: a barrier or exchange that not all threads reach.
absl::Status Run(const Launch& launch, std::mt19937_64& random);

}  // namespace tessera::sim
