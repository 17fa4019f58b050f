// The driver's functions over the simulated machine, each checked as the real one would: devices,
// modules, streams, memory.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "runtime/sim/driver.h"
#include "runtime/sim/faults.h"

namespace tessera::sim {
namespace {

using namespace cuda;

thread_local int current = -1;  // device of the thread's context

CUresult Name(CUresult r, const char** out) {
  struct Row {
    CUresult code;
    const char* name;
  };
  static constexpr Row kRows[] = {{kSuccess, "no error"},
                                  {kInvalidValue, "invalid argument"},
                                  {kOutOfMemory, "out of memory"},
                                  {kInvalidHandle, "invalid resource handle"},
                                  {kIllegalAddress, "an illegal memory access"},
                                  {kLaunchFailed, "unspecified launch failure"},
                                  {kLaunchOutOfResources, "too many resources for a launch"},
                                  {kNotFound, "not found"},
                                  {kNotReady, "not ready"},
                                  {kInvalidImage, "no image that this device knows"}};
  Lock lock(M().mutex);
  *out = "an error of the simulated GPU";
  for (const Row& row : kRows) {
    if (row.code == r) *out = row.name;
  }
  if (r == kIllegalAddress || r == kLaunchFailed) {  // kept: the caller holds on to the text
    static auto& texts = *new std::set<std::string>;
    *out = texts.insert(absl::StrCat(*out, ": ", M().fault)).first->c_str();
  }
  return kSuccess;
}

// Of a block, in KiB: of the chip that CUDA_ARCH says, else of sm_90.
int64_t MostShared() {
  static constexpr std::pair<const char*, int> kOf[] = {{"_75", 64},  {"_80", 163}, {"_86", 99},
                                                        {"_87", 163}, {"_89", 99},  {"_120", 99},
                                                        {"_121", 99}};
  const std::string arch = TextFlag(Flag::kCudaArch);
  for (const auto& [end, kib] : kOf) {
    if (absl::EndsWith(arch, end)) return kib << 10;
  }
  return 227 << 10;
}

CUresult Attribute(int* out, int which, CUdevice) {
  switch (which) {
    case kMaxThreadsPerBlock:
      *out = 1024;
      return kSuccess;
    case kMultiprocessorCount:
      *out = 4;
      return kSuccess;
    case kComputeMajor:
      *out = 9;
      return kSuccess;
    case kComputeMinor:
      *out = 0;
      return kSuccess;
    case kL2Bytes:
      *out = 4 << 20;
      return kSuccess;
    case kSharedPerBlockOptin:
      *out = static_cast<int>(MostShared());
      return kSuccess;
    case kPoolsSupported:
      *out = 1;
      return kSuccess;
  }
  return kInvalidValue;
}

// ---- modules

CUresult LoadModule(CUmodule* out, const void* image) {
  if (Strikes(Fault::kOldDriver)) return kNoBinaryForGpu;
  auto module = LoadImage(image);
  if (!module.ok()) return kInvalidImage;
  (*module)->device = current;
  {
    Lock lock(M().mutex);
    ++M().counts.modules;
  }
  *out = reinterpret_cast<CUmodule>(module->release());
  return kSuccess;
}

CUresult GetFunction(CUfunction* out, CUmodule module, const char* name) {
  Function* f = reinterpret_cast<Module*>(module)->Find(name);
  *out = reinterpret_cast<CUfunction>(f);
  return f != nullptr ? kSuccess : kNotFound;
}

CUresult SetFunction(CUfunction f, int which, int value) {
  if (which != kFuncMaxDynamicShared || value < 0 || value > MostShared()) return kInvalidValue;
  Of(f)->most_shared = value;
  return kSuccess;
}

// ---- streams and events

CUresult CreateStream(CUstream* out, unsigned) {
  Lock lock(M().mutex);
  if (current < 0) return kInvalidValue;
  auto* s = new Stream{M().devices[current].get(), static_cast<int>(M().streams.size()), {}};
  M().streams.insert(s);
  *out = reinterpret_cast<CUstream>(s);
  return kSuccess;
}

CUresult Synchronize(CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  ++M().counts.host_waits;
  if (!M().RunUntil([&] { return Of(stream)->queue.empty(); })) return kLaunchFailed;
  return StateOf(Of(stream));
}

CUresult WaitEvent(CUstream stream, CUevent event, unsigned) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  if (Strikes(Fault::kDropWait)) return kSuccess;
  Task t;
  t.wait = Of(event);
  t.until = Of(event)->recorded;
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

CUresult Record(CUevent event, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  if (Of(event)->device != Of(stream)->device->index) return kInvalidHandle;
  Task t;
  t.records = Of(event);
  t.record = ++Of(event)->recorded;
  M().Enqueue(*Of(stream), std::move(t));
  return StateOf(Of(stream));
}

CUresult CreateEvent(CUevent* out, unsigned) {
  if (current < 0) return kInvalidValue;
  auto* const event = new Event;
  event->device = current;
  *out = reinterpret_cast<CUevent>(event);
  return kSuccess;
}

// Whoever still waits for it is let go first; a real driver keeps it until then.
CUresult DestroyEvent(CUevent event) {
  Lock lock(M().mutex);
  Event* const e = Of(event);
  M().RunUntil([&] {
    return std::none_of(M().streams.begin(), M().streams.end(), [&](const Stream* s) {
      return std::any_of(s->queue.begin(), s->queue.end(),
                         [&](const Task& t) { return t.wait == e || t.records == e; });
    });
  });
  delete e;
  return kSuccess;
}

CUresult SynchronizeEvent(CUevent event) {
  Lock lock(M().mutex);
  ++M().counts.host_waits;
  const uint64_t until = Of(event)->recorded;
  if (!M().RunUntil([&] { return Of(event)->done >= until; })) return kLaunchFailed;
  return current >= 0 ? M().devices[current]->lost : kSuccess;
}

CUresult QueryEvent(CUevent event) {
  Lock lock(M().mutex);
  M().RunSome();  // time passes between two questions
  if (current >= 0 && M().devices[current]->lost != kSuccess) return M().devices[current]->lost;
  return Of(event)->done >= Of(event)->recorded ? kSuccess : kNotReady;
}

// ---- memory

CUresult Allocate(CUdeviceptr* out, size_t bytes, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  ++M().counts.allocations;
  if (bytes == 0) return kInvalidValue;
  if (Strikes(Fault::kAllocation)) return kOutOfMemory;
  Device* const d = Of(stream)->device;
  const auto address = d->memory.Reserve(static_cast<int64_t>(bytes));
  if (!address.ok()) return kOutOfMemory;
  *out = *address;
  Task t;
  t.run = [d, a = *address] { return d->memory.Enter(a); };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

CUresult Free(CUdeviceptr address, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  Device* const d = Of(stream)->device;
  Task t;
  t.run = [d, address] { return d->memory.Leave(address); };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

CUresult PoolAttribute(CUmemoryPool pool, int which, void* out) {
  Lock lock(M().mutex);
  const Device* d = reinterpret_cast<Device*>(pool);
  const int64_t value = which == kPoolReservedCurrent ? d->memory.reserved()
                        : which == kPoolUsedCurrent   ? d->memory.used()
                                                      : d->release_threshold;
  std::memcpy(out, &value, sizeof(value));
  return kSuccess;
}

CUresult SetAccess(CUmemoryPool pool, const MemAccessDesc* all, size_t count) {
  Lock lock(M().mutex);
  auto* const d = reinterpret_cast<Device*>(pool);
  for (size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = all[i];
    if (location.type != kLocationDevice || location.id < 0 || location.id >= kDevices ||
        location.id == d->index || flags != kAccessReadWrite) {
      return kInvalidValue;
    }
    d->peers.insert(location.id);
  }
  return kSuccess;
}

CUresult AllocatePinned(void** out, size_t bytes, unsigned) {
  Lock lock(M().mutex);
  if (Strikes(Fault::kPinned)) return kOutOfMemory;
  *out = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*out == nullptr) return kOutOfMemory;
  std::memset(*out, 0xff, bytes);
  const char* p = static_cast<char*>(*out);
  M().pinned.emplace_back(p, p + bytes);
  return kSuccess;
}

CUresult FreePinned(void* p) {
  Lock lock(M().mutex);
  auto& ranges = M().pinned;
  ranges.erase(std::remove_if(ranges.begin(), ranges.end(),
                              [&](const auto& r) { return r.first == static_cast<char*>(p); }),
               ranges.end());
  std::free(p);
  return kSuccess;
}

absl::Status CheckRange(const Device& d, uint64_t address, size_t bytes) {
  if (d.memory.Holds(address, static_cast<int64_t>(bytes))) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a copy of ", bytes, " bytes at ", absl::Hex(address),
                                          ", which is not allocated"));
}

CUresult CopyIn(CUdeviceptr to, const void* host, size_t bytes, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  Device* const d = Of(stream)->device;
  // Pageable memory is the caller's again when the call returns.
  std::shared_ptr<std::vector<char>> taken;
  const char* from = static_cast<const char*>(host);
  if (!M().IsPinned(host)) {
    taken = std::make_shared<std::vector<char>>(from, from + bytes);
    from = taken->data();
  }
  Task t;
  t.run = [=] {
    absl::Status s = CheckRange(*d, to, bytes);
    if (s.ok()) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    (void)taken;
    return s;
  };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

CUresult CopyOut(void* host, CUdeviceptr from, size_t bytes, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  Device* const d = Of(stream)->device;
  Task t;
  t.run = [=] {
    absl::Status s = CheckRange(*d, from, bytes);
    if (s.ok()) std::memcpy(host, reinterpret_cast<const void*>(from), bytes);
    return s;
  };
  M().Enqueue(*Of(stream), std::move(t));
  return M().IsPinned(host) ? kSuccess : Synchronize(stream);
}

CUresult CopyBetween(CUdeviceptr to, Device* to_device, CUdeviceptr from, Device* from_device,
                     size_t bytes, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  Task t;
  t.run = [=] {
    absl::Status s = CheckRange(*to_device, to, bytes);
    if (s.ok()) s = CheckRange(*from_device, from, bytes);
    if (!s.ok()) return s;
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    if (to_device != from_device && bytes > 0 && Strikes(Fault::kPeerCorrupt)) {
      reinterpret_cast<char*>(to)[bytes / 2] ^= 0x10;
    }
    return s;
  };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

CUresult CopyOnDevice(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyBetween(to, Of(stream)->device, from, Of(stream)->device, bytes, stream);
}

CUresult CopyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  size_t bytes, CUstream stream) {
  if (Strikes(Fault::kPeerRefused)) return kNotSupported;
  return CopyBetween(to, Of(to_context), from, Of(from_context), bytes, stream);
}

CUresult WriteValue(CUstream stream, CUdeviceptr address, uint32_t value, unsigned) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  if (Strikes(Fault::kNoCounter)) return kNotSupported;
  Task t;
  t.run = [=] {
    *reinterpret_cast<volatile uint32_t*>(address) = value;
    return absl::OkStatus();
  };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

void FillDevices(DriverTable& t) {
  t.cuInit = [](unsigned) { return CUresult{kSuccess}; };
  t.cuDriverGetVersion = [](int* v) { return *v = 13000, CUresult{kSuccess}; };
  t.cuGetErrorName = Name;
  t.cuGetErrorString = Name;
  t.cuDeviceGetCount = [](int* n) { return *n = kDevices, CUresult{kSuccess}; };
  t.cuDeviceGet = [](CUdevice* out, int i) {
    *out = i;
    return i >= 0 && i < kDevices ? CUresult{kSuccess} : CUresult{kInvalidValue};
  };
  t.cuDeviceGetName = [](char* out, int n, CUdevice) {
    std::snprintf(out, static_cast<size_t>(n), "simulated GPU");
    return CUresult{kSuccess};
  };
  t.cuDeviceGetAttribute = Attribute;
  t.cuDeviceTotalMem = [](size_t* out, CUdevice d) {
    Lock lock(M().mutex);
    *out = static_cast<size_t>(M().devices[d]->memory.capacity());
    return CUresult{kSuccess};
  };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* out, CUdevice d) {
    *out = reinterpret_cast<CUcontext>(M().devices[d].get());
    return CUresult{kSuccess};
  };
  t.cuCtxSetCurrent = [](CUcontext c) { return current = Of(c)->index, CUresult{kSuccess}; };
  t.cuMemGetInfo = [](size_t* available, size_t* total) {
    Lock lock(M().mutex);
    const Memory& memory = M().devices[current]->memory;
    *total = static_cast<size_t>(memory.capacity());
    *available = static_cast<size_t>(memory.capacity() - memory.reserved());
    return CUresult{kSuccess};
  };
  t.cuDeviceCanAccessPeer = [](int* can, CUdevice a, CUdevice b) {
    return *can = a != b, CUresult{kSuccess};
  };
}

void FillMemory(DriverTable& t) {
  t.cuDeviceGetDefaultMemPool = [](CUmemoryPool* out, CUdevice d) {
    *out = reinterpret_cast<CUmemoryPool>(M().devices[d].get());
    return CUresult{kSuccess};
  };
  t.cuMemPoolSetAttribute = [](CUmemoryPool pool, int which, void* value) {
    if (which != kPoolReleaseThreshold) return CUresult{kInvalidValue};
    std::memcpy(&reinterpret_cast<Device*>(pool)->release_threshold, value, sizeof(int64_t));
    return CUresult{kSuccess};
  };
  t.cuMemPoolGetAttribute = PoolAttribute;
  t.cuMemPoolSetAccess = SetAccess;
  t.cuMemPoolTrimTo = [](CUmemoryPool pool, size_t) {
    Lock lock(M().mutex);
    reinterpret_cast<Device*>(pool)->memory.Trim();
    return CUresult{kSuccess};
  };
  t.cuMemAllocAsync = Allocate;
  t.cuMemFreeAsync = Free;
  t.cuMemHostAlloc = AllocatePinned;
  t.cuMemFreeHost = FreePinned;
  t.cuMemcpyHtoDAsync = CopyIn;
  t.cuMemcpyDtoHAsync = CopyOut;
  t.cuMemcpyDtoDAsync = CopyOnDevice;
  t.cuMemcpyPeerAsync = CopyPeer;
  t.cuStreamWriteValue32 = WriteValue;
}

void FillStreams(DriverTable& t) {
  t.cuModuleLoadData = LoadModule;
  t.cuModuleUnload = [](CUmodule m) {
    delete reinterpret_cast<Module*>(m);
    return CUresult{kSuccess};
  };
  t.cuModuleGetFunction = GetFunction;
  t.cuFuncSetAttribute = SetFunction;
  t.cuStreamCreate = CreateStream;
  t.cuStreamSynchronize = Synchronize;
  t.cuStreamWaitEvent = WaitEvent;
  t.cuEventCreate = CreateEvent;
  t.cuEventDestroy = DestroyEvent;
  t.cuEventRecord = Record;
  t.cuEventSynchronize = SynchronizeEvent;
  t.cuEventQuery = QueryEvent;
}

}  // namespace

int CurrentDevice() { return current; }

const DriverTable* Driver() {
  static const DriverTable* const table = [] {
    auto* t = new DriverTable;
    FillDevices(*t);
    FillMemory(*t);
    FillStreams(*t);
    FillLaunches(*t);
    return t;
  }();
  return table;
}

}  // namespace tessera::sim
