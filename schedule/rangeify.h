// A tensor kernel into index form: shapes and movement ops become index expressions over RANGEs.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/uop.h"

namespace tessera {

// One value that a kernel computes and the PARAM it is written to. `target` is the PARAM itself,
// or a chain of movement ops over it for a write into a view.
struct KernelOutput {
  UOp value, target;
};

// What kernels that compute the same to the same places have in common.
UOp KernelIdentity(absl::Span<const KernelOutput> outputs);

// The index form of a kernel that computes the outputs, all over one shape: a SINK of STOREs whose
// ranges are the loops over that shape. The values' leaves are PARAMs, CONSTs, IOTAs and VARs. A
// reduction runs over a RANGE of the kernel where one of its extent does not index its result, so
// that equal reads are equal nodes whichever loop they stand in.
//
// A SCATTER is the one output of its kernel: the STORE of its base, then the UPDATE, after the
// loops that both have. Over one part of the axis that it writes, of `parts`, if that is more than
// one.
absl::StatusOr<UOp> Rangeify(absl::Span<const KernelOutput> outputs, int64_t parts = 1);

// The same with loops joined and divided as MergeRanges and SplitRanges do: what a kernel is.
absl::StatusOr<UOp> IndexForm(absl::Span<const KernelOutput> outputs, int64_t parts = 1);

// The same, looked up among those made before. What are parts of one graph share them: as many
// parts have those that are equal.
using IndexForms = absl::flat_hash_map<UOp, UOp>;  // by identity
absl::StatusOr<UOp> IndexForm(absl::Span<const KernelOutput> outputs, IndexForms& forms,
                              int64_t parts = 1);

}  // namespace tessera
