// Tensors over several GPUs, simulated or real: parts in memory of their own, moved through copies.
#include "graph/shard_map.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "tests/support/check.h"
#include "tests/support/gpu.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

class ShardedGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (GpuCount(4) < 4) GTEST_SKIP() << "there are fewer than four GPUs";
  }
};

Sharding OnGpus(int n, std::optional<int> axis = 0, Layout layout = {}) {
  return Line(n, axis, std::move(layout), GpuKind().c_str());
}
Values Numbers(int64_t n, int seed = 0) {
  Values v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 5 + seed) % 17) - 8;
  return v;
}
Values Read(const Tensor& t) { return t.ToVector<float>(); }

TEST_F(ShardedGpu, ToAndFro) {
  const Values v = Numbers(5 * 3);
  const Tensor x = Tensor::From(v, {5, 3}).To("CPU");
  for (const Sharding& s :
       {OnGpus(3), OnGpus(2, 1), OnGpus(2, std::nullopt), OnGpus(3, 0, Layout::Sizes({0, 4, 1}))}) {
    const Tensor there = x.To(s);
    EXPECT_EQ(Read(there), v);
    EXPECT_EQ(Read(there.To("CPU")), v);
    EXPECT_EQ(Read(there.To(Gpu(3))), v);
    EXPECT_EQ(Read(there.To(OnGpus(4))), v);
    EXPECT_EQ(Read(there.To(Sharding({"CPU:0", "CPU:1"}, 1))), v);
  }
}

TEST_F(ShardedGpu, PrimitivesOnAndOffTheAxis) {
  const Values v = Numbers(6 * 4);
  const Tensor plain = Tensor::From(v, {6, 4});
  const std::vector<std::function<Tensor(const Tensor&)>> all = {
      [](const Tensor& t) { return t * 2 + 1; },
      [](const Tensor& t) { return t.Sum({0}); },
      [](const Tensor& t) { return t.Max({1}); },
      [](const Tensor& t) { return t.Sum(); },
      [](const Tensor& t) { return t.T(); },
      [](const Tensor& t) {
        return t.Reshape({2, 12});
      },
      [](const Tensor& t) { return t.Flip(0); },
      [](const Tensor& t) {
        return t.Pad({{1, 2}, {0, 0}}).Window({0}, {3}).Sum({2});
      },
      [](const Tensor& t) {
        return Cat({t, t * 3}, 0);
      },
      [](const Tensor& t) { return t.MatMul(t.T()); },
      [](const Tensor& t) {
        return t.Slice({{1, 6, 2}});
      },
  };
  for (const Sharding& s : {OnGpus(2), OnGpus(4), OnGpus(3, 1)}) {
    const Tensor x = plain.To("CPU").To(s).Realize();
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(Read(all[i](x)), Read(all[i](plain))) << i;
  }
}

TEST_F(ShardedGpu, TwoDims) {
  const Mesh mesh(PlaceList(std::vector<Place>{Gpu(0), Gpu(1), Gpu(2), Gpu(3)}),
                  {{2, "dp"}, {2, "tp"}});
  const Placement whole = Placement::Replicate();
  const Values a = Numbers(12), b = Numbers(24, 1);
  const Tensor x =
      Tensor::From(a, {4, 3}).To("CPU").To(Sharding(mesh, {Placement::Shard(0), whole}));
  const Tensor w =
      Tensor::From(b, {3, 8}).To("CPU").To(Sharding(mesh, {whole, Placement::Shard(1)}));
  const Tensor u = Tensor::From(Numbers(16, 3), {8, 2})
                       .To("CPU")
                       .To(Sharding(mesh, {whole, Placement::Shard(0)}));
  EXPECT_EQ(Read(x.MatMul(w).Relu().MatMul(u)),
            Read(Tensor::From(a, {4, 3})
                     .MatMul(Tensor::From(b, {3, 8}))
                     .Relu()
                     .MatMul(Tensor::From(Numbers(16, 3), {8, 2}))));
  const Tensor scattered = ShardMap(
      {"tp"}, {Placement::Shard(1)},
      [](const Tensor& p, const Tensor& q) { return ReduceScatter(p.MatMul(q), "tp", 1); },
      x.MatMul(w), u);
  EXPECT_EQ(Read(scattered), Read(x.MatMul(w).MatMul(u)));
}

TEST_F(ShardedGpu, CapturedSteps) {
  const Values v = Numbers(6 * 4);
  Tensor sum = Tensor::Zeros({4}).To(OnGpus(3, std::nullopt)).Contiguous().Realize();
  Jit step([&](const Tensor& t) {
    sum.Assign(sum + (t * t).Sum({0}));
    return t.To(OnGpus(3, 1));
  });
  Values expected(4);
  for (int call = 0; call < 3; ++call) {
    const Values now = Numbers(24, call);
    const Tensor got = step.One({Tensor::From(now, {6, 4}).To("CPU").To(OnGpus(3))});
    for (int i = 0; i < 24; ++i) expected[i % 4] += now[i] * now[i];
    EXPECT_EQ(Read(got), now);
    EXPECT_EQ(Read(sum), expected);
  }
}

}  // namespace
}  // namespace tessera
