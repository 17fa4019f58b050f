// Tiles of a matrix unit: eight registers, each of sixteen rows of 64 bytes, known by number. What
// a tile holds has its number and its elements as a type, so that text that mixes them up does not
// compile. Only for chips that have it.
#pragma once

#include "codegen/prelude/base.h"

template <int I, class T>
struct rt_tile {};
static const rt_u8 rt_tile_shapes_[64] __attribute__((aligned(64))) = {
    1,  0, 0,  0, 0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 64, 0, 64, 0, 64, 0,
    64, 0, 64, 0, 64, 0,  64, 0,  64, 0,  0,  0,  0, 0, 0, 0, 0,  0, 0,  0, 0,  0,
    0,  0, 0,  0, 16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0,  0, 0,  0};
struct rt_tiles {  // set up while this lives
  __attribute__((always_inline)) rt_tiles() { __builtin_ia32_tile_loadconfig(rt_tile_shapes_); }
  __attribute__((always_inline)) ~rt_tiles() { __builtin_ia32_tilerelease(); }
};

template <int I, class T>
RT_FN rt_tile<I, T> rt_tile_zero() {
  __builtin_ia32_tilezero(I);
  return {};
}

template <int I, class T>  // rows that lie so many elements apart
RT_FN rt_tile<I, T> rt_tile_load(const T* p, rt_i64 offset, rt_i64 stride) {
  __builtin_ia32_tileloadd64(I, p + offset, stride * (rt_i64)sizeof(T));
  return {};
}

template <int I, class T>  // leaving the first cache to what is read again
RT_FN rt_tile<I, T> rt_tile_load_once(const T* p, rt_i64 offset, rt_i64 stride) {
  __builtin_ia32_tileloaddt164(I, p + offset, stride * (rt_i64)sizeof(T));
  return {};
}

template <int I, class T>  // rows one after another
RT_FN void rt_tile_store(T* p, rt_i64 offset, rt_tile<I, T>) {
  __builtin_ia32_tilestored64(I, p + offset, 64);
}

// The sum, and to each of its elements [r, c] the products of row r of a and column c of b. A
// column of b lies across its rows: two bf16, or four bytes, of it side by side in each. Products
// of bf16 are added in f32, two sums for each element that take up every other one; subnormal
// numbers are taken for zero.
template <int C, int A, int B>
RT_FN rt_tile<C, rt_f32> rt_tile_dot(rt_tile<A, rt_bf16>, rt_tile<B, rt_bf16>, rt_tile<C, rt_f32>) {
  __builtin_ia32_tdpbf16ps(C, A, B);
  return {};
}
template <int C, int A, int B>
RT_FN rt_tile<C, rt_i32> rt_tile_dot(rt_tile<A, rt_i8>, rt_tile<B, rt_i8>, rt_tile<C, rt_i32>) {
  __builtin_ia32_tdpbssd(C, A, B);
  return {};
}
template <int C, int A, int B>
RT_FN rt_tile<C, rt_i32> rt_tile_dot(rt_tile<A, rt_i8>, rt_tile<B, rt_u8>, rt_tile<C, rt_i32>) {
  __builtin_ia32_tdpbsud(C, A, B);
  return {};
}
template <int C, int A, int B>
RT_FN rt_tile<C, rt_i32> rt_tile_dot(rt_tile<A, rt_u8>, rt_tile<B, rt_i8>, rt_tile<C, rt_i32>) {
  __builtin_ia32_tdpbusd(C, A, B);
  return {};
}
template <int C, int A, int B>
RT_FN rt_tile<C, rt_i32> rt_tile_dot(rt_tile<A, rt_u8>, rt_tile<B, rt_u8>, rt_tile<C, rt_i32>) {
  __builtin_ia32_tdpbuud(C, A, B);
  return {};
}
