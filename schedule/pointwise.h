// Parts of values that are computed element by element, from the same parts of what they read.
#pragma once

#include "absl/functional/function_ref.h"
#include "graph/uop.h"

namespace tessera {

// x made again over parts of what it reads through elementwise ops: where `part` stands for what is
// none, x itself perhaps. Elementwise scalars stay, and go with any part. Nothing where `part`
// gives nothing.
UOp PartThrough(const UOp& x, absl::FunctionRef<bool(const UOp&)> elementwise,
                absl::FunctionRef<UOp(const UOp&)> part);

}  // namespace tessera
