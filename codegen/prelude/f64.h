// What the f64 functions that are computed in lanes share. They rely on sums of products that are
// rounded once; chips without them call the C library.
#pragma once

#include "codegen/prelude/float.h"
#include "codegen/prelude/libm.h"
#include "codegen/prelude/select.h"

#if defined(__FMA__) || defined(__aarch64__)
#define RT_F64_LANES 1
#else
#define RT_F64_LANES 0
#endif

// A scalar goes through the code of vectors, as in rt_math_.
template <class Lanes, class Libm, class V, class... Vs>
RT_FN V rt_math_f64_(V x, Vs... more) {
  if constexpr (!RT_F64_LANES)
    return rt_each_<Libm>(x, more...);
  else if constexpr (rt_lanes_<V> == 0)
    return Lanes::of((rt_vec<rt_f64, 4>)x, (rt_vec<rt_f64, 4>)more...)[0];
  else
    return Lanes::of(x, more...);
}

// A polynomial by its coefficients, from that of the highest power on.
template <class V, class... C>
RT_FN V rt_poly_(V x, rt_f64 first, C... rest) {
  V sum = (V)first;
  ((sum = rt_fma(sum, x, (V)rest)), ...);
  return sum;
}

// Whole numbers below 2^51 added to it are in the low bits of the sum.
#define RT_F64_MAGIC 0x1.8p52

template <class V>
RT_FN rt_ints_<V> rt_f64_whole_(V t) {
  return (rt_ints_<V>)t - __builtin_bit_cast(rt_i64, RT_F64_MAGIC);
}

// p * 2^n, rounded once; n is a whole number within +-2044, and t the sum n + RT_F64_MAGIC.
template <class V>
RT_FN V rt_scale_f64_(V p, V n, V t) {
  constexpr int lanes = rt_lanes_<V>;
#if defined(__AVX512F__)
  if constexpr (lanes == 8) {
    return (V)__builtin_ia32_scalefpd512_mask(p, n, p, 0xff, 4);
  } else if constexpr (lanes > 8) {
    V y;
    y.lo = rt_scale_f64_(p.lo, n.lo, t.lo);
    y.hi = rt_scale_f64_(p.hi, n.hi, t.hi);
    return y;
  }
#endif
#if defined(__AVX512VL__)
  if constexpr (lanes == 4) return (V)__builtin_ia32_scalefpd256_mask(p, n, p, 0xf);
#endif
  typedef rt_ints_<V> I;
  I k = rt_f64_whole_(t), half = k >> 1;
  V low = (V)((half + 1023) << 52), high = (V)((k - half + 1023) << 52);
  return p * low * high;
}
