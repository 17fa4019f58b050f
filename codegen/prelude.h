// What kernels are written in: the text before each kernel function, for CPUs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The chunks of codegen/prelude/ that define what `body` uses, those that they use, and the base,
// in an order in which they compile. Their comments and includes are left out: kernels pay for
// each line. A name that is no chunk's is the compiler's to complain about.
std::string PreludeFor(absl::string_view body);

}  // namespace tessera
