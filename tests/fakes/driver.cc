// A library with the names of the CUDA driver's functions and nothing behind them: cuInit answers
// what a test has set, and so does the version.
#include "runtime/cuda_tables.h"

extern "C" {
int fake_init_result = 0;
int fake_version = 13000;
}

namespace {
int Answer(const char* symbol, void* first) {
  const auto is = [&](const char* name) { return __builtin_strcmp(symbol, name) == 0; };
  if (is("cuInit")) return fake_init_result;
  if (is("cuDriverGetVersion")) *static_cast<int*>(first) = fake_version;
  return is("cuDriverGetVersion") ? 0 : 1;
}
}  // namespace

#define X(member, symbol, type)                              \
  extern "C" int fake_##member(void* first) __asm__(symbol); \
  extern "C" int fake_##member(void* first) { return Answer(symbol, first); }

TESSERA_DRIVER_FUNCTIONS(X)
