// What CUDA text and the simulated GPU share: values combined over the threads of a block.
//
// RT_THREAD and RT_SELF pass the simulated thread along, and are nothing on a GPU.
#pragma once

#include "codegen/prelude/fold.h"
#include "codegen/prelude/sim.h"

template <class Op, class T>  // over each `width` neighbours of a warp; all get the result
RT_FN T rt_warp_(RT_THREAD rt_i32 width, T v) {
  RT_UNROLL
  for (rt_i32 d = width / 2; d > 0; d /= 2) v = Op::of(v, rt_shuffle_xor_(RT_SELF v, d));
  return v;
}

template <class Op, class T>  // over a block of whole warps, through the first bytes of its memory
RT_FN T rt_block_(RT_THREAD rt_i32 threads, T v) {
  RT_SHARED(T, parts, 0);
  v = rt_warp_<Op>(RT_SELF 32, v);
  rt_barrier();
  if (rt_thread() % 32 == 0) parts[rt_thread() / 32] = v;
  rt_barrier();
  v = parts[0];
  for (rt_i32 i = 1; i < threads / 32; ++i) v = Op::of(v, parts[i]);
  return v;
}

template <class T>
RT_FN T rt_warp_add(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_add_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_add(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_add_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_mul(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_mul_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_mul(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_mul_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_max(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_max_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_max(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_max_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_min(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_min_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_min(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_min_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_and(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_and_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_and(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_and_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_or(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_or_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_or(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_or_>(RT_SELF threads, v);
}

template <class T>
RT_FN T rt_warp_xor(RT_THREAD rt_i32 width, T v) {
  return rt_warp_<rt_xor_>(RT_SELF width, v);
}

template <class T>
RT_FN T rt_block_xor(RT_THREAD rt_i32 threads, T v) {
  return rt_block_<rt_xor_>(RT_SELF threads, v);
}
