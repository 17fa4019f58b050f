// What it costs to schedule and generate a sharded step: not more for more devices.
#include <chrono>

#include "graph/flags.h"
#include "graph/grad.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

// A transformer block with its gradients and updates: the batch over `data` places, heads and
// columns over `tensor` ones.
std::vector<UOp> Step(int data, int tensor) {
  std::vector<Place> places;
  for (int i = 0; i < data * tensor; ++i) places.emplace_back("NULL", i);
  const Mesh mesh(places, {{data, "data"}, {tensor, "tensor"}});
  const Placement whole = Placement::Replicate();
  const auto on = [&](const Dims& shape, Placement d, Placement t) {
    return Tensor::Empty(shape, kFloat32, Sharding(mesh, {d, t}));
  };
  constexpr int64_t kBatch = 1024, kLength = 16, kWidth = 64, kHeads = 8;
  const Tensor x = on({kBatch, kLength, kWidth}, Placement::Shard(0), whole);
  const auto columns = [&](int64_t n) { return on({kWidth, n}, whole, Placement::Shard(1)); };
  const auto rows = [&](int64_t n) { return on({n, kWidth}, whole, Placement::Shard(0)); };
  const std::vector<Tensor> weights = {columns(kWidth), columns(kWidth),     columns(kWidth),
                                       rows(kWidth),    columns(4 * kWidth), rows(4 * kWidth)};
  const auto heads = [&](const Tensor& t, const Tensor& w) {
    return t.MatMul(w).Reshape({kBatch, kLength, kHeads, kWidth / kHeads}).Permute({0, 2, 1, 3});
  };
  const Tensor n = x.RmsNorm();
  const Tensor attention =
      heads(n, weights[0])
          .ScaledDotProductAttention(heads(n, weights[1]), heads(n, weights[2]), {.causal = true})
          .Permute({0, 2, 1, 3})
          .Reshape({kBatch, kLength, kWidth});
  const Tensor y = x + attention.MatMul(weights[3]);
  const Tensor z = y + y.RmsNorm().MatMul(weights[4]).Silu().MatMul(weights[5]);
  const std::vector<Tensor> gradients = Grad(z.Square().Mean(), weights);
  std::vector<UOp> roots;
  for (size_t i = 0; i < weights.size(); ++i) {
    roots.push_back((weights[i] - gradients[i] * 0.01).uop());
  }
  return roots;
}

double SecondsToPrepare(int data, int tensor) {
  const std::vector<UOp> roots = Step(data, tensor);
  const PlanKey key = MakePlanKey(roots);
  ClearPlans();
  const std::clock_t start = std::clock();  // of this process: others may be busy as well
  EXPECT_OK(PreparePlan(roots, key));
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(ShardedCost, AThousandPlacesCostLittleMoreThanTwoSlow) {
  const SetFlagForTest no_checks(Flag::kSpec, "0");
  double two = 1e9, thousand = 1e9;
  for (int i = 0; i < 5; ++i) {
    two = std::min(two, SecondsToPrepare(1, 2));
    thousand = std::min(thousand, SecondsToPrepare(128, 8));
  }
  std::cout << "2 places: " << two << " s, 1024: " << thousand << " s\n";
  EXPECT_LE(thousand, 1.5 * two);
}

TEST(ShardedCost, FourPlacesTakeMillisecondsSlow) {
  const SetFlagForTest no_checks(Flag::kSpec, "0");
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::vector<UOp> roots = Step(2, 2);
    const PlanKey key = MakePlanKey(roots);
    const std::clock_t start = std::clock();
    EXPECT_OK(PlanOnly(roots, key));
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::cout << "4 places: " << least << " s\n";
  EXPECT_LE(least, 3.6 / 100);
}

}  // namespace
}  // namespace tessera
