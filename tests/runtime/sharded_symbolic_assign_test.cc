// What is assigned to rows of sharded tensors where variables say which rows these are.
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/runtime/symbolic_rows.h"

namespace tessera {
namespace {

// A cache that is cut along its rows, as that of a model over long texts.
TEST(ShardedSymbolicAssign, CapturedSteps) {
  for (const Sharding& s : {Line(2), Line(3), Line(4, 0, Layout::Ceil())}) {
    const Tensor plain = Rows().Realize();
    Tensor cache = Tensor::Zeros({kMost, 4}).To(s).Contiguous().Realize();
    const Variable n("cached_n", 1, kMost);
    Jit step([&](const Tensor& rows) {
      const Tensor seen = rows.SliceAxis(0, {0, n});
      cache.SliceAxis(0, {0, n}).Assign(seen * 2);
      const Tensor scores = seen.MatMul(Beside(seen, Count({4, 1}))).Softmax(0);
      return std::vector<Tensor>{scores, (scores * seen).Sum({0}), cache.Sum({0}), seen + 1,
                                 Cat({seen.Flip(0), seen}, 0)};
    });
    std::vector<float> held(kMost * 4, 0);
    for (int64_t value : {3, 7, 1, 5}) {
      const std::vector<Tensor> got = step({plain.To(s).Realize()}, {{"cached_n", value}});
      const Tensor seen = plain.SliceAxis(0, {0, value});
      const Tensor scores = seen.MatMul(Beside(seen, Count({4, 1}))).Softmax(0);
      const std::vector<float> v = seen.ToVector<float>();
      for (size_t i = 0; i < v.size(); ++i) held[i] = v[i] * 2;
      ExpectNear(got[0], scores, "scores");
      ExpectNear(got[1], (scores * seen).Sum({0}), "mixed");
      EXPECT_EQ(cache.ToVector<float>(), held);
      ExpectNear(got[2], Tensor::From(held, {kMost, 4}).Sum({0}), "held");
      EXPECT_EQ(got[3].ToVector<float>(), (seen + 1).ToVector<float>());
      EXPECT_EQ(got[4].ToVector<float>(), Cat({seen.Flip(0), seen}, 0).ToVector<float>());
    }
    EXPECT_EQ(step.captures(), 1);
  }
}

// A slice is cut to the axis, so at its end nothing is assigned.
TEST(ShardedSymbolicAssign, PastTheEnd) {
  const Variable n("past_n", 0, kMost);
  for (const int64_t value : {int64_t{0}, int64_t{3}, int64_t{kMost}}) {
    Tensor x = Rows().Shard(Line(3)).Realize();
    std::vector<float> expected = x.ToVector<float>();
    const int64_t width = static_cast<int64_t>(expected.size()) / kMost;
    for (int64_t i = 0; i < width && value < kMost; ++i) expected[value * width + i] = 77;
    x.SliceAxis(0, {n, n + 1}).Assign(77);
    EXPECT_EQ(Realize({x}, {{"past_n", value}})[0].ToVector<float>(), expected) << value;
  }
}

// A view that shifts shows rows of other places: what is assigned to it goes to where they lie.
TEST(ShardedSymbolicAssign, WhereItShifts) {
  const Variable at("into_at", 0, 3);
  for (const int64_t value : {0, 2, 3}) {
    Tensor x = Rows().Shard(Line(3)).Realize(), plain = Rows();
    x.SliceAxis(0, {at, at + 4}).Assign(Beside(x, Count({4, 4})));
    plain.SliceAxis(0, {value, value + 4}).Assign(Count({4, 4}));
    EXPECT_EQ(x.device(), Device(Line(3)));
    EXPECT_EQ(Realize({x}, {{"into_at", value}})[0].ToVector<float>(), plain.ToVector<float>());
  }
}

}  // namespace
}  // namespace tessera
