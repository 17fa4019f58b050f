// Exponentials: e^x, 2^x, e^x - 1.
#pragma once

#include "codegen/prelude/f64_exp.h"
#include "codegen/prelude/vector_math.h"

// x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^22 ln 2. ln 2 has its upper part in few bits, so
// that its multiples are exact.
template <class V>
struct rt_exp_parts_ {
  V n, t, r;
};

template <class V>
RT_FN rt_exp_parts_<V> rt_exp_reduce_(V x, rt_f32 magic = RT_ROUND_MAGIC) {
#pragma clang fp contract(on)
  rt_exp_parts_<V> s;
  s.t = x * 0x1.715476p0f + magic;
  s.n = s.t - magic;
  s.r = x - s.n * 0x1.62e4p-1f;
  s.r = s.r - s.n * 0x1.7f7d1cp-20f;
  return s;
}

template <class V>  // e^r
RT_FN V rt_exp_poly_(V r) {
#pragma clang fp contract(on)
  V q = r * 0x1.6a4da6p-10f + 0x1.123e5ap-7f;
  q = q * r + 0x1.5558b8p-5f;
  q = q * r + 0x1.55548cp-3f;
  q = q * r + 0x1.fffffcp-2f;
  q = q * r + 1.0f;
  return q * r + 1.0f;
}

template <class V>  // e^r - 1
RT_FN V rt_expm1_poly_(V r) {
#pragma clang fp contract(on)
  V q = r * 0x1.9e8b3ep-13f + 0x1.6d405p-10f;
  q = q * r + 0x1.1112dp-7f;
  q = q * r + 0x1.5554f4p-5f;
  q = q * r + 0x1.555554p-3f;
  q = q * r + 0.5f;
  return r * r * q + r;
}

// Where a result is too small for any number, as of what a mask leaves out, it is made 0 without
// arithmetic that finds it so: that takes chips fifteen times as long as other.
struct rt_exp_lanes_ {
  template <class V>
  RT_FN V of(V x) {
    V y = rt_min_or_nan_(x, 89.0f);
    if constexpr (rt_scales_by_any_<V>) {
      auto some = rt_not_below_(x, -104.0f);
      auto s = rt_exp_reduce_(y);
      return rt_scale_(rt_pick_<V>(some, rt_exp_poly_(s.r), 0.0f), s.n, s.t);
    } else {
      y = rt_pick_<V>(y < -105.2f, -105.2f, y);
      auto s = rt_exp_reduce_(y, RT_SCALE_MAGIC);
      return rt_scale_or_zero_(rt_exp_poly_(s.r), s.t);
    }
  }
};

RT_LIBM(exp)
template <class V>
RT_FN V rt_exp(V x) {
  return rt_math_<rt_exp_lanes_, rt_exp_f64_, rt_libm_exp_>(x);
}

struct rt_exp2_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    constexpr bool any = rt_scales_by_any_<V>;
    constexpr rt_f32 magic = any ? RT_ROUND_MAGIC : RT_SCALE_MAGIC;
    auto some = rt_not_below_(x, -151.0f);
    x = rt_min_or_nan_(x, 129.0f);
    if constexpr (!any) x = rt_pick_<V>(x < -152.0f, -152.0f, x);
    V t = x + magic;
    V n = t - magic;
    V r = x - n;
    V q = r * 0x1.4170e4p-13f + 0x1.5f0b1ap-10f;
    q = q * r + 0x1.3b2ddep-7f;
    q = q * r + 0x1.c6af78p-5f;
    q = q * r + 0x1.ebfbdcp-3f;
    q = q * r + 0x1.62e43p-1f;
    V p = q * r + 1.0f;
    if constexpr (any) return rt_scale_(rt_pick_<V>(some, p, 0.0f), n, t);
    return rt_scale_or_zero_(p, t);
  }
};

RT_LIBM(exp2)
template <class V>
RT_FN V rt_exp2(V x) {
  return rt_math_<rt_exp2_lanes_, rt_exp2_f64_, rt_libm_exp2_>(x);
}

// 2^n (e^r - 1) + (2^n - 1), halved until the end, for 2^128 is no float. At n = 0, where halving
// could lose a bit, it is the polynomial; its sign is that of x.
struct rt_expm1_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    typedef rt_ints_<V> I;
    V y = rt_min_or_nan_(x, 89.0f);
    y = rt_pick_<V>(y < -30.0f, -30.0f, y);
    auto s = rt_exp_reduce_(y);
    V p = rt_expm1_poly_(s.r);
    I k = (I)s.t - __builtin_bit_cast(rt_i32, RT_ROUND_MAGIC);
    V half = (V)((k + 126) << 23);  // 2^(n - 1)
    V e = (p * half + (half - 0.5f)) * 2.0f;
    return rt_or_sign_(rt_pick_(k == 0, p, e), x);
  }
};

RT_LIBM(expm1)
template <class V>
RT_FN V rt_expm1(V x) {
  return rt_math_<rt_expm1_lanes_, rt_expm1_f64_, rt_libm_expm1_>(x);
}
