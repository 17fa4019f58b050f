// What builders put around a primitive whose sources lie on several places: reshards before it,
// the ALLREDUCE after it. Composite functions need none of this.
#pragma once

#include <string>

#include "graph/tensor_internal.h"

namespace tessera::internal {

// The node with these parts, some of which are on a Sharding.
UOp BuildSharded(Op op, DType dtype, absl::Span<const UOp> srcs, Arg arg);

// The value on the device, moved below its movement ops where that moves fewer bytes. STRICT=1
// refuses to move bytes; zero-byte slices are always made. `why` is what Explain shows.
UOp Reshard(const UOp& u, const Sharding& to, const std::string& why);

// What that moves.
int64_t ReshardBytes(const UOp& u, const Sharding& to);

}  // namespace tessera::internal
