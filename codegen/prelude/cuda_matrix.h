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

// ---- sums [64, columns] by four warps, of operands that stay where they are staged

RT_FN void rt_barrier_of_units() {  // what threads have put there is seen by the units as well
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

// In units of 16 bytes: where; from 64 columns of a turned operand to the next; from eight rows to
// the next. The highest bits: rows of 128 bytes, swizzled.
template <class T, int Turned>
struct rt_rows_ {
  rt_u64 at;
  static constexpr rt_u64 next = Turned ? 128 : 2;  // 16 steps
};
template <int Turned, class T>
RT_FN rt_rows_<T, Turned> rt_rows_at_(const T* p) {
  const rt_u64 at = rt_shared_address_(p) >> 4;
  return {at | (rt_u64)(Turned ? 512 : 1) << 16 | (rt_u64)64 << 32 | (rt_u64)1 << 62};
}
template <class T>
RT_FN rt_rows_<T, 0> rt_rows(const T* p, rt_i64 offset) {
  return rt_rows_at_<0>(p + offset);
}
template <class T>
RT_FN rt_rows_<T, 1> rt_rows_turned(const T* p, rt_i64 offset) {
  return rt_rows_at_<1>(p + offset);
}

#define RT_TEN_(d)                                                                                 \
  "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d \
  "9, "
#define RT_60_ \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " RT_TEN_(1) RT_TEN_(2) RT_TEN_(3) RT_TEN_(4) RT_TEN_(5)
#define RT_64_ RT_60_ "%60, %61, %62, %63"
#define RT_128_                                                  \
  RT_60_ RT_TEN_(6) RT_TEN_(7) RT_TEN_(8) RT_TEN_(9) RT_TEN_(10) \
      RT_TEN_(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define RT_HELD_8_(i)                                                                         \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define RT_HELD_32_(i) RT_HELD_8_(i), RT_HELD_8_(i + 8), RT_HELD_8_(i + 16), RT_HELD_8_(i + 24)
#define RT_HELD_64_ RT_HELD_32_(0), RT_HELD_32_(32)
#define RT_HELD_128_ RT_HELD_64_, RT_HELD_32_(64), RT_HELD_32_(96)

// Of 16 steps. From the first of them on the sums are the units'.
#define RT_WGMMA_(shape, types, sums, held, a, b, ta, tb)                                    \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." shape \
               ".f32." types " {" sums "}, " a ", " b ", p, 1, 1, " ta ", " tb ";\n}"        \
               : held                                                                        \
               : "l"(x), "l"(y), "n"(TurnedA), "n"(TurnedB))
#define RT_WGMMA_OF_(type, types)                                                          \
  template <int TurnedA, int TurnedB>                                                      \
  RT_FN void rt_group_step_(type, rt_vec<rt_f32, 64>& sums, rt_u64 x, rt_u64 y) {          \
    rt_f32* const c = sums.v;                                                              \
    RT_WGMMA_("m64n128k16", types, RT_64_, RT_HELD_64_, "%64", "%65", "%66", "%67");       \
  }                                                                                        \
  template <int TurnedA, int TurnedB>                                                      \
  RT_FN void rt_group_step_(type, rt_vec<rt_f32, 128>& sums, rt_u64 x, rt_u64 y) {         \
    rt_f32* const c = sums.v;                                                              \
    RT_WGMMA_("m64n256k16", types, RT_128_, RT_HELD_128_, "%128", "%129", "%130", "%131"); \
  }
RT_WGMMA_OF_(rt_f16, "f16.f16")
RT_WGMMA_OF_(rt_bf16, "bf16.bf16")

#define RT_GROUP_(lanes)                                                                \
  RT_FN void rt_group_begin_(rt_vec<rt_f32, lanes>& sums) {                             \
    rt_f32* const c = sums.v;                                                           \
    asm volatile("wgmma.fence.sync.aligned;" : RT_HELD_##lanes##_ : : "memory");        \
  }                                                                                     \
  RT_FN void rt_wait_for_units(rt_vec<rt_f32, lanes>& sums) {                           \
    rt_f32* const c = sums.v;                                                           \
    asm volatile("wgmma.wait_group.sync.aligned 0;" : RT_HELD_##lanes##_ : : "memory"); \
  }
RT_GROUP_(64)
RT_GROUP_(128)

// What is returned is under way until it is waited for.
template <class T, int TurnedA, int TurnedB, int N>
RT_FN rt_vec<rt_f32, N> rt_wgmma_(rt_rows_<T, TurnedA> a, rt_rows_<T, TurnedB> b,
                                  rt_vec<rt_f32, N> c) {
  rt_group_begin_(c);
  RT_UNROLL
  for (int k = 0; k < 4; ++k)
    rt_group_step_<TurnedA, TurnedB>(T{}, c, a.at + k * a.next, b.at + k * b.next);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  return c;
}
#define rt_wgmma_f16(a, b, c) rt_wgmma_(a, b, c)
#define rt_wgmma_bf16(a, b, c) rt_wgmma_(a, b, c)
