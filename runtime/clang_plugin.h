// The C interface between the runtime and its Clang plugin, the only code of ours that links LLVM.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Raised whenever a struct or function below changes: the runtime refuses a plugin of another one.
#define TESSERA_CLANG_ABI 1
#define TESSERA_CLANG_EXPORT __attribute__((visibility("default")))

extern "C" {

struct TesseraCompileOptions {
  const char* cpu;       // as Clang spells it
  const char* features;  // "+avx2,-sse4a"; names that this Clang does not know are left out
  int32_t opt_level;     // 0: straight code; else the pass list of the plugin
  int32_t contract;      // 1: a*b+c may become one fused operation wherever it stands
  int32_t vector_bits;   // widest vectors that code generation keeps whole
};

// Bytes that the plugin allocated; tessera_clang_free gives them back.
struct TesseraBytes {
  char* data;
  size_t size;
};

// TESSERA_CLANG_ABI of the plugin.
TESSERA_CLANG_EXPORT int32_t tessera_clang_abi(void);

// Version of the Clang inside, as text.
TESSERA_CLANG_EXPORT const char* tessera_clang_version(void);

// Compiles C++17 text to a relocatable object. Returns 1 and the object, or 0; the log holds the
// diagnostics either way. Thread-safe and parallel; wants a big stack. An error that LLVM itself
// calls fatal returns 0 too, and leaks what that compile held.
TESSERA_CLANG_EXPORT int32_t tessera_clang_compile(const char* text, size_t size,
                                                   const TesseraCompileOptions* options,
                                                   TesseraBytes* object, TesseraBytes* log);

TESSERA_CLANG_EXPORT void tessera_clang_free(TesseraBytes* bytes);

}  // extern "C"
