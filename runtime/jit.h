// CPU kernels by their text: compiled once, kept in memory and on disk, ready to call.
//
// A program's own threads that use tensors must have ended before main returns: the compiler that
// is loaded into the process takes its tables down as the process exits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "graph/target.h"
#include "runtime/elf_loader.h"

namespace tessera {

// What every kernel text defines, as `extern "C"`: buffers and variables by slot, scratch of this
// worker alone, and which of how many workers it is.
using CpuKernelFn = void (*)(void* const* buffers, const int64_t* vars, void* scratch,
                             int64_t worker, int64_t workers);

struct CpuKernel {
  CpuKernelFn fn = nullptr;              // lives as long as this struct
  std::unique_ptr<LoadedObject> object;  // the code
};
using CpuKernelPtr = std::shared_ptr<const CpuKernel>;

// The function `entry` of a text, for a target. Looks in memory, then on disk (CACHE, CACHE_DIR),
// then compiles and stores. Thread-safe; threads that ask for one kernel at the same time wait for
// one compile. Memory keeps the last few thousand; those forgotten live on where plans hold them,
// and else come from disk again. A failure is not kept, so the next call tries again. Errors are
// CompileToObject's, and InvalidArgument where the text has no such function.
absl::StatusOr<CpuKernelPtr> GetKernel(absl::string_view text, absl::string_view entry,
                                       const Target& target);

struct KernelRequest {
  absl::string_view text;
  absl::string_view entry;
};

// GetKernel for each request, in their order, on up to target.cores threads; the first error in
// that order is the result.
absl::StatusOr<std::vector<CpuKernelPtr>> CompileAll(absl::Span<const KernelRequest> requests,
                                                     const Target& target);

// Forgets every kernel in memory. What callers hold stays valid; compiles under way are finished
// for those who wait for them.
void ClearKernels();

// How many kernels are remembered in memory from now on; gives the number before.
int64_t SetKernelLimit(int64_t kernels);

// How often each source gave a kernel in this process.
struct JitStats {
  int64_t memory_hits = 0;
  int64_t disk_hits = 0;
  int64_t compiles = 0;        // that succeeded
  int64_t broken_entries = 0;  // on disk, replaced
};
JitStats GetJitStats();

}  // namespace tessera
