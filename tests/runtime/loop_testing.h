// What tests of loops share: loops written out, and comparisons.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "tests/testing.h"

namespace tessera {

using Tensors = std::vector<Tensor>;

inline void ExpectNear(const std::vector<double>& a, const std::vector<double>& b,
                       const std::string& what, double bound = 1e-5) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i] == b[i] || std::fabs(a[i] - b[i]) <= bound * (1 + std::fabs(b[i])) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << what << ", element " << i << ": " << a[i] << " is not " << b[i];
  }
}

inline void ExpectNear(const Tensor& got, const Tensor& want, const std::string& what,
                       double bound = 1e-5) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ExpectNear(got.ToVector<double>(), want.ToVector<double>(), what, bound);
}

inline Tensor Numbers(const Dims& shape, uint64_t seed = 1) {
  Tensor::ManualSeed(seed);
  return Tensor::Uniform(-1, 1, shape).Realize();
}

// A loop as users wrote it before: what is carried, then what is stacked.
inline Tensors WrittenOut(const TensorFunction& turn, const Tensors& carried,
                          const Tensors& sequences, int64_t turns, bool backwards = false) {
  Tensors now = carried;
  std::vector<Tensors> stacked;
  for (int64_t t = 0; t < turns; ++t) {
    const int64_t at = backwards ? turns - 1 - t : t;
    Tensors in = now;
    for (const Tensor& s : sequences) in.push_back(s[{at}]);
    Tensors out = turn(in);
    stacked.resize(out.size() - now.size());
    for (size_t i = 0; i < stacked.size(); ++i) stacked[i].push_back(out[now.size() + i]);
    out.resize(now.size());
    now = out;
  }
  for (Tensors& s : stacked) {
    if (backwards) std::reverse(s.begin(), s.end());
    now.push_back(Stack(s));
  }
  return now;
}

inline Tensors All(const Looped& l) {
  Tensors out = l.carried;
  out.insert(out.end(), l.stacked.begin(), l.stacked.end());
  return out;
}

// A number that depends on all floats of some results.
inline Tensor LossOf(const Tensors& results) {
  Tensor sum = Tensor::Zeros({});
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].dtype().IsFloat()) continue;
    const Tensor r = results[i].Cast(kFloat32);
    sum = sum + (r.Sin() * (1.0 + static_cast<double>(i))).Sum() + (r * r).Mean();
  }
  return sum;
}

}  // namespace tessera
