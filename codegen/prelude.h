// What kernels are written in: the text before each kernel function, by who compiles it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The part of codegen/prelude/ that `body` uses, in an order that compiles. It is picked by
// paragraphs, as every kernel pays for each line: those in which a name of the body (rt_exp, say)
// occurs for the first time, those that define what they use in turn, and no others. Comments and
// includes are left out. A name that no file there knows is the compiler's to complain about.
enum class PreludeKind : uint8_t { kCpp, kCuda, kSim };
std::string PreludeFor(absl::string_view body, PreludeKind kind = PreludeKind::kCpp);

// All of it: what a text under this prelude may depend on.
std::string WholePrelude(PreludeKind kind);

// Stands between prelude and body of a GPU's text, so that the simulated GPU finds the body.
inline constexpr char kBodyMark[] = "//@ kernel\n";

}  // namespace tessera
