// The loops, compiled once for each instruction set: PEER_LEVEL names the function that gives them.
// Nothing inline of the standard library is used here: the linker keeps one copy of such functions,
// and could keep one that this CPU cannot run.
#include "tools/benchmarks/peers.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::benchmarks {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IVec __attribute__((vector_size(kLanes * 4)));

inline Vec All(float x) { return Vec{} + x; }
inline Vec Max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

inline void Store(float* p, Vec v, bool past_cache) {
#if defined(__AVX512F__)
  if (past_cache) return _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX__)
  if (past_cache) return _mm256_stream_ps(p, (__m256)v);
#elif defined(__x86_64__)
  if (past_cache) return _mm_stream_ps(p, (__m128)v);
#endif
  *(Vec*)p = v;
}

inline float Total(Vec v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}
inline float Highest(Vec v) {
  float top = v[0];
  for (int i = 1; i < kLanes; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// e^x for x <= 0: 2^n by its exponent bits, times a polynomial over |r| <= ln(2) / 2.
inline Vec Exp(Vec x) {
  x = Max(x, All(-87.0f));
  const Vec magic = All(12582912.0f);  // rounds to an integer when added
  const Vec shifted = x * 1.44269504f + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = All(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const IVec scale = ((IVec)shifted << 23) + (127 << 23);
  return p * (Vec)scale;
}

template <int kStreams>
float SumLoop(const float* a, int64_t n) {
  const int64_t stream = n / kStreams;
  constexpr int kEach = 8 / kStreams;  // vectors of a stream at a time
  Vec t[8] = {};
  for (int64_t i = 0; i < stream; i += kEach * kLanes) {
    for (int s = 0; s < kStreams; ++s) {
      for (int k = 0; k < kEach; ++k) {
        t[s * kEach + k] += *(const Vec*)(a + s * stream + i + k * kLanes);
      }
    }
  }
  return Total(((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7])));
}
float Sum(const float* a, int64_t n, Form form) {
  return form.many_streams ? SumLoop<8>(a, n) : SumLoop<1>(a, n);
}

// b = fn(a), a vector at a time.
template <int kStreams, bool kPast, typename Fn>
void MapLoop(const float* a, float* b, int64_t n, Fn fn) {
  const int64_t stream = n / kStreams;
  constexpr int kEach = 8 / kStreams;
  for (int64_t i = 0; i < stream; i += kEach * kLanes) {
    for (int s = 0; s < kStreams; ++s) {
      for (int k = 0; k < kEach; ++k) {
        const int64_t at = s * stream + i + k * kLanes;
        Store(b + at, fn(*(const Vec*)(a + at)), kPast);
      }
    }
  }
}
template <typename Fn>
void Map(const float* a, float* b, int64_t n, Form form, Fn fn) {
  if (form.many_streams) {
    form.past_cache ? MapLoop<8, true>(a, b, n, fn) : MapLoop<8, false>(a, b, n, fn);
  } else {
    form.past_cache ? MapLoop<1, true>(a, b, n, fn) : MapLoop<1, false>(a, b, n, fn);
  }
}

void Copy(const float* a, float* b, int64_t n, Form form) {
  Map(a, b, n, form, [](Vec x) { return x; });
}
void Elementwise(const float* a, float* b, int64_t n, Form form) {
  Map(a, b, n, form, [](Vec x) { return Max(x * 1.5f + 0.5f, Vec{}) * x - 0.25f; });
}

// The loads of a row run beside the arithmetic of the one before it: its maximum is found while
// that one's exponentials are computed, and the row after is on its way.
template <bool kPast>
void SoftmaxLoop(const float* a, float* b, int64_t rows, int64_t columns) {
  alignas(64) float e[8192];
  Vec m[4] = {All(a[0]), All(a[0]), All(a[0]), All(a[0])};
  for (int64_t i = 0; i < columns; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) m[k] = Max(m[k], *(const Vec*)(a + i + k * kLanes));
  }
  for (int64_t r = 0; r < rows; ++r, a += columns, b += columns) {
    const Vec top = All(Highest(Max(Max(m[0], m[1]), Max(m[2], m[3]))));
    const float* next = r + 1 < rows ? a + columns : a;
    for (int k = 0; k < 4; ++k) m[k] = All(next[0]);
    Vec t[4] = {};
    for (int64_t i = 0; i < columns; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const int64_t at = i + k * kLanes;
        __builtin_prefetch(next + columns + at);
        m[k] = Max(m[k], *(const Vec*)(next + at));
        const Vec x = Exp(*(const Vec*)(a + at) - top);
        *(Vec*)(e + at) = x;
        t[k] += x;
      }
    }
    const Vec scale = All(1.0f / Total((t[0] + t[1]) + (t[2] + t[3])));
    for (int64_t i = 0; i < columns; i += kLanes) {
      Store(b + i, *(const Vec*)(e + i) * scale, kPast);
    }
  }
}
void Softmax(const float* a, float* b, int64_t rows, int64_t columns, Form form) {
  form.past_cache ? SoftmaxLoop<true>(a, b, rows, columns)
                  : SoftmaxLoop<false>(a, b, rows, columns);
}

template <bool kPast>
void RmsNormLoop(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
                 float eps) {
  Vec t[4] = {};
  for (int64_t i = 0; i < columns; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) {
      const Vec x = *(const Vec*)(a + i + k * kLanes);
      t[k] += x * x;
    }
  }
  for (int64_t r = 0; r < rows; ++r, a += columns, b += columns) {
    const float mean = Total((t[0] + t[1]) + (t[2] + t[3])) / static_cast<float>(columns);
    const Vec scale = All(1.0f / __builtin_sqrtf(mean + eps));
    const float* next = r + 1 < rows ? a + columns : a;
    for (int k = 0; k < 4; ++k) t[k] = Vec{};
    for (int64_t i = 0; i < columns; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const int64_t at = i + k * kLanes;
        __builtin_prefetch(next + columns + at);
        const Vec x = *(const Vec*)(next + at);
        t[k] += x * x;
        Store(b + at, *(const Vec*)(a + at) * scale * *(const Vec*)(weight + at), kPast);
      }
    }
  }
}
void RmsNorm(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
             float eps, Form form) {
  form.past_cache ? RmsNormLoop<true>(a, weight, b, rows, columns, eps)
                  : RmsNormLoop<false>(a, weight, b, rows, columns, eps);
}

template <bool kPast>
void LayerNormLoop(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
                   float eps) {
  const float n = static_cast<float>(columns);
  Vec t[4] = {}, q[4] = {};
  for (int64_t i = 0; i < columns; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) {
      const Vec x = *(const Vec*)(a + i + k * kLanes);
      t[k] += x;
      q[k] += x * x;
    }
  }
  for (int64_t r = 0; r < rows; ++r, a += columns, b += columns) {
    const float mean = Total((t[0] + t[1]) + (t[2] + t[3])) / n;
    const float square = Total((q[0] + q[1]) + (q[2] + q[3])) / n;
    const Vec scale = All(1.0f / __builtin_sqrtf(square - mean * mean + eps)), middle = All(mean);
    const float* next = r + 1 < rows ? a + columns : a;
    for (int k = 0; k < 4; ++k) t[k] = q[k] = Vec{};
    for (int64_t i = 0; i < columns; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const int64_t at = i + k * kLanes;
        __builtin_prefetch(next + columns + at);
        const Vec x = *(const Vec*)(next + at);
        t[k] += x;
        q[k] += x * x;
        const Vec y = (*(const Vec*)(a + at) - middle) * scale;
        Store(b + at, y * *(const Vec*)(weight + at), kPast);
      }
    }
  }
}
void LayerNorm(const float* a, const float* weight, float* b, int64_t rows, int64_t columns,
               float eps, Form form) {
  form.past_cache ? LayerNormLoop<true>(a, weight, b, rows, columns, eps)
                  : LayerNormLoop<false>(a, weight, b, rows, columns, eps);
}

// Lanes of a and b in turn: of their lower halves, or of their upper ones.
template <bool upper, size_t... i>
inline Vec Interleave(Vec a, Vec b, std::index_sequence<i...>) {
  constexpr int kFirst = upper ? kLanes / 2 : 0;
#ifdef __clang__
  return __builtin_shufflevector(a, b, (kFirst + i / 2 + i % 2 * kLanes)...);
#else
  return __builtin_shuffle(a, b, IVec{(kFirst + i / 2 + i % 2 * kLanes)...});
#endif
}

// A square of kLanes x kLanes turns in registers: each round interleaves the halves.
inline void Turn(Vec* rows) {
  constexpr auto kEach = std::make_index_sequence<kLanes>();
  for (int round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = Interleave<false>(rows[i], rows[i + kLanes / 2], kEach);
      next[2 * i + 1] = Interleave<true>(rows[i], rows[i + kLanes / 2], kEach);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}
// Blocks of rows, so that what is written lies side by side for a while.
void Transpose(const float* a, float* b, int64_t begin, int64_t end, int64_t rows, int64_t columns,
               Form form) {
  constexpr int64_t kBlock = 512;
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = first + kBlock < end ? first + kBlock : end;
    for (int64_t j = 0; j < columns; j += kLanes) {
      for (int64_t i = first; i < last; i += kLanes) {
        Vec block[kLanes];
        for (int k = 0; k < kLanes; ++k) block[k] = *(const Vec*)(a + (i + k) * columns + j);
        Turn(block);
        for (int k = 0; k < kLanes; ++k) Store(b + (j + k) * rows + i, block[k], form.past_cache);
      }
    }
  }
}

}  // namespace

#define PEER_TEXT_INNER(x) #x
#define PEER_TEXT(x) PEER_TEXT_INNER(x)
const Peers& PEER_LEVEL() {
  static constexpr Peers kPeers = {
      PEER_TEXT(PEER_LEVEL), Sum, Copy, Elementwise, Softmax, RmsNorm, LayerNorm, Transpose};
  return kPeers;
}

}  // namespace tessera::benchmarks
