// Compiled texts of the simulated GPU: an object of the CPU with its length, as one image.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/elf_loader.h"
#include "runtime/sim/fibers.h"

namespace tessera::sim {

std::string MakeImage(absl::string_view object);

struct Function {
  std::string name;
  Entry entry = nullptr;
  int params = 0;   // of 8 bytes each
  int device = -1;  // whose context its module was loaded in
  int64_t most_shared = 48 << 10;
};

struct Module {
  std::unique_ptr<LoadedObject> object;
  std::vector<std::unique_ptr<Function>> functions;
  int device = -1;  // whose context it was loaded in
  // Null where the image has no such kernel.
  Function* Find(const std::string& name);
};

// DataLoss: these bytes are no image. Its length is in its first bytes, as in a cubin.
absl::StatusOr<std::unique_ptr<Module>> LoadImage(const void* image);

}  // namespace tessera::sim
