// Types, memory, comparison and selection: the part of the prelude that every CPU kernel has.
//
// A kernel is this text, the chunks that its names call for, and one function. All of it is C++17
// for Clang 14 to 19, without headers. Every function takes scalars and vectors alike; names that
// end in _ are the prelude's own.
#pragma once

#define RT_FN static inline __attribute__((always_inline))
#define RT_RESTRICT __restrict
#define RT_KERNEL(name)                                                                   \
  extern "C" __attribute__((visibility("default"))) void name(                            \
      void* const* rt_buffers, const rt_i64* rt_vars, void* rt_scratch, rt_i64 rt_worker, \
      rt_i64 rt_workers)

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
template <int N, class T>
RT_FN void rt_store(T* p, rt_i64 offset, rt_vec<T, N> v) {
  typedef rt_vec<T, N> Unaligned __attribute__((aligned(alignof(T)), may_alias));
  *(Unaligned*)(p + offset) = v;
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
template <int I, class V>
RT_FN rt_elem_<V> rt_lane(V v) {
  return v[I];
}
template <int N, class T, class... Rest>
RT_FN rt_vec<T, N> rt_lanes(T first, Rest... rest) {
  return rt_vec<T, N>{first, rest...};
}
template <class To, class V>
RT_FN rt_like_<V, To> rt_bitcast(V x) {
  if constexpr (rt_lanes_<V> == 0)
    return __builtin_bit_cast(To, x);
  else
    return (rt_like_<V, To>)x;  // the same bits, for vectors
}

// ---- comparison and selection

// a where the mask (of < and the like: bool, or lanes of 0 and -1) holds, else b. Of ext_vectors,
// Clang would make it from and, or and not, where other vectors give the one instruction.
template <class V, class M>
RT_FN V rt_pick_(M mask, V a, V b) {
  if constexpr (rt_lanes_<V> == 0) {
    return mask ? a : b;
  } else {
    typedef typename rt_int_<sizeof(rt_elem_<V>)>::type Int;
    typedef Int Mask __attribute__((vector_size(sizeof(V))));
    typedef rt_elem_<V> Plain __attribute__((vector_size(sizeof(V))));
    return (V)((Mask)mask ? (Plain)a : (Plain)b);
  }
}

template <class Mask>
RT_FN auto rt_as_bool_(Mask m) {
  if constexpr (rt_lanes_<Mask> == 0)
    return (rt_bool)m;
  else
    return __builtin_convertvector(m, rt_like_<Mask, rt_bool>) & (rt_bool)1;
}
template <class V>  // f16 as f32, for LLVM compares vectors of f16 lane by lane
RT_FN auto rt_wide_(V x) {
  if constexpr (!__is_same(rt_elem_<V>, rt_f16))
    return x;
  else if constexpr (rt_lanes_<V> == 0)
    return (rt_f32)x;
  else
    return __builtin_convertvector(x, rt_like_<V, rt_f32>);
}
template <class V>  // back to f16
RT_FN auto rt_narrow_(V x) {
  if constexpr (rt_lanes_<V> == 0)
    return (rt_f16)x;
  else
    return __builtin_convertvector(x, rt_like_<V, rt_f16>);
}
template <class V>
RT_FN rt_like_<V, rt_bool> rt_lt(V a, V b) {
  return rt_as_bool_(rt_wide_(a) < rt_wide_(b));
}
template <class V>
RT_FN rt_like_<V, rt_bool> rt_le(V a, V b) {
  return rt_as_bool_(rt_wide_(a) <= rt_wide_(b));
}
template <class V>
RT_FN rt_like_<V, rt_bool> rt_eq(V a, V b) {
  return rt_as_bool_(rt_wide_(a) == rt_wide_(b));
}
template <class V>
RT_FN rt_like_<V, rt_bool> rt_ne(V a, V b) {
  return rt_as_bool_(rt_wide_(a) != rt_wide_(b));
}
template <class V>
RT_FN V rt_where(rt_like_<V, rt_bool> mask, V a, V b) {
  if constexpr (rt_lanes_<V> == 0)
    return mask ? a : b;
  else
    return rt_pick_(__builtin_convertvector(mask != (rt_bool)0, rt_ints_<V>), a, b);
}

template <class V>
RT_FN rt_bool rt_any_(V mask) {  // whether any lane is not 0
  if constexpr (rt_lanes_<V> == 0) return mask != 0;
#if __has_builtin(__builtin_reduce_or)
  else
    return __builtin_reduce_or(mask) != 0;
#else
  else if constexpr (rt_lanes_<V> == 2)
    return (mask[0] | mask[1]) != 0;
  else
    return rt_any_(mask.lo | mask.hi);
#endif
}

// ---- extremes
//
// Equal operands differ in bits only if they are zeros: max takes the common bits of the two, min
// all bits, which is +0 and -0. Where one is a NaN neither arm is of use, and their sum is a NaN.

template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_max(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_float_<T>)
    return rt_pick_(a > b, a, b);
  else if constexpr (__is_same(T, rt_f16))
    return rt_narrow_(rt_max(rt_wide_(a), rt_wide_(b)));
  else
    return rt_pick_<V>((a != a) | (b != b), a + b,
                       __builtin_bit_cast(V, __builtin_bit_cast(Bits, rt_pick_(a > b, a, b)) &
                                                 __builtin_bit_cast(Bits, rt_pick_(b > a, b, a))));
}
template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_min(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_float_<T>)
    return rt_pick_(a < b, a, b);
  else if constexpr (__is_same(T, rt_f16))
    return rt_narrow_(rt_min(rt_wide_(a), rt_wide_(b)));
  else
    return rt_pick_<V>((a != a) | (b != b), a + b,
                       __builtin_bit_cast(V, __builtin_bit_cast(Bits, rt_pick_(a < b, a, b)) |
                                                 __builtin_bit_cast(Bits, rt_pick_(b < a, b, a))));
}
template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_abs(V x) {
  typedef rt_elem_<V> T;
  if constexpr (rt_is_float_<T>)
    return __builtin_bit_cast(
        V, (Bits)(__builtin_bit_cast(Bits, x) & (rt_elem_<Bits>)(~0ull >> (65 - 8 * sizeof(T)))));
  else if constexpr (rt_is_signed_<T>)
    return rt_pick_<V>(x < (T)0, -x, x);
  else
    return x;
}
