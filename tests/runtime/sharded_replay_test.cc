// Steps captured on several places and replayed: parts, variables and transfers are those of each
// call.
#include <thread>

#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

std::vector<float> Numbers(int64_t n, int64_t first = 0) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((first + i * 7) % 23) - 11;
  return v;
}

TEST(ShardedReplay, ReadsItsInputsAnew) {
  for (int places : {1, 2, 3, 5}) {
    Jit step([](const Tensor& x, const Tensor& w) {
      return std::vector<Tensor>{(x * w).Sum({0}), x + 1};
    });
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> a = Numbers(4 * 3, call), b = Numbers(4 * 3, 5 * call);
      const Tensor x = Tensor::From(a, {4, 3}).Shard(Line(places)),
                   w = Tensor::From(b, {4, 3}).Shard(Line(places));
      const std::vector<Tensor> got = step({x, w});
      EXPECT_EQ(got[1].device(), x.device());
      std::vector<float> sums(3), more = a;
      for (int64_t i = 0; i < 12; ++i) sums[i % 3] += a[i] * b[i];
      for (float& v : more) v += 1;
      EXPECT_EQ(got[0].ToVector<float>(), sums);
      EXPECT_EQ(got[1].ToVector<float>(), more);
    }
    EXPECT_EQ(step.captures(), 1);
  }
}

// The extents of what is exchanged and reduced follow the variable of the call.
TEST(ShardedReplay, SymbolicExtentsBesideTheDividedAxis) {
  constexpr int64_t kRows = 5, kMost = 10;
  const std::vector<float> v = Numbers(kRows * kMost);
  for (int places : {2, 3}) {
    const Tensor x = Tensor::From(v, {kRows, kMost}).Shard(Line(places)).Realize();
    Tensor total = Tensor::Zeros({1}).Contiguous().Realize();
    const Variable n("seen_of_ten", 1, kMost);
    Jit step([&](const Tensor& t) {
      const Tensor part = t.SliceAxis(1, {0, n});
      return std::vector<Tensor>{part.To("CPU"), part.Sum({0}), part.To(Line(places, std::nullopt)),
                                 part.T().To("CPU")};
    });
    for (int64_t m : {3, 10, 1, 7}) {
      const std::vector<Tensor> got = step({x}, {{"seen_of_ten", m}});
      std::vector<float> part, sums(m), turned(m * kRows);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < m; ++j) {
          part.push_back(v[i * kMost + j]);
          sums[j] += part.back();
          turned[j * kRows + i] = part.back();
        }
      }
      EXPECT_EQ(got[0].ToVector<float>(), part) << m;
      EXPECT_EQ(got[1].ToVector<float>(), sums) << m;
      EXPECT_EQ(got[2].ToVector<float>(), part) << m;
      EXPECT_EQ(got[3].ToVector<float>(), turned) << m;
    }
  }
}

TEST(ShardedReplay, AssignsInPlace) {
  Tensor cache = Tensor::Zeros({6, 4}).To(Line(4)).Contiguous().Realize();
  const Variable at("column_of_four", 0, 3);
  Jit step([&](const Tensor& column) {
    cache.SliceAxis(1, {at, at + 1}).Assign(column.Unsqueeze(1));
    return cache.Sum({0});
  });
  std::vector<float> sums(4);
  for (int64_t i : {2, 0, 3, 2, 1}) {
    const std::vector<float> v = Numbers(6, i);
    const Tensor got = step.One({Tensor::From(v).Shard(Line(4))}, {{"column_of_four", i}});
    sums[i] = 0;
    for (float x : v) sums[i] += x;
    EXPECT_EQ(got.ToVector<float>(), sums);
  }
}

TEST(ShardedReplay, AllocatesOnlyResults) {
  const Tensor x = Tensor::From(Numbers(4096), {64, 64}).Shard(Line(3)).Realize();
  Tensor sum = Tensor::Zeros({64}).To(Line(3, std::nullopt)).Contiguous().Realize();
  Jit step([&](const Tensor& t) { sum.Assign(t.MatMul(t.T()).Sum({0})); });
  step({x});
  step({x});
  const auto allocations = [] {
    std::vector<int64_t> out;
    for (int i = 0; i < 3; ++i) out.push_back((*GetDevice(Place("CPU", i)))->Memory().allocations);
    return out;
  };
  const auto before = allocations();
  const int64_t kernels = GetRuntimeStats().kernels_run, plans = GetRuntimeStats().plans_reused;
  for (int i = 0; i < 5; ++i) step({x});
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(GetRuntimeStats().plans_reused, plans);
  EXPECT_GT(GetRuntimeStats().kernels_run, kernels);
}

TEST(ShardedReplay, FromManyThreads) {
  const Tensor x = Tensor::From(Numbers(30), {10, 3}).Shard(Line(4)).Realize();
  Jit step([](const Tensor& t) { return (t * 2).Sum({0}) + t.Max({0}); });
  const std::vector<float> expected = step.One({x}).ToVector<float>();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) wrong += step.One({x}).ToVector<float>() != expected;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ShardedReplay, OnPaper) {
  const Sharding paper({"NULL:0", "NULL:1"}, 0);
  const Tensor x = Tensor::Zeros({4, 4}).To(paper).Contiguous().Realize();
  Jit step([](const Tensor& t) { return t.Sum({0}); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.One({x}).size(0), 4);
}

}  // namespace
}  // namespace tessera
