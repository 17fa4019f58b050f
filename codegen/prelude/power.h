// Powers of floats and integers.
#pragma once

#include "codegen/prelude/f64_exp.h"
#include "codegen/prelude/f64_log.h"
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

// p = |x|^y as the power of x: its sign, and what belongs to 0, infinity, NaN and below 0.
template <class V>
RT_FN V rt_pow_edges_(V p, V x, V y) {
  typedef rt_ints_<V> I;
  typedef rt_elem_<V> T;
  const T inf = rt_inf<T>(), nan = rt_nan<T>(), zero = 0, one = 1;
  V size = rt_abs(x);
  p = rt_pick_<V>((size == zero) & (y > zero) | (size == inf) & (y < zero), zero, p);
  p = rt_pick_<V>((size == zero) & (y < zero) | (size == inf) & (y > zero), inf, p);
  V half = y * (T)0.5;
  I whole = (I)(__builtin_elementwise_floor(y) == y);
  I odd = whole & (I)(__builtin_elementwise_floor(half) != half);
  p = rt_or_sign_(p, (V)((I)x & odd));
  p = rt_pick_<V>((I)((x < zero) & (x > -inf)) & ~whole | (I)((x != x) | (y != y)), nan, p);
  return rt_pick_<V>((y == zero) | (x == one) | (size == one) & (rt_abs(y) == inf), one, p);
}

// f32 in doubles, whose errors are far below half a unit of the result.
struct rt_pow_lanes_ {
  template <class V>
  RT_FN V of(V x, V y) {
    typedef rt_vec<rt_f64, rt_lanes_<V>> W;
    W t = rt_log2_wide_(__builtin_convertvector(rt_abs(x), W)) * __builtin_convertvector(y, W);
    t = rt_pick_<W>(t > 400.0, 400.0, t);
    t = rt_pick_<W>(t < -400.0, -400.0, t);
    return rt_pow_edges_(__builtin_convertvector(rt_exp2_wide_(t), V), x, y);
  }
};

// x^y = 2^(y log2 x), the logarithm to 64 bits as a sum of two numbers: by f = (m - 1) / (m + 1),
// ln m = 2 f (1 + s/3 + s^2 (1/5 + s/7 + ...)), s = f^2; numbers in -l are what others lack.
struct rt_pow_f64_ {
  template <class V>
  RT_FN V of(V x, V y) {
    V size = rt_abs(x);
    auto p = rt_log_f64_reduce_(size);
    V d = p.f + 2.0, dl = p.f - (d - 2.0), inverse = 1.0 / d;
    V f = p.f * inverse;
    V fl = rt_fma(-f, dl, rt_fma(-f, d, p.f)) * inverse;
    V s = f * f, sl = rt_fma(f, f, -s) + f * 2.0 * fl;
    V q = rt_poly_(s, 0x1.087aabe253d9cp-4, 0x1.10188237ff7e4p-4, 0x1.3b18ba4163286p-4,
                   0x1.745d09ebc663ep-4, 0x1.c71c71d7ef489p-4, 0x1.249249248e511p-3,
                   0x1.999999999999ep-3);
    V third = s * 0x1.5555555555555p-2;
    V rest = rt_fma(s, (V)0x1.5555555555555p-2, -third);
    rest = rt_fma(sl, (V)0x1.5555555555555p-2, rt_fma(s, (V)0x1.5555555555555p-56, rest));
    rest = rt_fma(s * s, q, rest);
    V g = third + rest, gl = (third - g) + rest;
    V more = f * g, morel = rt_fma(f, gl, rt_fma(fl, g, rt_fma(f, g, -more)));
    V h = f + more, hl = ((f - h) + more) + (morel + fl);
    V l = h * 0x1.71547652b82fep1;  // 2 log2 e in two parts
    V ll = rt_fma(h, (V)0x1.71547652b82fep1, -l);
    ll = rt_fma(hl, (V)0x1.71547652b82fep1, rt_fma(h, (V)0x1.777d0ffda0d24p-55, ll));
    V e = p.k + l, el = ((p.k - e) + l) + ll;
    V t = e * y, tl = rt_fma(el, y, rt_fma(e, y, -t));
    rt_ints_<V> far = (rt_ints_<V>)(rt_abs(t) > 1100.0);
    t = rt_within_f64_(t, -1100.0, 1100.0);
    tl = rt_pick_<V>(far, 0.0, tl);
    V magic = t + RT_F64_MAGIC, n = magic - RT_F64_MAGIC;
    V r = ((t - n) + tl) * 0x1.62e42fefa39efp-1;
    return rt_pow_edges_(rt_scale_f64_(rt_exp_f64_poly_(r) + 1.0, n, magic), x, y);
  }
};

// Integers by squaring. A negative power of a is 0, unless a is 1 or -1.
RT_LIBM2(pow)
template <class V>
RT_FN V rt_pow(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f64)) {
    return rt_math_f64_<rt_pow_f64_, rt_libm_pow_>(a, b);
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
