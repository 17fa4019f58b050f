// Kernels in a device's context: loaded from images, unloaded when nothing runs them any more.
#include "runtime/cuda_executable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/status.h"
#include "runtime/execute.h"
#include "runtime/runtime.h"

namespace tessera::cuda {

CudaExecutable::CudaExecutable(DriverDevice& device, const Program& program)
    : program(program), device_(device) {
  this->program.text.clear();
}

CudaExecutable::~CudaExecutable() {
  if (module == nullptr) return;
  // What was launched may still run; on a lost device nothing does.
  if (!device_.Synchronize().ok() && !device_.IsLost()) return;
  device_.MakeCurrent();
  (void)device_.driver().cuModuleUnload(module);
}

absl::StatusOr<std::shared_ptr<CudaExecutable>> CudaExecutable::Load(DriverDevice& device,
                                                                     const Program& program,
                                                                     const std::string& image) {
  RETURN_IF_ERROR(device.Enter());
  const DriverTable& driver = device.driver();
  auto e = std::make_shared<CudaExecutable>(device, program);
  const CUresult r = driver.cuModuleLoadData(&e->module, image.data());
  if (r == kNoBinaryForGpu || r == kInvalidImage || r == kUnsupportedPtx) {
    return absl::FailedPreconditionError(absl::StrCat(
        device.name(), ": the driver does not take a kernel for ", device.target().arch, " (", r,
        "): it is older than NVRTC: update the driver, or name an NVRTC of its own version with "
        "NVRTC=; if CUDA_ARCH is set, it must be of the GPU's own generation"));
  }
  RETURN_IF_ERROR(device.Check(r, absl::StrCat("loading ", program.entry)));
  RETURN_IF_ERROR(
      device.Check(driver.cuModuleGetFunction(&e->function, e->module, program.entry.c_str()),
                   absl::StrCat("finding ", program.entry)));
  if (program.scratch_bytes > (48 << 10)) {
    RETURN_IF_ERROR(device.Check(
        driver.cuFuncSetAttribute(e->function, kFuncMaxDynamicShared,
                                  static_cast<int>(program.scratch_bytes)),
        absl::StrCat("giving ", program.scratch_bytes, " bytes to a block of ", program.entry)));
  }
  return e;
}

absl::StatusOr<int64_t> CudaExecutable::Blocks(absl::Span<const int64_t> variables) const {
  if (program.grid.IsConst()) return program.grid.vmin();
  Bindings bindings;
  for (size_t i = 0; i < variables.size(); ++i) bindings[program.names[i]] = variables[i];
  return ExtentValue(Extent(program.grid), bindings);
}

KernelNodeParams CudaExecutable::NodeParams(unsigned blocks, void** pointers) const {
  KernelNodeParams out = {};
  out.func = function;
  out.gridDimX = blocks;
  out.gridDimY = out.gridDimZ = out.blockDimZ = 1;
  out.blockDimX = static_cast<unsigned>(program.threads / program.rows);
  out.blockDimY = static_cast<unsigned>(program.rows);
  out.sharedMemBytes = static_cast<unsigned>(program.scratch_bytes);
  out.kernelParams = pointers;
  return out;
}

// Kernels of one text may be launched otherwise, by extents whose variables have other names or
// bounds. Their nodes are interned, and live as long as it does.
std::string KeyOf(const Program& p) {
  return absl::StrCat(p.text, "\n", reinterpret_cast<uintptr_t>(p.grid.get()), " ", p.scratch_bytes,
                      " ", p.threads, "x", p.rows, " ", absl::StrJoin(p.buffers, ","), " ",
                      absl::StrJoin(p.variables, ","), " ", absl::StrJoin(p.names, ","));
}

absl::StatusOr<LaunchParams> LaunchParams::Of(const CudaExecutable& e, const Launch& launch) {
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

CudaRecording::~CudaRecording() {
  device_.MakeCurrent();
  if (exec != nullptr) (void)device_.driver().cuGraphExecDestroy(exec);
  if (graph != nullptr) (void)device_.driver().cuGraphDestroy(graph);
}

}  // namespace tessera::cuda
