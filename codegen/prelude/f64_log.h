// Logarithms of f64.
#pragma once

#include "codegen/prelude/f64.h"

// x = 2^k (1 + f) with 1 + f in [sqrt 1/2, sqrt 2), for x > 0.
template <class V>
struct rt_log_f64_parts_ {
  V k, f;
};

#define RT_F64_ROOT_HALF 0x3fe6a09e667f3bcd

template <class V>  // of the exponent bits of a number
RT_FN V rt_f64_exponent_(rt_ints_<V> e) {
  return (V)((e >> 52) + __builtin_bit_cast(rt_i64, RT_F64_MAGIC)) - RT_F64_MAGIC;
}

template <class V>
RT_FN rt_log_f64_parts_<V> rt_log_f64_reduce_(V x) {
  typedef rt_ints_<V> L;
  L tiny = (L)(x < 0x1p-1022);
  x = rt_pick_<V>(tiny, x * 0x1p54, x);
  L e = ((L)x - RT_F64_ROOT_HALF) & (rt_i64)0xfff0000000000000;
  return {rt_f64_exponent_<V>(e) + rt_pick_<V>(tiny, -54.0, 0.0), (V)((L)x - e) - 1.0};
}

// ln(1 + f) = f - half + rest, by s = f / (2 + f) and 2 s + 2/3 s^3 + ...
template <class V>
struct rt_log_f64_sum_ {
  V half, rest;
};

template <class V>
RT_FN rt_log_f64_sum_<V> rt_log_f64_series_(V f) {
  V s = f / (f + 2.0), z = s * s, half = f * f * 0.5;
  V q = rt_poly_(z, 0x1.2b5b5fb2eac92p-3, 0x1.39fe208c33457p-3, 0x1.7462b69705382p-3,
                 0x1.c71c62debf86bp-3, 0x1.2492492df6947p-2, 0x1.99999999952b2p-2,
                 0x1.5555555555558p-1);
  return {half, s * rt_fma(z, q, half)};
}

template <class V>  // k ln 2 + ln(1 + f)
RT_FN V rt_log_f64_join_(V k, V f) {
  auto s = rt_log_f64_series_(f);
  V low = rt_fma(k, (V)0x1.abc9e3b39803fp-56, s.rest);
  return rt_fma(k, (V)0x1.62e42fefa39efp-1, f - (s.half - low));
}

template <class V>  // puts in what belongs to 0, infinity, NaN and below 0
RT_FN V rt_log_f64_edges_(V y, V x) {
  y = rt_pick_(x < __builtin_inf(), y, x);
  y = rt_pick_<V>(x == 0.0, -__builtin_inf(), y);
  return rt_pick_<V>(x < 0.0, __builtin_nan(""), y);
}

struct rt_log_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_log_f64_reduce_(x);
    return rt_log_f64_edges_(rt_log_f64_join_(p.k, p.f), x);
  }
};

struct rt_log2_f64_ {
  template <class V>
  RT_FN V of(V x) {
    auto p = rt_log_f64_reduce_(x);
    auto s = rt_log_f64_series_(p.f);
    V high = p.f - s.half, low = ((p.f - high) - s.half) + s.rest;
    V y = high * 0x1.71547652b82fep0;  // log2 e in two parts
    V rest = rt_fma(high, (V)0x1.71547652b82fep0, -y);
    rest = rt_fma(low, (V)0x1.71547652b82fep0, rt_fma(high, (V)0x1.777d0ffda0d24p-56, rest));
    V sum = p.k + y;
    return rt_log_f64_edges_(sum + (((p.k - sum) + y) + rest), x);
  }
};

// 1 + x = 2^k (1 + f), with f from x itself, so that no bit of a small x is lost.
struct rt_log1p_f64_ {
  template <class V>
  RT_FN V of(V x) {
    typedef rt_ints_<V> L;
    V u = x + 1.0;
    L e = ((L)u - RT_F64_ROOT_HALF) & (rt_i64)0xfff0000000000000;
    V scale = (V)(0x4010000000000000 - e);  // 4 * 2^-k, as 2^-1024 has too few bits
    V f = rt_fma(x * 0.25, scale, scale * 0.25 - 1.0);
    f = rt_pick_((L)(e == 0), x, f);
    V y = rt_log_f64_join_(rt_f64_exponent_<V>(e), f);
    return rt_or_sign_(rt_log_f64_edges_(y, u), x);
  }
};
