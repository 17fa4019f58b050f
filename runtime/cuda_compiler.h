// CUDA text to images that a driver loads: by NVRTC, in parallel, kept on disk.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/codegen.h"
#include "graph/target.h"
#include "runtime/cuda_tables.h"

namespace tessera::cuda {

// A compiler for one kind of device: its table, found when first needed, and what its images depend
// on beside text, target and options.
struct Compiler {
  absl::StatusOr<const NvrtcTable*> (*table)();
  absl::StatusOr<std::string> (*identity)(const NvrtcTable& nvrtc);
};

// NVRTC's options for a target: its arch, and arithmetic as it is written.
std::vector<std::string> CompileOptions(const Target& target);

struct Compiled {
  std::string image;  // a cubin; of a virtual arch the PTX, which a driver compiles
  std::string ptx, log;
};

// Compiles one text with these options. InvalidArgument holds the log and the numbered text.
absl::StatusOr<Compiled> CompileText(const NvrtcTable& nvrtc, const std::string& text,
                                     const std::string& name,
                                     absl::Span<const std::string> options);

// The image of each program, in their order: from disk (CACHE, CACHE_DIR) or compiled, on up to
// `threads` threads. The first error in that order is the result, with the program's statements.
absl::StatusOr<std::vector<std::string>> CompileImages(const Compiler& compiler,
                                                       absl::Span<const Program* const> programs,
                                                       const Target& target, int threads);

}  // namespace tessera::cuda
