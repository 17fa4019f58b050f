// What the rows of composed functions are called with.
#include <cmath>

#include "tests/support/composite_rows.h"

namespace tessera {
namespace {

// Odd multiples of 1/128 in an order of their own: no zeros, where many functions have a corner.
Tensor Drawn(const CompositeInput& in, uint64_t seed) {
  int64_t n = 1;
  for (int64_t d : in.shape) n *= d;
  std::vector<double> v(n);
  uint64_t state = seed * 2654435761u + 99991;
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto j = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  for (int64_t i = 0; i < n; ++i) {
    const double unit = (static_cast<double>(order[i]) + 0.5) / static_cast<double>(n);
    v[i] = in.low + (std::floor((in.high - in.low) * unit * 64) + 0.5) / 64;
    if (in.dtype.IsInt()) v[i] = std::floor(v[i]);
  }
  return Tensor::From(v, in.shape).Cast(in.dtype).To("CPU");
}

}  // namespace

std::vector<Tensor> CompositeInputs(const CompositeRow& row, std::optional<DType> floats, int set) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    Tensor t = Drawn(row.inputs[i], i + 1 + 100 * set);
    if (floats && t.dtype().IsFloat()) t = t.Cast(*floats);
    out.push_back(t.Realize());
  }
  return out;
}

}  // namespace tessera
