// A tensor on two devices: where a tensor lives is its device, and every operation computes the
// device of its result. CPU:0 and CPU:1 are virtual devices, each with memory of its own.
#include <iostream>

#include "graph/tensor.h"
#include "graph/text.h"
#include "graph/visualize.h"

using namespace tessera;

int main() {
  const Tensor x = Tensor::From(std::vector<float>(256, 1.0f));
  const Tensor s = x.To("CPU").Shard({"CPU:0", "CPU:1"}, /*axis=*/0);
  std::cout << VisualizeSharding(s);

  const Tensor y = s.Reshape({128, 2});  // axis 0 is still the one that is cut
  const Tensor z = y.Sum({0});           // the ALLREDUCE is in the graph already
  std::cout << "\n" << Print({&z.uop(), 1}) << "\n" << Explain(z) << "\n" << z << "\n";
}
