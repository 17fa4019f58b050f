// The simulated GPU's side of CUDA text: threads are fibers of the CPU, the rest is base.h and
// others.
//
// A kernel's function gets its thread as a hidden first parameter, named rt_self. The struct is the
// one of runtime/sim/fibers.h, field by field.
#pragma once

#include "codegen/prelude/base.h"

struct rt_sim_ {
  rt_i32 thread, row, block, blocks;
  rt_i32 lane;
  rt_u8* shared;
  rt_u8* exchange;  // 16 bytes for each lane of the warp
  void (*arrive_block)(rt_sim_*);
  void (*arrive_warp)(rt_sim_*);
  void (*fetch)(rt_sim_*, void* to, const void* from, rt_i32 bytes);  // zeros from nowhere
  void (*commit)(rt_sim_*);
  void (*wait)(rt_sim_*, rt_i32 left);
  void (*fault)(rt_sim_*, const void* at);  // does not come back
};
#define RT_THREAD rt_sim_ *rt_self,
#define RT_SELF rt_self,

#define RT_UNROLL

#define RT_UNROLL_BY(n)

#define RT_GLOBAL(name, threads) static void name##_body_

#define RT_GLOBAL_TWICE(name, threads) static void name##_body_

template <class... A, int... I>
RT_FN void rt_call_(void (*body)(rt_sim_*, A...), rt_sim_* self, void* const* args,
                    rt_indices_<I...>) {
  body(self, *(A*)args[I]...);
}
template <class... A>
RT_FN void rt_enter_(void (*body)(rt_sim_*, A...), rt_sim_* self, void* const* args) {
  typedef typename __make_integer_seq<rt_make_indices_, int, sizeof...(A)>::type Indices;
  rt_call_(body, self, args, Indices());
}
template <class... A>
constexpr rt_i32 rt_count_(void (*)(rt_sim_*, A...)) {
  return sizeof...(A);
}
#define RT_ENTRY(name)                                                                            \
  extern "C" __attribute__((visibility("default"))) const rt_i32 name##_params;                   \
  const rt_i32 name##_params = rt_count_(name##_body_);                                           \
  extern "C" __attribute__((visibility("default"))) void name(rt_sim_* self, void* const* args) { \
    rt_enter_(name##_body_, self, args);                                                          \
  }

#define rt_thread() (rt_self->thread)

#define rt_row() (rt_self->row)

#define rt_block() (rt_self->block)

#define rt_blocks() (rt_self->blocks)

#define rt_barrier() rt_self->arrive_block(rt_self)

#define RT_SHARED(type, name, offset) type* const name = (type*)(rt_self->shared + (offset))

template <class T>
RT_FN T rt_shuffle_xor_(rt_sim_* rt_self, T v, rt_i32 mask) {
  *(T*)(rt_self->exchange + 16 * rt_self->lane) = v;
  rt_self->arrive_warp(rt_self);
  const T other = *(const T*)(rt_self->exchange + 16 * (rt_self->lane ^ mask));
  rt_self->arrive_warp(rt_self);
  return other;
}

template <int N>
RT_FN rt_vec<rt_u8, N> rt_shl_bytes(rt_vec<rt_u8, N> v, rt_u8 by) {
  return rt_shl(v, rt_splat<N>(by));
}

template <int N>
RT_FN rt_vec<rt_u8, N> rt_shr_bytes(rt_vec<rt_u8, N> v, rt_u8 by) {
  return rt_shr(v, rt_splat<N>(by));
}

RT_FN rt_u32 rt_and_or(rt_u32 a, rt_u32 b, rt_u32 c) { return (a & b) | c; }

template <class V>
RT_FN V rt_add(V a, V b) {
  return (V)(a + b);
}

template <class V>
RT_FN V rt_sub(V a, V b) {
  return (V)(a - b);
}

template <class V>
RT_FN V rt_mul(V a, V b) {
  return (V)(a * b);
}

template <class V>
RT_FN V rt_neg(V a) {
  return (V)-a;
}

template <class T,
          int N>  // rt_load where a GPU faults if p + offset is not aligned as the vector is
RT_FN rt_vec<T, N> rt_load_aligned(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  if ((rt_u64)(p + offset) % (sizeof(T) * N < 16 ? sizeof(T) * N : 16) != 0)
    rt_self->fault(rt_self, p + offset);
  return rt_load<T, N>(p, offset);
}

template <int N, class T>
RT_FN void rt_store_aligned(rt_sim_* rt_self, T* p, rt_i64 offset, rt_vec<rt_elem_<T>, N> v) {
  if ((rt_u64)(p + offset) % (sizeof(T) * N < 16 ? sizeof(T) * N : 16) != 0)
    rt_self->fault(rt_self, p + offset);
  rt_store<N>(p, offset, v);
}

template <class T, int N, int A>  // rt_load_by where a GPU faults unless A of the bytes are aligned
RT_FN rt_vec<T, N> rt_load_by_aligned(rt_sim_* rt_self, const T* p, rt_i64 offset) {
  if ((rt_u64)(p + offset) % A != 0) rt_self->fault(rt_self, p + offset);
  return rt_load<T, N>(p, offset);
}

template <class T, int N>
RT_FN rt_vec<T, N> rt_load_each(const T* p, rt_i64 offset) {
  return rt_load<T, N>(p, offset);
}

template <int N, class T>
RT_FN void rt_store_each(T* p, rt_i64 offset, rt_vec<rt_elem_<T>, N> v) {
  rt_store<N>(p, offset, v);
}
