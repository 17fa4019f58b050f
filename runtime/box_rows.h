// A box within two row-major arrays, run by run.
#pragma once

#include "graph/box.h"

namespace tessera {

// Visits the rows of a box that lies within two row-major arrays: fn(offset in a, offset in b,
// elements), in elements.
template <typename Fn>
void ForEachRow(const Box& box, const Box& a, const Box& b, Fn fn) {
  const int rank = static_cast<int>(box.size());
  if (Volume(box) == 0) return;
  // Trailing axes that are whole in both are one run.
  int64_t run = 1;
  int outer = rank;
  while (outer > 0) {
    --outer;
    run *= box[outer].size();
    if (box[outer].size() != a[outer].size() || box[outer].size() != b[outer].size()) break;
  }
  const auto strides = [rank](const Box& x) {
    absl::InlinedVector<int64_t, 4> s(rank, 1);
    for (int i = rank - 2; i >= 0; --i) s[i] = s[i + 1] * x[i + 1].size();
    return s;
  };
  const auto sa = strides(a), sb = strides(b);
  int64_t ia = 0, ib = 0;
  for (int i = 0; i < rank; ++i) {
    ia += (box[i].begin - a[i].begin) * sa[i];
    ib += (box[i].begin - b[i].begin) * sb[i];
  }
  absl::InlinedVector<int64_t, 4> at(rank, 0);
  for (;;) {
    fn(ia, ib, run);
    int i = outer - 1;
    for (; i >= 0; --i) {
      ia += sa[i];
      ib += sb[i];
      if (++at[i] < box[i].size()) break;
      ia -= sa[i] * box[i].size();
      ib -= sb[i] * box[i].size();
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace tessera
