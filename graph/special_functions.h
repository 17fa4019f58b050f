// Functions of mathematical physics and of statistics that are no members of Tensor. Floats;
// integers and bools as f32. NaN gives NaN, and so does what lies outside a function's domain.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// The share of the integral of t^(a - 1) (1 - t)^(b - 1) from 0 to 1 that lies up to x; a, b > 0,
// 0 <= x <= 1. The one beyond x is BetaInc(b, a, 1 - x). Errors are about 1e-12 of the integral.
Tensor BetaInc(const Tensor& a, const Operand& b, const Operand& x);

// With its sign: infinite at 0, NaN at negative whole numbers.
Tensor Gamma(const Tensor& x, CallSite at = CallSite::Here());

// x ln(x / y), and that - x + y: at x = 0 they are 0 and y; infinite where x or y is negative, or y
// alone is 0.
Tensor RelEntr(const Tensor& x, const Operand& y);
Tensor KlDiv(const Tensor& x, const Operand& y);

// ln(1 - e^-x), with all digits; x >= 0.
Tensor Log1mExp(const Tensor& x, CallSite at = CallSite::Here());

}  // namespace tessera
