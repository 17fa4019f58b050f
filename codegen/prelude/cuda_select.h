// Comparison, selection, extremes, folds and casts in CUDA text.
#pragma once

#include "codegen/prelude/cuda_base.h"

template <class T>
RT_FN rt_bool rt_lt(T a, T b) {
  return a < b;
}
RT_LANES2(rt_lt)

template <class T>
RT_FN rt_bool rt_le(T a, T b) {
  return a <= b;
}
RT_LANES2(rt_le)

template <class T>
RT_FN rt_bool rt_eq(T a, T b) {
  return a == b;
}
RT_LANES2(rt_eq)

template <class T>
RT_FN rt_bool rt_ne(T a, T b) {
  return a != b;
}
RT_LANES2(rt_ne)

template <class T>
RT_FN T rt_where(rt_bool mask, T a, T b) {
  return mask ? a : b;
}
RT_LANES3(rt_where)

// A NaN wins; of zeros, max takes the common bits and min all of them.
template <class T>
RT_FN T rt_max(T a, T b) {
  if constexpr (!rt_is_float_<T>) {
    return a > b ? a : b;
  } else {
#if __CUDA_ARCH__ >= 800
    if constexpr (rt_same_<T, rt_f32>) {
      rt_f32 r;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
      return r;
    }
#endif
    if (a != a || b != b) return a + b;
    if (a != b) return a > b ? a : b;
    return __builtin_bit_cast(
        T, (rt_uint_<T>)(__builtin_bit_cast(rt_uint_<T>, a) & __builtin_bit_cast(rt_uint_<T>, b)));
  }
}
RT_LANES2(rt_max)

template <class T>
RT_FN T rt_min(T a, T b) {
  if constexpr (!rt_is_float_<T>) {
    return a < b ? a : b;
  } else {
#if __CUDA_ARCH__ >= 800
    if constexpr (rt_same_<T, rt_f32>) {
      rt_f32 r;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
      return r;
    }
#endif
    if (a != a || b != b) return a + b;
    if (a != b) return a < b ? a : b;
    return __builtin_bit_cast(
        T, (rt_uint_<T>)(__builtin_bit_cast(rt_uint_<T>, a) | __builtin_bit_cast(rt_uint_<T>, b)));
  }
}
RT_LANES2(rt_min)

template <class T>
RT_FN T rt_abs(T x) {
  if constexpr (rt_is_float_<T>) {
    constexpr rt_uint_<T> magnitude = (rt_uint_<T>)(~0ull >> (65 - 8 * sizeof(T)));
    return __builtin_bit_cast(T, (rt_uint_<T>)(__builtin_bit_cast(rt_uint_<T>, x) & magnitude));
  } else if constexpr (rt_is_short_<T>) {
    return rt_short_(x < 0 ? -(rt_i32)x : (rt_i32)x);
  } else if constexpr (rt_is_signed_<T>) {
    return x < 0 ? rt_neg(x) : x;
  } else {
    return x;
  }
}
RT_LANES1(rt_abs)

// ---- what combines lanes and threads

struct rt_add_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return rt_add(a, b);
  }
};

struct rt_mul_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return rt_mul(a, b);
  }
};

struct rt_max_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return rt_max(a, b);
  }
};

struct rt_min_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return rt_min(a, b);
  }
};

struct rt_and_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return (T)(a & b);
  }
};

struct rt_or_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return (T)(a | b);
  }
};

struct rt_xor_ {
  template <class T>
  RT_FN T of(T a, T b) {
    return (T)(a ^ b);
  }
};

template <class Op, class T, int N>
RT_FN T rt_fold_(rt_vec<T, N> v) {
  RT_UNROLL
  for (int half = N / 2; half > 0; half /= 2) {
    RT_UNROLL
    for (int i = 0; i < half; ++i) v.v[i] = Op::of(v.v[i], v.v[i + half]);
  }
  return v.v[0];
}

template <class V>
RT_FN auto rt_fold_add(V v) {
  return rt_fold_<rt_add_>(v);
}

template <class V>
RT_FN auto rt_fold_mul(V v) {
  return rt_fold_<rt_mul_>(v);
}

template <class V>
RT_FN auto rt_fold_max(V v) {
  return rt_fold_<rt_max_>(v);
}

template <class V>
RT_FN auto rt_fold_min(V v) {
  return rt_fold_<rt_min_>(v);
}

template <class V>
RT_FN auto rt_fold_and(V v) {
  return rt_fold_<rt_and_>(v);
}

template <class V>
RT_FN auto rt_fold_or(V v) {
  return rt_fold_<rt_or_>(v);
}

template <class V>
RT_FN auto rt_fold_xor(V v) {
  return rt_fold_<rt_xor_>(v);
}

// ---- casts: floats saturate into integers, NaN becomes 0

RT_FN rt_f32 rt_f16_to_f32_(rt_f16 x) {
  rt_f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

RT_FN rt_f16 rt_f32_to_f16_(rt_f32 x) {
  rt_f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

template <class To, class T>
RT_FN To rt_saturate_(T x) {
  constexpr int bits = 8 * sizeof(To) - rt_is_signed_<To>;
  constexpr To max = (To)(~0ull >> (64 - bits));
  constexpr To min = rt_is_signed_<To> ? (To)(-max - 1) : (To)0;
  if (x != x) return 0;
  if (x <= (T)min) return min;
  return x >= (T)max ? max : (To)x;
}

template <class T>
constexpr bool rt_is_byte_ = rt_same_<T, rt_u8> || rt_same_<T, rt_i8>;

template <class To, class T>
RT_FN To rt_cast(T x) {
  if constexpr (rt_same_<To, T>)
    return x;
  else if constexpr (rt_same_<T, rt_f16>)
    return rt_cast<To>(rt_f16_to_f32_(x));
  else if constexpr (rt_same_<To, rt_f16>)
    return rt_f32_to_f16_((rt_f32)x);
  else if constexpr (rt_same_<To, rt_bool>)
    return x != (T)0;
  else if constexpr (rt_is_float_<T> && !rt_is_float_<To>)
    return rt_saturate_<To>(x);
  else
    return (To)x;
}
template <class To, class T, int N>
RT_FN rt_vec<To, N> rt_cast(rt_vec<T, N> x) {
  if constexpr (rt_is_byte_<T> && rt_is_byte_<To>) return __builtin_bit_cast(rt_vec<To, N>, x);
  rt_vec<To, N> r;
  RT_UNROLL
  for (int i = 0; i < N; ++i) r.v[i] = rt_cast<To>(x.v[i]);
  return r;
}

// ---- formats that are held as bits

RT_FN rt_f32 rt_bf16_to_f32(rt_bf16 x) { return __builtin_bit_cast(rt_f32, (rt_u32)x << 16); }
RT_LANES1(rt_bf16_to_f32)

RT_FN rt_bf16 rt_f32_to_bf16(rt_f32 x) {
#if __CUDA_ARCH__ >= 800
  rt_u32 y;  // of two at a time there are four times as many a clock
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(0.0f), "f"(x));
  return (rt_bf16)y;
#endif
  const rt_u32 u = __builtin_bit_cast(rt_u32, x);
  const rt_u32 rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (rt_bf16)(x == x ? rounded : (u >> 16 & 0x8000u) | 0x7fc0u);
}
RT_LANES1(rt_f32_to_bf16)

RT_FN rt_f32 rt_f8e5m2_to_f32(rt_f8e5m2 x) {
  return rt_f16_to_f32_(rt_f16{(unsigned short)(x << 8)});
}
RT_LANES1(rt_f8e5m2_to_f32)

RT_FN rt_f32 rt_f8e4m3_to_f32(rt_f8e4m3 x) {
  if ((x & 0x7f) == 0x7f) return rt_nan<rt_f32>();
  return rt_f16_to_f32_(rt_f16{(unsigned short)((x & 0x80) << 8 | (x & 0x7f) << 7)}) * 256.0f;
}
RT_LANES1(rt_f8e4m3_to_f32)

// As in narrow.h: to a format of 8 bits with this mantissa and bias, rounded to nearest even.
template <int Mantissa, int Bias, int Top, int Nan>
RT_FN rt_u8 rt_f32_to_f8_(rt_f32 x) {
  constexpr int drop = 23 - Mantissa;
  const rt_u32 u = __builtin_bit_cast(rt_u32, x);
  const rt_u32 sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
  constexpr rt_u32 rebias = (rt_u32)(127 - Bias) << 23;
  constexpr rt_u32 top = ((rt_u32)Top << drop) + rebias;
  const rt_u32 b = a < top ? a : top;
  const rt_u32 normal = (b - rebias + ((1u << (drop - 1)) - 1) + (b >> drop & 1u)) >> drop;
  constexpr rt_u32 magic = (rt_u32)(127 + 1 - Bias + drop) << 23;
  const rt_f32 sum = __builtin_bit_cast(rt_f32, b) + __builtin_bit_cast(rt_f32, magic);
  const rt_u32 tiny = __builtin_bit_cast(rt_u32, sum) - magic;
  rt_u32 r = b < rebias + (1u << 23) ? tiny : normal;
  if (a > 0x7f800000u) r = Nan;
  return (rt_u8)(r | sign);
}

RT_FN rt_f8e5m2 rt_f32_to_f8e5m2(rt_f32 x) { return rt_f32_to_f8_<2, 15, 0x7c, 0x7e>(x); }
RT_LANES1(rt_f32_to_f8e5m2)

RT_FN rt_f8e4m3 rt_f32_to_f8e4m3(rt_f32 x) { return rt_f32_to_f8_<3, 7, 0x7f, 0x7f>(x); }
RT_LANES1(rt_f32_to_f8e4m3)
