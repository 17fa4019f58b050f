// A small relocator: the bytes of an ELF64 object become code in this process, without a linker.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// One object file laid out in memory: code is executable and not writable, constants are
// read-only, data is writable. Destroying it unmaps everything, so what was found in it dies too.
class LoadedObject {
 public:
  // Every offset, size and index in the bytes is checked: bytes that are no object for this CPU,
  // or that need what this loader does not know, give DataLoss and never a crash. What the code
  // itself does is not checked. A symbol that the object lacks must be one of FindExternal.
  static absl::StatusOr<std::unique_ptr<LoadedObject>> Load(absl::string_view bytes);

  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  // The address of a function or object that the file defines for others to use, or null.
  void* Symbol(absl::string_view name) const;

  // Bytes of memory that the object takes.
  size_t size() const { return size_; }

 private:
  friend class ElfImage;
  LoadedObject() = default;

  char* base_ = nullptr;
  size_t size_ = 0;
  absl::flat_hash_map<std::string, void*> symbols_;
};

// The address of a C library function that kernels may call (elf_symbols.cc lists them), or null.
void* FindExternal(absl::string_view name);

}  // namespace tessera
