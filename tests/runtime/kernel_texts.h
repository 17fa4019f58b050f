// Kernel texts that several tests of the JIT share.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {

// out[i] = a[i] * factor + 1 over eight-wide vectors; vars[0] elements, a multiple of eight, split
// over the workers.
inline std::string ScaleText(double factor, const std::string& name = "scale") {
  return absl::StrCat(R"(
typedef float f32x8 __attribute__((vector_size(32), aligned(4)));
extern "C" void )",
                      name, R"((void* const* buffers, const long* vars, void* scratch, long worker,
                           long workers) {
  float* out = (float*)buffers[0];
  const float* a = (const float*)buffers[1];
  const long n = vars[0] / 8;
  for (long i = n * worker / workers; i < n * (worker + 1) / workers; ++i)
    *(f32x8*)(out + 8 * i) = *(const f32x8*)(a + 8 * i) * (float))",
                      factor, R"( + 1.0f;
}
)");
}

// Exercises what a loader meets: constants, data, zeros, a jump table, calls out and within.
inline std::string EverythingText() {
  return R"(
extern "C" float expf(float); extern "C" double pow(double, double);
extern "C" void* memcpy(void*, const void*, unsigned long);
typedef float f32x16 __attribute__((vector_size(64), aligned(4)));
static const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static float zeros[256];
static float counter = 10;
const float* pointers[2] = {table, table + 4};
__attribute__((noinline)) static float Inner(float x) { return x * 3.25f; }
extern "C" double (*indirect)(double, double) = pow;
extern "C" void everything(void* const* buffers, const long* vars, void*, long, long) {
  float* out = (float*)buffers[0];
  float x = 0;
  switch (vars[0]) {
    case 0: x = Inner(2.5f); break;
    case 1: x = expf(1.5f); break;
    case 2: x = zeros[vars[1]] + table[vars[1] & 7]; break;
    case 3: x = counter; counter += 1; break;
    case 4: x = pointers[vars[1] & 1][2]; break;
    case 5: x = (float)indirect(2.0, 10.0); break;
    case 6: memcpy(zeros, buffers[1], vars[1]); x = zeros[3]; break;
    case 7: { f32x16 v = *(f32x16*)buffers[1]; v = v * 2.0f + (f32x16){1,2,3,4,5,6,7,8,9,10,11,12,
             13,14,15,16}; *(f32x16*)buffers[1] = v; x = v[15]; break; }
  }
  out[0] = x;
}
)";
}

}  // namespace tessera
