// Exponentials, hyperbolic functions and the error function of f64.
#pragma once

#include "codegen/prelude/f64.h"

// x = n ln 2 + r with |r| <= ln 2 / 2.
template <class V>
struct rt_exp_f64_parts_ {
  V n, t, r;
};

template <class V>
RT_FN rt_exp_f64_parts_<V> rt_exp_f64_reduce_(V x) {
  rt_exp_f64_parts_<V> s;
  s.t = rt_fma(x, (V)0x1.71547652b82fep0, (V)RT_F64_MAGIC);
  s.n = s.t - RT_F64_MAGIC;
  s.r = rt_fma(-s.n, (V)0x1.62e42fefa39efp-1, x);
  s.r = rt_fma(-s.n, (V)0x1.abc9e3b39803fp-56, s.r);
  return s;
}

template <class V>  // e^r - 1
RT_FN V rt_exp_f64_poly_(V r) {
  V q = rt_poly_(r, 0x1.1f66df7fca49fp-29, 0x1.af38a9b0ec855p-26, 0x1.27e4e1f48534fp-22,
                 0x1.71de0dae63bb3p-19, 0x1.a01a01a47b054p-16, 0x1.a01a01a7c41d5p-13,
                 0x1.6c16c16c167e1p-10, 0x1.11111111109b3p-7, 0x1.5555555555555p-5,
                 0x1.5555555555556p-3, 0.5);
  return rt_fma(r * r, q, r);
}

template <class V>  // x within the limits, or NaN
RT_FN V rt_within_f64_(V x, rt_f64 low, rt_f64 high) {
  x = rt_pick_<V>(x > high, high, x);
  return rt_pick_<V>(x < low, low, x);
}

// What is too small for any number is 0 without arithmetic, as in f32.
struct rt_exp_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto none = x < -746.0;
    auto s = rt_exp_f64_reduce_(rt_pick_<V>(none, 0.0, rt_pick_<V>(x > 710.0, 710.0, x)));
    return rt_pick_<V>(none, 0.0, rt_scale_f64_(rt_exp_f64_poly_(s.r) + 1.0, s.n, s.t));
  }
};

struct rt_exp2_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto none = x < -1076.0;
    x = rt_pick_<V>(none, 0.0, rt_pick_<V>(x > 1025.0, 1025.0, x));
    V t = x + RT_F64_MAGIC;
    V n = t - RT_F64_MAGIC;
    V p = rt_exp_f64_poly_((x - n) * 0x1.62e42fefa39efp-1);
    return rt_pick_<V>(none, 0.0, rt_scale_f64_(p + 1.0, n, t));
  }
};

// e^x - 1 is 2^n (e^r - 1) + (2^n - 1): `whole` where n is 0, four times `quarter` elsewhere, as
// 2^1024 is no number. For x of -1000 to 710.7.
template <class V>
struct rt_expm1_f64_parts_ {
  V whole, quarter;
  rt_ints_<V> none;  // n is 0
};

template <class V>
RT_FN rt_expm1_f64_parts_<V> rt_expm1_f64_split_(V x) {
  auto s = rt_exp_f64_reduce_(x);
  rt_ints_<V> k = rt_f64_whole_(s.t);
  V p = rt_exp_f64_poly_(s.r), scale = (V)((k + 1021) << 52);
  return {p, rt_fma(p, scale, scale - 0.25), (rt_ints_<V>)(k == 0)};
}

struct rt_expm1_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto s = rt_expm1_f64_split_(rt_within_f64_(x, -60.0, 710.0));
    return rt_or_sign_(rt_pick_(s.none, s.whole, s.quarter * 4.0), x);
  }
};

struct rt_tanh_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto s = rt_expm1_f64_split_(rt_within_f64_(rt_abs(x), 0.0, 22.0) * 2.0);
    V t = rt_pick_(s.none, s.whole, s.quarter * 4.0);
    return rt_or_sign_(t / (t + 2.0), x);
  }
};

struct rt_sinh_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto s = rt_expm1_f64_split_(rt_within_f64_(rt_abs(x), 0.0, 710.6));
    V t = rt_pick_(s.none, s.whole, s.quarter * 2.0);
    V u = rt_within_f64_(t, 0.0, 0x1p1000);
    V y = t + u / (rt_pick_(s.none, u, u * 2.0) + 1.0);
    return rt_or_sign_(rt_pick_(s.none, y * 0.5, y), x);
  }
};

struct rt_cosh_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto s = rt_exp_f64_reduce_(rt_within_f64_(rt_abs(x), 0.0, 711.0));
    V quarter = (V)((rt_f64_whole_(s.t) + 1021) << 52);  // e^a / 4, as e^a / 2 may be no number
    V e = (rt_exp_f64_poly_(s.r) + 1.0) * quarter;
    return rt_fma(e, (V)2.0, 0.125 / e);
  }
};

template <class V>  // for |x| < 1
RT_FN V rt_erf_f64_near_(V x) {
  V q = rt_poly_(x * x, 0x1.05ffd737fb32ep-34, -0x1.389d4f2641625p-30, 0x1.f7b4bf3b13964p-27,
                 -0x1.5f1ecb6f0764cp-23, 0x1.b9df224ca4b97p-20, -0x1.f4d1e3183f7aep-17,
                 0x1.f9a321d5b8e1ep-14, -0x1.c02db3dac435fp-11, 0x1.565bcd0dbaa38p-8,
                 -0x1.b82ce31284e00p-6, 0x1.ce2f21a042b30p-4, -0x1.812746b0379e6p-2,
                 0x1.06eba8214db69p-3);
  return rt_fma(q, x, x);
}

// Far from 0 it is 1 - e^(-x^2) times a polynomial of (x - 3) / (x + 3).
struct rt_erf_f64_ {
  template <class V>
  RT_FN V of(V x) {
    V a = rt_within_f64_(rt_abs(x), 0.0, 6.0), s = a * a;
    auto e = rt_exp_f64_reduce_(-s);
    V power = (rt_exp_f64_poly_(e.r) + 1.0) * (V)((rt_f64_whole_(e.t) + 1023) << 52);
    V p = rt_poly_((a - 3.0) / (a + 3.0), 0x1.57a5fe2b9b75ep-20, 0x1.0f9a79cee3e31p-19,
                   -0x1.0cb4611cc29f6p-17, -0x1.af2329d757293p-17, 0x1.0cb1db32e0c9fp-14,
                   0x1.7b9fc8eb630e9p-15, -0x1.39085a31b18abp-11, 0x1.73101ea8fe252p-11,
                   0x1.17c838fea5806p-8, -0x1.8fa58eb5bd68fp-6, 0x1.258b13b0139fep-4,
                   -0x1.336ffbef08cbbp-3, 0x1.f6ff20410599bp-3, -0x1.4e102b9cf8512p-2,
                   0x1.6e9827d229d2dp-3);
    return rt_or_sign_(rt_pick_<V>(a < 1.0, rt_erf_f64_near_(a), rt_fma(-power, p, (V)1.0)), x);
  }
};

// As the one of f32, of (|x| - 4) / (|x| + 4).
struct rt_erfc_f64_ {
  template <class V>
  RT_FN V of(V x) {
    V a = rt_within_f64_(rt_abs(x), 0.0, 27.3), s = a * a, lost = rt_fma(a, a, -s);
    V p = rt_poly_((a - 4.0) / (a + 4.0), -0x1.1f8e57feb3620p-27, -0x1.124e02d5c2029p-27,
                   0x1.b4620b27a05f8p-24, 0x1.d98cc59b193f9p-25, -0x1.b8776f151b482p-21,
                   0x1.50f36baaf5871p-22, 0x1.7f2952790676ap-18, -0x1.78f5703dd52dcp-17,
                   -0x1.995f9d006c7efp-16, 0x1.3be2e9e7f922bp-13, -0x1.a1deb4319ca61p-13,
                   -0x1.8d4ac33ff0ddbp-11, 0x1.49c67194f7cfdp-8, -0x1.0962385347331p-6,
                   0x1.3079edfad597cp-5, -0x1.0fb06dff62e83p-4, 0x1.7fee004de94c4p-4,
                   -0x1.9ddb23c3dc24cp-4, 0x1.16ecefcfa68fap-4, 0x1.f7f5df66fb9c3p-7,
                   -0x1.1df1ad154a2a8p-3, 0x1.3ba5916e9fd7fp+0);
    auto e = rt_exp_f64_reduce_(-s);
    V power = rt_exp_f64_poly_(e.r) + 1.0;
    V y = rt_scale_f64_(rt_fma(-power, lost, power) * (p / (a + a + 1.0)), e.n, e.t);
    return rt_pick_(a < 0.5, 1.0 - rt_erf_f64_near_(x), rt_pick_(x < 0.0, 2.0 - y, y));
  }
};
