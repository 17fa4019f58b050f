// Random bits of a counter under a key: Threefry-2x32 with 20 rounds (Salmon et al., 2011).
#pragma once

#include "codegen/prelude/convert.h"
#include "codegen/prelude/select.h"

template <int R0, int R1, int R2, int R3, class V>
RT_FN void rt_threefry_rounds_(V& x0, V& x1) {
  x0 += x1, x1 = (x1 << R0 | x1 >> (32 - R0)) ^ x0;
  x0 += x1, x1 = (x1 << R1 | x1 >> (32 - R1)) ^ x0;
  x0 += x1, x1 = (x1 << R2 | x1 >> (32 - R2)) ^ x0;
  x0 += x1, x1 = (x1 << R3 | x1 >> (32 - R3)) ^ x0;
}

template <class V>  // of rt_u64
RT_FN V rt_threefry(V counter, V key) {
  typedef rt_like_<V, rt_u32> U;
  U k0 = rt_convert_<rt_u32>(key), k1 = rt_convert_<rt_u32>(key >> 32);
  U k2 = k0 ^ k1 ^ (rt_u32)0x1BD11BDA;
  U x0 = rt_convert_<rt_u32>(counter) + k0, x1 = rt_convert_<rt_u32>(counter >> 32) + k1;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + (rt_u32)1;
  rt_threefry_rounds_<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + (rt_u32)2;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + (rt_u32)3;
  rt_threefry_rounds_<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + (rt_u32)4;
  rt_threefry_rounds_<13, 15, 26, 6>(x0, x1);
  x0 += k2, x1 += k0 + (rt_u32)5;
  return rt_convert_<rt_u64>(x1) << 32 | rt_convert_<rt_u64>(x0);
}
