// Sine, cosine and tangent.
#pragma once

#include "codegen/prelude/f64_trig.h"
#include "codegen/prelude/vector_math.h"

// Above this the reduction loses bits, and the C library takes over.
#if defined(__FMA__) || defined(__aarch64__)
#define RT_TRIG_LIMIT 60000.0f
#else
#define RT_TRIG_LIMIT 0.0f
#endif

// y, but of the C library where x is large.
template <class Libm, class V>
RT_FN V rt_trig_fix_(V y, V x) {
  return rt_redo_where_<Libm>(rt_abs(x) > RT_TRIG_LIMIT, y, x);
}

// x = j pi/2 + r with |r| <= pi/4; quadrant is j modulo 4, plus higher bits.
template <class V>
struct rt_trig_parts_ {
  V r;
  rt_ints_<V> quadrant;
};

template <class V>
RT_FN rt_trig_parts_<V> rt_trig_reduce_(V x) {
#pragma clang fp contract(on)
  V t = x * 0x1.45f306p-1f + RT_ROUND_MAGIC;
  V j = t - RT_ROUND_MAGIC;
  V r = x - j * 0x1.921fbp0f;
  r = r - j * 0x1.5110b4p-22f;
  r = r - j * 0x1.846988p-48f;
  return {r, (rt_ints_<V>)t};
}

template <class V>
RT_FN V rt_sin_poly_(V r) {
#pragma clang fp contract(on)
  V s = r * r;
  V q = s * 0x1.7c2d52p-19f + -0x1.a05956p-13f;
  q = q * s + 0x1.111174p-7f;
  q = q * s + -0x1.555556p-3f;
  return q * (s * r + 0.0f) + r;  // the + 0 keeps a result of -0
}

template <class V>
RT_FN V rt_cos_poly_(V r) {
#pragma clang fp contract(on)
  V s = r * r;
  V q = s * 0x1.99e71cp-16f + -0x1.6c0c26p-10f;
  q = q * s + 0x1.55554ap-5f;
  q = q * s + -0.5f;
  return q * s + 1.0f;
}

template <class V>  // the sine of r and `quadrant` quarter turns
RT_FN V rt_sin_turned_(V r, rt_ints_<V> quadrant) {
  typedef rt_ints_<V> I;
  V y = rt_pick_((quadrant & 1) != 0, rt_cos_poly_(r), rt_sin_poly_(r));
  return (V)((I)y ^ ((quadrant & 2) << 30));
}

struct rt_sin_lanes_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_trig_reduce_(x);
    return rt_trig_fix_<rt_libm_sin_>(rt_sin_turned_(p.r, p.quadrant), x);
  }
};

template <class V>
RT_FN V rt_sin(V x) {
  return rt_math_<rt_sin_lanes_, rt_sin_f64_, rt_libm_sin_>(x);
}

struct rt_cos_lanes_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_trig_reduce_(x);
    return rt_trig_fix_<rt_libm_cos_>(rt_sin_turned_(p.r, p.quadrant + 1), x);
  }
};

template <class V>
RT_FN V rt_cos(V x) {
  return rt_math_<rt_cos_lanes_, rt_cos_f64_, rt_libm_cos_>(x);
}

struct rt_tan_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    auto p = rt_trig_reduce_(x);
    V r = p.r, s = r * r;
    V q = s * 0x1.1f89f6p-8f + 0x1.27240cp-14f;
    q = q * s + 0x1.6372e6p-7f;
    q = q * s + 0x1.5ca488p-6f;
    q = q * s + 0x1.badbf8p-5f;
    q = q * s + 0x1.110d96p-3f;
    q = q * s + 0x1.55556p-2f;
    V y = q * (s * r) + r;
    y = rt_pick_<V>((p.quadrant & 1) != 0, -1.0f / y, y);
    return rt_trig_fix_<rt_libm_tan_>(y, x);
  }
};

template <class V>
RT_FN V rt_tan(V x) {
  return rt_math_<rt_tan_lanes_, rt_tan_f64_, rt_libm_tan_>(x);
}
