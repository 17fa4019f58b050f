// The CUDA runtime over the simulated driver: values, memory, streams, faults.
#include "runtime/sim/sim.h"

#include "graph/tensor.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

TEST(SimDevice, FirstTensor) {
  const Tensor x = Tensor::Rand({1000}, kFloat32, "SIM");
  const Tensor y = x * 2 + 1;
  const std::vector<float> got = y.ToVector<float>(), from = x.ToVector<float>();
  ASSERT_EQ(got.size(), 1000u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], from[i] * 2 + 1);
}

}  // namespace
}  // namespace tessera
