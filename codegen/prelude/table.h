// Lookups in tables of 16 entries that lie in a register.
#pragma once

#include "codegen/prelude/base.h"

template <class V, int... I>
RT_FN rt_vec<rt_elem_<V>, sizeof...(I)> rt_repeated_(V v, rt_indices_<I...>) {
  return __builtin_shufflevector(v, v, (I % rt_lanes_<V>)...);
}

template <int N>  // of 16, 32 or 64 bytes, where the chip has that
RT_FN rt_vec<char, N> rt_table_of_bytes_(rt_vec<char, 16> table, rt_vec<char, N> index) {
  typedef typename __make_integer_seq<rt_make_indices_, int, N>::type Indices;
  const rt_vec<char, N> all = rt_repeated_(table, Indices());
#if defined(__AVX512BW__)
  if constexpr (N == 64) return __builtin_ia32_pshufb512(all, index);
#endif
#if defined(__AVX2__)
  if constexpr (N == 32) return __builtin_ia32_pshufb256(all, index);
  if constexpr (N == 16) return __builtin_ia32_pshufb128(all, index);
#endif
  rt_vec<char, N> r;
  for (int i = 0; i < N; ++i) r[i] = table[index[i]];
  return r;
}

// Of each index the four lowest bits count.
template <class T, class I, int N>
RT_FN rt_vec<T, N> rt_table(rt_vec<T, 16> table, rt_vec<I, N> index) {
#if defined(__AVX512BW__)
  constexpr int most = 64 / sizeof(T);
#else
  constexpr int most = 32 / sizeof(T);
#endif
  const rt_vec<I, N> low = index & (I)15;
  if constexpr (N > most) {
    rt_vec<T, N> r;
    r.lo = rt_table(table, (rt_vec<I, N / 2>)low.lo);
    r.hi = rt_table(table, (rt_vec<I, N / 2>)low.hi);
    return r;
  } else if constexpr (sizeof(T) == 1 && N >= 16) {
    return (rt_vec<T, N>)rt_table_of_bytes_<N>((rt_vec<char, 16>)table, (rt_vec<char, N>)low);
  } else if constexpr (sizeof(T) == 1) {
    typedef typename __make_integer_seq<rt_make_indices_, int, 16>::type All;
    typedef typename __make_integer_seq<rt_make_indices_, int, N>::type Indices;
    return rt_repeated_(rt_table(table, rt_repeated_(low, All())), Indices());
  } else {
#if defined(__AVX512F__)
    typedef rt_vec<rt_i32, 16> Ints;
    if constexpr (sizeof(T) == 4 && N == 16) {  // which looks at no other bits
      return (rt_vec<T, N>)__builtin_ia32_permvarsi512((Ints)table, (Ints)index);
    }
#endif
    rt_vec<T, N> r;
    for (int i = 0; i < N; ++i) r[i] = table[low[i]];
    return r;
  }
}
