// Hand-written loops that kernels are compared with, for the CPU at hand.
//
// Every loop works on one core's share, in forms that memory systems like differently: in one
// stream or eight at once, with stores that go past the cache or ordinary ones.
#pragma once

#include <cstdint>

namespace tessera::benchmarks {

struct Form {
  bool many_streams = false;
  bool past_cache = false;
};

struct Peers {
  const char* level;  // the instruction set they are compiled for
  // The sum of what is read: a pure test of reading, too. n is a multiple of 1024.
  float (*sum)(const float* a, int64_t n, Form form);
  // As much read as written: a pure test of both.
  void (*copy)(const float* a, float* b, int64_t n, Form form);
  // b = max(a * 1.5 + 0.5, 0) * a - 0.25
  void (*elementwise)(const float* a, float* b, int64_t n, Form form);
  // Rows of `columns` elements, a multiple of 64 and at most 8192; in one stream.
  void (*softmax)(const float* a, float* b, int64_t rows, int64_t columns, Form form);
  void (*rmsnorm)(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
                  float eps, Form form);
  void (*layernorm)(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
                    float eps, Form form);
  // Rows [begin, end) of [rows, columns] as columns of b, in blocks of 16; all multiples of 16.
  void (*transpose)(const float* a, float* b, int64_t begin, int64_t end, int64_t rows,
                    int64_t columns, Form form);
};

// The best of what this build holds that this CPU can run.
const Peers& HostPeers();

}  // namespace tessera::benchmarks
