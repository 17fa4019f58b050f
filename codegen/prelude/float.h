// Rounding, square root and fused multiply-add of floats.
#pragma once

#include "codegen/prelude/libm.h"
#include "codegen/prelude/select.h"

template <class V>
RT_FN V rt_floor(V x) {
  if constexpr (__is_same(rt_elem_<V>, rt_f16))
    return rt_narrow_(rt_floor(rt_wide_(x)));
  else
    return __builtin_elementwise_floor(x);
}

template <class V>
RT_FN V rt_ceil(V x) {
  if constexpr (__is_same(rt_elem_<V>, rt_f16))
    return rt_narrow_(rt_ceil(rt_wide_(x)));
  else
    return __builtin_elementwise_ceil(x);
}

template <class V>
RT_FN V rt_trunc(V x) {
  if constexpr (__is_same(rt_elem_<V>, rt_f16))
    return rt_narrow_(rt_trunc(rt_wide_(x)));
  else
    return __builtin_elementwise_trunc(x);
}

template <class V>
RT_FN V rt_round(V x) {
  if constexpr (__is_same(rt_elem_<V>, rt_f16))
    return rt_narrow_(rt_round(rt_wide_(x)));
  else
    return __builtin_elementwise_roundeven(x);
}

// Clang 18 has a square root of vectors; before it each width of a register has its own.
template <class V>
RT_FN V rt_sqrt(V x) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_sqrt(rt_wide_(x)));
  } else {
#if __has_builtin(__builtin_elementwise_sqrt)
    return __builtin_elementwise_sqrt(x);
#else
    constexpr int width = rt_lanes_<V>;
    if constexpr (__is_same(V, rt_f32)) {
      return __builtin_sqrtf(x);
    } else if constexpr (__is_same(V, rt_f64)) {
      return __builtin_sqrt(x);
#if defined(__AVX512F__)
    } else if constexpr (__is_same(T, rt_f32) && width == 16) {
      return (V)__builtin_ia32_sqrtps512(x, 4);
    } else if constexpr (__is_same(T, rt_f64) && width == 8) {
      return (V)__builtin_ia32_sqrtpd512(x, 4);
#endif
#if defined(__AVX__)
    } else if constexpr (__is_same(T, rt_f32) && width == 8) {
      return (V)__builtin_ia32_sqrtps256(x);
    } else if constexpr (__is_same(T, rt_f64) && width == 4) {
      return (V)__builtin_ia32_sqrtpd256(x);
#endif
    } else {
      V y;
      y.lo = rt_sqrt(x.lo);
      y.hi = rt_sqrt(x.hi);
      return y;
    }
#endif
  }
}

extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
struct rt_libm_fma_ {
  RT_FN rt_f32 of(rt_f32 a, rt_f32 b, rt_f32 c) { return fmaf(a, b, c); }
  RT_FN rt_f64 of(rt_f64 a, rt_f64 b, rt_f64 c) { return fma(a, b, c); }
};

template <class V>
RT_FN V rt_fma(V a, V b, V c) {
  if constexpr (__is_same(rt_elem_<V>, rt_f16)) {
    return rt_narrow_(rt_fma(rt_wide_(a), rt_wide_(b), rt_wide_(c)));
  } else {
#if defined(__FMA__) || defined(__aarch64__)
#pragma clang fp contract(on)
    return a * b + c;
#else
    return rt_each_<rt_libm_fma_>(a, b, c);
#endif
  }
}
