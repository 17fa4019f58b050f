// Division, remainder and shifts of integers, defined for every operand; fmod.
#pragma once

#include "codegen/prelude/convert.h"
#include "codegen/prelude/float.h"
#include "codegen/prelude/libm.h"
#include "codegen/prelude/select.h"

// a / b in lanes. Chips divide floats only: a quotient of integers below 2^16 is exact after
// truncation in f32, of those below 2^32 in f64. Division by constants is LLVM's: multiplication.
template <class V>
RT_FN V rt_divide_lanes_(V a, V b) {
  typedef rt_elem_<V> T;
  V zero = (V)(b == (T)0), minus = (V)(T)0;  // lanes of ones where b is 0, and -1
  if constexpr (rt_is_signed_<T>) minus = (V)(b == (T)-1);
  V q;
  if (sizeof(T) == 8 || __builtin_constant_p(b[0]))
    q = a / (rt_pick_<V>((zero | minus) != (T)0, (T)1, b));
  else if constexpr (sizeof(T) == 4)
    q = rt_convert_<T>(rt_convert_<rt_f64>(a) / rt_convert_<rt_f64>(b));
  else
    q = rt_convert_<T>(rt_convert_<rt_i32>(rt_convert_<rt_f32>(a) / rt_convert_<rt_f32>(b)));
  q = rt_pick_<V>(minus != (T)0, -a, q);
  return q & ~zero;
}

template <class V>
RT_FN V rt_truncdiv(V a, V b) {
  if constexpr (rt_lanes_<V> != 0)
    return rt_divide_lanes_(a, b);
  else if (b == 0)
    return 0;
  else if (rt_is_signed_<V> && b == (V)-1)
    return (V)-a;
  else
    return (V)(a / b);
}

// The remainder of the division of magnitudes, which is exact as long as the quotient is: rounded
// up to a whole number it is one too large. Larger quotients are the C library's.
RT_LIBM2(fmod)
template <class V>
RT_FN V rt_fmod_(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_fmod_(rt_wide_(a), rt_wide_(b)));
  } else {
#if defined(__FMA__) || defined(__aarch64__)
#pragma clang fp contract(on)
    V x = rt_abs(a), y = rt_abs(b);
    V q = rt_trunc(x / y);
    V r = x - q * y;
    r = rt_pick_<V>(r < (T)0, r + y, r);
    r = rt_or_sign_(rt_pick_(x < y, x, r), a);
    return rt_redo_where_<rt_libm_fmod_>(q >= (T)(sizeof(T) == 4 ? 0x1p22 : 0x1p51), r, a, b);
#else
    return rt_each_<rt_libm_fmod_>(a, b);
#endif
  }
}

template <class V>
RT_FN V rt_truncmod(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (rt_is_float_<T>)
    return rt_fmod_(a, b);
  else if constexpr (rt_lanes_<V> != 0)
    return (a - rt_divide_lanes_(a, b) * b) & (V)(b != (T)0);
  else if (b == 0 || (rt_is_signed_<V> && b == (V)-1))
    return 0;
  else
    return (V)(a % b);
}

template <class V>
RT_FN V rt_floordiv(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_signed_<T>) {
    return rt_truncdiv(a, b);
  } else if constexpr (rt_lanes_<V> != 0) {
    V q = rt_divide_lanes_(a, b);
    V r = a - q * b;
    return q + (V)((r != (T)0) & ((r ^ b) < (T)0) & (b != (T)0));
  } else {
    if (__builtin_constant_p(b) && b > 0 && (b & (b - 1)) == 0)
      return (V)(a >> __builtin_ctzll((rt_u64)b));
    if (b == 0) return 0;
    if (b == (V)-1) return (V)-a;
    V q = (V)(a / b);
    V r = (V)(a - q * b);
    return (V)(q - (r != 0 && (r ^ b) < 0));
  }
}

template <class V>
RT_FN V rt_floormod(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_signed_<T>) {
    return rt_truncmod(a, b);
  } else if constexpr (rt_lanes_<V> != 0) {
    V r = (a - rt_divide_lanes_(a, b) * b) & (V)(b != (T)0);
    return r + ((V)((r != (T)0) & ((r ^ b) < (T)0)) & b);
  } else {
    if (__builtin_constant_p(b) && b > 0 && (b & (b - 1)) == 0) return (V)(a & (b - 1));
    if (b == 0 || b == (V)-1) return 0;
    V r = (V)(a % b);
    return (V)(r != 0 && (r ^ b) < 0 ? r + b : r);
  }
}

// A count is out of range where it is negative or not below the width.
template <class V>
RT_FN V rt_shl(V a, V b) {
  typedef rt_uints_<V> U;
  typedef rt_elem_<U> T;
  constexpr T width = 8 * sizeof(T);
  return (V)(rt_pick_<U>((U)b < width, (U)a << (U)b, (T)0));
}

template <class V>
RT_FN V rt_shr(V a, V b) {
  typedef rt_uints_<V> U;
  typedef rt_elem_<U> T;
  constexpr T width = 8 * sizeof(T);
  if constexpr (rt_is_signed_<rt_elem_<V>>)
    return (V)(a >> (V)(rt_pick_<U>((U)b < width, (U)b, (T)(width - 1))));
  else
    return rt_pick_<V>((U)b < width, a >> b, (T)0);
}
