// A library with the names of NVRTC's functions and nothing behind them, of the version that a test
// has set.
#include "runtime/cuda_tables.h"

extern "C" {
int fake_major = 13;
int fake_minor = 0;
}

namespace {
int Answer(const char* symbol, int* major, int* minor) {
  if (__builtin_strcmp(symbol, "nvrtcVersion") != 0) return 1;
  *major = fake_major;
  *minor = fake_minor;
  return 0;
}
}  // namespace

#define X(member, symbol, type)                                         \
  extern "C" int fake_##member(int* major, int* minor) __asm__(symbol); \
  extern "C" int fake_##member(int* major, int* minor) { return Answer(symbol, major, minor); }

TESSERA_NVRTC_FUNCTIONS(X)
