// Comparison, selection and extremes.
#pragma once

#include "codegen/prelude/base.h"

// a where the mask (of < and the like: bool, or lanes of 0 and -1) holds, else b. Of ext_vectors,
// Clang would make it from and, or and not, where other vectors give the one instruction.
template <class V, class M>
RT_FN V rt_pick_(M mask, V a, V b) {
  if constexpr (rt_lanes_<V> == 0) {
    return mask ? a : b;
  } else {
    typedef typename rt_int_<sizeof(rt_elem_<V>)>::type Int;
    typedef Int Mask __attribute__((vector_size(sizeof(V))));
    typedef rt_elem_<V> Plain __attribute__((vector_size(sizeof(V))));
    return (V)((Mask)mask ? (Plain)a : (Plain)b);
  }
}

template <class Mask>
RT_FN auto rt_as_bool_(Mask m) {
  if constexpr (rt_lanes_<Mask> == 0)
    return (rt_bool)m;
  else
    return __builtin_convertvector(m, rt_like_<Mask, rt_bool>) & (rt_bool)1;
}

// f16 as f32 and back. LLVM would take what is done between the two, comparing and choosing and
// rounding, for something to do in f16, where it then goes lane by lane; so on x86 it is not told
// what they are: the one is asked to ignore exceptions, or its result for the larger of it and
// itself, the other is an instruction of its own.
#if defined(__AVX512F__)
#define RT_F16_LANES_ 16
RT_FN rt_vec<rt_f32, 16> rt_wide_lanes_(rt_vec<rt_f16, 16> x) {
  typedef rt_vec<rt_f32, 16> F;
  return (F)__builtin_ia32_vcvtph2ps512_mask((rt_vec<rt_i16, 16>)x, F{}, -1, 8);
}
RT_FN rt_vec<rt_f16, 16> rt_narrow_lanes_(rt_vec<rt_f32, 16> x) {
  typedef rt_vec<rt_i16, 16> I;
  return (rt_vec<rt_f16, 16>)(I)__builtin_ia32_vcvtps2ph512_mask(x, 0, I{}, -1);
}
#elif defined(__F16C__)
#define RT_F16_LANES_ 8
RT_FN rt_vec<rt_f32, 8> rt_wide_lanes_(rt_vec<rt_f16, 8> x) {
  rt_vec<rt_f32, 8> y = __builtin_convertvector(x, rt_vec<rt_f32, 8>);
  return (rt_vec<rt_f32, 8>)__builtin_ia32_maxps256(y, y);
}
RT_FN rt_vec<rt_f16, 8> rt_narrow_lanes_(rt_vec<rt_f32, 8> x) {
  return (rt_vec<rt_f16, 8>)(rt_vec<rt_i16, 8>)__builtin_ia32_vcvtps2ph256(x, 0);
}
#else
#define RT_F16_LANES_ 0
template <class V>
RT_FN V rt_wide_lanes_(V x) {
  return x;
}
template <class V>
RT_FN V rt_narrow_lanes_(V x) {
  return x;
}
#endif

template <class V>
RT_FN auto rt_wide_(V x) {
  constexpr int lanes = rt_lanes_<V>;
  if constexpr (!__is_same(rt_elem_<V>, rt_f16)) {
    return x;
  } else if constexpr (lanes == 0) {
    return (rt_f32)x;
  } else if constexpr (lanes == RT_F16_LANES_) {
    return rt_wide_lanes_(x);
  } else if constexpr (RT_F16_LANES_ != 0 && lanes > RT_F16_LANES_) {
    rt_vec<rt_f32, lanes> y;
    y.lo = rt_wide_((rt_vec<rt_f16, lanes / 2>)x.lo);
    y.hi = rt_wide_((rt_vec<rt_f16, lanes / 2>)x.hi);
    return y;
  } else {
    return __builtin_convertvector(x, rt_like_<V, rt_f32>);
  }
}

template <class V>
RT_FN auto rt_narrow_(V x) {
  constexpr int lanes = rt_lanes_<V>;
  if constexpr (lanes == 0) {
    return (rt_f16)x;
  } else if constexpr (lanes == RT_F16_LANES_) {
    return rt_narrow_lanes_(x);
  } else if constexpr (RT_F16_LANES_ != 0 && lanes > RT_F16_LANES_) {
    rt_vec<rt_f16, lanes> y;
    y.lo = rt_narrow_((rt_vec<rt_f32, lanes / 2>)x.lo);
    y.hi = rt_narrow_((rt_vec<rt_f32, lanes / 2>)x.hi);
    return y;
  } else {
    return __builtin_convertvector(x, rt_like_<V, rt_f16>);
  }
}

// In one piece where no f16 is: each function that another calls is compiled and inlined by itself.
#define RT_COMPARE_(name, op)                                                    \
  template <class V>                                                             \
  RT_FN rt_like_<V, rt_bool> name(V a, V b) {                                    \
    if constexpr (__is_same(rt_elem_<V>, rt_f16))                                \
      return name(rt_wide_(a), rt_wide_(b));                                     \
    else if constexpr (rt_lanes_<V> == 0)                                        \
      return a op b;                                                             \
    else                                                                         \
      return __builtin_convertvector(a op b, rt_like_<V, rt_bool>) & (rt_bool)1; \
  }

RT_COMPARE_(rt_lt, <)

RT_COMPARE_(rt_le, <=)

RT_COMPARE_(rt_eq, ==)

RT_COMPARE_(rt_ne, !=)

template <class V>
RT_FN V rt_where(rt_like_<V, rt_bool> mask, V a, V b) {
  if constexpr (rt_lanes_<V> == 0)
    return mask ? a : b;
  else
    return rt_pick_(__builtin_convertvector(mask != (rt_bool)0, rt_ints_<V>), a, b);
}

template <class V>
RT_FN rt_bool rt_any_(V mask) {  // whether any lane is not 0
  if constexpr (rt_lanes_<V> == 0) return mask != 0;
#if __has_builtin(__builtin_reduce_or)
  else
    return __builtin_reduce_or(mask) != 0;
#else
  else if constexpr (rt_lanes_<V> == 2)
    return (mask[0] | mask[1]) != 0;
  else
    return rt_any_(mask.lo | mask.hi);
#endif
}

// Whether all lanes of b are known to be numbers other than the zero with these bits.
template <class Bits, class V>
RT_FN bool rt_plain_(V b, rt_elem_<Bits> zero) {
  const bool plain = !rt_any_((Bits)(b != b) | (Bits)(__builtin_bit_cast(Bits, b) == zero));
  return __builtin_constant_p(plain) && plain;
}

// The sign that both have, and the other bits that either has.
#if defined(__AVX512VL__)
#define RT_SIGN_OF_BOTH_ 1
template <class V>
RT_FN V rt_sign_of_both_(V a, V b) {
  typedef rt_i32 Bits __attribute__((vector_size(sizeof(V))));
  const Bits sign = (Bits)(V)((rt_elem_<V>)-0.0);
  constexpr int kBoth = 0xd4;
  if constexpr (sizeof(V) == 64)
    return (V)__builtin_ia32_pternlogd512_mask((Bits)a, (Bits)b, sign, kBoth, 0xffff);
  else if constexpr (sizeof(V) == 32)
    return (V)__builtin_ia32_pternlogd256_mask((Bits)a, (Bits)b, sign, kBoth, 0xff);
  else
    return (V)__builtin_ia32_pternlogd128_mask((Bits)a, (Bits)b, sign, kBoth, 0xf);
}
#endif

// Equal operands differ in bits only if they are zeros: max takes the common bits of the two, min
// all bits, which is +0 and -0. Where one is a NaN neither arm is of use, and their sum is a NaN.
// A constant, as in max(x, 0), needs no such care: what is not below it or equal stays, NaN too.
template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_max(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_float_<T>) {
    return rt_pick_(a > b, a, b);
  } else if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_max(rt_wide_(a), rt_wide_(b)));
  } else {
    if (rt_plain_<Bits>(b, (rt_elem_<Bits>)(1ull << (8 * sizeof(T) - 1)))) {
      return rt_pick_(a <= b, b, a);
    }
#if defined(RT_SIGN_OF_BOTH_)
    if constexpr (rt_lanes_ < V >> 1 && sizeof(V) >= 16 && sizeof(V) <= 64)
      return rt_sign_of_both_(rt_pick_(a > b, a, b), rt_pick_(b > a, b, a));
#endif
    return rt_pick_<V>((a != a) | (b != b), a + b,
                       __builtin_bit_cast(V, __builtin_bit_cast(Bits, rt_pick_(a > b, a, b)) &
                                                 __builtin_bit_cast(Bits, rt_pick_(b > a, b, a))));
  }
}

template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_min(V a, V b) {
  typedef rt_elem_<V> T;
  if constexpr (!rt_is_float_<T>) {
    return rt_pick_(a < b, a, b);
  } else if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_min(rt_wide_(a), rt_wide_(b)));
  } else {
    if (rt_plain_<Bits>(b, 0)) return rt_pick_(a >= b, b, a);
    return __builtin_bit_cast(V, __builtin_bit_cast(Bits, rt_pick_(a < b, a, b)) |
                                     __builtin_bit_cast(Bits, rt_pick_(b < a, b, a)));
  }
}

template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_abs(V x) {
  typedef rt_elem_<V> T;
  if constexpr (rt_is_float_<T>)
    return __builtin_bit_cast(
        V, (Bits)(__builtin_bit_cast(Bits, x) & (rt_elem_<Bits>)(~0ull >> (65 - 8 * sizeof(T)))));
  else if constexpr (rt_is_signed_<T>)
    return rt_pick_<V>(x < (T)0, -x, x);
  else
    return x;
}

// x with the sign of y added, which is y's where x has none.
template <class V, class Bits = rt_ints_<V>>
RT_FN V rt_or_sign_(V x, V y) {
  constexpr auto sign = (rt_elem_<Bits>)(1ull << (8 * sizeof(rt_elem_<V>) - 1));
  return __builtin_bit_cast(
      V, (Bits)(__builtin_bit_cast(Bits, x) | (__builtin_bit_cast(Bits, y) & sign)));
}
