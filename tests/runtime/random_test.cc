// Random draws, compiled: a later draw runs the plan of an earlier one.
#include <gtest/gtest.h>

#include <set>

#include "graph/tensor.h"
#include "runtime/runtime.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

std::vector<float> Draws(int count, const Device& device) {
  Tensor::ManualSeed(7);
  std::vector<float> out;
  for (int i = 0; i < count; ++i) {
    const Tensor drawn = (Tensor::Rand({33}) + Tensor::Rand({33})).To(device);
    const std::vector<float> values = drawn.ToVector<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

TEST(Random, LaterDrawsReuseThePlan) {
  Draws(1, Place("CPU", 0));
  const int64_t before = GetRuntimeStats().plans_made;
  const std::vector<float> three = Draws(3, Place("CPU", 0));
  EXPECT_EQ(GetRuntimeStats().plans_made, before);
  EXPECT_EQ(std::set<float>(three.begin(), three.end()).size(), three.size());
  EXPECT_EQ(Draws(3, Place("CPU", 0)), three);
}

// Two draws whose counters differ by another distance are another sum, by the same plan.
TEST(Random, EachDrawBeginsWhereItWasWritten) {
  Tensor::ManualSeed(3);
  const Tensor a = Tensor::Rand({5}), b = Tensor::Rand({5}), c = Tensor::Rand({5});
  const auto x = a.ToVector<float>(), y = b.ToVector<float>(), z = c.ToVector<float>();
  Tensor::ManualSeed(3);
  const Tensor d = Tensor::Rand({5}), e = Tensor::Rand({5}), f = Tensor::Rand({5});
  const auto both = (d - e).ToVector<float>(), apart = (d - f).ToVector<float>();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(both[i], x[i] - y[i]);
    EXPECT_EQ(apart[i], x[i] - z[i]);
  }
}

TEST(Random, DrawsAreTheSameOnAnyPlaces) {
  EXPECT_EQ(Draws(2, Line(3, 0)), Draws(2, Place("CPU", 0)));
}

}  // namespace
}  // namespace tessera
