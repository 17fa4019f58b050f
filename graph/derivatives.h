// Derivatives of functions: along a direction, back from results, and whole matrices of them.
//
//   auto [y, moved] = Jvp(f, {x}, {v});        // how f(x) moves where x moves along v
//   auto [z, pulled] = Vjp(f, {x}, {u});       // the derivative of (f(x) * u).Sum() by x
//   Tensor j = Jacobian(f, x);                 // [... of f(x), ... of x]
//   Tensor h = Hessian(loss, x);               // [... of x, ... of x]
//
// The function is called once, with tensors that stand for its inputs: it may branch on shapes, but
// not read values; what it captures is constant, be it one of the inputs. Derivatives are those of
// Grad, and so are the sides of kinks. All are expressions, of which derivatives may be taken
// again.
#pragma once

#include <vector>

#include "graph/tensor_function.h"

namespace tessera {

struct ValuesAndDerivatives {
  std::vector<Tensor> values;       // the function's results
  std::vector<Tensor> derivatives;  // of Jvp one for each of them, of Vjp one for each input
};

// By a tangent for each input, of its shape.
ValuesAndDerivatives Jvp(const TensorFunction& function, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& tangents);
// By a cotangent for each result, of its shape.
ValuesAndDerivatives Vjp(const TensorFunction& function, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& cotangents);

// Of the one result of a function of one tensor: forward from each element of the input where these
// are fewer, else back from each of the result. Their numbers are fixed.
Tensor Jacobian(const TensorFunction& function, const Tensor& x);
// Of a function from one tensor to one number.
Tensor Hessian(const TensorFunction& function, const Tensor& x);

}  // namespace tessera
