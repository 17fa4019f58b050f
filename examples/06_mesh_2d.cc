// A network with two layers on a mesh of 2 x 2 devices: the batch is divided along one dim (data
// parallel), the weights along the other (tensor parallel). Nothing in the network says so.
#include <iostream>

#include "graph/tensor.h"
#include "graph/visualize.h"

using namespace tessera;

namespace {

Tensor Network(const Tensor& x, const Tensor& w1, const Tensor& w2) {
  return x.MatMul(w1).Relu().MatMul(w2);
}

}  // namespace

int main() {
  const Mesh mesh({"CPU:0", "CPU:1", "CPU:2", "CPU:3"}, {{2, "dp"}, {2, "tp"}});
  const auto on = [&mesh](Placement dp, Placement tp) { return Sharding(mesh, {dp, tp}); };
  const Placement whole = Placement::Replicate();

  Tensor::ManualSeed(1);
  const Tensor x = Tensor::RandN({8, 16}).To("CPU"), w1 = Tensor::RandN({16, 32}).To("CPU"),
               w2 = Tensor::RandN({32, 4}).To("CPU");
  const Tensor one_device = Network(x, w1, w2);

  const Tensor xs = x.Shard(on(Placement::Shard(0), whole));    // rows of the batch along dp
  const Tensor w1s = w1.Shard(on(whole, Placement::Shard(1)));  // columns along tp
  const Tensor w2s = w2.Shard(on(whole, Placement::Shard(0)));  // rows along tp
  const Tensor four_devices = Network(xs, w1s, w2s);

  std::cout << VisualizeSharding(four_devices) << "\n" << Explain(four_devices) << "\n";
  const double difference = (four_devices.To("CPU") - one_device).Abs().Max().Item();
  std::cout << "the same as on one device: " << (difference < 1e-4 ? "yes" : "no") << "\n";
}
