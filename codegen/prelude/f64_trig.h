// Sine, cosine, tangent and their inverses of f64.
#pragma once

#include "codegen/prelude/f64.h"

// Above this, and where x is almost a multiple of pi/2, the reduction loses bits, and the C library
// takes over.
#define RT_F64_TRIG_LIMIT 0x1p30
#define RT_F64_TRIG_NEAR 0x1p-20

// x = j pi/2 + r with |r| <= pi/4; quadrant is j modulo 4, plus higher bits. x - j pi/2 is exact
// for the upper part of pi/2.
template <class V>
struct rt_trig_f64_parts_ {
  V r;
  rt_ints_<V> quadrant, redo;
};

template <class V>
RT_FN rt_trig_f64_parts_<V> rt_trig_f64_reduce_(V x) {
  V t = rt_fma(x, (V)0x1.45f306dc9c883p-1, (V)RT_F64_MAGIC);
  V j = t - RT_F64_MAGIC;
  V r = rt_fma(-j, (V)0x1.1a62633145c07p-54, rt_fma(-j, (V)0x1.921fb54442d18p0, x));
  rt_ints_<V> near = (rt_ints_<V>)((rt_abs(r) < RT_F64_TRIG_NEAR) & (j != 0.0));
  return {r, (rt_ints_<V>)t, (rt_ints_<V>)(rt_abs(x) > RT_F64_TRIG_LIMIT) | near};
}

template <class V>
RT_FN V rt_sin_f64_poly_(V r) {
  V s = r * r;
  V q = rt_poly_(s, -0x1.ab17a79237a19p-41, 0x1.61217ec01749dp-33, -0x1.ae64541266378p-26,
                 0x1.71de3a54605eep-19, -0x1.a01a01a019936p-13, 0x1.1111111111110p-7,
                 -0x1.5555555555555p-3);
  return rt_fma(q, rt_fma(s, r, (V)0.0), r);  // the + 0 keeps a result of -0
}

template <class V>
RT_FN V rt_cos_f64_poly_(V r) {
  return rt_poly_(r * r, -0x1.907d7aebd5dedp-37, 0x1.1eeb68b109172p-29, -0x1.27e4fa17a41b4p-22,
                  0x1.a01a019f4e867p-16, -0x1.6c16c16c16966p-10, 0x1.5555555555555p-5, -0.5, 1.0);
}

template <class V>  // the sine of r and `quadrant` quarter turns
RT_FN V rt_sin_f64_turned_(V r, rt_ints_<V> quadrant) {
  typedef rt_ints_<V> L;
  V y = rt_pick_((quadrant & 1) != 0, rt_cos_f64_poly_(r), rt_sin_f64_poly_(r));
  return (V)((L)y ^ ((quadrant & 2) << 62));
}

RT_LIBM(sin)
struct rt_sin_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_trig_f64_reduce_(x);
    return rt_redo_where_<rt_libm_sin_>(p.redo, rt_sin_f64_turned_(p.r, p.quadrant), x);
  }
};

RT_LIBM(cos)
struct rt_cos_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_trig_f64_reduce_(x);
    return rt_redo_where_<rt_libm_cos_>(p.redo, rt_sin_f64_turned_(p.r, p.quadrant + 1), x);
  }
};

RT_LIBM(tan)
struct rt_tan_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_trig_f64_reduce_(x);
    V s = rt_sin_f64_poly_(p.r), c = rt_cos_f64_poly_(p.r);
    auto turned = (p.quadrant & 1) != 0;
    V y = rt_pick_<V>(turned, -c, s) / rt_pick_(turned, s, c);
    return rt_redo_where_<rt_libm_tan_>(p.redo, y, x);
  }
};

template <class V>  // (asin(x) - x) / x^3 of s = x^2, for |x| <= 1/2
RT_FN V rt_asin_f64_poly_(V s) {
  return rt_poly_(s, 0x1.d72b2bc8155f8p-6, -0x1.e6aaa8a0a04ccp-7, 0x1.1d189408314eep-6,
                  0x1.65a9c4dfcf8b2p-8, 0x1.52420b04b37bep-7, 0x1.782651caa6547p-7,
                  0x1.c9cf07674736ap-7, 0x1.1c4d35cf95421p-6, 0x1.6e8bb1c8209a2p-6,
                  0x1.f1c71c1db0623p-6, 0x1.6db6db6e31f13p-5, 0x1.3333333332ecap-4,
                  0x1.5555555555556p-3);
}

// Above 1/2 by way of asin(sqrt((1 - x) / 2)); pi/2 in two parts.
struct rt_asin_f64_ {
  template <class V>
  RT_FN V of(V x) {
    V a = rt_abs(x);
    rt_ints_<V> large = (rt_ints_<V>)(a > 0.5);
    V s = rt_pick_<V>(large, 0.5 - 0.5 * a, a * a);
    V b = rt_pick_(large, rt_sqrt(s), a);
    V t = rt_asin_f64_poly_(s) * (s * b);  // asin(b) - b
    V y = (0x1.921fb54442d18p0 - 2.0 * b) - (2.0 * t - 0x1.1a62633145c07p-54);
    return rt_or_sign_(rt_pick_<V>(large, y, b + t), x);
  }
};

struct rt_acos_f64_ {
  template <class V>
  RT_FN V of(V x) {
    V a = rt_abs(x);
    rt_ints_<V> large = (rt_ints_<V>)(a > 0.5);
    V s = rt_pick_<V>(large, 0.5 - 0.5 * a, a * a);
    V b = rt_pick_(large, rt_sqrt(s), x);
    V t = rt_asin_f64_poly_(s) * (s * b);  // asin(b) - b
    V middle = 0x1.921fb54442d18p0 - (b - (0x1.1a62633145c07p-54 - t));
    V y = b + t;
    V end = rt_pick_<V>(x < 0.0, 0x1.921fb54442d18p1 - (2.0 * y - 0x1.1a62633145c07p-53), 2.0 * y);
    return rt_pick_(large, end, middle);
  }
};

// Around 1 by way of pi/4 + atan((x - 1) / (x + 1)), above it of pi/2 - atan(1 / x).
struct rt_atan_f64_ {
  template <class V>
  RT_FN V of(V x) {
    V a = rt_abs(x);
    auto middle = a > 0x1.a827999fcef32p-2, large = a > 0x1.3504f333f9de6p1;  // tan pi/8, 3 pi/8
    V up = rt_pick_<V>(large, -1.0, rt_pick_<V>(middle, a - 1.0, a));
    V down = rt_pick_<V>(large, a, rt_pick_<V>(middle, a + 1.0, 1.0));
    V b = up / down, s = b * b;
    V q = rt_poly_(s, -0x1.3a28e50685854p-6, 0x1.415f2860d0713p-5, -0x1.a0985dfbdb769p-5,
                   0x1.dfe60ca50d070p-5, -0x1.10fa7430fd993p-4, 0x1.3b1262c6a6500p-4,
                   -0x1.745d0b25ea53bp-4, 0x1.c71c71852c3b3p-4, -0x1.2492492436049p-3,
                   0x1.999999999934ap-3, -0x1.5555555555555p-2);
    V t = q * (s * b);  // atan(b) - b
    V turn =
        rt_pick_<V>(large, 0x1.921fb54442d18p0, rt_pick_<V>(middle, 0x1.921fb54442d18p-1, 0.0));
    V y = turn + (b + (turn * 0x1.678afae35cdd1p-55 + t));  // pi/2 in two parts
    return rt_or_sign_(rt_pick_(middle, y, b + t), x);
  }
};
