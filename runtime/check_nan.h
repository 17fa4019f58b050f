// CHECK_NAN: finding the op that made the first NaN.
#pragma once

#include <cstdint>
#include <string>

#include "graph/dtype.h"
#include "runtime/runtime.h"

namespace tessera {

// The position of the first NaN among elements of a dtype; -1 where there is none.
int64_t FindNan(const void* data, DType dtype, int64_t elements);

// Position `flat` of a shape as "[2, 0]".
std::string ShowPosition(int64_t flat, const std::vector<int64_t>& shape);

// What made the NaN that a kernel of this graph was found to make: its nodes are computed one by
// one, each from what those before it gave, and the error names the first that makes a NaN of none.
// Where that cannot be done (an ASSIGN changes what is read; the values are no host's, or on many
// places) the error is `found`.
absl::Status NameNanOp(const PlanKey& key, const Bindings& bindings, const absl::Status& found);

}  // namespace tessera
