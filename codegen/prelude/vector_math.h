// What the f32 functions that are computed in lanes share.
#pragma once

#include "codegen/prelude/f64.h"
#include "codegen/prelude/libm.h"
#include "codegen/prelude/select.h"

// A function of floats: f32 by Lanes::of, which takes vectors, f64 by Lanes64::of or Libm::of. A
// scalar goes through the code of vectors, so that the tail of a loop has the same bits as its
// body.
template <class Lanes, class Lanes64, class Libm, class V>
RT_FN V rt_math_(V x) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f64))
    return rt_math_f64_<Lanes64, Libm>(x);
  else if constexpr (__is_same(T, rt_f16))
    return rt_narrow_(rt_math_<Lanes, Lanes64, Libm>(rt_wide_(x)));
  else if constexpr (rt_lanes_<V> == 0)
    return Lanes::of((rt_vec<rt_f32, 4>)x)[0];
  else
    return Lanes::of(x);
}

template <class V>
RT_FN V rt_min_or_nan_(V x, rt_f32 limit) {
  return rt_pick_<V>(x > limit, limit, x);
}

// Where x is not below the limit, NaN too. Chips put a zero in the other lanes of a result for
// nothing, but not other lanes into it.
template <class V>
RT_FN auto rt_not_below_(V x, rt_f32 limit) {
  if constexpr (rt_lanes_<V> == 0)
    return !(x < limit);
  else
    return ~(x < limit);
}

// p * 2^n, rounded once; n is a whole number within +-252, and t the sum n + kRoundMagic. A p of 0
// stays one for any n that is not above that, if rt_scales_by_any_.
#define RT_ROUND_MAGIC 0x1.8p23f
#if defined(__AVX512VL__)
template <class V>
constexpr bool rt_scales_by_any_ = rt_lanes_<V> == 4 || rt_lanes_<V> == 8 || rt_lanes_<V> == 16;
#else
template <class V>
constexpr bool rt_scales_by_any_ = false;
#endif
template <class V>
RT_FN V rt_scale_(V p, V n, V t) {
  constexpr int lanes = rt_lanes_<V>;
#if defined(__AVX512F__)
  if constexpr (lanes == 16) return (V)__builtin_ia32_scalefps512_mask(p, n, p, 0xffff, 4);
#endif
#if defined(__AVX512VL__)
  if constexpr (lanes == 8) return (V)__builtin_ia32_scalefps256_mask(p, n, p, 0xff);
  if constexpr (lanes == 4) return (V)__builtin_ia32_scalefps128_mask(p, n, p, 0xf);
#endif
  typedef rt_ints_<V> I;
  I k = (I)t - __builtin_bit_cast(rt_i32, RT_ROUND_MAGIC);
  I half = k >> 1;
  V low = (V)((half + 127) << 23), high = (V)((k - half + 127) << 23);
  return p * low * high;
}

// The same for 1/2 < p < 2 and n from -152, for which it is 0, to 129, where t is the sum
// n + RT_SCALE_MAGIC. Its lowest bits hold n + 356: half of that is the exponent of one factor as a
// float has it, and what is left, less 102, of the other: that one is 0 for -152, so that nothing
// need be masked, and chips need not take their time for what is too small for any number.
#define RT_SCALE_MAGIC (RT_ROUND_MAGIC + 356.0f)
template <class V>
RT_FN V rt_scale_or_zero_(V p, V t) {
  typedef rt_ints_<V> I;
  I first = ((I)t >> 1) << 23;
  I second = ((I)t << 23) - (102 << 23) - first;
  return p * (V)first * (V)second;
}
