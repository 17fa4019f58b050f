// Copies that do not wait, and matrix units, of the simulated GPU: what lanes of a warp give each
// other goes through the warp's exchange.
#pragma once

#include "codegen/prelude/narrow.h"
#include "codegen/prelude/sim.h"

template <int N, class T>
RT_FN void rt_fetch(rt_sim_* rt_self, T* to, rt_i64 to_offset, const T* from, rt_i64 offset) {
  rt_self->fetch(rt_self, to + to_offset, from + offset, N * sizeof(T));
}

template <int N, class T>
RT_FN void rt_fetch_where(rt_sim_* rt_self, T* to, rt_i64 to_offset, const T* from, rt_i64 offset,
                          rt_bool holds) {
  rt_self->fetch(rt_self, to + to_offset, holds ? from + offset : (const T*)0, N * sizeof(T));
}

#define rt_commit() rt_self->commit(rt_self)

#define rt_wait(n) rt_self->wait(rt_self, n)

// The rows of the four matrices: each lane points at one.
struct rt_rows_ {
  const rt_u8* row[32];
};
RT_FN rt_rows_ rt_exchange_rows_(rt_sim_* rt_self, const void* p) {
  rt_rows_ r;
  if ((rt_u64)p % 16 != 0) rt_self->fault(rt_self, p);
  *(const void**)(rt_self->exchange + 16 * rt_self->lane) = p;
  rt_self->arrive_warp(rt_self);
  for (int i = 0; i < 32; ++i) r.row[i] = *(const rt_u8**)(rt_self->exchange + 16 * i);
  rt_self->arrive_warp(rt_self);
  return r;
}

template <class T>
RT_FN rt_vec<T, 16 / sizeof(T)> rt_fragment(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  const rt_rows_ rows = rt_exchange_rows_(rt_self, p + offset);
  rt_vec<T, 16 / sizeof(T)> r;
  for (int m = 0; m < 4; ++m) {
    const rt_u8* from = rows.row[8 * m + rt_self->lane / 4] + 4 * (rt_self->lane % 4);
    __builtin_memcpy((rt_u8*)&r + 4 * m, from, 4);
  }
  return r;
}

template <class T>
RT_FN rt_vec<T, 8> rt_fragment_turned(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  const rt_rows_ rows = rt_exchange_rows_(rt_self, p + offset);
  rt_vec<T, 8> r;
  for (int i = 0; i < 8; ++i) {
    const rt_u8* row = rows.row[8 * (i / 2) + 2 * (rt_self->lane % 4) + i % 2];
    __builtin_memcpy((rt_u8*)&r + 2 * i, row + 2 * (rt_self->lane / 4), 2);
  }
  return r;
}

// ---- products of what all lanes hold

template <class V>
struct rt_held_ {
  V lane[32];
};
template <class V>
RT_FN rt_held_<V> rt_exchange_(rt_sim_* rt_self, V v) {
  rt_held_<V> r;
  __builtin_memcpy(rt_self->exchange + 16 * rt_self->lane, &v, 16);
  rt_self->arrive_warp(rt_self);
  __builtin_memcpy(&r, rt_self->exchange, 512);
  rt_self->arrive_warp(rt_self);
  return r;
}

// Element k of row `row` of eight: `matrix` says which of the four, two for each half of the steps.
template <class T, class V>
RT_FN T rt_held_at_(const rt_held_<V>& held, int matrix, int row, int k) {
  constexpr int each = 4 / sizeof(T);
  T out;
  const V& v = held.lane[4 * row + k / each];
  __builtin_memcpy(&out, (const rt_u8*)&v + 4 * matrix + k % each * sizeof(T), sizeof(T));
  return out;
}

template <class Op, class T, class S, class V>
static rt_vec<S, 8> rt_mma_(rt_sim_* rt_self, V a, V b, rt_vec<S, 8> c) {
  constexpr int wide = 16 / sizeof(T);
  const rt_held_<V> x = rt_exchange_(rt_self, a), y = rt_exchange_(rt_self, b);
  const int row = rt_self->lane / 4, column = 2 * (rt_self->lane % 4);
  for (int i = 0; i < 8; ++i) {
    S sum = c[i];
    for (int k = 0; k < 2 * wide; ++k) {
      const T p = rt_held_at_<T>(x, i / 2 % 2 + 2 * (k / wide), row, k % wide);
      const T q = rt_held_at_<T>(y, 2 * (i / 4) + k / wide, column + i % 2, k % wide);
      sum = Op::of(p, q, sum);
    }
    c[i] = sum;
  }
  return c;
}

struct rt_f16_product_ {
  static rt_f32 of(rt_f16 a, rt_f16 b, rt_f32 c) { return __builtin_fmaf((rt_f32)a, (rt_f32)b, c); }
};
RT_FN rt_vec<rt_f32, 8> rt_mma_f16(rt_sim_* rt_self, rt_vec<rt_f16, 8> a, rt_vec<rt_f16, 8> b,
                                   rt_vec<rt_f32, 8> c) {
  return rt_mma_<rt_f16_product_, rt_f16>(rt_self, a, b, c);
}

struct rt_bf16_product_ {
  static rt_f32 of(rt_bf16 a, rt_bf16 b, rt_f32 c) {
    return __builtin_fmaf(rt_bf16_to_f32(a), rt_bf16_to_f32(b), c);
  }
};
RT_FN rt_vec<rt_f32, 8> rt_mma_bf16(rt_sim_* rt_self, rt_vec<rt_bf16, 8> a, rt_vec<rt_bf16, 8> b,
                                    rt_vec<rt_f32, 8> c) {
  return rt_mma_<rt_bf16_product_, rt_bf16>(rt_self, a, b, c);
}

struct rt_i8_product_ {
  static rt_i32 of(rt_i8 a, rt_i8 b, rt_i32 c) { return (rt_i32)((rt_u32)c + (rt_u32)(a * b)); }
};
RT_FN rt_vec<rt_i32, 8> rt_mma_i8(rt_sim_* rt_self, rt_vec<rt_i8, 16> a, rt_vec<rt_i8, 16> b,
                                  rt_vec<rt_i32, 8> c) {
  return rt_mma_<rt_i8_product_, rt_i8>(rt_self, a, b, c);
}

// To 10 bits of mantissa, ties away from zero.
RT_FN rt_f32 rt_to_tf32_(rt_f32 x) {
  if (x != x) return x;
  return rt_bitcast<rt_f32>((rt_bitcast<rt_u32>(x) + 0x1000u) & ~0x1fffu);
}
struct rt_tf32_product_ {
  static rt_f32 of(rt_f32 a, rt_f32 b, rt_f32 c) {
    return __builtin_fmaf(rt_to_tf32_(a), rt_to_tf32_(b), c);
  }
};
RT_FN rt_vec<rt_f32, 8> rt_mma_tf32(rt_sim_* rt_self, rt_vec<rt_f32, 4> a, rt_vec<rt_f32, 4> b,
                                    rt_vec<rt_f32, 8> c) {
  return rt_mma_<rt_tf32_product_, rt_f32>(rt_self, a, b, c);
}

// ---- products of four warps, of operands where they lie

#define rt_barrier_of_units() rt_barrier()

#define rt_wait_for_units(sums)

template <class T, int Turned>
struct rt_rows_of_group_ {
  const T* first;
  T at(int row, int k) const {
    constexpr int wide = 16 / sizeof(T), width = 8 * wide, steps = width;
    const int line = Turned ? k : row, column = Turned ? row : k;
    const int vector = column % width / wide ^ line % 8;
    return first[column / width * steps * width + line * width + vector * wide + column % wide];
  }
};
template <int Turned, class T>
RT_FN rt_rows_of_group_<T, Turned> rt_rows_at_(rt_sim_* rt_self, const T* p) {
  if ((p - (const T*)rt_self->shared) * sizeof(T) % 1024 != 0) rt_self->fault(rt_self, p);
  return {p};
}
template <class T>
RT_FN rt_rows_of_group_<T, 0> rt_rows(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  return rt_rows_at_<0>(rt_self, p + offset);
}
template <class T>
RT_FN rt_rows_of_group_<T, 1> rt_rows_turned(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  return rt_rows_at_<1>(rt_self, p + offset);
}

template <class Op, class A, class B, int N>
static rt_vec<rt_f32, N> rt_wgmma_(rt_sim_* rt_self, A a, B b, rt_vec<rt_f32, N> c) {
  const int first = 16 * (rt_self->thread / 32 % 4) + rt_self->lane / 4;
  for (int i = 0; i < N; ++i) {
    const int row = first + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (rt_self->lane % 4) + i % 2;
    rt_f32 sum = c[i];
    for (int k = 0; k < 64; ++k) sum = Op::of(a.at(row, k), b.at(column, k), sum);
    c[i] = sum;
  }
  return c;
}
template <class A, class B, int N>
RT_FN rt_vec<rt_f32, N> rt_wgmma_f16(rt_sim_* rt_self, A a, B b, rt_vec<rt_f32, N> c) {
  return rt_wgmma_<rt_f16_product_>(rt_self, a, b, c);
}
template <class A, class B, int N>
RT_FN rt_vec<rt_f32, N> rt_wgmma_bf16(rt_sim_* rt_self, A a, B b, rt_vec<rt_f32, N> c) {
  return rt_wgmma_<rt_bf16_product_>(rt_self, a, b, c);
}
