// The rarer functions, by way of the C library.
#pragma once

#include "codegen/prelude/libm.h"

RT_LIBM(exp)
template <class V>
RT_FN V rt_exp(V x) {
  return rt_each_<rt_libm_exp_>(x);
}

RT_LIBM(exp2)
template <class V>
RT_FN V rt_exp2(V x) {
  return rt_each_<rt_libm_exp2_>(x);
}

RT_LIBM(expm1)
template <class V>
RT_FN V rt_expm1(V x) {
  return rt_each_<rt_libm_expm1_>(x);
}

RT_LIBM(log)
template <class V>
RT_FN V rt_log(V x) {
  return rt_each_<rt_libm_log_>(x);
}

RT_LIBM(log2)
template <class V>
RT_FN V rt_log2(V x) {
  return rt_each_<rt_libm_log2_>(x);
}

RT_LIBM(log1p)
template <class V>
RT_FN V rt_log1p(V x) {
  return rt_each_<rt_libm_log1p_>(x);
}

RT_LIBM(sin)
template <class V>
RT_FN V rt_sin(V x) {
  return rt_each_<rt_libm_sin_>(x);
}

RT_LIBM(cos)
template <class V>
RT_FN V rt_cos(V x) {
  return rt_each_<rt_libm_cos_>(x);
}

RT_LIBM(tan)
template <class V>
RT_FN V rt_tan(V x) {
  return rt_each_<rt_libm_tan_>(x);
}

RT_LIBM(asin)
template <class V>
RT_FN V rt_asin(V x) {
  return rt_each_<rt_libm_asin_>(x);
}

RT_LIBM(acos)
template <class V>
RT_FN V rt_acos(V x) {
  return rt_each_<rt_libm_acos_>(x);
}

RT_LIBM(atan)
template <class V>
RT_FN V rt_atan(V x) {
  return rt_each_<rt_libm_atan_>(x);
}

RT_LIBM(sinh)
template <class V>
RT_FN V rt_sinh(V x) {
  return rt_each_<rt_libm_sinh_>(x);
}

RT_LIBM(cosh)
template <class V>
RT_FN V rt_cosh(V x) {
  return rt_each_<rt_libm_cosh_>(x);
}

RT_LIBM(tanh)
template <class V>
RT_FN V rt_tanh(V x) {
  return rt_each_<rt_libm_tanh_>(x);
}

RT_LIBM(erf)
template <class V>
RT_FN V rt_erf(V x) {
  return rt_each_<rt_libm_erf_>(x);
}
