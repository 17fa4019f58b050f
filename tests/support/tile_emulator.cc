// Decoding and effects of AMX instructions.
#include "tests/support/tile_emulator.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/host_target.h"

#if defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tessera {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

std::atomic<int64_t> products{0};

#if defined(__x86_64__)

struct Tile {
  int rows = 0, row_bytes = 0;
  uint8_t data[kRows][kRowBytes] = {};
};

struct TileState {
  bool configured = false;
  uint8_t config[64] = {};
  Tile tiles[kTiles];
};
thread_local TileState state;

struct sigaction before;

// A VEX-encoded instruction of the map 0F38.
struct Instruction {
  uint8_t opcode = 0, prefix = 0;  // 0 none, 1: 66, 2: F3, 3: F2
  bool wide = false, memory = false;
  int reg = 0, rm = 0, vvvv = 0;
  const uint8_t* address = nullptr;  // of the operand in memory, without the index
  int64_t index = 0;                 // its register times its scale
  int length = 0;
};

constexpr int kGeneral[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};

bool Decode(const uint8_t* code, const greg_t* regs, Instruction& out) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2) return false;
  const int r = code[1] & 0x80 ? 0 : 8, x = code[1] & 0x40 ? 0 : 8, b = code[1] & 0x20 ? 0 : 8;
  out.wide = (code[2] & 0x80) != 0;
  out.vvvv = ~(code[2] >> 3) & 15;
  if (code[2] & 4) return false;
  out.prefix = code[2] & 3;
  out.opcode = code[3];
  const uint8_t modrm = code[4];
  const int mod = modrm >> 6;
  out.reg = (modrm >> 3 & 7) + r;
  out.memory = mod != 3;
  const uint8_t* at = code + 5;
  if (!out.memory) {
    out.rm = (modrm & 7) + b;
  } else {
    int64_t base = 0;
    bool absolute = false;
    if ((modrm & 7) == 4) {
      const uint8_t sib = *at++;
      const int index = (sib >> 3 & 7) + x, from = (sib & 7) + b;
      if (index != 4) out.index = regs[kGeneral[index]] << (sib >> 6);
      absolute = mod == 0 && (from & 7) == 5;
      if (!absolute) base = regs[kGeneral[from]];
    } else if (mod == 0 && (modrm & 7) == 5) {
      absolute = true;  // from the next instruction
      base = reinterpret_cast<int64_t>(at) + 4;
    } else {
      base = regs[kGeneral[(modrm & 7) + b]];
    }
    if (mod == 1) {
      base += static_cast<int8_t>(*at++);
    } else if (mod == 2 || absolute) {
      int32_t more;
      std::memcpy(&more, at, sizeof(more));
      base += more;
      at += sizeof(more);
    }
    out.address = reinterpret_cast<const uint8_t*>(base);
  }
  out.length = static_cast<int>(at - code);
  return true;
}

void Configure(const uint8_t* from) {
  state = TileState();
  std::memcpy(state.config, from, sizeof(state.config));
  state.configured = from[0] == 1;
  for (int t = 0; t < kTiles; ++t) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, from + 16 + 2 * t, sizeof(row_bytes));
    state.tiles[t].row_bytes = row_bytes;
    state.tiles[t].rows = from[48 + t];
  }
}

// Subnormal numbers are zero, of either sign.
float Flushed(float f) { return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f; }

float FromBf16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &wide, sizeof(f));
  return Flushed(f);
}

void MultiplyBf16(Tile& c, const Tile& a, const Tile& b) {
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      float even = 0, odd = 0, old;
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        const uint8_t *x = a.data[m] + 4 * k, *y = b.data[k] + 4 * n;
        even = Flushed(std::fma(FromBf16(x), FromBf16(y), even));
        odd = Flushed(std::fma(FromBf16(x + 2), FromBf16(y + 2), odd));
      }
      std::memcpy(&old, c.data[m] + 4 * n, sizeof(old));
      const float sum = Flushed(Flushed(old) + Flushed(even + odd));
      std::memcpy(c.data[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

void MultiplyBytes(Tile& c, const Tile& a, const Tile& b, bool a_signed, bool b_signed) {
  const auto number = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte);
  };
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      uint32_t sum;
      std::memcpy(&sum, c.data[m] + 4 * n, sizeof(sum));
      for (int k = 0; k < a.row_bytes; ++k) {
        const int x = number(a.data[m][k], a_signed);
        const int y = number(b.data[k / 4][4 * n + k % 4], b_signed);
        sum += static_cast<uint32_t>(x * y);
      }
      std::memcpy(c.data[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

// Whether the shapes of a product's tiles fit, as the chip asks for.
bool Fits(const Tile& c, const Tile& a, const Tile& b) {
  return c.rows == a.rows && a.row_bytes / 4 == b.rows && b.row_bytes == c.row_bytes &&
         c.rows > 0 && c.row_bytes > 0 && a.row_bytes > 0;
}

bool MoveTile(const Instruction& i) {
  if (i.opcode == 0x4b && i.memory && i.reg < kTiles && state.configured) {
    Tile& t = state.tiles[i.reg];
    if (t.rows == 0) return false;
    for (int row = 0; row < t.rows; ++row) {
      uint8_t* at = const_cast<uint8_t*>(i.address) + row * i.index;
      if (i.prefix == 2) {
        std::memcpy(at, t.data[row], t.row_bytes);
      } else {
        std::memcpy(t.data[row], at, t.row_bytes);
      }
    }
    for (int row = t.rows; i.prefix != 2 && row < kRows; ++row)
      std::memset(t.data[row], 0, kRowBytes);
    return true;
  }
  return false;
}

bool Execute(const Instruction& i) {
  if (i.wide) return false;
  if (i.opcode == 0x49) {
    if (i.memory && i.prefix == 0) {
      Configure(i.address);
    } else if (i.memory && i.prefix == 1) {
      std::memcpy(const_cast<uint8_t*>(i.address), state.config, sizeof(state.config));
    } else if (!i.memory && i.prefix == 0 && i.rm == 0) {
      state = TileState();
    } else if (!i.memory && i.prefix == 3 && state.configured && i.reg < kTiles) {
      std::memset(state.tiles[i.reg].data, 0, sizeof(state.tiles[i.reg].data));
    } else {
      return false;
    }
    return true;
  }
  if (i.opcode == 0x4b) return i.prefix != 0 && MoveTile(i);
  if (i.memory || !state.configured || i.reg >= kTiles || i.rm >= kTiles || i.vvvv >= kTiles) {
    return false;
  }
  if (i.reg == i.rm || i.reg == i.vvvv || i.rm == i.vvvv) return false;  // must be distinct
  Tile& c = state.tiles[i.reg];
  const Tile &a = state.tiles[i.rm], &b = state.tiles[i.vvvv];
  if (!Fits(c, a, b)) return false;
  if (i.opcode == 0x5c && i.prefix == 2) {
    MultiplyBf16(c, a, b);
  } else if (i.opcode == 0x5e) {
    // 0: both unsigned, 1: unsigned by signed, 2: signed by unsigned, 3: both signed
    MultiplyBytes(c, a, b, i.prefix >= 2, (i.prefix & 1) != 0);
  } else {
    return false;
  }
  products.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void OnRefused(int, siginfo_t*, void* context) {
  auto* c = static_cast<ucontext_t*>(context);
  greg_t* regs = c->uc_mcontext.gregs;
  Instruction i;
  if (Decode(reinterpret_cast<const uint8_t*>(regs[REG_RIP]), regs, i) && Execute(i)) {
    regs[REG_RIP] += i.length;
    return;
  }
  sigaction(SIGILL, &before, nullptr);  // refused again, and for good
}

#endif

}  // namespace

#if defined(__x86_64__)

EmulateTiles::EmulateTiles() {
  struct sigaction action = {};
  action.sa_sigaction = OnRefused;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before);
}

EmulateTiles::~EmulateTiles() { sigaction(SIGILL, &before, nullptr); }

#else

EmulateTiles::EmulateTiles() = default;
EmulateTiles::~EmulateTiles() = default;

#endif

int64_t EmulateTiles::Products() { return products.load(std::memory_order_relaxed); }

bool CanEmulateTiles() {
#if defined(__x86_64__)
  return true;
#else
  return false;
#endif
}

Target HostWithTiles() {
  Target t = HostTarget();
  for (const char* feature : {"+amx-tile", "+amx-bf16", "+amx-int8"}) {
    if (!absl::StrContains(t.features, feature)) absl::StrAppend(&t.features, ",", feature);
  }
  return t;
}

}  // namespace tessera
