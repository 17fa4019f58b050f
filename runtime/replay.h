// A compiled plan as launch records: what is left of a call when everything else is known.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace tessera {

// Runs one plan many times, from any number of threads at once. Per call, the pointers of leaves
// and new results and the values of variables are written into prepared argument arrays; per
// kernel, there is one virtual call. The plan's temporary memory is kept from run to run, once for
// each thread that runs it at the same time.
class Replay {
 public:
  // `variables` names the values that Run is given, in order; it holds every VAR of the plan.
  Replay(CompiledPlanPtr plan, std::vector<std::string> variables);
  ~Replay();
  Replay(const Replay&) = delete;

  // By slot, the storage of each leaf; of each root, its storage in `results` (fresh, unless the
  // root is a leaf or an assignment to one).
  absl::Status Run(absl::Span<Storage* const> leaves, absl::Span<const int64_t> values,
                   absl::Span<std::shared_ptr<Storage>> results);

  const CompiledPlan& plan() const { return *plan_; }
  int64_t kernels() const { return kernels_; }

 private:
  struct Launchable {
    DeviceRuntime* device = nullptr;  // null: a copy
    const Executable* executable = nullptr;
    int first_buffer = 0, num_buffers = 0;
    int first_variable = 0, num_variables = 0;
    int workers = 1;
    const PlanStep* step = nullptr;
  };
  struct Patch {  // an argument that changes from call to call, and what it becomes
    int at, from;
  };
  struct Result {
    int root, buffer;
    DeviceRuntime* device;
    int64_t bytes;
  };
  struct Frame;
  absl::Status RunLaunches(Frame& frame) const;
  absl::StatusOr<std::unique_ptr<Frame>> MakeFrame() const;

  const CompiledPlanPtr plan_;
  std::vector<Launchable> launches_;
  std::vector<int> buffer_of_argument_;
  std::vector<Patch> leaf_patches_, result_patches_, variable_patches_;
  std::vector<Result> results_;
  std::vector<std::pair<int, int>> same_results_;  // a root that is another root
  int64_t num_variables_ = 0, kernels_ = 0;
  DeviceRuntime* only_device_ = nullptr;  // where all launches are kernels of one device
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;
};

// Seconds that a replay takes per kernel, in a chain of kernels that do next to nothing: the
// runtime's share. The least of `rounds` runs.
absl::StatusOr<double> MeasureReplay(const Place& place, int kernels, int rounds);

}  // namespace tessera
