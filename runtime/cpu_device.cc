// CPU places: kernels compiled by the JIT, run on the process's core pool.
#include <sys/mman.h>

#include <cstring>

#include "graph/status.h"
#include "runtime/core_pool.h"
#include "runtime/cpu_memory.h"
#include "runtime/device.h"
#include "runtime/host_target.h"
#include "runtime/jit.h"

namespace tessera {
namespace {

constexpr int64_t kLargeScratch = 256 << 10;

class CpuExecutable : public Executable {
 public:
  CpuExecutable(CpuKernelPtr kernel, int64_t scratch)
      : kernel(std::move(kernel)), scratch(scratch) {}
  const CpuKernelPtr kernel;
  const int64_t scratch;
};

// Scratch of a thread, grown as kernels ask for more and kept. What is to stay in a core's own
// cache has large pages, so that neither translations nor the cache's sets depend on which pages it
// got.
void* ThreadScratch(int64_t bytes) {
  struct Block {
    void* p = nullptr;
    int64_t bytes = 0;
    ~Block() { std::free(p); }
  };
  thread_local Block block;
  if (bytes > block.bytes) {
    std::free(block.p);
    const bool large = bytes >= kLargeScratch;
    const int64_t unit = large ? kLargePage : 4096;
    block.bytes = (bytes + unit - 1) / unit * unit;
    block.p = std::aligned_alloc(large ? kLargePage : 64, block.bytes);
    CHECK(block.p != nullptr, "no memory for ", bytes, " bytes of scratch");
    if (large) madvise(block.p, block.bytes, MADV_HUGEPAGE);
  }
  return block.p;
}

class CpuDevice : public DeviceRuntime {
 public:
  const Target& target() const override { return HostTarget(); }
  absl::StatusOr<std::shared_ptr<Storage>> DoAllocate(int64_t bytes, Written written) override {
    return memory_.Allocate(bytes, written);
  }

  absl::StatusOr<std::vector<std::shared_ptr<Executable>>> Compile(
      absl::Span<const Program> programs) override {
    std::vector<KernelRequest> requests;
    for (const Program& p : programs) requests.push_back({p.text, p.entry});
    ASSIGN_OR_RETURN(std::vector<CpuKernelPtr> kernels, CompileAll(requests, target()));
    std::vector<std::shared_ptr<Executable>> out;
    for (size_t i = 0; i < kernels.size(); ++i) {
      out.push_back(
          std::make_shared<CpuExecutable>(std::move(kernels[i]), programs[i].scratch_bytes));
    }
    return out;
  }

  absl::Status Run(const Executable& executable, const Launch& launch) override {
    const auto& e = static_cast<const CpuExecutable&>(executable);
    struct Call {
      const CpuExecutable& e;
      const Launch& launch;
    } call{e, launch};
    const CoreFn run = [](void* arg, int64_t worker, int64_t workers) {
      const Call& c = *static_cast<const Call*>(arg);
      void* scratch = c.e.scratch > 0 ? ThreadScratch(c.e.scratch) : nullptr;
      c.e.kernel->fn(c.launch.buffers.data(), c.launch.variables.data(), scratch, worker, workers);
    };
    if (launch.workers <= 1) {
      run(&call, 0, 1);
    } else {
      CorePool::Global().Run(run, &call, launch.workers);
    }
    return absl::OkStatus();
  }

  absl::Status CopyIn(void* to, const void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* host, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyWithin(void* to, const void* from, int64_t bytes) override {
    return CopyIn(to, from, bytes);
  }
  bool IsHost() const override { return true; }
  MemoryStats Memory() const override { return memory_.Stats(); }
  void Trim() override { memory_.Trim(); }

 private:
  CpuMemory memory_;
};

}  // namespace

std::unique_ptr<DeviceRuntime> MakeCpuDevice(int index) { return std::make_unique<CpuDevice>(); }

}  // namespace tessera
