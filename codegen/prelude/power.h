// Powers of floats and integers.
#pragma once

#include "codegen/prelude/vector_math.h"

// log2 of doubles above 0: x = 2^k m with m in [sqrt 1/2, sqrt 2), and f = (m - 1) / (m + 1) with
// ln m = 2 (f + f^3/3 + ... + f^15/15), to 2^-44 of it.
template <class W>
RT_FN W rt_log2_wide_(W x) {
#pragma clang fp contract(on)
  typedef rt_ints_<W> L;
  L e = ((L)x - 0x3fe6a09e667f3bcd) & (rt_i64)0xfff0000000000000;
  W m = (W)((L)x - e);
  W k = __builtin_convertvector(__builtin_convertvector(e >> 52, rt_vec<rt_i32, rt_lanes_<W>>), W);
  W f = (m - 1.0) / (m + 1.0), s = f * f;
  W q = s * (1.0 / 15) + 1.0 / 13;
  q = q * s + 1.0 / 11;
  q = q * s + 1.0 / 9;
  q = q * s + 1.0 / 7;
  q = q * s + 1.0 / 5;
  q = q * s + 1.0 / 3;
  q = q * s + 1.0;
  return f * q * 0x1.71547652b82fep1 + k;
}

// 2^t for t within +-400, to 2^-38: e to r ln 2 by its series, |r| <= 1/2.
template <class W>
RT_FN W rt_exp2_wide_(W t) {
#pragma clang fp contract(on)
  typedef rt_ints_<W> L;
  W magic = t + 0x1.8p52;
  L k = (L)magic - __builtin_bit_cast(rt_i64, 0x1.8p52);
  W r = (t - (magic - 0x1.8p52)) * 0x1.62e42fefa39efp-1;
  W q = r * (1.0 / 3628800) + 1.0 / 362880;
  q = q * r + 1.0 / 40320;
  q = q * r + 1.0 / 5040;
  q = q * r + 1.0 / 720;
  q = q * r + 1.0 / 120;
  q = q * r + 1.0 / 24;
  q = q * r + 1.0 / 6;
  q = q * r + 0.5;
  q = q * r + 1.0;
  q = q * r + 1.0;
  return q * (W)((k + 1023) << 52);
}

// f32 in doubles, whose errors are far below half a unit of the result.
struct rt_pow_lanes_ {
  template <class V>
  RT_FN V of(V x, V y) {
    typedef rt_vec<rt_f64, rt_lanes_<V>> W;
    typedef rt_ints_<V> I;
    V size = (V)((I)x & 0x7fffffff);
    W t = rt_log2_wide_(__builtin_convertvector(size, W)) * __builtin_convertvector(y, W);
    t = rt_pick_<W>(t > 400.0, 400.0, t);
    t = rt_pick_<W>(t < -400.0, -400.0, t);
    V p = __builtin_convertvector(rt_exp2_wide_(t), V);
    const rt_f32 inf = __builtin_inff(), nan = __builtin_nanf("");
    p = rt_pick_<V>((size == 0.0f) & (y > 0.0f) | (size == inf) & (y < 0.0f), 0.0f, p);
    p = rt_pick_<V>((size == 0.0f) & (y < 0.0f) | (size == inf) & (y > 0.0f), inf, p);
    V half = y * 0.5f;
    I whole = __builtin_elementwise_floor(y) == y;
    I odd = whole & (__builtin_elementwise_floor(half) != half);
    p = (V)((I)p | ((I)x & odd & (rt_i32)0x80000000));
    p = rt_pick_<V>((x < 0.0f) & (x > -inf) & ~whole | (x != x) | (y != y), nan, p);
    return rt_pick_<V>((y == 0.0f) | (x == 1.0f) | (size == 1.0f) & ((V)((I)y & 0x7fffffff) == inf),
                       1.0f, p);
  }
};

// Integers by squaring. A negative power of a is 0, unless a is 1 or -1.
RT_LIBM2(pow)
template <class V>
RT_FN V rt_pow(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f64)) {
    return rt_each_<rt_libm_pow_>(a, b);
  } else if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_pow(rt_wide_(a), rt_wide_(b)));
  } else if constexpr (rt_is_float_<T>) {
    if constexpr (rt_lanes_<V> != 0)
      return rt_pow_lanes_::of(a, b);
    else
      return rt_pow_lanes_::of((rt_vec<rt_f32, 4>)a, (rt_vec<rt_f32, 4>)b)[0];
  } else {
    typedef rt_uints_<V> U;
    V result = (V)(T)1, base = a;
    U n = (U)b;
    for (; rt_any_(n); n >>= (rt_elem_<U>)1, base = (V)(base * base))
      result = rt_pick_<V>((n & (rt_elem_<U>)1) != (rt_elem_<U>)0, result * base, result);
    if constexpr (rt_is_signed_<T>) {
      V odd = rt_pick_<V>((b & (T)1) != (T)0, a, (T)1);
      V negative = rt_pick_<V>((a == (T)1) | (a == (T)-1), odd, (T)0);
      result = rt_pick_(b < (T)0, negative, result);
    }
    return result;
  }
}
