// Relocation arithmetic for x86-64 and aarch64, after their ELF ABI documents.
#include "runtime/elf_relocations.h"

#include <elf.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "graph/status.h"

namespace tessera {
namespace {

absl::Status TooFar(uint32_t type) {
  return absl::DataLossError(
      absl::StrCat("relocation type ", type, " does not reach; compile with -fPIC"));
}

template <typename T>
void Write(char* place, T value) {
  std::memcpy(place, &value, sizeof(value));
}

uint32_t ReadWord(const char* place) {
  uint32_t word;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

bool FitsSigned(int64_t value, int bits) {
  return value >= -(int64_t{1} << (bits - 1)) && value < (int64_t{1} << (bits - 1));
}

RelocationKind KindX86(uint32_t type) {
  switch (type) {
    case R_X86_64_NONE:
      return {RelocationUse::kNone, 0};
    case R_X86_64_64:
    case R_X86_64_PC64:
      return {RelocationUse::kAddress, 8};
    case R_X86_64_32:
    case R_X86_64_32S:
      return {RelocationUse::kAddress, 4};
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return {RelocationUse::kCall, 4};
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return {RelocationUse::kSlot, 4};
  }
  return {RelocationUse::kUnknown, 0};
}

absl::Status ApplyX86(uint32_t type, char* place, uint64_t address, uint64_t symbol,
                      int64_t addend) {
  const uint64_t value = symbol + static_cast<uint64_t>(addend);
  const int64_t distance = static_cast<int64_t>(value - address);
  switch (type) {
    case R_X86_64_NONE:
      return absl::OkStatus();
    case R_X86_64_64:
      Write<uint64_t>(place, value);
      return absl::OkStatus();
    case R_X86_64_PC64:
      Write<int64_t>(place, distance);
      return absl::OkStatus();
    case R_X86_64_32:
      if (value > UINT32_MAX) return TooFar(type);
      Write<uint32_t>(place, static_cast<uint32_t>(value));
      return absl::OkStatus();
    case R_X86_64_32S:
      if (!FitsSigned(static_cast<int64_t>(value), 32)) return TooFar(type);
      Write<int32_t>(place, static_cast<int32_t>(value));
      return absl::OkStatus();
    default:  // KindX86 let only the 32-bit relative ones through
      if (!FitsSigned(distance, 32)) return TooFar(type);
      Write<int32_t>(place, static_cast<int32_t>(distance));
      return absl::OkStatus();
  }
}

RelocationKind KindArm(uint32_t type) {
  switch (type) {
    case R_AARCH64_NONE:
      return {RelocationUse::kNone, 0};
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64:
      return {RelocationUse::kAddress, 8};
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return {RelocationUse::kAddress, 4};
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
      return {RelocationUse::kCall, 4};
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC:
      return {RelocationUse::kSlot, 4};
  }
  return {RelocationUse::kUnknown, 0};
}

// ADRP: the distance between pages in the two immediate fields of the instruction.
absl::Status WritePage(uint32_t type, char* place, uint64_t address, uint64_t value) {
  const int64_t pages =
      static_cast<int64_t>((value & ~uint64_t{0xfff}) - (address & ~uint64_t{0xfff})) >> 12;
  if (!FitsSigned(pages, 21)) return TooFar(type);
  const uint32_t bits = static_cast<uint32_t>(pages) & 0x1fffff;
  Write<uint32_t>(place, (ReadWord(place) & 0x9f00001f) | (bits & 3) << 29 | (bits >> 2) << 5);
  return absl::OkStatus();
}

// The low twelve bits in the immediate field of an ADD, or scaled in that of a load or store.
absl::Status WriteLow(uint32_t type, char* place, uint64_t value, int scale) {
  const uint32_t low = static_cast<uint32_t>(value & 0xfff);
  if (low & ((1u << scale) - 1)) return TooFar(type);
  Write<uint32_t>(place, (ReadWord(place) & ~(0xfffu << 10)) | (low >> scale) << 10);
  return absl::OkStatus();
}

absl::Status ApplyArm(uint32_t type, char* place, uint64_t address, uint64_t symbol,
                      int64_t addend) {
  const uint64_t value = symbol + static_cast<uint64_t>(addend);
  const int64_t distance = static_cast<int64_t>(value - address);
  switch (type) {
    case R_AARCH64_NONE:
      return absl::OkStatus();
    case R_AARCH64_ABS64:
      Write<uint64_t>(place, value);
      return absl::OkStatus();
    case R_AARCH64_PREL64:
      Write<int64_t>(place, distance);
      return absl::OkStatus();
    case R_AARCH64_PREL32:
      if (!FitsSigned(distance, 32)) return TooFar(type);
      Write<int32_t>(place, static_cast<int32_t>(distance));
      return absl::OkStatus();
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
      if (!FitsSigned(distance, 28) || (distance & 3) != 0) return TooFar(type);
      Write<uint32_t>(place, (ReadWord(place) & 0xfc000000) |
                                 (static_cast<uint32_t>(distance >> 2) & 0x03ffffff));
      return absl::OkStatus();
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_GOT_PAGE:
      return WritePage(type, place, address, value);
    case R_AARCH64_LDST16_ABS_LO12_NC:
      return WriteLow(type, place, value, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC:
      return WriteLow(type, place, value, 2);
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC:
      return WriteLow(type, place, value, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return WriteLow(type, place, value, 4);
    default:  // ADD_ABS_LO12_NC and LDST8_ABS_LO12_NC
      return WriteLow(type, place, value, 0);
  }
}

}  // namespace

RelocationKind KindOf(uint16_t machine, uint32_t type) {
  return machine == EM_X86_64 ? KindX86(type) : KindArm(type);
}

absl::Status ApplyRelocation(uint16_t machine, uint32_t type, char* place, uint64_t address,
                             uint64_t symbol, int64_t addend) {
  if (machine == EM_X86_64) return ApplyX86(type, place, address, symbol, addend);
  return ApplyArm(type, place, address, symbol, addend);
}

void WriteStub(uint16_t machine, char* place, uint64_t address, uint64_t slot) {
  if (machine == EM_X86_64) {  // jmp *slot(%rip); int3 ...
    std::memset(place, 0xcc, kStubBytes);
    Write<uint16_t>(place, 0x25ff);
    Write<int32_t>(place + 2, static_cast<int32_t>(slot - (address + 6)));
    return;
  }
  // adrp x16, slot; ldr x16, [x16, low]; br x16
  Write<uint32_t>(place, 0x90000010);
  Write<uint32_t>(place + 4, 0xf9400210);
  Write<uint32_t>(place + 8, 0xd61f0200);
  Write<uint32_t>(place + 12, 0xd4200000);
  CHECK(ApplyArm(R_AARCH64_ADR_GOT_PAGE, place, address, slot, 0).ok());
  CHECK(ApplyArm(R_AARCH64_LD64_GOT_LO12_NC, place + 4, address + 4, slot, 0).ok());
}

}  // namespace tessera
