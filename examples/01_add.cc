// Two tensors, one sum: nothing runs until a value is asked for.
#include <iostream>

#include "graph/tensor.h"

using namespace tessera;

int main() {
  Tensor a = Tensor::From({{1, 2, 3}, {4, 5, 6}}, kFloat32);
  Tensor b = Tensor::Arange(3).Cast(kFloat32);  // has no device yet: takes that of what it meets
  Tensor c = a + b * 10;                        // broadcast, promoted; still only a graph
  std::cout << "c = " << c << "\n";             // printing asks for the values: it runs here
  std::cout << "sum = " << c.Sum().Item() << "\n";
}
