// Types, memory and lanes of CUDA text: what base.h is for CPUs, in what NVRTC takes without
// headers.
//
// The same rules hold as for base.h: paragraphs without an empty line, nothing used above its
// definition. Vectors are structs, which the compiler takes apart; f16 is held as bits.
#pragma once

typedef char rt_bool;
typedef signed char rt_i8;
typedef short rt_i16;
typedef int rt_i32;
typedef long long rt_i64;
typedef unsigned char rt_u8;
typedef unsigned short rt_u16;
typedef unsigned rt_u32;
typedef unsigned long long rt_u64;
typedef unsigned char rt_f8e4m3;
typedef unsigned char rt_f8e5m2;
typedef unsigned short rt_bf16;
typedef float rt_f32;
typedef double rt_f64;
struct rt_f16 {
  unsigned short bits;
};

#define RT_FN static __device__ __forceinline__
#define RT_UNROLL _Pragma("unroll")

#define RT_PRAGMA_(text) _Pragma(#text)
#define RT_UNROLL_BY(n) RT_PRAGMA_(unroll n)

#define RT_RESTRICT __restrict__

#define RT_THREAD
#define RT_SELF

#define RT_GLOBAL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name

#define RT_GLOBAL_TWICE(name, threads) extern "C" __global__ void __launch_bounds__(threads, 2) name
#define RT_ENTRY(name)

template <class A, class B>
constexpr bool rt_same_ = false;
template <class A>
constexpr bool rt_same_<A, A> = true;

template <class T>
constexpr bool rt_is_float_ = rt_same_<T, rt_f32> || rt_same_<T, rt_f64>;

template <class T>
constexpr bool rt_is_signed_ = T(-1) < T(0);

template <int Bytes>
struct rt_int_;
template <>
struct rt_int_<1> {
  typedef rt_u8 unsigned_type;
};
template <>
struct rt_int_<2> {
  typedef rt_u16 unsigned_type;
};
template <>
struct rt_int_<4> {
  typedef rt_u32 unsigned_type;
};
template <>
struct rt_int_<8> {
  typedef rt_u64 unsigned_type;
};
template <class T>
using rt_uint_ = typename rt_int_<sizeof(T)>::unsigned_type;

// (a & b) | c as the one instruction that it is: of two constants the compiler makes two.
RT_FN rt_u32 rt_and_or(rt_u32 a, rt_u32 b, rt_u32 c) {
  rt_u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// ---- vectors: one paragraph, as their operators have no names to be picked by

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) rt_vec {
  T v[N];
};
// Bytes are computed in fours, as numbers of 32 bits, where these tell them apart.
template <class T, int N>
constexpr bool rt_in_words_ = sizeof(T) == 1 && N % 4 == 0;
template <class T, int N>
RT_FN rt_vec<rt_u32, N / 4> rt_words_(rt_vec<T, N> v) {
  return __builtin_bit_cast(rt_vec<rt_u32, N / 4>, v);
}
// Functions of one, two and three vectors by those of their lanes; the result's lanes may differ.
#define RT_LANES1(fn)                                \
  template <class T, int N>                          \
  RT_FN auto fn(rt_vec<T, N> a) {                    \
    rt_vec<decltype(fn(a.v[0])), N> r;               \
    RT_UNROLL                                        \
    for (int i = 0; i < N; ++i) r.v[i] = fn(a.v[i]); \
    return r;                                        \
  }
#define RT_LANES2(fn)                                        \
  template <class T, int N>                                  \
  RT_FN auto fn(rt_vec<T, N> a, rt_vec<T, N> b) {            \
    rt_vec<decltype(fn(a.v[0], b.v[0])), N> r;               \
    RT_UNROLL                                                \
    for (int i = 0; i < N; ++i) r.v[i] = fn(a.v[i], b.v[i]); \
    return r;                                                \
  }
#define RT_LANES3(fn)                                                     \
  template <class A, class T, int N>                                      \
  RT_FN rt_vec<T, N> fn(rt_vec<A, N> a, rt_vec<T, N> b, rt_vec<T, N> c) { \
    rt_vec<T, N> r;                                                       \
    RT_UNROLL                                                             \
    for (int i = 0; i < N; ++i) r.v[i] = fn(a.v[i], b.v[i], c.v[i]);      \
    return r;                                                             \
  }
// ptxas takes it that neg.s16 and abs.s16 never wrap: what follows reads -(-32768) as 32768. So of
// 16 bits, whatever the compiler may make a neg.s16 of is computed in 32, without its seeing the
// result.
template <class T>
constexpr bool rt_is_short_ = rt_is_signed_<T> && !rt_is_float_<T> && sizeof(T) == 2;
RT_FN rt_i16 rt_short_(rt_i32 x) {
  asm("" : "+r"(x));
  return (rt_i16)x;
}
// Integers wrap, which C++ promises of unsigned ones only.
template <class T>
RT_FN T rt_add(T a, T b) {
  if constexpr (rt_is_float_<T>)
    return a + b;
  else
    return (T)(rt_uint_<T>)((rt_u64)a + (rt_u64)b);
}
template <class T>
RT_FN T rt_sub(T a, T b) {
  if constexpr (rt_is_float_<T>)
    return a - b;
  else if constexpr (rt_is_short_<T>)
    return rt_short_((rt_i32)a - (rt_i32)b);
  else
    return (T)(rt_uint_<T>)((rt_u64)a - (rt_u64)b);
}
template <class T>
RT_FN T rt_mul(T a, T b) {
  if constexpr (rt_is_float_<T>)
    return a * b;
  else if constexpr (rt_is_short_<T>)
    return rt_short_((rt_i32)a * (rt_i32)b);
  else if constexpr (sizeof(T) == 8)
    return (T)((rt_u64)a * (rt_u64)b);
  else
    return (T)(rt_uint_<T>)((rt_u32)a * (rt_u32)b);
}
template <class T>
RT_FN T rt_neg(T a) {
  if constexpr (rt_is_float_<T>)
    return -a;
  else if constexpr (rt_is_short_<T>)
    return rt_short_(-(rt_i32)a);
  else
    return (T)(rt_uint_<T>)(0 - (rt_u64)a);
}
// Of four bytes the lower seven bits of each, which carry no further, then the highest.
RT_FN rt_u32 rt_add_bytes_(rt_u32 a, rt_u32 b) {
  return ((a & 0x7f7f7f7f) + (b & 0x7f7f7f7f)) ^ ((a ^ b) & 0x80808080);
}
RT_FN rt_u32 rt_sub_bytes_(rt_u32 a, rt_u32 b) {
  return ((a | 0x80808080) - (b & 0x7f7f7f7f)) ^ ((a ^ ~b) & 0x80808080);
}
#define RT_BYTES_OR_LANES(fn, of_bytes)                                  \
  template <class T, int N>                                              \
  RT_FN rt_vec<T, N> fn(rt_vec<T, N> a, rt_vec<T, N> b) {                \
    if constexpr (rt_in_words_<T, N>) {                                  \
      rt_vec<rt_u32, N / 4> x = rt_words_(a), y = rt_words_(b);          \
      RT_UNROLL                                                          \
      for (int i = 0; i < N / 4; ++i) x.v[i] = of_bytes(x.v[i], y.v[i]); \
      return __builtin_bit_cast(rt_vec<T, N>, x);                        \
    } else {                                                             \
      rt_vec<T, N> r;                                                    \
      RT_UNROLL                                                          \
      for (int i = 0; i < N; ++i) r.v[i] = fn(a.v[i], b.v[i]);           \
      return r;                                                          \
    }                                                                    \
  }
RT_BYTES_OR_LANES(rt_add, rt_add_bytes_)
RT_BYTES_OR_LANES(rt_sub, rt_sub_bytes_)
RT_LANES2(rt_mul)
RT_LANES1(rt_neg)
template <class T, int N>
RT_FN rt_vec<T, N> operator+(rt_vec<T, N> a, rt_vec<T, N> b) {
  return rt_add(a, b);
}
template <class T, int N>
RT_FN rt_vec<T, N> operator-(rt_vec<T, N> a, rt_vec<T, N> b) {
  return rt_sub(a, b);
}
template <class T, int N>
RT_FN rt_vec<T, N> operator*(rt_vec<T, N> a, rt_vec<T, N> b) {
  return rt_mul(a, b);
}
template <class T, int N>
RT_FN rt_vec<T, N> operator-(rt_vec<T, N> a) {
  return rt_neg(a);
}
#define RT_OPERATOR(op)                                            \
  template <class T, int N>                                        \
  RT_FN rt_vec<T, N> operator op(rt_vec<T, N> a, rt_vec<T, N> b) { \
    rt_vec<T, N> r;                                                \
    RT_UNROLL                                                      \
    for (int i = 0; i < N; ++i) r.v[i] = (T)(a.v[i] op b.v[i]);    \
    return r;                                                      \
  }
RT_OPERATOR(/)
#define RT_BITWISE(op)                                                       \
  template <class T, int N>                                                  \
  RT_FN rt_vec<T, N> operator op(rt_vec<T, N> a, rt_vec<T, N> b) {           \
    if constexpr (rt_in_words_<T, N>) {                                      \
      return __builtin_bit_cast(rt_vec<T, N>, rt_words_(a) op rt_words_(b)); \
    } else {                                                                 \
      rt_vec<T, N> r;                                                        \
      RT_UNROLL                                                              \
      for (int i = 0; i < N; ++i) r.v[i] = (T)(a.v[i] op b.v[i]);            \
      return r;                                                              \
    }                                                                        \
  }
RT_BITWISE(&)
RT_BITWISE(|)
RT_BITWISE(^)

// ---- memory and lanes

// Bytes are loaded as numbers, of which the compiler knows how to take and join parts.
template <class T, int N>  // p + offset must be aligned as the vector is
RT_FN rt_vec<T, N> rt_load(const T* p, rt_i64 offset) {
  if constexpr (rt_in_words_<T, N>)
    return __builtin_bit_cast(rt_vec<T, N>, *(const rt_vec<rt_u32, N / 4>*)(p + offset));
  else if constexpr (sizeof(T) * N == 2)
    return __builtin_bit_cast(rt_vec<T, N>, *(const rt_u16*)(p + offset));
  else
    return *(const rt_vec<T, N>*)(p + offset);
}

template <class T, int N, int A>  // of bytes, of which A are aligned
RT_FN rt_vec<T, N> rt_load_by(const T* p, rt_i64 offset) {
  if constexpr (A == 2 && N % 4 == 0) {
    const rt_u16* const halves = (const rt_u16*)(p + offset);
    rt_vec<rt_u32, N / 4> r;
    RT_UNROLL
    for (int i = 0; i < N / 4; ++i) r.v[i] = __byte_perm(halves[2 * i], halves[2 * i + 1], 0x5410);
    return __builtin_bit_cast(rt_vec<T, N>, r);
  } else if constexpr (A >= 4) {
    const rt_vec<rt_u32, A / 4>* const parts = (const rt_vec<rt_u32, A / 4>*)(p + offset);
    rt_vec<rt_u32, N / 4> r;
    RT_UNROLL
    for (int i = 0; i < N / 4; ++i) r.v[i] = parts[4 * i / A].v[i % (A / 4)];
    return __builtin_bit_cast(rt_vec<T, N>, r);
  } else {
    rt_vec<T, N> r;
    RT_UNROLL
    for (int i = 0; i < N; ++i) r.v[i] = p[offset + i];
    return r;
  }
}

template <class T, int N>  // 0 where the mask is 0: memory there is not touched
RT_FN rt_vec<T, N> rt_load_where(const T* p, rt_i64 offset, rt_vec<rt_bool, N> mask) {
  rt_vec<T, N> r;
  RT_UNROLL
  for (int i = 0; i < N; ++i) r.v[i] = mask.v[i] ? p[offset + i] : T();
  return r;
}

template <int N, class T>
RT_FN void rt_store(T* p, rt_i64 offset, rt_vec<T, N> v) {
  *(rt_vec<T, N>*)(p + offset) = v;
}

template <class T, int N>  // of any alignment
RT_FN rt_vec<T, N> rt_load_each(const T* p, rt_i64 offset) {
  rt_vec<T, N> r;
  RT_UNROLL
  for (int i = 0; i < N; ++i) r.v[i] = p[offset + i];
  return r;
}

template <int N, class T>
RT_FN void rt_store_each(T* p, rt_i64 offset, rt_vec<T, N> v) {
  RT_UNROLL
  for (int i = 0; i < N; ++i) p[offset + i] = v.v[i];
}

template <int N, class T>
RT_FN rt_vec<T, N> rt_splat(T s) {
  rt_vec<T, N> r;
  RT_UNROLL
  for (int i = 0; i < N; ++i) r.v[i] = s;
  return r;
}

template <class T, int N>
RT_FN rt_vec<T, N> rt_ramp(T base, T stride) {
  rt_vec<T, N> r;
  RT_UNROLL
  for (int i = 0; i < N; ++i) r.v[i] = rt_add(base, rt_mul((T)i, stride));
  return r;
}

template <int I, class T, int N>
RT_FN T rt_lane(rt_vec<T, N> v) {
  return v.v[I];
}

template <class To, class T>
RT_FN To rt_bitcast(T x) {
  return __builtin_bit_cast(To, x);
}
template <class To, class T, int N>
RT_FN rt_vec<To, N> rt_bitcast(rt_vec<T, N> x) {
  return __builtin_bit_cast(rt_vec<To, N>, x);
}

template <class T>
RT_FN T rt_nan() {
  return (T) __builtin_bit_cast(rt_f32, 0x7fc00000);
}

template <class T>
RT_FN T rt_inf() {
  return (T) __builtin_bit_cast(rt_f32, 0x7f800000);
}

// ---- the place of a thread

RT_FN rt_i32 rt_block() { return (rt_i32)blockIdx.x; }

RT_FN rt_i32 rt_blocks() { return (rt_i32)gridDim.x; }

RT_FN rt_i32 rt_thread() { return (rt_i32)threadIdx.x; }

RT_FN rt_i32 rt_row() { return (rt_i32)threadIdx.y; }

RT_FN void rt_barrier() { __syncthreads(); }

extern __shared__ __align__(1024) rt_u8 rt_shared_[];
#define RT_SHARED(type, name, offset) type* const name = (type*)(rt_shared_ + (offset))

template <class T>
RT_FN T rt_shuffle_xor_(T v, rt_i32 mask) {
  if constexpr (sizeof(T) == 8) {
    const rt_u64 bits = __builtin_bit_cast(rt_u64, v);
    const rt_u32 low = __shfl_xor_sync(~0u, (rt_u32)bits, mask);
    const rt_u32 high = __shfl_xor_sync(~0u, (rt_u32)(bits >> 32), mask);
    return __builtin_bit_cast(T, (rt_u64)high << 32 | low);
  } else {
    const rt_u32 bits = __builtin_bit_cast(rt_uint_<T>, v);
    return __builtin_bit_cast(T, (rt_uint_<T>)__shfl_xor_sync(~0u, bits, mask));
  }
}
