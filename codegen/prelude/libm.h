// Functions of the C library, called lane by lane.
#pragma once

#include "codegen/prelude/convert.h"

// Declares one, as a struct whose `of` calls the version of the argument's width.
#define RT_LIBM(fn)                                \
  extern "C" float fn##f(float);                   \
  extern "C" double fn(double);                    \
  struct rt_libm_##fn##_ {                         \
    RT_FN rt_f32 of(rt_f32 x) { return fn##f(x); } \
    RT_FN rt_f64 of(rt_f64 x) { return fn(x); }    \
  };

#define RT_LIBM2(fn)                                            \
  extern "C" float fn##f(float, float);                         \
  extern "C" double fn(double, double);                         \
  struct rt_libm_##fn##_ {                                      \
    RT_FN rt_f32 of(rt_f32 a, rt_f32 b) { return fn##f(a, b); } \
    RT_FN rt_f64 of(rt_f64 a, rt_f64 b) { return fn(a, b); }    \
  };

template <class Fn, class V, class... Vs>
RT_FN V rt_each_(V x, Vs... more) {
  typedef rt_elem_<V> T;
  if constexpr (__is_same(T, rt_f16)) {
    return rt_narrow_(rt_each_<Fn>(rt_wide_(x), rt_wide_(more)...));
  } else if constexpr (rt_lanes_<V> == 0) {
    return Fn::of(x, more...);
  } else {  // through memory, so that the loop addresses lanes
    constexpr int width = rt_lanes_<V>;
    V in[] = {x, more...};
    V out;
    const T* p = (const T*)in;
    T* q = (T*)&out;
    for (int i = 0; i < width; ++i) {
      if constexpr (sizeof...(Vs) == 0)
        q[i] = Fn::of(p[i]);
      else if constexpr (sizeof...(Vs) == 1)
        q[i] = Fn::of(p[i], p[width + i]);
      else
        q[i] = Fn::of(p[i], p[width + i], p[2 * width + i]);
    }
    return out;
  }
}

// y, but Fn of x in the lanes of the mask. The rare case, out of line. (Not preserve_all: LLVM 19
// ends such a function with vzeroupper, after it has restored the registers.)
template <class Fn, class I, class T, class... Ts>
__attribute__((noinline, cold)) static void rt_redo_(int lanes, const I* mask, T* y,
                                                     const Ts*... x) {
  for (int i = 0; i < lanes; ++i) {
    if (mask[i]) y[i] = Fn::of(x[i]...);
  }
}
template <class Fn, class V, class... Vs>  // copies, so that the originals stay in registers
RT_FN V rt_redo_copies_(rt_ints_<V> mask, V y, Vs... x) {
  typedef rt_elem_<V> T;
  rt_redo_<Fn>(rt_lanes_<V>, (const rt_elem_<rt_ints_<V>>*)&mask, (T*)&y, (const T*)&x...);
  return y;
}
template <class Fn, class M, class V, class... Vs>
RT_FN V rt_redo_where_(M mask, V y, Vs... x) {
  if constexpr (rt_lanes_<V> == 0) return mask ? Fn::of(x...) : y;
  if (rt_any_(mask)) y = rt_redo_copies_<Fn>((rt_ints_<V>)mask, y, x...);
  return y;
}
