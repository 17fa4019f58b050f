// Exchanges and reductions between places: everything about one that is known before its addresses.
// Between GPUs by NCCL where it is installed and does what the step asks for; all else in this
// process, through memory that the host reaches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/box.h"
#include "runtime/cuda_collectives.h"
#include "runtime/device.h"
#include "schedule/plan.h"

namespace tessera {

// One transfer step of a plan. In this process values are combined in the order of the places, so
// that each run gives the same bits; by NCCL, in the order of its algorithm.
class Transfer {
 public:
  // The step must be no kernel and no copy.
  static absl::StatusOr<std::unique_ptr<const Transfer>> Make(const Plan& plan,
                                                              const PlanStep& step);
  using Values = absl::FunctionRef<absl::StatusOr<int64_t>(const Extent&)>;

  // Addresses by place. `value` gives extents that depend on variables. Allocates nothing if every
  // place is on the host and no extent is symbolic.
  absl::Status Run(absl::Span<void* const> target, absl::Span<const void* const> source,
                   Values value) const;

 private:
  struct Copies {
    std::vector<Box> want, have;           // by place, of the target and of the source
    std::vector<std::vector<Move>> moves;  // by place of the target
    int64_t elements = 0;                  // of all moves
  };
  struct Group {
    std::vector<int> places;
    Extent elements;
  };

  static Copies CopiesOf(const Boxes& from, const Boxes& to);
  absl::Status RunExchange(const Copies& copies, absl::Span<void* const> target,
                           absl::Span<const void* const> source) const;
  absl::Status FillHost(const Copies& copies, int place, void* target,
                        absl::Span<const void* const> source) const;
  absl::Status FillDevice(const Copies& copies, int place, void* target,
                          absl::Span<const void* const> source) const;
  absl::Status RunAllReduce(absl::Span<void* const> target, absl::Span<const void* const> source,
                            Values value) const;
  absl::Status ReduceOffHost(const Group& group, int64_t elements, absl::Span<void* const> target,
                             absl::Span<const void* const> source) const;
  void Combine(const Group& group, int64_t begin, int64_t end, absl::Span<void* const> target,
               absl::Span<const void* const> source) const;
  absl::Status RunReduceScatter(absl::Span<void* const> target,
                                absl::Span<const void* const> source) const;
  void CombinePart(const Group& group, int place, void* target,
                   absl::Span<const void* const> parts) const;

  // By NCCL (transfer_nccl.cc). False: it has no such call, or is not there.
  void FindGpus();
  bool HaveNccl() const;
  std::vector<cuda::GpuPlace> GpusOf(const Group& group) const;
  absl::StatusOr<bool> ReduceByNccl(const Group& group, int64_t elements,
                                    absl::Span<void* const> target,
                                    absl::Span<const void* const> source) const;
  absl::StatusOr<bool> ScatterByNccl(const Group& group, absl::Span<void* const> target,
                                     absl::Span<const void* const> source) const;
  absl::StatusOr<bool> ExchangeByNccl(const Copies& copies, absl::Span<void* const> target,
                                      absl::Span<const void* const> source) const;

  PlanStep::Kind kind_ = PlanStep::kExchange;
  Op op_ = Op::kAdd;
  DType dtype_;
  std::vector<DeviceRuntime*> to_, from_;
  bool wanted_ = true, there_ = true;  // computed with after it, and before it (not on NULL)
  bool on_host_ = true;
  std::vector<cuda::GpuPlace> gpus_;  // all places, each once, where NCCL may serve them
  std::string what_;                  // the step, as errors of it begin
  // Of an exchange; boxes hold symbolic axes with their highest extents. How long a piece of one is
  // in a call, by axis and piece.
  struct Length {
    int axis;
    size_t piece;
    Extent extent;
  };
  static std::vector<Length> LengthsOf(const Plan& plan, const PlanBuffer& buffer,
                                       const Boxes& boxes);
  static absl::StatusOr<Boxes> Shortened(const Boxes& boxes, absl::Span<const Length> lengths,
                                         Values value);
  std::shared_ptr<const Boxes> boxes_from_, boxes_to_;
  std::vector<Length> lengths_from_, lengths_to_;
  Copies copies_;
  std::vector<Group> groups_;  // of a reduction
  int64_t bytes_moved_ = 0, bytes_sent_ = 0;
};

}  // namespace tessera
