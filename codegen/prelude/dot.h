// Dot products of the four bytes or two bf16 of each lane, by what the chip has for them.
#pragma once

#include "codegen/prelude/convert.h"
#include "codegen/prelude/narrow.h"

template <int First, int Step, class V, int... I>
RT_FN rt_vec<rt_elem_<V>, sizeof...(I)> rt_every_(V v, rt_indices_<I...>) {
  return __builtin_shufflevector(v, v, (First + Step * I)...);
}
template <int First, int Step, int N, class V>  // lanes First, First + Step, ... of v
RT_FN rt_vec<rt_elem_<V>, N> rt_take_every_(V v) {
  typedef typename __make_integer_seq<rt_make_indices_, int, N>::type Indices;
  return rt_every_<First, Step>(v, Indices());
}

// Sums of the products of neighbours, N of them. Products of bytes fit in 16 bits and a sign.
template <int N>
RT_FN rt_vec<rt_i32, N> rt_pairs_(rt_vec<rt_i16, 2 * N> a, rt_vec<rt_i16, 2 * N> b) {
#if defined(__AVX512BW__)
  if constexpr (N == 16) return (rt_vec<rt_i32, N>)__builtin_ia32_pmaddwd512(a, b);
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return (rt_vec<rt_i32, N>)__builtin_ia32_pmaddwd256(a, b);
#endif
#if defined(__SSE2__)
  if constexpr (N == 4) return (rt_vec<rt_i32, N>)__builtin_ia32_pmaddwd128(a, b);
#endif
  typedef rt_vec<rt_i32, 2 * N> Wide;
  Wide products = __builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide);
  return rt_take_every_<0, 2, N>(products) + rt_take_every_<1, 2, N>(products);
}

// Every second byte, in 16 bits: those at even places, and those at odd ones.
template <class V>
RT_FN rt_vec<rt_i16, rt_lanes_<V> / 2> rt_even_(V v) {
  typedef rt_vec<rt_i16, rt_lanes_<V> / 2> Halves;
  if constexpr (rt_is_signed_<rt_elem_<V>>) return (Halves)((Halves)v << 8) >> 8;
  return (Halves)v & 255;
}
template <class V>
RT_FN rt_vec<rt_i16, rt_lanes_<V> / 2> rt_odd_(V v) {
  typedef rt_vec<rt_i16, rt_lanes_<V> / 2> Halves;
  typedef rt_vec<rt_u16, rt_lanes_<V> / 2> Unsigned;
  if constexpr (rt_is_signed_<rt_elem_<V>>) return (Halves)v >> 8;
  return (Halves)((Unsigned)v >> 8);
}

template <int N, class A, class B>
RT_FN rt_vec<rt_i32, N> rt_dots_(A a, B b) {
#if defined(__AVX512BW__)
  constexpr int most = 16;
#elif defined(__AVX2__)
  constexpr int most = 8;
#else
  constexpr int most = 4;
#endif
  if constexpr (N > most) {
    typedef rt_vec<rt_elem_<A>, 2 * N> HalfA;
    typedef rt_vec<rt_elem_<B>, 2 * N> HalfB;
    rt_vec<rt_i32, N> r;
    r.lo = rt_dots_<N / 2>((HalfA)a.lo, (HalfB)b.lo);
    r.hi = rt_dots_<N / 2>((HalfA)a.hi, (HalfB)b.hi);
    return r;
  } else {
    return rt_pairs_<N>(rt_even_(a), rt_even_(b)) + rt_pairs_<N>(rt_odd_(a), rt_odd_(b));
  }
}

// To each lane of the sum, which wraps, the dot product of four bytes of a and four of b.
template <class A, class B, class S>
RT_FN S rt_dot4(A a, B b, S sum) {
  constexpr int N = rt_lanes_<S>;
  if constexpr (!rt_is_signed_<rt_elem_<A>> && rt_is_signed_<rt_elem_<B>>) {
#if defined(__AVX512VNNI__)
    if constexpr (N == 16) return (S)__builtin_ia32_vpdpbusd512(sum, (S)a, (S)b);
#endif
#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
    if constexpr (N == 8) return (S)__builtin_ia32_vpdpbusd256(sum, (S)a, (S)b);
    if constexpr (N == 4) return (S)__builtin_ia32_vpdpbusd128(sum, (S)a, (S)b);
#endif
  }
#if defined(__ARM_FEATURE_DOTPROD) && __has_builtin(__builtin_neon_vdotq_v)
  if constexpr (N == 4) {  // the last argument is the type of the sum
    typedef __attribute__((neon_vector_type(16))) signed char Bytes;
    typedef __attribute__((neon_vector_type(4))) int Ints;
    constexpr bool first = rt_is_signed_<rt_elem_<A>>, second = rt_is_signed_<rt_elem_<B>>;
    if constexpr (first && second) {
      return (S)(Ints)__builtin_neon_vdotq_v((Bytes)sum, (Bytes)a, (Bytes)b, 34);
    } else if constexpr (!first && !second) {
      return (S)(Ints)__builtin_neon_vdotq_v((Bytes)sum, (Bytes)a, (Bytes)b, 50);
    }
#if defined(__ARM_FEATURE_MATMUL_INT8)
    if constexpr (!first && second) {
      return (S)(Ints)__builtin_neon_vusdotq_v((Bytes)sum, (Bytes)a, (Bytes)b, 34);
    } else if constexpr (first && !second) {
      return (S)(Ints)__builtin_neon_vusdotq_v((Bytes)sum, (Bytes)b, (Bytes)a, 34);
    }
#endif
  }
#endif
  return (S)((rt_vec<rt_u32, N>)sum + (rt_vec<rt_u32, N>)rt_dots_<N>(a, b));
}

// The same, of bytes of which no two products exceed 16 bits and a sign; if both are signed, a is
// not negative where b is -128.
template <class A, class B, class S>
RT_FN S rt_dot4_small(A a, B b, S sum) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
  constexpr int N = rt_lanes_<S>;
  if constexpr (rt_is_signed_<rt_elem_<B>> && (N == 4 || N == 8)) {
    typedef rt_vec<rt_i8, 4 * N> Bytes;
    typedef rt_vec<rt_i16, 2 * N> Pairs;
    Bytes positive = (Bytes)a, other = (Bytes)b;
    if constexpr (rt_is_signed_<rt_elem_<A>>) {
      positive = __builtin_elementwise_abs(positive);
      if constexpr (N == 8) other = (Bytes)__builtin_ia32_psignb256(other, (Bytes)a);
      if constexpr (N == 4) other = (Bytes)__builtin_ia32_psignb128(other, (Bytes)a);
    }
    Pairs pairs;
    if constexpr (N == 8) pairs = (Pairs)__builtin_ia32_pmaddubsw256(positive, other);
    if constexpr (N == 4) pairs = (Pairs)__builtin_ia32_pmaddubsw128(positive, other);
    return (S)((rt_vec<rt_u32, N>)sum + (rt_vec<rt_u32, N>)rt_pairs_<N>(pairs, (Pairs)(rt_i16)1));
  }
#endif
  return rt_dot4(a, b, sum);
}

// To each lane of the sum the products of two bf16 of a and two of b. The products are exact; chips
// that have this round once for each, and take subnormal numbers for zero.
#if __clang_major__ >= 16
template <int N>
using rt_pairs_of_ = __bf16 __attribute__((ext_vector_type(2 * N)));
#else
template <int N>
using rt_pairs_of_ = rt_vec<rt_i32, N>;
#endif
template <class A, class S>
RT_FN S rt_dot2(A a, A b, S sum) {
  constexpr int N = rt_lanes_<S>;
  typedef rt_pairs_of_<N> Pairs;
#if defined(__AVX512BF16__)
  if constexpr (N == 16) return (S)__builtin_ia32_dpbf16ps_512(sum, (Pairs)a, (Pairs)b);
#endif
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
  if constexpr (N == 8) return (S)__builtin_ia32_dpbf16ps_256(sum, (Pairs)a, (Pairs)b);
  if constexpr (N == 4) return (S)__builtin_ia32_dpbf16ps_128(sum, (Pairs)a, (Pairs)b);
#endif
  S r =
      sum + rt_bf16_to_f32(rt_take_every_<0, 2, N>(a)) * rt_bf16_to_f32(rt_take_every_<0, 2, N>(b));
  return r +
         rt_bf16_to_f32(rt_take_every_<1, 2, N>(a)) * rt_bf16_to_f32(rt_take_every_<1, 2, N>(b));
}
