// Logarithms: ln x, log2 x, ln(1 + x).
#pragma once

#include "codegen/prelude/f64_log.h"
#include "codegen/prelude/vector_math.h"

// x = 2^k (1 + f) with f in [-1/3, 1/3), for x > 0.
template <class V>
struct rt_log_parts_ {
  V k, f;
};

template <class V>
RT_FN rt_log_parts_<V> rt_log_reduce_(V x) {
#pragma clang fp contract(on)
  typedef rt_ints_<V> I;
  I tiny = x < 0x1p-126f;
  x = rt_pick_<V>(tiny, x * 0x1p23f, x);
  I e = ((I)x - 0x3f2aaaab) & (rt_i32)0xff800000;
  V bias = rt_pick_<V>(tiny, -23.0f, 0.0f);
  return {__builtin_convertvector(e, V) * 0x1p-23f + bias, (V)((I)x - e) - 1.0f};
}

template <class V>  // ln(1 + f)
RT_FN V rt_log_poly_(V f) {
#pragma clang fp contract(on)
  V q = f * -0x1.0824f2p-3f + 0x1.1edb4p-3f;
  q = q * f + -0x1.f30974p-4f;
  q = q * f + 0x1.1ec0fp-3f;
  q = q * f + -0x1.559ddp-3f;
  q = q * f + 0x1.99d16ap-3f;
  q = q * f + -0x1.fffef2p-3f;
  q = q * f + 0x1.555504p-2f;
  q = q * f + -0.5f;
  return f * f * q + f;
}

template <class V>  // puts in what belongs to 0, infinity, NaN and below 0
RT_FN V rt_log_edges_(V y, V x) {
  y = rt_pick_(x < __builtin_inff(), y, x);
  y = rt_pick_<V>(x == 0.0f, -__builtin_inff(), y);
  return rt_pick_<V>(x < 0.0f, __builtin_nanf(""), y);
}

struct rt_log_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    auto s = rt_log_reduce_(x);
    return rt_log_edges_(s.k * 0x1.62e43p-1f + rt_log_poly_(s.f), x);
  }
};

RT_LIBM(log)
template <class V>
RT_FN V rt_log(V x) {
  return rt_math_<rt_log_lanes_, rt_log_f64_, rt_libm_log_>(x);
}

struct rt_log2_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    auto s = rt_log_reduce_(x);
    V f = s.f;
    V q = f * -0x1.7c7726p-3f + 0x1.9d6612p-3f;
    q = q * f + -0x1.682e7ap-3f;
    q = q * f + 0x1.9dcd7p-3f;
    q = q * f + -0x1.ecd312p-3f;
    q = q * f + 0x1.279e0ep-2f;
    q = q * f + -0x1.7153dap-2f;
    q = q * f + 0x1.ec702ep-2f;
    q = q * f + -0x1.715476p-1f;
    V low = q * f + 0x1.4ae0cp-26f;  // log2 e in two parts
    return rt_log_edges_(s.k + (f * 0x1.715476p0f + f * low), x);
  }
};

RT_LIBM(log2)
template <class V>
RT_FN V rt_log2(V x) {
  return rt_math_<rt_log2_lanes_, rt_log2_f64_, rt_libm_log2_>(x);
}

// 1 + x = 2^k (1 + f), with f from x itself, so that no bit of a small x is lost.
struct rt_log1p_lanes_ {
  template <class V>
  RT_FN V of(V x) {
#pragma clang fp contract(on)
    typedef rt_ints_<V> I;
    V u = x + 1.0f;
    I e = ((I)u - 0x3f2aaaab) & (rt_i32)0xff800000;
    V scale = (V)(0x40800000 - e);  // 4 * 2^-k, as 2^-128 has too few bits
    V f = x * 0.25f * scale + (scale * 0.25f - 1.0f);
    f = rt_pick_(e == 0, x, f);
    V y = __builtin_convertvector(e, V) * 0x1.62e43p-24f + rt_log_poly_(f);
    return rt_or_sign_(rt_log_edges_(y, u), x);
  }
};

RT_LIBM(log1p)
template <class V>
RT_FN V rt_log1p(V x) {
  return rt_math_<rt_log1p_lanes_, rt_log1p_f64_, rt_libm_log1p_>(x);
}
