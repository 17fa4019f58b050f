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
//
// Steps that depend on nothing but lasting leaves run before the first run, and again when one of
// those leaves is other storage or was written since; what others read of their results is kept.
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

  // What all replays of the process keep of steps that run once, or will after their first run.
  static int64_t KeptBytes();

 private:
  // A step: a kernel on one place or on each of several, whose arguments and variables follow one
  // another; a transfer, whose targets come before its sources; or a copy.
  struct Launchable {
    struct OnPlace {
      DeviceRuntime* device;
      const Executable* executable;
    };
    std::vector<OnPlace> places;  // of a kernel
    const Transfer* transfer = nullptr;
    int first_buffer = 0, num_buffers = 0;  // of one place; of a transfer all
    int num_targets = 0;                    // of a transfer
    int first_variable = 0, num_variables = 0;
    int workers = 1;
    const PlanStep* step = nullptr;
  };
  // An argument that changes from call to call: what it becomes, and which part of that.
  struct Patch {
    int at, from, part = -1;
  };
  // A variable of a place, whose value depends on the call's.
  struct PlacePatch {
    int at;
    const PlaceVariable* variable;
    int place;
  };
  struct Argument {
    int buffer, place;
  };
  // What changes from turn to turn of a loop, and how many launches it repeats.
  struct TurnPatches {
    std::vector<int> variables;
    struct OfCarried {
      int at, carried;
      bool given;
    };
    std::vector<OfCarried> arguments;
    size_t launches = 0;
    int64_t kernels = 0;  // of its own launches, those of loops within not
  };
  struct OfTurn {
    int loop, carried;
    bool given;
  };
  // What the steps that run once computed.
  struct Kept {
    std::vector<std::shared_ptr<Storage>> storage;  // by kept buffer; null of what no other reads
    std::vector<Contents> from;                     // by watched leaf
  };
  struct Result {
    int root;
    std::vector<DeviceRuntime*> places;
    std::vector<int64_t> bytes;  // of each
    bool in_parts;
  };
  struct Frame;
  void FindKept();
  void AddArgument(int buffer, int place, const std::vector<int>& result_of);
  void AddKernel(const PlanStep& step, absl::Span<const std::string> variables,
                 const std::vector<int>& loops, const std::vector<int>& result_of);
  static absl::StatusOr<std::shared_ptr<Storage>> Allocate(const Result& result);
  absl::StatusOr<int64_t> ValueOf(const Extent& e, absl::Span<const int64_t> values) const;
  absl::Status PatchPlaces(absl::Span<const int64_t> values, Frame& frame) const;
  absl::Status RunLaunches(Frame& frame, absl::Span<const int64_t> values) const;
  absl::Status RunLaunches(absl::Span<const Launchable> launches, Frame& frame,
                           absl::Span<const int64_t> values) const;
  // The loop that this launch begins, and what it repeats.
  absl::Status RunLoop(const Launchable& l, absl::Span<const Launchable> body, Frame& frame,
                       absl::Span<const int64_t> values) const;
  absl::Status RunLaunch(const Launchable& l, const Frame& frame,
                         absl::Span<const int64_t> values) const;
  absl::Status RunKernel(const Launchable& l, const Frame& frame) const;
  absl::StatusOr<std::shared_ptr<const Kept>> KeptFor(absl::Span<Storage* const> leaves,
                                                      absl::Span<const int64_t> values,
                                                      Frame& frame);
  void PatchKept(const Kept& kept, Frame& frame) const;
  absl::StatusOr<std::unique_ptr<Frame>> MakeFrame() const;

  const CompiledPlanPtr plan_;
  std::vector<Launchable> launches_, once_;
  std::vector<TurnPatches> loops_;             // as the plan's
  absl::flat_hash_map<int, OfTurn> of_turns_;  // by buffer
  const std::vector<std::string> names_;       // of the variables
  std::vector<Argument> arguments_;
  std::vector<std::pair<int, int64_t>> fixed_values_;  // variables that a place or step knows
  std::vector<PlacePatch> place_patches_;
  std::vector<Patch> leaf_patches_, result_patches_, variable_patches_;
  std::vector<Result> results_;
  std::vector<std::pair<int, int>> same_results_;  // a root that is another root
  std::vector<int> written_;                       // slots of leaves
  std::vector<int> watched_;                       // slots of leaves that steps that run once read
  std::vector<int> kept_buffers_;                  // of the plan
  std::vector<bool> kept_wanted_;    // of each, whether steps that run each time read it
  std::vector<Patch> kept_patches_;  // `from` counts kept buffers
  int64_t num_variables_ = 0, kernels_ = 0, kernels_once_ = 0, kept_bytes_ = 0;
  DeviceRuntime* only_device_ = nullptr;  // where all launches are kernels of one device
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;
  std::mutex kept_mutex_;
  std::shared_ptr<const Kept> kept_;
};

}  // namespace tessera
