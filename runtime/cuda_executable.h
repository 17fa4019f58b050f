// What a GPU has loaded, and what launches of it take.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "codegen/codegen.h"
#include "runtime/cuda_driver.h"
#include "runtime/device.h"

namespace tessera::cuda {

inline CUdeviceptr Address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// A kernel in the context of one device, which alone can launch it.
class CudaExecutable : public Executable {
 public:
  // Makes the device's context the thread's.
  static absl::StatusOr<std::shared_ptr<CudaExecutable>> Load(DriverDevice& device,
                                                              const Program& program,
                                                              const std::string& image);
  CudaExecutable(DriverDevice& device, const Program& program);
  ~CudaExecutable() override;

  // How many blocks a launch with these variables has.
  absl::StatusOr<int64_t> Blocks(absl::Span<const int64_t> variables) const;
  KernelNodeParams NodeParams(unsigned blocks, void** pointers) const;

  Program program;
  CUmodule module = nullptr;
  CUfunction function = nullptr;

 private:
  DriverDevice& device_;
};

// What an executable of a device is found again by.
std::string KeyOf(const Program& program);

// A launch's arguments by value, as the driver takes them.
struct LaunchParams {
  unsigned blocks = 0;
  absl::InlinedVector<uint64_t, 16> values;

  static absl::StatusOr<LaunchParams> Of(const CudaExecutable& e, const Launch& launch);
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
  ~CudaRecording() override;

  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> nodes;
  std::vector<LaunchParams> params;
  std::string name;

 private:
  DriverDevice& device_;
};

}  // namespace tessera::cuda
