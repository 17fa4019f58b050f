// Contexts, streams, errors and the target of a CUDA device.
#include "runtime/cuda_driver.h"

#include <pthread.h>

#include <atomic>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/status.h"

namespace tessera::cuda {
namespace {

// How many forks lie between the process that first opened a device and this one.
std::atomic<int> forks{0};

void CountForks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)registered;
}

// Errors after which a context answers everything with the same error.
bool EndsContext(CUresult r) {
  switch (r) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case kIllegalAddress:
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case kLaunchFailed:
    case 721:  // TENSOR_MEMORY_LEAK
    case 810:  // MPS_CLIENT_TERMINATED
      return true;
    default:
      return false;
  }
}

}  // namespace

uint32_t Progress::Add(const std::string& name) {
  ++last_;
  names_[last_ % kNames] = name;
  return last_;
}

std::string Progress::Culprit() const {
  if (done_ == nullptr) return "";
  const uint32_t done = *done_;
  if (done == last_ || last_ - done > kNames) return "";
  return names_[(done + 1) % kNames];
}

absl::StatusOr<std::unique_ptr<DriverDevice>> DriverDevice::Open(const DriverTable* driver,
                                                                 int index,
                                                                 const std::string& name) {
  CountForks();
  auto device = std::make_unique<DriverDevice>();
  device->driver_ = driver;
  device->forks_ = forks;
  device->name_ = name;
  RETURN_IF_ERROR(device->Start(index));
  return device;
}

absl::Status DriverDevice::Start(int index) {
  const DriverTable& d = *driver_;
  int count = 0;
  RETURN_IF_ERROR(Check(d.cuDeviceGetCount(&count), "counting devices"));
  if (index >= count) {
    return absl::NotFoundError(absl::StrCat("device: there is no ", name_, ": this machine has ",
                                            count, " of its kind, numbered from 0"));
  }
  RETURN_IF_ERROR(Check(d.cuDeviceGet(&id_, index), "opening the device"));
  RETURN_IF_ERROR(Check(d.cuDevicePrimaryCtxRetain(&context_, id_), "making a context"));
  RETURN_IF_ERROR(Check(d.cuCtxSetCurrent(context_), "entering the context"));
  RETURN_IF_ERROR(Describe());
  RETURN_IF_ERROR(Check(d.cuStreamCreate(&compute_, kStreamNonBlocking), "making a stream"));
  RETURN_IF_ERROR(Check(d.cuStreamCreate(&copy_, kStreamNonBlocking), "making a stream"));
  for (CUevent& e : events_) {
    RETURN_IF_ERROR(Check(d.cuEventCreate(&e, kEventDisableTiming), "making an event"));
  }
  RETURN_IF_ERROR(Check(d.cuDeviceGetDefaultMemPool(&pool_, id_), "opening the memory pool"));
  // What is freed stays with the pool until it is trimmed.
  uint64_t keep = UINT64_MAX;
  RETURN_IF_ERROR(
      Check(d.cuMemPoolSetAttribute(pool_, kPoolReleaseThreshold, &keep), "setting up the pool"));
  void* page = nullptr;
  RETURN_IF_ERROR(Check(d.cuMemHostAlloc(&page, 64, 0), "allocating pinned memory"));
  *static_cast<uint32_t*>(page) = 0;
  progress_.Start(static_cast<uint32_t*>(page));
  return absl::OkStatus();
}

absl::Status DriverDevice::Describe() {
  const auto attribute = [&](int which, int& out) {
    return Check(driver_->cuDeviceGetAttribute(&out, which, id_), "asking for an attribute");
  };
  int major = 0, minor = 0, cores = 0, shared = 0, l2 = 0, pools = 0;
  RETURN_IF_ERROR(attribute(kComputeMajor, major));
  RETURN_IF_ERROR(attribute(kComputeMinor, minor));
  RETURN_IF_ERROR(attribute(kMultiprocessorCount, cores));
  RETURN_IF_ERROR(attribute(kSharedPerBlockOptin, shared));
  RETURN_IF_ERROR(attribute(kL2Bytes, l2));
  RETURN_IF_ERROR(attribute(kPoolsSupported, pools));
  if (pools == 0) {
    return absl::UnavailableError(absl::StrCat(
        "device: ", name_, " has no stream-ordered memory pools (a virtual GPU?), which we need"));
  }
  target_.dialect = Dialect::kCuda;
  target_.arch = absl::StrCat("sm_", major, minor);
  if (const std::string arch = TextFlag(Flag::kCudaArch); !arch.empty()) target_.arch = arch;
  if (!absl::StartsWith(target_.arch, "sm_") && !absl::StartsWith(target_.arch, "compute_")) {
    return absl::InvalidArgumentError(absl::StrCat("device: CUDA_ARCH is '", target_.arch,
                                                   "'; write it as sm_90, or as ",
                                                   "compute_90 for the driver to do the rest"));
  }
  target_.vector_bytes = 16;
  target_.vector_registers = 255;
  target_.cores = cores;
  target_.l1_bytes = target_.shared_bytes = shared;
  target_.l2_bytes = l2;
  target_.max_params = 400;  // of 8 bytes, with the variables within 4 KiB
  target_.max_grid = INT64_MAX;
  target_.max_threads = 1024;
  DescribeMatrixUnits(target_);
  return absl::OkStatus();
}

absl::Status DriverDevice::Enter() {
  if (forks != forks_) {
    return absl::UnavailableError(absl::StrCat(
        name_, ": the device was opened before this process was forked, and CUDA does not follow ",
        "into the child; open it in the child alone, or start the child as a program of its own"));
  }
  {
    std::lock_guard lock(mutex_);
    if (!lost_.ok()) return lost_;
  }
  return Check(driver_->cuCtxSetCurrent(context_), "entering the context");
}

bool DriverDevice::IsLost() const {
  if (forks != forks_) return true;
  std::lock_guard lock(mutex_);
  return !lost_.ok();
}

absl::Status DriverDevice::Check(CUresult result, absl::string_view what) {
  if (result == kSuccess) return absl::OkStatus();
  const char* text = nullptr;
  if (driver_->cuGetErrorString(result, &text) != kSuccess || text == nullptr) text = "unknown";
  const std::string message =
      absl::StrCat(name_, ": ", what, " failed with ", result, " (", text, ")");
  if (result == kOutOfMemory) return absl::ResourceExhaustedError(message);
  if (!EndsContext(result)) return absl::InternalError(message);
  std::lock_guard lock(mutex_);
  if (lost_.ok()) {
    const std::string culprit = progress_.Culprit();
    lost_ = absl::UnavailableError(absl::StrCat(
        name_, ": the device is lost",
        culprit.empty() ? "" : absl::StrCat(" to the kernel ", culprit), ": ", result, " (", text,
        ")", "; what lay on it is gone, other devices go on; start the process again to use it"));
  }
  return lost_;
}

absl::Status DriverDevice::Follow(CUstream to, CUstream from) {
  CUresult r;
  {
    // Events are reused in turn: a wait refers to what was recorded when it was given. Under the
    // lock, so that nobody records the same one in between.
    std::lock_guard lock(mutex_);
    const CUevent event = events_[next_event_++ % events_.size()];
    r = driver_->cuEventRecord(event, from);
    if (r == kSuccess) r = driver_->cuStreamWaitEvent(to, event, 0);
  }
  return Check(r, "ordering two streams");
}

absl::Status DriverDevice::Synchronize() {
  RETURN_IF_ERROR(Enter());
  RETURN_IF_ERROR(Check(driver_->cuStreamSynchronize(compute_), "waiting for kernels"));
  return Check(driver_->cuStreamSynchronize(copy_), "waiting for copies");
}

absl::Status DriverDevice::Launched(const std::string& name) {
  uint32_t after;
  CUdeviceptr address;
  {
    std::lock_guard lock(mutex_);
    if (progress_.done() == nullptr) return absl::OkStatus();
    after = progress_.Add(name);
    address = reinterpret_cast<CUdeviceptr>(progress_.done());
  }
  const CUresult r = driver_->cuStreamWriteValue32(compute_, address, after, 0);
  if (r != kNotSupported) return Check(r, "counting a launch");
  std::lock_guard lock(mutex_);  // then errors name no kernel
  progress_.Start(nullptr);
  return absl::OkStatus();
}

}  // namespace tessera::cuda
