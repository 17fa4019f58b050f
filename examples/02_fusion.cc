// Fusion: how many kernels an expression becomes, and how to see it before anything runs.
#include <iostream>

#include "graph/tensor.h"

using namespace tessera;

int main() {
  Tensor x = Tensor::From({{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 1, 1, 1}}, kFloat32);

  // A chain of elementwise operations, however long, reads its inputs once and writes its result
  // once: one kernel. Explain shows the plan without running it.
  Tensor chain = ((x * 2 - 3).Relu() + 1).Square();
  std::cout << "A chain of five operations\n" << Explain(chain) << "\n";
  std::cout << chain << "\n\n";

  // Softmax is a maximum, an exponential, a sum and a division. A row fits in the cache, so it is
  // one kernel too: each row is loaded once. There is no softmax kernel in the library; this is the
  // same code generator on another expression.
  Tensor p = x.Softmax();
  std::cout << "Softmax\n" << Explain(p) << "\n";
  std::cout << p << "\n\n";

  // Two results of one expression are best realised together: what they share is computed once.
  Tensor sum = x.Sum({1}), largest = x.Max({1});
  Tensor both[] = {sum, largest};
  std::cout << "Two reductions of the same rows\n" << Explain(both) << "\n";
  Tensor::Realize(absl::MakeSpan(both));
  std::cout << sum << "\n" << largest << "\n";

  // A realised tensor is data: what is built on it starts from there.
  std::cout << "\nAfter it was realised\n" << Explain(sum * 2);
}
