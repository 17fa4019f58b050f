// The relocations of the ELF64 machines that we load: what each needs and how it is applied.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tessera {

// What the place of a relocation refers to beside the symbol itself.
enum class RelocationUse : uint8_t {
  kNone,     // nothing is written
  kAddress,  // the symbol
  kCall,     // the symbol, or a stub near the code that jumps to it
  kSlot,     // a slot near the code that holds the symbol's address
  kUnknown,  // not one of ours
};

// The use and the bytes written (0, 4 or 8) of a relocation type of a machine (EM_X86_64, ...).
struct RelocationKind {
  RelocationUse use;
  int width;
};
RelocationKind KindOf(uint16_t machine, uint32_t type);

// Writes one relocation at `place`, whose run-time address is `address`; `symbol` is the address of
// what KindOf named. DataLoss if the value does not fit.
absl::Status ApplyRelocation(uint16_t machine, uint32_t type, char* place, uint64_t address,
                             uint64_t symbol, int64_t addend);

// Bytes of one stub, and the writing of one at `place` that jumps to the address held in `slot`.
constexpr int kStubBytes = 16;
void WriteStub(uint16_t machine, char* place, uint64_t address, uint64_t slot);

}  // namespace tessera
