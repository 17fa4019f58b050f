// A per-place program over a tree of devices: tensor parallel within each pair, data parallel over
// the pairs, nested in one order and in the other. What places exchange is written by hand.
#include <iostream>

#include "graph/shard_map.h"

using namespace tessera;

int main() {
  const Mesh tree = Mesh::OfTree({{"CPU:1", "CPU:3"}, {"CPU:2", "CPU:4"}}, {"pair", "member"});
  const Placement whole = Placement::Replicate();
  Tensor::ManualSeed(1);
  const Tensor x = Tensor::RandN({8, 16}), w1 = Tensor::RandN({16, 32}),
               w2 = Tensor::RandN({32, 4});
  const Tensor xs = x.To(Sharding(tree, {Placement::Shard(0), whole})),
               w1s = w1.To(Sharding(tree, {whole, Placement::Shard(1)})),
               w2s = w2.To(Sharding(tree, {whole, Placement::Shard(0)}));

  // Inside, a tensor is what one place has of it: here [4, 16], [16, 16] and [16, 4].
  const auto network = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return AllReduce(a.MatMul(b).Relu().MatMul(c), "member");
  };
  const Tensor pairs_outside = ShardMap(
      {"pair"}, {Placement::Shard(0)},
      [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        return ShardMap({"member"}, {whole}, network, a, b, c);
      },
      xs, w1s, w2s);
  const Tensor members_outside = ShardMap(
      {"member"}, {whole},
      [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        return ShardMap({"pair"}, {Placement::Shard(0)}, network, a, b, c);
      },
      xs, w1s, w2s);

  std::cout << Explain(pairs_outside) << "\n";
  const auto difference = [](const Tensor& a, const Tensor& b) {
    return (a.To("CPU") - b.To("CPU")).Abs().Max().Item();
  };
  const Tensor one_device = x.MatMul(w1).Relu().MatMul(w2);
  std::cout << "both orders alike: "
            << (difference(pairs_outside, members_outside) == 0 ? "yes" : "no")
            << "\nthe same as on one device: "
            << (difference(pairs_outside, one_device) < 1e-4 ? "yes" : "no") << "\n";
}
