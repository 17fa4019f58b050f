// Types, memory and lanes: what almost every CPU kernel is written in.
//
// A kernel is one function after the paragraphs of these files that its names call for: see
// PreludeFor in codegen/prelude.h. So what belongs together stands without an empty line, and
// nothing is used above its definition. All of it is C++17 for Clang 14 to 22, without headers.
// Functions take scalars and vectors alike; names that end in _ are the prelude's own.
#pragma once

typedef char rt_bool;  // 0 or 1; a type of its own, so that a cast to it is not one to rt_u8
typedef signed char rt_i8;
typedef short rt_i16;
typedef int rt_i32;
typedef long long rt_i64;
typedef unsigned char rt_u8;
typedef unsigned short rt_u16;
typedef unsigned rt_u32;
typedef unsigned long long rt_u64;
typedef unsigned char rt_f8e4m3;  // fp8 and bf16 are bits: cast to f32 to compute
typedef unsigned char rt_f8e5m2;
typedef unsigned short rt_bf16;
#if __clang_major__ >= 15
typedef _Float16 rt_f16;
#else
typedef __fp16 rt_f16;  // Clang 14 has no _Float16 on most chips
#endif
typedef float rt_f32;
typedef double rt_f64;

#define RT_FN static inline __attribute__((always_inline))

#define RT_RESTRICT __restrict

// A loop's condition, which holds n times.
#define RT_TIMES(more, n) __builtin_expect_with_probability(more, 1, (n) / ((n) + 1.0))

#define RT_KERNEL(name)                                                                   \
  extern "C" __attribute__((visibility("default"))) void name(                            \
      void* const* rt_buffers, const rt_i64* rt_vars, void* rt_scratch, rt_i64 rt_worker, \
      rt_i64 rt_workers)

template <class T, int N>
using rt_vec = T __attribute__((ext_vector_type(N)));

// The element type of V, and its number of lanes: 0 for a scalar.
template <class V>
struct rt_of_ {
  typedef V elem;
  static constexpr int lanes = 0;
  template <class U>
  using like = U;
};
template <class T, int N>
struct rt_of_<rt_vec<T, N>> {
  typedef T elem;
  static constexpr int lanes = N;
  template <class U>
  using like = rt_vec<U, N>;
};

template <class V>
using rt_elem_ = typename rt_of_<V>::elem;
template <class V>
constexpr int rt_lanes_ = rt_of_<V>::lanes;
template <class V, class U>  // U in the shape of V
using rt_like_ = typename rt_of_<V>::template like<U>;

template <class T>
constexpr bool rt_is_float_ = __is_same(T, rt_f16) || __is_same(T, rt_f32) || __is_same(T, rt_f64);

template <class T>
constexpr bool rt_is_signed_ = T(-1) < T(0);

template <int Bytes>
struct rt_int_;
template <>
struct rt_int_<1> {
  typedef rt_i8 type;
  typedef rt_u8 unsigned_type;
};
template <>
struct rt_int_<2> {
  typedef rt_i16 type;
  typedef rt_u16 unsigned_type;
};
template <>
struct rt_int_<4> {
  typedef rt_i32 type;
  typedef rt_u32 unsigned_type;
};
template <>
struct rt_int_<8> {
  typedef rt_i64 type;
  typedef rt_u64 unsigned_type;
};

template <class V>  // signed integers as wide as V's elements, in V's shape
using rt_ints_ = rt_like_<V, typename rt_int_<sizeof(rt_elem_<V>)>::type>;

template <class V>
using rt_uints_ = rt_like_<V, typename rt_int_<sizeof(rt_elem_<V>)>::unsigned_type>;

// ---- memory and lanes

template <class T, int N>
RT_FN rt_vec<T, N> rt_load(const T* p, rt_i64 offset) {
  typedef rt_vec<T, N> Unaligned __attribute__((aligned(alignof(T)), may_alias));
  return *(const Unaligned*)(p + offset);
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
template <int N>
RT_FN rt_u64 rt_bits_(rt_vec<rt_bool, N> mask) {  // one for each of 8 lanes or more
  if constexpr (N == 8)
    return __builtin_ia32_cvtw2mask128(-__builtin_convertvector(mask, rt_vec<rt_i16, 8>));
  if constexpr (N == 16) return (rt_u16)__builtin_ia32_cvtb2mask128(-mask);
  if constexpr (N == 32) return (rt_u32)__builtin_ia32_cvtb2mask256(-mask);
  if constexpr (N == 64) return __builtin_ia32_cvtb2mask512(-mask);
}
#endif
template <class T, int N>  // 0 where the mask is 0: memory there is not touched
RT_FN rt_vec<T, N> rt_load_where(const T* p, rt_i64 offset, rt_vec<rt_bool, N> mask) {
  typedef rt_vec<T, N> V;
  typedef rt_vec<typename rt_int_<sizeof(T)>::type, N> Ints;
  typedef rt_vec<rt_bool, N> Bytes;
  const T* at = p + offset;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  constexpr int size = sizeof(T);
  if constexpr (size == 8 && N == 8)
    return (V)__builtin_ia32_loaddqudi512_mask((const rt_i64*)at, Ints{}, rt_bits_<N>(mask));
  if constexpr (size == 4 && N == 16)
    return (V)__builtin_ia32_loaddqusi512_mask((const int*)at, Ints{}, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 8)
    return (V)__builtin_ia32_loaddquhi128_mask((const Ints*)at, Ints{}, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 16)
    return (V)__builtin_ia32_loaddquhi256_mask((const Ints*)at, Ints{}, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 32)
    return (V)__builtin_ia32_loaddquhi512_mask((const Ints*)at, Ints{}, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 16)
    return (V)__builtin_ia32_loaddquqi128_mask((const Bytes*)at, Bytes{}, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 32)
    return (V)__builtin_ia32_loaddquqi256_mask((const Bytes*)at, Bytes{}, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 64)
    return (V)__builtin_ia32_loaddquqi512_mask((const Bytes*)at, Bytes{}, rt_bits_<N>(mask));
#endif
#if defined(__AVX2__)
  const Ints lanes = -__builtin_convertvector(mask, Ints);
  if constexpr (sizeof(T) == 4 && N == 4)
    return (V)__builtin_ia32_maskloadd((const Ints*)at, lanes);
  if constexpr (sizeof(T) == 4 && N == 8)
    return (V)__builtin_ia32_maskloadd256((const Ints*)at, lanes);
  if constexpr (sizeof(T) == 8 && N == 4)
    return (V)__builtin_ia32_maskloadq256((const Ints*)at, lanes);
#endif
  V r = {};
  for (int i = 0; i < N; ++i) {
    if (mask[i]) r[i] = at[i];
  }
  return r;
}

template <int N, class T>  // where the mask is 0 memory is not touched
RT_FN void rt_store_where(T* p, rt_i64 offset, rt_vec<rt_elem_<T>, N> v, rt_vec<rt_bool, N> mask) {
  typedef rt_vec<typename rt_int_<sizeof(T)>::type, N> Ints;
  typedef rt_vec<rt_bool, N> Bytes;
  T* at = p + offset;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  constexpr int size = sizeof(T);
  if constexpr (size == 8 && N == 8)
    return __builtin_ia32_storedqudi512_mask((rt_i64*)at, (Ints)v, rt_bits_<N>(mask));
  if constexpr (size == 4 && N == 16)
    return __builtin_ia32_storedqusi512_mask((int*)at, (Ints)v, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 8)
    return __builtin_ia32_storedquhi128_mask((Ints*)at, (Ints)v, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 16)
    return __builtin_ia32_storedquhi256_mask((Ints*)at, (Ints)v, rt_bits_<N>(mask));
  if constexpr (size == 2 && N == 32)
    return __builtin_ia32_storedquhi512_mask((Ints*)at, (Ints)v, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 16)
    return __builtin_ia32_storedquqi128_mask((Bytes*)at, (Bytes)v, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 32)
    return __builtin_ia32_storedquqi256_mask((Bytes*)at, (Bytes)v, rt_bits_<N>(mask));
  if constexpr (size == 1 && N == 64)
    return __builtin_ia32_storedquqi512_mask((Bytes*)at, (Bytes)v, rt_bits_<N>(mask));
#endif
#if defined(__AVX2__)
  const Ints lanes = -__builtin_convertvector(mask, Ints);
  if constexpr (sizeof(T) == 4 && N == 4)
    return __builtin_ia32_maskstored((Ints*)at, lanes, (Ints)v);
  if constexpr (sizeof(T) == 4 && N == 8)
    return __builtin_ia32_maskstored256((Ints*)at, lanes, (Ints)v);
  if constexpr (sizeof(T) == 8 && N == 4)
    return __builtin_ia32_maskstoreq256((Ints*)at, lanes, (Ints)v);
#endif
  for (int i = 0; i < N; ++i) {
    if (mask[i]) at[i] = v[i];
  }
}

template <int N,
          class T>  // v is of T; spelled so that a sum of f16, not quite that in Clang 14, fits
RT_FN void rt_store(T* p, rt_i64 offset, rt_vec<rt_elem_<T>, N> v) {
  typedef rt_vec<T, N> Unaligned __attribute__((aligned(alignof(T)), may_alias));
  *(Unaligned*)(p + offset) = v;
}

template <int N, class T>  // past the caches where the place allows it
RT_FN void rt_stream(T* p, rt_i64 offset, rt_vec<rt_elem_<T>, N> v) {
  typedef rt_vec<T, N> Vector;
  if (((__UINTPTR_TYPE__)(p + offset) & (sizeof(Vector) - 1)) == 0)
    __builtin_nontemporal_store((Vector)v, (Vector*)(p + offset));
  else
    rt_store<N>(p, offset, v);
}

RT_FN void rt_stream_end() {  // streamed stores come before what follows, for every core
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

template <int Cache, class T>  // to the first or the second
RT_FN void rt_prefetch(const T* p, rt_i64 offset) {
  __builtin_prefetch(p + offset, 0, 4 - Cache);
}

template <int N, class T>
RT_FN rt_vec<T, N> rt_splat(T s) {
  return (rt_vec<T, N>)s;
}

template <int... I>
struct rt_indices_ {};
template <class T, T... I>
struct rt_make_indices_ {
  typedef rt_indices_<I...> type;
};

template <class T, int... I>
RT_FN rt_vec<T, sizeof...(I)> rt_iota_(rt_indices_<I...>) {
  return rt_vec<T, sizeof...(I)>{T(I)...};
}

template <class T, int N>  // base, base + stride, ...
RT_FN rt_vec<T, N> rt_ramp(T base, T stride) {
  typedef typename __make_integer_seq<rt_make_indices_, int, N>::type Indices;
  return (rt_vec<T, N>)base + rt_iota_<T>(Indices()) * (rt_vec<T, N>)stride;
}

template <int... Lanes, class V>  // lanes of a, then of b, by number
RT_FN rt_vec<rt_elem_<V>, sizeof...(Lanes)> rt_shuffle(V a, V b) {
  return __builtin_shufflevector(a, b, Lanes...);
}

template <int I, class V>
RT_FN rt_elem_<V> rt_lane(V v) {
  return v[I];
}

template <int N, class T, class... Rest>
RT_FN rt_vec<T, N> rt_lanes(T first, Rest... rest) {
  return rt_vec<T, N>{first, rest...};
}

template <class T>
RT_FN T rt_nan() {
  return (T)__builtin_nanf("");
}

template <class T>
RT_FN T rt_inf() {
  return (T)__builtin_inff();
}

template <class To, class V>
RT_FN rt_like_<V, To> rt_bitcast(V x) {
  if constexpr (rt_lanes_<V> == 0)
    return __builtin_bit_cast(To, x);
  else
    return (rt_like_<V, To>)x;  // the same bits, for vectors
}
