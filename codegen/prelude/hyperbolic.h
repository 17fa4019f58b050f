// Hyperbolic functions and the error function.
#pragma once

#include "codegen/prelude/exp.h"
#include "codegen/prelude/f64_exp.h"
#include "codegen/prelude/vector_math.h"

template <class V>  // e^x times 2^shift, for x that is not below -80
RT_FN V rt_exp_shifted_(V x, rt_i32 shift) {
  typedef rt_ints_<V> I;
  auto s = rt_exp_reduce_(x);
  I k = (I)s.t - __builtin_bit_cast(rt_i32, RT_ROUND_MAGIC);
  return rt_exp_poly_(s.r) * (V)((k + (127 + shift)) << 23);
}

struct rt_tanh_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_abs(x);
    V e = rt_exp_shifted_(rt_min_or_nan_(a, 10.0f) * 2.0f, 0);
    V large = 1.0f - 2.0f / (e + 1.0f);
    V s = a * a;
    V q = s * 0x1.1fc462p-9f + -0x1.0db2cep-7f;
    q = q * s + 0x1.63de6cp-6f;
    q = q * s + -0x1.b9f58p-5f;
    q = q * s + 0x1.111086p-3f;
    q = q * s + -0x1.555554p-2f;
    V small = q * (s * a) + a;
    return rt_or_sign_(rt_pick_(a < 0.6f, small, large), x);
  }
};

RT_LIBM(tanh)
template <class V>
RT_FN V rt_tanh(V x) {
  return rt_math_<rt_tanh_lanes_, rt_tanh_f64_, rt_libm_tanh_>(x);
}

struct rt_sinh_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_abs(x);
    V e = rt_exp_shifted_(rt_min_or_nan_(a, 89.5f), -2);  // e^a / 4, as e^a / 2 may be no float
    V large = 2.0f * e - 0.125f / e;
    V s = a * a;
    V q = s * 0x1.764714p-19f + 0x1.a01e06p-13f;
    q = q * s + 0x1.1110e6p-7f;
    q = q * s + 0x1.555556p-3f;
    V small = q * (s * a) + a;
    return rt_or_sign_(rt_pick_(a < 1.0f, small, large), x);
  }
};

RT_LIBM(sinh)
template <class V>
RT_FN V rt_sinh(V x) {
  return rt_math_<rt_sinh_lanes_, rt_sinh_f64_, rt_libm_sinh_>(x);
}

struct rt_cosh_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V e = rt_exp_shifted_(rt_min_or_nan_(rt_abs(x), 89.5f), -2);
    return 2.0f * e + 0.125f / e;
  }
};

RT_LIBM(cosh)
template <class V>
RT_FN V rt_cosh(V x) {
  return rt_math_<rt_cosh_lanes_, rt_cosh_f64_, rt_libm_cosh_>(x);
}

template <class V>  // for |x| < 0.93
RT_FN V rt_erf_near_(V x) {
#pragma clang fp contract(on)
  V s = x * x;
  V q = s * -0x1.38741cp-11f + 0x1.46d9e2p-8f;
  q = q * s + -0x1.b67c04p-6f;
  q = q * s + 0x1.ce1986p-4f;
  q = q * s + -0x1.8126e2p-2f;
  q = q * s + 0x1.06eba6p-3f;
  return q * x + x;
}

// Far from 0 it is 1 - e^p of a polynomial (after N. Juffa).
struct rt_erf_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_min_or_nan_(rt_abs(x), 4.0f);
    V s = a * a;
    V p = a * -1.72853470e-5f + 3.83197126e-4f;
    V u = a * -3.88396438e-3f + 2.42546219e-2f;
    p = p * s + u;
    p = p * a + -1.06777877e-1f;
    p = p * a + -6.34846687e-1f;
    p = p * a + -1.28717512e-1f;
    p = p * a - a;
    V large = 1.0f - rt_exp_shifted_(p, 0);
    return rt_or_sign_(rt_pick_(a > 0.927734375f, large, rt_erf_near_(a)), x);
  }
};

RT_LIBM(erf)
template <class V>
RT_FN V rt_erf(V x) {
  return rt_math_<rt_erf_lanes_, rt_erf_f64_, rt_libm_erf_>(x);
}

// Far from 0 (1 + 2 |x|) e^(x^2) erfc(|x|) is a polynomial of (|x| - 2) / (|x| + 2). What rounding
// takes from x^2 is made up for: the power would magnify it.
struct rt_erfc_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    V a = rt_min_or_nan_(rt_abs(x), 10.5f), s = a * a, lost = rt_fma(a, a, -s);
    V t = (a - 2.0f) / (a + 2.0f);
    V p = t * -0x1.a40978p-12f + -0x1.426b30p-10f;
    p = p * t + 0x1.585518p-10f;
    p = p * t + 0x1.1ad7cep-7f;
    p = p * t + -0x1.081b22p-7f;
    p = p * t + -0x1.bc0aa8p-5f;
    p = p * t + 0x1.4ffc40p-3f;
    p = p * t + -0x1.540848p-3f;
    p = p * t + -0x1.7bf616p-4f;
    p = p * t + 0x1.46e80ep+0f;
    auto e = rt_exp_reduce_(-s);
    V power = rt_exp_poly_(e.r);
    V y = rt_scale_((power - power * lost) * (p / (2.0f * a + 1.0f)), e.n, e.t);
    return rt_pick_(a < 0.5f, 1.0f - rt_erf_near_(x), rt_pick_(x < 0.0f, 2.0f - y, y));
  }
};

RT_LIBM(erfc)
template <class V>
RT_FN V rt_erfc(V x) {
  return rt_math_<rt_erfc_lanes_, rt_erfc_f64_, rt_libm_erfc_>(x);
}
