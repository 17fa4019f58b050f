// The scheduler's passes in the order in which schedule.cc runs them, each followed by its parts;
// Localise, Fuse and ShareKernels have headers of their own.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "graph/target.h"
#include "schedule/fuse.h"
#include "schedule/outline_loops.h"
#include "schedule/plan.h"
#include "schedule/rangeify.h"
#include "schedule/targets.h"

namespace tessera {

// ALLREDUCEs of sums that are added up afterwards, perhaps scaled, cast down or moved before,
// become one ALLREDUCE of their sum: it moves no more bytes than one of them did.
std::vector<UOp> MergeCollectives(absl::Span<const UOp> roots);

// An ALLREDUCE of which each place reads only a part of its own becomes an EXCHANGE that combines:
// a place gets that part alone.
std::vector<UOp> ScatterReductions(absl::Span<const UOp> roots,
                                   absl::Span<const PlaceVariable> variables);

// Small ALLREDUCEs over the same places that do not need one another's results become one.
std::vector<UOp> BucketCollectives(absl::Span<const UOp> roots);

// A value that is assigned is written in the shape in which it is computed, not in one that it was
// given afterwards: so that a reduction and the write of its reshaped result are one kernel.
std::vector<UOp> SinkReshapes(absl::Span<const UOp> roots);

// CONTIGUOUS around leaves that need a buffer of their own: roots that are constants, counters or
// variables, and a base that is assigned to another view of itself.
std::vector<UOp> GiveBuffers(absl::Span<const UOp> roots);

// A sum of several products of matrices, such as the gradient of what several layers read, becomes
// the sum of each, added up: tiles, panels and matrix units take one product.
std::vector<UOp> PartProducts(absl::Span<const UOp> roots);

// On CPUs, products of matrices of which few columns lie together in the result become products of
// all columns, laid out beforehand, and rows that lie across memory are laid out as rows.
std::vector<UOp> LayOutProducts(absl::Span<const UOp> roots, const Targets& targets);

// A reduction of much to little becomes two: partial results, enough to occupy the cores, then
// their reduction.
std::vector<UOp> SplitReductions(absl::Span<const UOp> roots, const Targets& targets);

// Makes a product, what reduces its rows and the product that takes them as an operand one group:
// softmax(Q K^T) V is then computed a block of rows at a time.
void ChainProducts(Fusion& fusion, absl::Span<const UOp> roots, const Targets& targets,
                   IndexForms& forms);

// Joins groups of one shape that read a common input and do not depend on one another, and groups
// with those whose values they read element by element: what is kept for later, as for a gradient,
// is written by the kernel that goes on with it. What nothing else reads is then not written.
// What `lasting` leaves alone make stays apart, as it may be kept.
void JoinGroups(Fusion& fusion, absl::Span<const UOp> roots, const Targets& targets,
                const std::vector<bool>& lasting);

// Orders the groups so that producers come before consumers and whoever reads a buffer before the
// ASSIGN that overwrites it. Where both cannot be, the error is FailedPrecondition.
absl::Status OrderGroups(Fusion& fusion);

// `roots` with every other reader of an overwritten base reading a copy of it instead.
std::vector<UOp> CopyOverwritten(absl::Span<const UOp> roots);

// Turns groups into kernels in index form (each distinct one once), not yet divided over cores, and
// steps over plan buffers. The bodies of loops are scheduled where their RANs stand.
absl::StatusOr<Plan> MakeKernels(absl::Span<const UOp> roots, const Fusion& fusion,
                                 absl::Span<const OutlinedLoop> loops, const Targets& targets,
                                 Device default_device, IndexForms& forms);

// In how many parts the axis that a SCATTER writes is divided, each of which reads the whole index:
// 1 unless other axes are too short for the cores. 1 of other values.
int64_t UpdateParts(const UOp& value, const Target& target);

// Reductions of which each point of a loop takes up one element more become RUNNINGs.
UOp KeepRunning(const UOp& sink);

// Marks steps that depend on nothing but lasting leaves, and what they compute, as done once and
// kept, as far as the bytes allow. Gives the bytes that are left.
int64_t KeepLasting(Plan& plan, const Lasting& lasting);

// On CPUs, gives products of matrices their right operand in panels: for each vector of columns, or
// two, all steps of the sum in order. Panels of an operand that lasts are laid out once and kept,
// in at most so many bytes; those of another one before the product, where its rows go by in so
// many blocks that its own kernel would lay out each panel again and again.
void PackPanels(Plan& plan, const Targets& targets, const std::vector<bool>& slots,
                int64_t most_bytes);

constexpr int64_t kWorthACore = 1 << 15;  // element operations that pay for waking one

// Decides over how many cores a kernel is divided, and marks the loop whose points they share; see
// schedule/work_division.h. An error where a core would reach further than the target allows.
absl::Status DivideWork(PlanKernel& kernel, const Target& target);

// A kernel for GPUs with the loops that blocks share marked: those of all stores that reductions
// depend on, all where nothing is reduced.
UOp ShareAmongBlocks(const UOp& kernel);

// DivideWork for kernels with UPDATEs, on CPUs. What writes one element stays on one core, in
// order.
absl::Status DivideUpdates(PlanKernel& kernel, const Target& target);

// Gives temps offsets in their device's arena; two share bytes where their lifetimes are apart.
void PlanMemory(Plan& plan);

}  // namespace tessera
