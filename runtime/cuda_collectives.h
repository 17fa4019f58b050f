// Collectives between GPUs by NCCL: a communicator for each group of devices, calls of all ranks in
// one group, and a deadline of ours.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda_driver.h"
#include "runtime/device.h"

namespace tessera::cuda {

// What a GPU is to others under the same driver.
struct GpuPlace {
  DriverDevice* device = nullptr;
  absl::StatusOr<const NcclTable*> (*nccl)() = nullptr;
};

// The ranks of one communicator, each with its device, in an order of their own.
class Communicator {
 public:
  // The one of these distinct devices, made when first asked for. `what` begins the errors.
  static absl::StatusOr<std::shared_ptr<Communicator>> Over(const std::vector<GpuPlace>& places,
                                                            absl::string_view what);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  // Calls `launch` for every rank within one group, each with its communicator and the compute
  // stream of its device, and waits until all ranks are done. Where a rank fails, or is not done
  // within COLLECTIVE_SECONDS, all are aborted, the error says so, and the next Over makes a new
  // communicator; the devices go on.
  using Launch = absl::FunctionRef<ncclResult_t(const NcclTable&, int rank, ncclComm_t, CUstream)>;
  absl::Status Run(absl::string_view what, Launch launch);

 private:
  Communicator() = default;
  absl::Status Start(absl::string_view what);
  absl::Status LetReach();
  absl::Status Await(absl::string_view what, absl::FunctionRef<absl::StatusOr<bool>()> done);
  absl::Status Failed(absl::string_view what, ncclResult_t result) const;
  absl::StatusOr<bool> LaunchesDone(absl::string_view what);
  absl::StatusOr<bool> StreamsDone();
  void Abort();

  const NcclTable* nccl_ = nullptr;
  std::vector<DriverDevice*> devices_;
  std::vector<ncclComm_t> ranks_;
  std::vector<CUevent> events_;
};

}  // namespace tessera::cuda

namespace tessera {

// Nothing where the runtime is no GPU.
std::optional<cuda::GpuPlace> GpuPlaceOf(DeviceRuntime& runtime);

}  // namespace tessera
