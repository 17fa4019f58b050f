// GPU places: memory from the driver's pool, staged copies, launches; CUDA and SIM alike, by
// tables.
#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "codegen/prelude.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/cuda_collectives.h"
#include "runtime/cuda_compiler.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_executable.h"
#include "runtime/cuda_staging.h"
#include "runtime/device.h"
#include "runtime/host_target.h"
#include "runtime/jit_compiler.h"
#include "runtime/sim/sim.h"

namespace tessera {
namespace {

using cuda::Address;
using cuda::CudaExecutable;
using cuda::CudaRecording;
using cuda::CUdeviceptr;
using cuda::DriverDevice;
using cuda::LaunchParams;

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
    DeviceRuntime* const here[] = {this};
    std::vector<PlacedProgram> placed;
    for (const Program& p : programs) placed.push_back({&p, here});
    ASSIGN_OR_RETURN(auto by_place, CompileOver(placed));
    std::vector<std::shared_ptr<Executable>> out;
    for (auto& places : by_place) out.push_back(std::move(places[0]));
    return out;
  }

  // A text is compiled once for each kind of chip, and loaded on each place that has not.
  absl::StatusOr<std::vector<std::vector<std::shared_ptr<Executable>>>> CompileOver(
      absl::Span<const PlacedProgram> programs) override {
    RETURN_IF_ERROR(device_->Enter());
    struct Missing {
      CudaDevice* place;
      size_t program, at, image;
    };
    struct Batch {
      std::vector<const Program*> programs;
      std::vector<Missing> missing;
    };
    std::map<std::string, Batch> batches;  // by target
    std::vector<std::vector<std::shared_ptr<Executable>>> out(programs.size());
    for (size_t i = 0; i < programs.size(); ++i) {
      const Program* const program = programs[i].program;
      for (DeviceRuntime* runtime : programs[i].places) {
        CudaDevice* const place = Known(runtime);
        CHECK(place != nullptr, "a mesh of GPUs has a place that is none");
        out[i].push_back(place->Loaded(*program));
        if (out[i].back() != nullptr) continue;
        Batch& batch = batches[place->target().Key()];
        if (batch.programs.empty() || batch.programs.back() != program) {
          batch.programs.push_back(program);
        }
        batch.missing.push_back({place, i, out[i].size() - 1, batch.programs.size() - 1});
      }
    }
    for (const auto& [key, batch] : batches) {
      ASSIGN_OR_RETURN(
          const std::vector<std::string> images,
          CompileImages(compiler_, batch.programs, batch.missing[0].place->target(), CountCores()));
      for (const Missing& m : batch.missing) {
        ASSIGN_OR_RETURN(out[m.program][m.at],
                         m.place->Load(*programs[m.program].program, images[m.image]));
      }
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
      const cuda::KernelNodeParams node = e.NodeParams(params.blocks, pointers.data());
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
      const cuda::KernelNodeParams node = e.NodeParams(now[i].blocks, pointers.data());
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

  // What it has loaded of the program; null where it has not, or no plan holds it any more.
  std::shared_ptr<Executable> Loaded(const Program& program) {
    std::lock_guard lock(mutex_);
    const auto it = loaded_.find(cuda::KeyOf(program));
    return it == loaded_.end() ? nullptr : it->second.lock();
  }

  absl::StatusOr<std::shared_ptr<Executable>> Load(const Program& program,
                                                   const std::string& image) {
    ASSIGN_OR_RETURN(auto e, CudaExecutable::Load(*device_, program, image));
    std::lock_guard lock(mutex_);
    loaded_[cuda::KeyOf(program)] = e;
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
      // What fails without losing a device leaves the way through memory of the host.
      const auto tried = TryPattern(peer);
      if (!tried.ok() && (device_->IsLost() || peer.device_->IsLost())) return tried.status();
      if (absl::IsResourceExhausted(tried.status())) return false;  // may do another time
      good = tried.ok() && *tried;
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
    // An event is recorded on streams of its own device alone; any may wait for it.
    RETURN_IF_ERROR(peer.Enter());
    RETURN_IF_ERROR(peer.Follow(device_->copy(), peer.compute()));
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
