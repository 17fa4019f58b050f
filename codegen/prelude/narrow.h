// bf16 and the two fp8 formats, which are held as bits, from and to f32.
#pragma once

#include "codegen/prelude/convert.h"
#include "codegen/prelude/select.h"

template <class V>
RT_FN rt_like_<V, rt_f32> rt_bf16_to_f32(V x) {
  return rt_bitcast<rt_f32>(rt_convert_<rt_u32>(x) << 16);
}

// The instruction of chips that have one takes subnormal numbers for zero, and leaves NaNs some of
// their bits: vectors with lanes of these go the long way.
template <class V>
RT_FN rt_like_<V, rt_bf16> rt_f32_to_bf16(V x) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && __clang_major__ >= 16
  if constexpr (rt_lanes_<V> == 16) {
    constexpr int kQuietNan = 0x01, kSubnormal = 0x20, kSignallingNan = 0x80;
    constexpr int kOther = kQuietNan | kSubnormal | kSignallingNan;
    if (__builtin_expect(__builtin_ia32_fpclassps512_mask(x, kOther, (rt_u16)-1) == 0, 1)) {
      typedef __bf16 Narrow __attribute__((ext_vector_type(16)));
      return (rt_like_<V, rt_bf16>)__builtin_ia32_cvtneps2bf16_512_mask(x, Narrow{}, (rt_u16)-1);
    }
  }
#endif
  typedef rt_like_<V, rt_u32> U;
  U u = rt_bitcast<rt_u32>(x);
  U rounded = (u + (rt_u32)0x7fff + (u >> 16 & (rt_u32)1)) >> 16;
  U nan = (u >> 16 & (rt_u32)0x8000) | (rt_u32)0x7fc0;
  return rt_convert_<rt_bf16>(rt_pick_(x == x, rounded, nan));
}

// An fp8 number is an f16 with fewer bits: e5m2 its upper byte, e4m3 with another bias, 2^8 apart.
template <class V>
RT_FN rt_like_<V, rt_f32> rt_f8e5m2_to_f32(V x) {
  typedef rt_like_<V, rt_u16> U;
  U u = rt_convert_<rt_u16>(x);
  return rt_wide_(rt_bitcast<rt_f16>((U)(u << 8)));
}

template <class V>
RT_FN rt_like_<V, rt_f32> rt_f8e4m3_to_f32(V x) {
  typedef rt_like_<V, rt_u16> U;
  typedef rt_like_<V, rt_f32> F;
  U u = rt_convert_<rt_u16>(x);
  U half = (U)((u & (rt_u16)0x80) << 8) | (U)((u & (rt_u16)0x7f) << 7);
  F f = rt_wide_(rt_bitcast<rt_f16>(half)) * 256.0f;
  return rt_where(rt_eq((U)(u & (rt_u16)0x7f), (U)(rt_u16)0x7f), (F)__builtin_nanf(""), f);
}

// f32 to a format of 8 bits with this many bits of mantissa and this bias, round to nearest even.
// `Top` are the bits that all magnitudes too large become, `Nan` those of a NaN.
template <int Mantissa, int Bias, int Top, int Nan, class V>
RT_FN rt_like_<V, rt_u8> rt_f32_to_f8_(V x) {
  typedef rt_like_<V, rt_u32> U;
  constexpr int drop = 23 - Mantissa;
  U u = rt_bitcast<rt_u32>(x);
  U sign = u >> 24 & (rt_u32)0x80;
  U a = u & (rt_u32)0x7fffffff;
  constexpr rt_u32 rebias = (rt_u32)(127 - Bias) << 23;
  constexpr rt_u32 top = ((rt_u32)Top << drop) + rebias;
  U b = rt_pick_<U>(a < top, a, top);
  U normal = (b - rebias + (rt_u32)((1u << (drop - 1)) - 1) + (b >> drop & (rt_u32)1)) >> drop;
  // Added to a number whose last bit weighs as much as the lowest subnormal, the FPU rounds.
  constexpr rt_u32 magic = (rt_u32)(127 + 1 - Bias + drop) << 23;
  U tiny = rt_bitcast<rt_u32>(rt_bitcast<rt_f32>(b) + __builtin_bit_cast(rt_f32, magic)) - magic;
  U r = rt_pick_(b < rebias + (1u << 23), tiny, normal);
  r = rt_pick_<U>(a > (rt_u32)0x7f800000, Nan, r);
  return rt_convert_<rt_u8>(r | sign);
}

template <class V>
RT_FN rt_like_<V, rt_f8e5m2> rt_f32_to_f8e5m2(V x) {
  return rt_f32_to_f8_<2, 15, 0x7c, 0x7e>(x);
}

template <class V>
RT_FN rt_like_<V, rt_f8e4m3> rt_f32_to_f8e4m3(V x) {
  return rt_f32_to_f8_<3, 7, 0x7f, 0x7f>(x);
}
