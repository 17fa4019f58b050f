// The lanes of a vector combined into one, its lower half with its upper half, and so on.
#pragma once

#include "codegen/prelude/select.h"

struct rt_add_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return (V)(a + b);
  }
};

struct rt_mul_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return (V)(a * b);
  }
};

struct rt_max_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return rt_max(a, b);
  }
};

struct rt_min_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return rt_min(a, b);
  }
};

struct rt_and_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return (V)(a & b);
  }
};

struct rt_or_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return (V)(a | b);
  }
};

struct rt_xor_ {
  template <class V>
  RT_FN V of(V a, V b) {
    return (V)(a ^ b);
  }
};

template <class Op, class V>
RT_FN rt_elem_<V> rt_fold_(V v) {
  if constexpr (rt_lanes_<V> == 2)
    return Op::template of<rt_elem_<V>>(v[0], v[1]);
  else
    return rt_fold_<Op>(Op::of((rt_vec<rt_elem_<V>, rt_lanes_<V> / 2>)v.lo,
                               (rt_vec<rt_elem_<V>, rt_lanes_<V> / 2>)v.hi));
}

template <class V>
RT_FN rt_elem_<V> rt_fold_add(V v) {
  return rt_fold_<rt_add_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_mul(V v) {
  return rt_fold_<rt_mul_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_max(V v) {
  return rt_fold_<rt_max_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_min(V v) {
  return rt_fold_<rt_min_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_and(V v) {
  return rt_fold_<rt_and_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_or(V v) {
  return rt_fold_<rt_or_>(v);
}

template <class V>
RT_FN rt_elem_<V> rt_fold_xor(V v) {
  return rt_fold_<rt_xor_>(v);
}
