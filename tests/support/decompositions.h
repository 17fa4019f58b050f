// Decompositions by what they are: products that give the matrix, columns that are orthonormal. Of
// one matrix, or of each of a batch, measured by its own size.
#pragma once

#include "tests/support/check.h"

namespace tessera {

Tensor Wide(const Tensor& t);  // in f64

// For each matrix of a batch [..., M, N] the largest magnitude.
Tensor Most(const Tensor& t);
void ExpectAtMost(const Tensor& error, const Tensor& bound);

// The most that a matrix stretches a vector, or a little more: what rounding is measured in.
Tensor Size(const Tensor& x);

void ExpectOrthonormal(const Tensor& q, double precision);

// Computed together.
template <typename... Tensors>
void Compute(Tensors&... tensors) {
  Tensor all[] = {tensors...};
  Tensor::Realize(absl::MakeSpan(all));
}

// What is expected of a decomposition of such matrices, in parts of a size.
double Precision(const Tensor& a);

void ExpectQr(const Tensor& a);
void ExpectEigh(const Tensor& a);
void ExpectSvd(const Tensor& a);

}  // namespace tessera
