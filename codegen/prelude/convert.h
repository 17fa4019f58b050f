// Casts between native types: floats saturate into integers, NaN becomes 0.
#pragma once

#include "codegen/prelude/select.h"

template <class To, class V>  // what C makes of it
RT_FN rt_like_<V, To> rt_convert_(V x) {
  if constexpr (rt_lanes_<V> == 0)
    return (To)x;
  else
    return __builtin_convertvector(x, rt_like_<V, To>);
}

template <class To>
struct rt_range_ {
  static constexpr int bits = 8 * sizeof(To) - rt_is_signed_<To>;  // beside the sign
  static constexpr To max = (To)(~0ull >> (64 - bits));
  static constexpr To min = rt_is_signed_<To> ? (To)(-max - 1) : (To)0;
};

// f32 or f64 to an integer. Values are clamped to what both types hold, so that the conversion is
// defined in every lane; the highest integer, where the float type lacks it, is put in afterwards.
template <class To, class V>
RT_FN rt_like_<V, To> rt_saturate_(V x) {
  typedef rt_elem_<V> From;
  typedef rt_range_<To> Range;
  constexpr int precision = __is_same(From, rt_f32) ? 24 : 53;
  constexpr From low = (From)Range::min;
  if constexpr (Range::bits <= precision) {
    constexpr From high = (From)Range::max;
    x = rt_pick_<V>(x == x, x, (From)0);
    x = rt_pick_<V>(x < low, low, x);
    x = rt_pick_<V>(x > high, high, x);
    if constexpr (sizeof(To) < 4)
      return rt_convert_<To>(rt_convert_<rt_i32>(x));
    else
      return rt_convert_<To>(x);
  } else {
    constexpr From limit = (From)(1ull << (Range::bits - 1)) * 2;  // one above the highest
    constexpr From high = limit - limit / (1ull << precision);
    typedef rt_like_<V, To> R;
    V y = rt_pick_<V>(x > low, x, low);  // NaN too
    y = rt_pick_<V>(y < high, y, high);
    R r = rt_convert_<To>(y);
    r = rt_where(rt_le((V)limit, x), (R)Range::max, r);
#if defined(__aarch64__)
    constexpr bool unsure = true;  // LLVM makes these fmaxnm, which keeps a signalling NaN
#else
    constexpr bool unsure = rt_is_signed_<To>;
#endif
    if constexpr (unsure) r = rt_where(rt_eq(x, x), r, (R)(To)0);
    return r;
  }
}

template <class To, class V>
RT_FN rt_like_<V, To> rt_cast(V x) {
  typedef rt_elem_<V> From;
  if constexpr (__is_same(To, From))
    return x;
  else if constexpr (__is_same(To, rt_bool))
    return rt_as_bool_(rt_wide_(x) != (rt_elem_<decltype(rt_wide_(x))>)0);
  else if constexpr (__is_same(From, rt_f16))
    return rt_cast<To>(rt_wide_(x));
  else if constexpr (__is_same(To, rt_f16))
    return rt_narrow_(rt_convert_<rt_f32>(x));
  else if constexpr (rt_is_float_<From> && !rt_is_float_<To>)
    return rt_saturate_<To>(x);
  else if constexpr (rt_lanes_<V> == 0)  // as rt_convert_, with no function more to inline
    return (To)x;
  else
    return __builtin_convertvector(x, rt_like_<V, To>);
}
