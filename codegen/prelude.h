// What kernels are written in: the text before each kernel function, for CPUs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The part of codegen/prelude/ that `body` uses, in an order that compiles. It is picked by
// paragraphs, as every kernel pays for each line: those in which a name of the body (rt_exp, say)
// occurs for the first time, those that define what they use in turn, and no others. Comments and
// includes are left out. A name that no file there knows is the compiler's to complain about.
std::string PreludeFor(absl::string_view body);

}  // namespace tessera
