// Copies that do not wait, and matrix units, of CUDA text for sm_80 and up: the PTX of it.
//
// What touches shared memory is kept in order by the compiler ("memory"); the products themselves
// depend on their operands alone.
#pragma once

#include "codegen/prelude/cuda_base.h"

RT_FN rt_u32 rt_shared_address_(const void* p) { return (rt_u32)__cvta_generic_to_shared(p); }

template <int Bytes>  // copies `live` of them, the rest becomes 0
RT_FN void rt_fetch_(void* to, const void* from, rt_i32 live) {
  const rt_u32 at = rt_shared_address_(to);
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(live)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(Bytes),
                 "r"(live)
                 : "memory");
}

template <int N, class T>
RT_FN void rt_fetch(T* to, rt_i64 to_offset, const T* from, rt_i64 offset) {
  rt_fetch_<N * sizeof(T)>(to + to_offset, from + offset, N * sizeof(T));
}

template <int N, class T>
RT_FN void rt_fetch_where(T* to, rt_i64 to_offset, const T* from, rt_i64 offset, rt_bool holds) {
  rt_fetch_<N * sizeof(T)>(to + to_offset, holds ? from + offset : from, holds ? N * sizeof(T) : 0);
}

RT_FN void rt_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
RT_FN void rt_wait_() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#define rt_wait(n) rt_wait_<n>()

template <class T>
RT_FN rt_vec<T, 16 / sizeof(T)> rt_fragment(const T* p, rt_i64 offset) {
  rt_vec<rt_u32, 4> r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(rt_shared_address_(p + offset))
               : "memory");
  return __builtin_bit_cast(rt_vec<T, 16 / sizeof(T)>, r);
}

template <class T>
RT_FN rt_vec<T, 8> rt_fragment_turned(const T* p, rt_i64 offset) {
  rt_vec<rt_u32, 4> r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(rt_shared_address_(p + offset))
               : "memory");
  return __builtin_bit_cast(rt_vec<T, 8>, r);
}

// ---- sums [16, 16] as two units of eight columns

#define RT_MMA_(name, text, constraint, S)                                                       \
  RT_FN void name(S* c, rt_vec<rt_u32, 4> a, rt_u32 b0, rt_u32 b1) {                             \
    asm("mma.sync.aligned." text                                                                 \
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                       \
        : "+" constraint(c[0]), "+" constraint(c[1]), "+" constraint(c[2]), "+" constraint(c[3]) \
        : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b0), "r"(b1));                 \
  }

RT_MMA_(rt_mma_f16_, "m16n8k16.row.col.f32.f16.f16.f32", "f", rt_f32)

RT_MMA_(rt_mma_bf16_, "m16n8k16.row.col.f32.bf16.bf16.f32", "f", rt_f32)

RT_MMA_(rt_mma_i8_, "m16n8k32.row.col.s32.s8.s8.s32", "r", rt_i32)

RT_MMA_(rt_mma_tf32_, "m16n8k8.row.col.f32.tf32.tf32.f32", "f", rt_f32)

RT_FN rt_vec<rt_f32, 8> rt_mma_f16(rt_vec<rt_f16, 8> a, rt_vec<rt_f16, 8> b, rt_vec<rt_f32, 8> c) {
  const auto x = __builtin_bit_cast(rt_vec<rt_u32, 4>, a),
             y = __builtin_bit_cast(rt_vec<rt_u32, 4>, b);
  rt_mma_f16_(c.v, x, y.v[0], y.v[1]);
  rt_mma_f16_(c.v + 4, x, y.v[2], y.v[3]);
  return c;
}

RT_FN rt_vec<rt_f32, 8> rt_mma_bf16(rt_vec<rt_bf16, 8> a, rt_vec<rt_bf16, 8> b,
                                    rt_vec<rt_f32, 8> c) {
  const auto x = __builtin_bit_cast(rt_vec<rt_u32, 4>, a),
             y = __builtin_bit_cast(rt_vec<rt_u32, 4>, b);
  rt_mma_bf16_(c.v, x, y.v[0], y.v[1]);
  rt_mma_bf16_(c.v + 4, x, y.v[2], y.v[3]);
  return c;
}

RT_FN rt_vec<rt_i32, 8> rt_mma_i8(rt_vec<rt_i8, 16> a, rt_vec<rt_i8, 16> b, rt_vec<rt_i32, 8> c) {
  const auto x = __builtin_bit_cast(rt_vec<rt_u32, 4>, a),
             y = __builtin_bit_cast(rt_vec<rt_u32, 4>, b);
  rt_mma_i8_(c.v, x, y.v[0], y.v[1]);
  rt_mma_i8_(c.v + 4, x, y.v[2], y.v[3]);
  return c;
}

RT_FN rt_vec<rt_u32, 4> rt_to_tf32_(rt_vec<rt_f32, 4> x) {
  rt_vec<rt_u32, 4> r;
  RT_UNROLL
  for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r.v[i]) : "f"(x.v[i]));
  return r;
}

RT_FN rt_vec<rt_f32, 8> rt_mma_tf32(rt_vec<rt_f32, 4> a, rt_vec<rt_f32, 4> b, rt_vec<rt_f32, 8> c) {
  const rt_vec<rt_u32, 4> x = rt_to_tf32_(a), y = rt_to_tf32_(b);
  rt_mma_tf32_(c.v, x, y.v[0], y.v[1]);
  rt_mma_tf32_(c.v + 4, x, y.v[2], y.v[3]);
  return c;
}
