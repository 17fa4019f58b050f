// The parameters of a distribution, whatever they are called, and its name.
#pragma once

#include <limits>
#include <type_traits>
#include <variant>
#include <vector>

#include "graph/distributions.h"
#include "graph/tensor_internal.h"

namespace tessera::internal {

template <typename D>
std::vector<Tensor*> Fields(D& d) {
  const Tensor t;
  if constexpr (requires { std::decay_t<D>{t, t, t}; }) {
    auto& [a, b, c] = d;
    return {&a, &b, &c};
  } else if constexpr (requires { std::decay_t<D>{t, t}; }) {
    auto& [a, b] = d;
    return {&a, &b};
  } else {
    auto& [a] = d;
    return {&a};
  }
}

// Of the call of that name; an Error where one is empty.
std::vector<Tensor> ParametersOf(const char* name, CallSite at, const Distribution& d);
const char* NameOf(const Distribution& d);

// The parameters in the dtype in which they are computed for a result of that dtype.
Distribution Widened(Distribution d, DType type);

// The dtype in which results are given back.
DType ResultType(absl::Span<const Tensor> parameters);

// The ln of the determinant of triangular matrices.
inline Tensor LogDiagonal(const Tensor& cholesky) {
  return cholesky.Diagonal(0, -2, -1).Log().Sum(-1);
}

// n times a logarithm, which may be -inf where n is 0.
inline Tensor Times(const Tensor& n, const Tensor& log) {
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  return n * Where((n == 0) & (log == kLeast), 0, log);
}

// For each that says what `f` makes of it; else an Error: the distribution `lacks` that.
template <typename F>
Tensor OfEach(const Distribution& d, const char* lacks, F f) {
  return std::visit(
      [&](const auto& of) -> Tensor {
        if constexpr (requires { f(of); }) {
          return f(of);
        } else {
          Fail("a ", NameOf(d), " ", lacks);
        }
      },
      d);
}

}  // namespace tessera::internal
