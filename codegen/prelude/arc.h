// Arc sine, arc cosine and arc tangent.
#pragma once

#include "codegen/prelude/f64_trig.h"
#include "codegen/prelude/float.h"
#include "codegen/prelude/vector_math.h"

template <class V>  // (asin(x) - x) / x^3 of s = x^2, for |x| <= 1/2
RT_FN V rt_asin_poly_(V s) {
#pragma clang fp contract(on)
  V q = s * 0x1.348024p-5f + 0x1.d5c5d2p-7f;
  q = q * s + 0x1.04cabp-5f;
  q = q * s + 0x1.6ca7fap-5f;
  q = q * s + 0x1.3338aap-4f;
  return q * s + 0x1.55554cp-3f;
}

// Above 1/2 by way of asin(sqrt((1 - x) / 2)).
struct rt_asin_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_abs(x);
    rt_ints_<V> large = a > 0.5f;
    V s = rt_pick_<V>(large, 0.5f - 0.5f * a, a * a);
    V b = rt_pick_(large, rt_sqrt(s), a);
    V t = rt_asin_poly_(s) * (s * b);                                 // asin(b) - b
    V y = (0x1.921fb6p0f - 2.0f * b) - (2.0f * t + 0x1.777a5cp-25f);  // pi/2 in two parts
    return rt_or_sign_(rt_pick_<V>(large, y, b + t), x);
  }
};

RT_LIBM(asin)
template <class V>
RT_FN V rt_asin(V x) {
  return rt_math_<rt_asin_lanes_, rt_asin_f64_, rt_libm_asin_>(x);
}

struct rt_acos_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_abs(x);
    rt_ints_<V> large = a > 0.5f;
    V s = rt_pick_<V>(large, 0.5f - 0.5f * a, a * a);
    V b = rt_pick_(large, rt_sqrt(s), x);
    V t = rt_asin_poly_(s) * (s * b);  // asin(b) - b
    V middle = 0x1.921fb6p0f - (b - (-0x1.777a5cp-25f - t));
    V y = b + t;
    V end = rt_pick_<V>(x < 0.0f, 0x1.921fb6p1f - 2.0f * y, 2.0f * y);
    return rt_pick_(large, end, middle);
  }
};

RT_LIBM(acos)
template <class V>
RT_FN V rt_acos(V x) {
  return rt_math_<rt_acos_lanes_, rt_acos_f64_, rt_libm_acos_>(x);
}

// Above 1 by way of pi/2 - atan(1 / x).
struct rt_atan_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_abs(x);
    rt_ints_<V> large = a > 1.0f;
    V b = rt_pick_<V>(large, 1.0f / a, a);
    V s = b * b;
    V q = s * -0x1.d4984ap-10f + 0x1.64c1cep-7f;
    q = q * s + -0x1.fdfc1cp-6f;
    q = q * s + 0x1.da5ed4p-5f;
    q = q * s + -0x1.58155ep-4f;
    q = q * s + 0x1.c08f64p-4f;
    q = q * s + -0x1.2420b6p-3f;
    q = q * s + 0x1.9991e6p-3f;
    q = q * s + -0x1.55553ep-2f;
    V t = q * (s * b);  // atan(b) - b
    V y = (0x1.921fb6p0f - b) - (t + 0x1.777a5cp-25f);
    return rt_or_sign_(rt_pick_<V>(large, y, b + t), x);
  }
};

RT_LIBM(atan)
template <class V>
RT_FN V rt_atan(V x) {
  return rt_math_<rt_atan_lanes_, rt_atan_f64_, rt_libm_atan_>(x);
}
