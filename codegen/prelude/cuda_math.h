// Functions of numbers in CUDA text: those of CUDA's own library, and what integers need beside
// C++.
#pragma once

#include "codegen/prelude/cuda_select.h"

// Declares rt_NAME of f32, f64 and vectors by a function of the device library.
#define RT_DEVICE_MATH(name, fn)                   \
  RT_FN rt_f32 name(rt_f32 x) { return fn##f(x); } \
  RT_FN rt_f64 name(rt_f64 x) { return fn(x); }    \
  RT_LANES1(name)

RT_DEVICE_MATH(rt_exp, exp)

RT_DEVICE_MATH(rt_exp2, exp2)

RT_DEVICE_MATH(rt_expm1, expm1)

RT_DEVICE_MATH(rt_log, log)

RT_DEVICE_MATH(rt_log2, log2)

RT_DEVICE_MATH(rt_log1p, log1p)

RT_DEVICE_MATH(rt_sin, sin)

RT_DEVICE_MATH(rt_cos, cos)

RT_DEVICE_MATH(rt_tan, tan)

RT_DEVICE_MATH(rt_asin, asin)

RT_DEVICE_MATH(rt_acos, acos)

RT_DEVICE_MATH(rt_atan, atan)

RT_DEVICE_MATH(rt_sinh, sinh)

RT_DEVICE_MATH(rt_cosh, cosh)

RT_DEVICE_MATH(rt_tanh, tanh)

RT_DEVICE_MATH(rt_erf, erf)

RT_DEVICE_MATH(rt_erfc, erfc)

RT_DEVICE_MATH(rt_floor, floor)

RT_DEVICE_MATH(rt_ceil, ceil)

RT_DEVICE_MATH(rt_trunc, trunc)

RT_DEVICE_MATH(rt_round, rint)

RT_DEVICE_MATH(rt_sqrt, sqrt)

RT_FN rt_f32 rt_fma(rt_f32 a, rt_f32 b, rt_f32 c) { return fmaf(a, b, c); }
RT_FN rt_f64 rt_fma(rt_f64 a, rt_f64 b, rt_f64 c) { return fma(a, b, c); }
RT_LANES3(rt_fma)

// ---- integers

template <class T>
RT_FN T rt_truncdiv(T a, T b) {
  if (b == 0) return 0;
  if (rt_is_signed_<T> && b == (T)-1) return rt_neg(a);
  return (T)(a / b);
}
RT_LANES2(rt_truncdiv)

RT_FN rt_f32 rt_truncmod(rt_f32 a, rt_f32 b) { return fmodf(a, b); }
RT_FN rt_f64 rt_truncmod(rt_f64 a, rt_f64 b) { return fmod(a, b); }
template <class T>
RT_FN T rt_truncmod(T a, T b) {
  if (b == 0 || (rt_is_signed_<T> && b == (T)-1)) return 0;
  return (T)(a % b);
}
RT_LANES2(rt_truncmod)

template <class T>
RT_FN T rt_floordiv(T a, T b) {
  if (b == 0) return 0;
  if constexpr (!rt_is_signed_<T>) {
    return (T)(a / b);
  } else {
    if (b == (T)-1) return rt_neg(a);
    const T q = (T)(a / b), r = (T)(a - q * b);
    return (T)(q - (r != 0 && (r ^ b) < 0));
  }
}
RT_LANES2(rt_floordiv)

template <class T>
RT_FN T rt_floormod(T a, T b) {
  if (b == 0 || (rt_is_signed_<T> && b == (T)-1)) return 0;
  const T r = (T)(a % b);
  return (T)(rt_is_signed_<T> && r != 0 && (r ^ b) < 0 ? r + b : r);
}
RT_LANES2(rt_floormod)

// Integers by squaring. A negative power of a is 0, unless a is 1 or -1.
RT_FN rt_f32 rt_pow(rt_f32 a, rt_f32 b) { return powf(a, b); }
RT_FN rt_f64 rt_pow(rt_f64 a, rt_f64 b) { return pow(a, b); }
template <class T>
RT_FN T rt_pow(T a, T b) {
  if (rt_is_signed_<T> && b < 0) {
    if (a == 1) return 1;
    return a == (T)-1 ? (b & 1 ? a : (T)1) : (T)0;
  }
  T result = 1, base = a;
  for (rt_uint_<T> n = (rt_uint_<T>)b; n != 0; n >>= 1, base = rt_mul(base, base)) {
    if (n & 1) result = rt_mul(result, base);
  }
  return result;
}
RT_LANES2(rt_pow)

template <class T>
RT_FN T rt_shl(T a, T b) {
  return (rt_uint_<T>)b < 8 * sizeof(T) ? (T)(rt_uint_<T>)((rt_u64)a << b) : (T)0;
}
RT_LANES2(rt_shl)

template <class T>
RT_FN T rt_shr(T a, T b) {
  if ((rt_uint_<T>)b < 8 * sizeof(T)) return (T)(a >> b);
  return rt_is_signed_<T> && a < 0 ? (T)-1 : (T)0;
}
RT_LANES2(rt_shr)

template <int N>  // unsigned bytes, all by as many places
RT_FN rt_vec<rt_u8, N> rt_shl_bytes(rt_vec<rt_u8, N> v, rt_u8 by) {
  rt_vec<rt_u32, N / 4> r = rt_words_(v);
  const rt_u32 left = by < 8 ? (0xffu << by & 0xff) * 0x01010101u : 0;
  RT_UNROLL
  for (int i = 0; i < N / 4; ++i) r.v[i] = r.v[i] << (by & 7) & left;
  return __builtin_bit_cast(rt_vec<rt_u8, N>, r);
}

template <int N>
RT_FN rt_vec<rt_u8, N> rt_shr_bytes(rt_vec<rt_u8, N> v, rt_u8 by) {
  rt_vec<rt_u32, N / 4> r = rt_words_(v);
  const rt_u32 left = by < 8 ? (0xffu >> by) * 0x01010101u : 0;
  RT_UNROLL
  for (int i = 0; i < N / 4; ++i) r.v[i] = r.v[i] >> (by & 7) & left;
  return __builtin_bit_cast(rt_vec<rt_u8, N>, r);
}

// ---- dot products of four bytes a lane, which wrap

template <class A, class B>
RT_FN rt_i32 rt_dot_(rt_u32 a, rt_u32 b, rt_i32 sum) {
  rt_i32 r;
  if constexpr (rt_is_signed_<A> && rt_is_signed_<B>)
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  else if constexpr (rt_is_signed_<A>)
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  else if constexpr (rt_is_signed_<B>)
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  else
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
}

template <class A, class B, int M, int N>
RT_FN rt_vec<rt_i32, N> rt_dot4(rt_vec<A, M> a, rt_vec<B, M> b, rt_vec<rt_i32, N> sum) {
  const rt_vec<rt_u32, N> x = rt_words_(a), y = rt_words_(b);
  RT_UNROLL
  for (int i = 0; i < N; ++i) sum.v[i] = rt_dot_<A, B>(x.v[i], y.v[i], sum.v[i]);
  return sum;
}

template <class A, class B, class S>
RT_FN S rt_dot4_small(A a, B b, S sum) {
  return rt_dot4(a, b, sum);
}

// ---- random bits: Threefry-2x32 with 20 rounds (Salmon et al., 2011)

template <int R0, int R1, int R2, int R3>
RT_FN void rt_threefry_rounds_(rt_u32& x0, rt_u32& x1) {
  x0 += x1, x1 = (x1 << R0 | x1 >> (32 - R0)) ^ x0;
  x0 += x1, x1 = (x1 << R1 | x1 >> (32 - R1)) ^ x0;
  x0 += x1, x1 = (x1 << R2 | x1 >> (32 - R2)) ^ x0;
  x0 += x1, x1 = (x1 << R3 | x1 >> (32 - R3)) ^ x0;
}

RT_FN rt_u64 rt_threefry(rt_u64 counter, rt_u64 key) {
  const rt_u32 k0 = (rt_u32)key, k1 = (rt_u32)(key >> 32), k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  rt_u32 x0 = (rt_u32)counter + k0, x1 = (rt_u32)(counter >> 32) + k1;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + 1u;
  rt_threefry_rounds_<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + 2u;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + 3u;
  rt_threefry_rounds_<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + 4u;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k2, x1 += k0 + 5u;
  return (rt_u64)x1 << 32 | x0;
}
RT_LANES2(rt_threefry)
