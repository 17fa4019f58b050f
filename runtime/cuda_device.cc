// GPU places: memory from the driver's pool, staged copies, launches; CUDA and SIM alike, by
// tables.
#include <algorithm>
#include <cstring>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/prelude.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/content_hash.h"
#include "runtime/cuda_collectives.h"
#include "runtime/cuda_compiler.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_staging.h"
#include "runtime/device.h"
#include "runtime/execute.h"
#include "runtime/host_target.h"
#include "runtime/jit_compiler.h"
#include "runtime/runtime.h"
#include "runtime/sim/sim.h"

namespace tessera {
namespace {

using cuda::CUdeviceptr;
using cuda::CUfunction;
using cuda::CUmodule;
using cuda::DriverDevice;

CUdeviceptr Address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

class CudaExecutable : public Executable {
 public:
  CudaExecutable(DriverDevice& device, const Program& program) : program(program), device_(device) {
    this->program.text.clear();
  }
  ~CudaExecutable() override {
    if (module == nullptr) return;
    // What was launched may still run; on a lost device nothing does.
    if (!device_.Synchronize().ok() && !device_.IsLost()) return;
    device_.MakeCurrent();
    (void)device_.driver().cuModuleUnload(module);
  }

  // How many blocks a launch with these variables has.
  absl::StatusOr<int64_t> Blocks(absl::Span<const int64_t> variables) const {
    if (program.grid.IsConst()) return program.grid.vmin();
    Bindings bindings;
    for (size_t i = 0; i < variables.size(); ++i) bindings[program.names[i]] = variables[i];
    return ExtentValue(Extent(program.grid), bindings);
  }

  Program program;
  CUmodule module = nullptr;
  CUfunction function = nullptr;

 private:
  DriverDevice& device_;
};

// What an executable is found again by: kernels of one text may be launched otherwise, by extents
// whose variables have other names or bounds. Their nodes are interned, and live as long as it
// does.
std::string KeyOf(const Program& p) {
  return absl::StrCat(p.text, "\n", reinterpret_cast<uintptr_t>(p.grid.get()), " ", p.scratch_bytes,
                      " ", p.threads, "x", p.rows, " ", absl::StrJoin(p.buffers, ","), " ",
                      absl::StrJoin(p.variables, ","), " ", absl::StrJoin(p.names, ","));
}

// A launch's arguments by value, as the driver takes them.
struct LaunchParams {
  unsigned blocks = 0;
  absl::InlinedVector<uint64_t, 16> values;

  static absl::StatusOr<LaunchParams> Of(const CudaExecutable& e, const Launch& launch) {
    LaunchParams out;
    ASSIGN_OR_RETURN(const int64_t blocks, e.Blocks(launch.variables));
    // More than a grid holds are taken in turns by the kernel itself.
    out.blocks = static_cast<unsigned>(std::clamp<int64_t>(blocks, 0, INT32_MAX));
    for (int slot : e.program.buffers) out.values.push_back(Address(launch.buffers[slot]));
    for (int slot : e.program.variables) {
      out.values.push_back(static_cast<uint64_t>(launch.variables[slot]));
    }
    return out;
  }
  absl::InlinedVector<void*, 16> Pointers() {
    absl::InlinedVector<void*, 16> out;
    for (uint64_t& v : values) out.push_back(&v);
    return out;
  }
  friend bool operator==(const LaunchParams& a, const LaunchParams& b) {
    return a.blocks == b.blocks && a.values == b.values;
  }
};

// A CUDA graph of kernels one after another, and the arguments that its nodes have now.
class CudaRecording : public Recording {
 public:
  explicit CudaRecording(DriverDevice& device) : device_(device) {}
  ~CudaRecording() override {
    device_.MakeCurrent();
    if (exec != nullptr) (void)device_.driver().cuGraphExecDestroy(exec);
    if (graph != nullptr) (void)device_.driver().cuGraphDestroy(graph);
  }

  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec exec = nullptr;
  std::vector<cuda::CUgraphNode> nodes;
  std::vector<LaunchParams> params;
  std::string name;

 private:
  DriverDevice& device_;
};

class CudaDevice : public DeviceRuntime {
 public:
  using FindNccl = absl::StatusOr<const cuda::NcclTable*> (*)();

  CudaDevice(std::unique_ptr<DriverDevice> device, cuda::Compiler compiler, FindNccl nccl)
      : device_(std::move(device)), compiler_(compiler), nccl_(nccl), staging_(*device_) {}

  cuda::GpuPlace gpu() const { return {device_.get(), nccl_}; }

  const Target& target() const override { return device_->target(); }
  bool IsHost() const override { return false; }

  absl::StatusOr<std::shared_ptr<Storage>> DoAllocate(int64_t bytes, Written) override {
    RETURN_IF_ERROR(device_->Enter());
    auto storage = std::make_shared<Storage>();
    storage->bytes = bytes;
    if (bytes == 0) return storage;
    CUdeviceptr p = 0;
    const auto allocate = [&] {
      return driver().cuMemAllocAsync(&p, static_cast<size_t>(bytes), device_->compute());
    };
    cuda::CUresult r = allocate();
    if (r == cuda::kOutOfMemory) {  // what is being freed may do
      RETURN_IF_ERROR(device_->Synchronize());
      RETURN_IF_ERROR(device_->Check(driver().cuMemPoolTrimTo(device_->pool(), 0), "trimming"));
      r = allocate();
    }
    if (r == cuda::kOutOfMemory) return NoMemory(bytes);
    RETURN_IF_ERROR(device_->Check(r, absl::StrCat("allocating ", bytes, " bytes")));
    storage->data = reinterpret_cast<void*>(p);
    Count(bytes);
    storage->deleter = [this](Storage& s) {
      Count(-s.bytes);
      if (!device_->Enter().ok()) return;
      (void)device_->Check(driver().cuMemFreeAsync(Address(s.data), device_->compute()), "freeing");
    };
    return storage;
  }

  absl::StatusOr<std::vector<std::shared_ptr<Executable>>> Compile(
      absl::Span<const Program> programs) override {
    RETURN_IF_ERROR(device_->Enter());
    std::vector<std::shared_ptr<Executable>> out(programs.size());
    std::vector<const Program*> missing;
    std::vector<size_t> places;
    {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < programs.size(); ++i) {
        if (auto it = loaded_.find(KeyOf(programs[i])); it != loaded_.end()) {
          out[i] = it->second.lock();
        }
        if (out[i] != nullptr) continue;
        missing.push_back(&programs[i]);
        places.push_back(i);
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> images,
                     CompileImages(compiler_, missing, target(), CountCores()));
    for (size_t i = 0; i < missing.size(); ++i) {
      ASSIGN_OR_RETURN(out[places[i]], Load(*missing[i], images[i]));
    }
    return out;
  }

  absl::Status Run(const Executable& executable, const Launch& launch) override {
    const auto& e = static_cast<const CudaExecutable&>(executable);
    const Program& p = e.program;
    ASSIGN_OR_RETURN(LaunchParams params, LaunchParams::Of(e, launch));
    if (params.blocks == 0) return absl::OkStatus();
    RETURN_IF_ERROR(device_->Enter());
    // One launch and its count at a time, so that they are in one order.
    std::lock_guard lock(launch_mutex_);
    RETURN_IF_ERROR(device_->Check(
        driver().cuLaunchKernel(
            e.function, params.blocks, 1, 1, static_cast<unsigned>(p.threads / p.rows),
            static_cast<unsigned>(p.rows), 1, static_cast<unsigned>(p.scratch_bytes),
            device_->compute(), params.Pointers().data(), nullptr),
        absl::StrCat("launching ", p.entry)));
    return device_->Launched(p.entry);
  }

  absl::StatusOr<std::unique_ptr<Recording>> Record(
      absl::Span<const RecordedLaunch> launches) override {
    RETURN_IF_ERROR(device_->Enter());
    auto out = std::make_unique<CudaRecording>(*device_);
    RETURN_IF_ERROR(device_->Check(driver().cuGraphCreate(&out->graph, 0), "making a graph"));
    for (const RecordedLaunch& l : launches) {
      const auto& e = static_cast<const CudaExecutable&>(*l.executable);
      ASSIGN_OR_RETURN(LaunchParams params, LaunchParams::Of(e, l.launch));
      if (params.blocks == 0) params.blocks = 1;  // until there is a call; no such one is launched
      auto pointers = params.Pointers();
      const cuda::KernelNodeParams node = NodeParams(e, params.blocks, pointers.data());
      cuda::CUgraphNode made = nullptr;
      RETURN_IF_ERROR(device_->Check(
          driver().cuGraphAddKernelNode(&made, out->graph,
                                        out->nodes.empty() ? nullptr : &out->nodes.back(),
                                        out->nodes.empty() ? 0 : 1, &node),
          absl::StrCat("adding ", e.program.entry, " to a graph")));
      out->nodes.push_back(made);
      out->params.push_back(std::move(params));
      absl::StrAppend(&out->name, out->name.empty() ? "one of a replay's: " : ", ",
                      e.program.entry);
    }
    RETURN_IF_ERROR(device_->Check(driver().cuGraphInstantiate(&out->exec, out->graph, 0),
                                   "instantiating a graph"));
    return out;
  }

  absl::Status RunRecording(Recording& recording,
                            absl::Span<const RecordedLaunch> launches) override {
    auto& r = static_cast<CudaRecording&>(recording);
    std::vector<LaunchParams> now;
    bool empty = false;
    for (const RecordedLaunch& l : launches) {
      const auto& e = static_cast<const CudaExecutable&>(*l.executable);
      ASSIGN_OR_RETURN(LaunchParams params, LaunchParams::Of(e, l.launch));
      empty |= params.blocks == 0;
      now.push_back(std::move(params));
    }
    if (empty) {  // a graph has no node without blocks
      for (const RecordedLaunch& l : launches) RETURN_IF_ERROR(Run(*l.executable, l.launch));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(device_->Enter());
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] == r.params[i]) continue;
      const auto& e = static_cast<const CudaExecutable&>(*launches[i].executable);
      auto pointers = now[i].Pointers();
      const cuda::KernelNodeParams node = NodeParams(e, now[i].blocks, pointers.data());
      RETURN_IF_ERROR(
          device_->Check(driver().cuGraphExecKernelNodeSetParams(r.exec, r.nodes[i], &node),
                         absl::StrCat("giving a graph other arguments of ", e.program.entry)));
      r.params[i] = std::move(now[i]);
    }
    std::lock_guard lock(launch_mutex_);
    RETURN_IF_ERROR(
        device_->Check(driver().cuGraphLaunch(r.exec, device_->compute()), "launching a graph"));
    return device_->Launched(r.name);
  }

  absl::Status CopyIn(void* to, const void* host, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(device_->Enter());
    return staging_.CopyIn(Address(to), static_cast<const char*>(host), bytes);
  }

  absl::Status CopyOut(void* host, const void* from, int64_t bytes) override {
    if (bytes == 0) return device_->Enter();
    RETURN_IF_ERROR(device_->Enter());
    return staging_.CopyOut(static_cast<char*>(host), Address(from), bytes);
  }

  absl::Status CopyWithin(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(device_->Enter());
    return device_->Check(
        driver().cuMemcpyDtoDAsync(Address(to), Address(from), static_cast<size_t>(bytes),
                                   device_->compute()),
        "copying");
  }

  absl::StatusOr<bool> CopyFrom(DeviceRuntime& other, void* to, const void* from,
                                int64_t bytes) override {
    CudaDevice* const peer = Known(&other);  // devices of one driver know each other
    if (peer == nullptr || &peer->driver() != &driver()) return false;
    if (bytes == 0) return true;
    ASSIGN_OR_RETURN(const bool trusted, TrustPeer(*peer));
    if (!trusted) return false;
    RETURN_IF_ERROR(PeerCopy(*peer->device_, Address(to), Address(from), bytes));
    return true;
  }

  absl::Status Wait() override { return device_->Synchronize(); }

  MemoryStats Memory() const override {
    std::lock_guard lock(mutex_);
    MemoryStats stats = stats_;
    uint64_t reserved = 0, used = 0;
    if (device_->Enter().ok()) {
      (void)driver().cuMemPoolGetAttribute(device_->pool(), cuda::kPoolReservedCurrent, &reserved);
      (void)driver().cuMemPoolGetAttribute(device_->pool(), cuda::kPoolUsedCurrent, &used);
    }
    stats.cached_bytes = static_cast<int64_t>(reserved - std::min(reserved, used));
    return stats;
  }

  void Trim() override {
    if (!device_->Synchronize().ok()) return;
    (void)device_->Check(driver().cuMemPoolTrimTo(device_->pool(), 0), "trimming");
  }

  // Makes a new device known, or gives the one that is.
  static CudaDevice* Known(DeviceRuntime* runtime, CudaDevice* add = nullptr) {
    static std::mutex& mutex = *new std::mutex;
    static auto& known = *new std::map<const DeviceRuntime*, CudaDevice*>;
    std::lock_guard lock(mutex);
    if (add != nullptr) known[runtime] = add;
    const auto it = known.find(runtime);
    return it == known.end() ? nullptr : it->second;
  }

 private:
  const cuda::DriverTable& driver() const { return device_->driver(); }

  static cuda::KernelNodeParams NodeParams(const CudaExecutable& e, unsigned blocks,
                                           void** pointers) {
    const Program& p = e.program;
    cuda::KernelNodeParams out = {};
    out.func = e.function;
    out.gridDimX = blocks;
    out.gridDimY = out.gridDimZ = out.blockDimZ = 1;
    out.blockDimX = static_cast<unsigned>(p.threads / p.rows);
    out.blockDimY = static_cast<unsigned>(p.rows);
    out.sharedMemBytes = static_cast<unsigned>(p.scratch_bytes);
    out.kernelParams = pointers;
    return out;
  }

  void Count(int64_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    if (bytes > 0) ++stats_.allocations;
  }

  absl::Status NoMemory(int64_t bytes) {
    size_t available = 0, total = 0;
    (void)driver().cuMemGetInfo(&available, &total);
    std::lock_guard lock(mutex_);
    return absl::ResourceExhaustedError(absl::StrCat(
        device_->name(), ": there is no memory for ", bytes, " bytes: tensors hold ",
        stats_.live_bytes, " of the device's ", total, ", ", available,
        " are free but not in one piece, or too few; drop tensors, or use smaller batches"));
  }

  absl::StatusOr<std::shared_ptr<Executable>> Load(const Program& program,
                                                   const std::string& image) {
    auto e = std::make_shared<CudaExecutable>(*device_, program);
    const cuda::CUresult r = driver().cuModuleLoadData(&e->module, image.data());
    if (r == cuda::kNoBinaryForGpu || r == cuda::kInvalidImage) {
      return absl::FailedPreconditionError(
          absl::StrCat(device_->name(), ": the driver does not take a kernel for ", target().arch,
                       " (", r, "): it is older than NVRTC: update the driver, or set CUDA_ARCH"));
    }
    RETURN_IF_ERROR(device_->Check(r, absl::StrCat("loading ", program.entry)));
    RETURN_IF_ERROR(
        device_->Check(driver().cuModuleGetFunction(&e->function, e->module, program.entry.c_str()),
                       absl::StrCat("finding ", program.entry)));
    if (program.scratch_bytes > (48 << 10)) {
      RETURN_IF_ERROR(device_->Check(
          driver().cuFuncSetAttribute(e->function, cuda::kFuncMaxDynamicShared,
                                      static_cast<int>(program.scratch_bytes)),
          absl::StrCat("giving ", program.scratch_bytes, " bytes to a block of ", program.entry)));
    }
    std::lock_guard lock(mutex_);
    loaded_[KeyOf(program)] = e;
    if (loaded_.size() > sweep_at_) {
      std::erase_if(loaded_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = std::max<size_t>(1024, 2 * loaded_.size());
    }
    return e;
  }

  // Copies between devices are known to go wrong in silence on some hosts: each pair is tried with
  // a pattern before the first one.
  absl::StatusOr<bool> TrustPeer(CudaDevice& peer) {
    {
      std::lock_guard lock(mutex_);
      if (auto it = trusted_.find(&peer); it != trusted_.end()) return it->second;
    }
    int can = 0;
    RETURN_IF_ERROR(
        device_->Check(driver().cuDeviceCanAccessPeer(&can, device_->id(), peer.device_->id()),
                       "asking for peer access"));
    bool good = can != 0;
    if (good) {
      ASSIGN_OR_RETURN(good, TryPattern(peer));
    }
    std::lock_guard lock(mutex_);
    return trusted_[&peer] = good;
  }

  absl::StatusOr<bool> TryPattern(CudaDevice& peer) {
    constexpr int64_t kBytes = 1 << 20;
    std::vector<uint32_t> pattern(kBytes / 4), got(kBytes / 4);
    for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<uint32_t>(i * 2654435761u);
    ASSIGN_OR_RETURN(const auto there, peer.Allocate(kBytes));
    ASSIGN_OR_RETURN(const auto here, Allocate(kBytes));
    RETURN_IF_ERROR(peer.CopyIn(there->data, pattern.data(), kBytes));
    RETURN_IF_ERROR(PeerCopy(*peer.device_, Address(here->data), Address(there->data), kBytes));
    RETURN_IF_ERROR(CopyOut(got.data(), here->data, kBytes));
    return got == pattern;
  }

  absl::Status PeerCopy(DriverDevice& peer, CUdeviceptr to, CUdeviceptr from, int64_t bytes) {
    // After what writes the source, before what overwrites or frees it; here the same.
    RETURN_IF_ERROR(peer.Enter());
    RETURN_IF_ERROR(device_->Follow(device_->copy(), peer.compute()));
    RETURN_IF_ERROR(device_->Enter());
    RETURN_IF_ERROR(device_->Follow(device_->copy(), device_->compute()));
    RETURN_IF_ERROR(
        device_->Check(driver().cuMemcpyPeerAsync(to, device_->context(), from, peer.context(),
                                                  static_cast<size_t>(bytes), device_->copy()),
                       "copying between devices"));
    RETURN_IF_ERROR(device_->Follow(device_->compute(), device_->copy()));
    return device_->Follow(peer.compute(), device_->copy());
  }

  const std::unique_ptr<DriverDevice> device_;
  const cuda::Compiler compiler_;
  const FindNccl nccl_;
  cuda::Staging staging_;
  std::mutex launch_mutex_;
  mutable std::mutex mutex_;  // of what follows
  MemoryStats stats_;
  std::map<std::string, std::weak_ptr<CudaExecutable>> loaded_;  // by KeyOf
  size_t sweep_at_ = 1024;  // with more, those that no plan holds any more are forgotten
  std::map<const CudaDevice*, bool> trusted_;
};

absl::StatusOr<std::unique_ptr<DeviceRuntime>> Make(const cuda::DriverTable* driver, int index,
                                                    const char* kind, cuda::Compiler compiler,
                                                    CudaDevice::FindNccl nccl) {
  const std::string name = Place(kind, index).ToString();
  ASSIGN_OR_RETURN(auto device, DriverDevice::Open(driver, index, name));
  auto runtime = std::make_unique<CudaDevice>(std::move(device), compiler, nccl);
  CudaDevice::Known(runtime.get(), runtime.get());
  return runtime;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaDevice(int index) {
  ASSIGN_OR_RETURN(const cuda::DriverTable* driver, cuda::DriverFromLibrary());
  return Make(driver, index, "CUDA",
              {cuda::NvrtcFromLibrary,
               [](const cuda::NvrtcTable& nvrtc) -> absl::StatusOr<std::string> {
                 int major = 0, minor = 0;
                 nvrtc.nvrtcVersion(&major, &minor);
                 return absl::StrCat("nvrtc ", major, ".", minor);
               }},
              cuda::NcclFromLibrary);
}

absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeSimDevice(int index) {
  return Make(sim::Driver(), index, "SIM",
              {[]() -> absl::StatusOr<const cuda::NvrtcTable*> { return sim::Nvrtc(); },
               [](const cuda::NvrtcTable&) -> absl::StatusOr<std::string> {
                 // The text is compiled under another prelude than it carries, for this CPU.
                 return absl::StrCat("sim|", WholePrelude(PreludeKind::kSim), "|",
                                     HostTarget().Key(), "|", CompilerIdentity(), "|",
                                     TextFlag(Flag::kSimNvrtc));
               }},
              sim::FindNccl);
}

std::optional<cuda::GpuPlace> GpuPlaceOf(DeviceRuntime& runtime) {
  const CudaDevice* const device = CudaDevice::Known(&runtime);
  if (device == nullptr) return std::nullopt;
  return device->gpu();
}

}  // namespace tessera
