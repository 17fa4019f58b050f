// C++ text to a relocatable object: by the Clang plugin in this process, or by a child clang.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/target.h"

namespace tessera {

// Compiles one text for the target. Thread-safe, and threads compile at the same time; the work
// runs on a thread with a big stack of its own, so any caller will do. The text sees no headers
// and no library: what it may call is the list in elf_symbols.cc. Arithmetic is exact: nothing is
// contracted, reassociated or assumed about overflow and aliasing. Only what is declared
// always_inline is inlined.
//
// The plugin is loaded at the first call and never unloaded; where it is missing, or JIT=2, a
// child `clang` compiles. InvalidArgument: the text is wrong, and the message holds the compiler's
// log and the text. Unavailable: no compiler; the message says what was sought where.
absl::StatusOr<std::string> CompileToObject(absl::string_view text, const Target& target);

// Names the compiler that CompileToObject would use, without loading it: paths, sizes and times of
// the files that it consists of. Part of every cache key. Empty where there is no compiler.
std::string CompilerIdentity();

// Whether the plugin has been loaded into this process.
bool CompilerLoaded();

namespace internal {
// The two ways by themselves, for tests.
absl::StatusOr<std::string> CompileInProcess(absl::string_view text, const Target& target);
absl::StatusOr<std::string> CompileInChild(absl::string_view text, const Target& target);
}  // namespace internal

}  // namespace tessera
