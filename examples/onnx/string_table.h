// Numbers that stand for strings: equal ones for equal strings, of all models of the process.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera::onnx {

// The number of a string, 0 of the empty one. Strings are kept as long as the process lives.
uint64_t NumberOf(absl::string_view text);
// The string of a number; an Error where it is none of any. Valid for ever.
absl::string_view StringOf(uint64_t number);

}  // namespace tessera::onnx
