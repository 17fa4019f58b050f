// Gradients of what is read in slices.
#include "graph/grad.h"
#include "graph/rewrite.h"
#include "graph/tensor.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

// Each element gets, of each slice that it is in, what the slice is multiplied by.
void ExpectGradient(const Tensor& x, int axis,
                    const std::vector<std::pair<int64_t, int64_t>>& slices) {
  Tensor loss = Tensor::Zeros({});
  std::vector<double> want(x.elements(), 0);
  const int64_t n = x.shape()[axis].value();
  int64_t inner = 1;
  for (int a = axis + 1; a < x.rank(); ++a) inner *= x.shape()[a].value();
  for (size_t s = 0; s < slices.size(); ++s) {
    const auto [begin, end] = slices[s];
    loss = loss + (x.SliceAxis(axis, {begin, end}) * static_cast<double>(s + 1)).Sum();
    for (size_t e = 0; e < want.size(); ++e) {
      const int64_t at = static_cast<int64_t>(e) / inner % n;
      if (begin <= at && at < end) want[e] += static_cast<double>(s + 1);
    }
  }
  const Tensor g = Grad(loss, {x})[0];
  EXPECT_EQ(g.ToVector<double>(), want);
  EXPECT_EQ(g.device(), x.device());
}

Tensor Some(const Dims& shape) { return Tensor::Rand(shape).Realize(); }

TEST(GradSum, OfSlicesOfEveryKind) {
  const Tensor x = Some({6, 4});
  ExpectGradient(x, 0, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}});
  ExpectGradient(x, 0, {{4, 6}, {0, 2}});                  // a gap, and out of order
  ExpectGradient(x, 0, {{1, 2}, {3, 5}});                  // nothing at either end
  ExpectGradient(x, 0, {{0, 4}, {2, 6}, {4, 6}, {0, 1}});  // some overlap
  ExpectGradient(x, 1, {{0, 2}, {2, 4}, {0, 4}});          // one of all
  ExpectGradient(x, 1, {{1, 1}, {1, 3}, {3, 4}});          // one of nothing
}

// Where padded to the whole each would cost more than all of them joined.
TEST(GradSum, OfLongSlicesThatOverlap) {
  const Tensor x = Some({4096, 512});
  ExpectGradient(x, 0,
                 {{0, 2000},
                  {1000, 3000},
                  {2000, 4096},
                  {5, 9},
                  {3000, 3500},
                  {7, 4000},
                  {9, 10},
                  {4000, 4096},
                  {0, 1}});
}

TEST(GradSum, OfSlicesOnSeveralPlaces) {
  for (int axis : {0, 1}) {
    const Tensor x = Some({6, 4}).To(Line(2, axis)).Realize();
    ExpectGradient(x, 0, {{0, 2}, {2, 3}, {3, 6}});
    ExpectGradient(x, 1, {{0, 2}, {2, 4}});
  }
}

TEST(GradSum, OfSlicesAlongTwoAxes) {
  const Tensor x = Some({4, 4});
  const Tensor loss = (x.SliceAxis(0, {0, 2}) * 2).Sum() + (x.SliceAxis(0, {2, 4}) * 3).Sum() +
                      (x.SliceAxis(1, {1, 2}) * 5).Sum() +
                      (x.SliceAxis(0, {1, 3}).SliceAxis(1, {3, 4}) * 7).Sum();
  EXPECT_EQ(Grad(loss, {x})[0].ToVector<float>(),
            (std::vector<float>{2, 7, 2, 2, 2, 7, 2, 9, 3, 8, 3, 10, 3, 8, 3, 3}));
}

// A sequence that is read step by step: its gradient is no sum of as many padded steps.
TEST(GradSum, StepsOfASequenceAreWrittenOnce) {
  const Tensor x = Some({40, 3});
  Tensor state = Tensor::Zeros({3});
  for (int t = 0; t < 40; ++t) state = (state * 0.5f + x[t]).Sin();
  const UOp g = Grad(state.Sum(), {x})[0].uop();
  for (const UOp& u : TopoSort({&g, 1})) EXPECT_FALSE(u.is(Op::kPad));
}

}  // namespace
}  // namespace tessera
