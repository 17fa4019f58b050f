// One device under a driver's table: its context, streams and errors; what cuda_device.cc builds
// on.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/target.h"
#include "runtime/cuda_tables.h"

namespace tessera::cuda {

// Which kernels are under way: a counter that the device moves on after each, and their names, so
// that an error that shows up later names the kernel that caused it.
class Progress {
 public:
  // `done` is written by the device; it starts at 0.
  void Start(volatile uint32_t* done) { done_ = done; }
  uint32_t Add(const std::string& name);  // what the counter becomes once it is done
  volatile uint32_t* done() const { return done_; }
  // The first that is not done, or "".
  std::string Culprit() const;

 private:
  static constexpr uint32_t kNames = 4096;
  volatile uint32_t* done_ = nullptr;
  uint32_t last_ = 0;
  std::array<std::string, kNames> names_;
};

// Never destroyed. Every call makes the device's context the thread's.
class DriverDevice {
 public:
  // NotFound where there is no such device.
  static absl::StatusOr<std::unique_ptr<DriverDevice>> Open(const DriverTable* driver, int index,
                                                            const std::string& name);

  const DriverTable& driver() const { return *driver_; }
  const std::string& name() const { return name_; }
  CUdevice id() const { return id_; }
  CUcontext context() const { return context_; }
  CUmemoryPool pool() const { return pool_; }
  CUstream compute() const { return compute_; }
  CUstream copy() const { return copy_; }
  const Target& target() const { return target_; }

  // Makes the context current; an error once the device is lost, as it is to a child that was
  // forked after it was opened.
  absl::Status Enter();
  // The same of a device that may be lost, to give back what the driver holds for us.
  void MakeCurrent() { (void)driver_->cuCtxSetCurrent(context_); }
  bool IsLost() const;
  // A result as a status. Errors that end a context make the device lost: this call and all later
  // ones say so, and name the kernel.
  absl::Status Check(CUresult result, absl::string_view what);
  // `to` does not go on before all that `from` has been given so far is done.
  absl::Status Follow(CUstream to, CUstream from);
  absl::Status Synchronize();

  // Counts a launch on the compute stream, which must have been made just before.
  absl::Status Launched(const std::string& name);

 private:
  absl::Status Start(int index);
  absl::Status Describe();

  const DriverTable* driver_ = nullptr;
  std::string name_;
  CUdevice id_ = 0;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  CUstream compute_ = nullptr, copy_ = nullptr;
  Target target_;
  int forks_ = 0;             // see cuda_driver.cc: as it was when the device was opened
  mutable std::mutex mutex_;  // of what follows
  absl::Status lost_;
  Progress progress_;
  std::array<CUevent, 64> events_ = {};
  size_t next_event_ = 0;
};

}  // namespace tessera::cuda
