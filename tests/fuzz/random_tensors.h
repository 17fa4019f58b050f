// Random leaves and random applications of the Tensor API's functions.
#pragma once

#include <random>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed);

  enum Style : uint8_t { kDyadic, kSpecial, kSmooth };
  Style style() const { return style_; }
  std::mt19937_64& rng() { return rng_; }
  int64_t Int(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(rng_() >> 11) < p * 0x1p53; }

  DType AnyType();
  DType FloatType();
  DType IntType();
  int64_t Size();  // an extent: of the few that this case uses
  std::vector<int64_t> RandomShape(int max_rank);
  Tensor Leaf();
  Tensor Counter();  // integers with bounds, cast to a narrower type
  Tensor LeafOf(DType t, const std::vector<int64_t>& shape);

  Tensor Unary(const Tensor& a);
  Tensor Binary(const Tensor& a, const Tensor& b);
  Tensor BinaryWithNumber(const Tensor& a);
  Tensor IntegerRule(const Tensor& a);  // what the index algebra knows about, on any integers
  Tensor CastAround(const Tensor& a);   // to some dtype and on, or back
  Tensor Moved(const Tensor& a);
  Tensor Reduced(const Tensor& a);
  Tensor Composed(const Tensor& a);  // one of those below (random_composed.cc)
  Tensor ByIndex(const Tensor& a);
  Tensor Ordered(const Tensor& a);
  Tensor Pooled(const Tensor& a);
  Tensor Arranged(const Tensor& a);
  Tensor Special(const Tensor& a);
  Tensor Loss(const Tensor& a);
  Tensor Normed(const Tensor& a);
  Tensor Sampled(const Tensor& a);
  Tensor Drawn(const Tensor& a);
  Tensor FromTable(DType type);

 private:
  double FloatValue();
  int64_t IntValue(DType t);
  Axes SomeAxes(int rank);

  std::mt19937_64 rng_;
  Style style_;
  std::vector<int64_t> sizes_;
  int64_t max_elements_;
};

}  // namespace tessera
