// Assignment where others, in other threads too, hold the version that is assigned to.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "graph/buffer.h"
#include "runtime/capture.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

const void* MemoryOf(const Tensor& t) { return t.uop().arg<BufferArg>().buffer->storage->data; }

constexpr int kThreads = 4, kSteps = 6;
constexpr int64_t kElements = 20000;

// What each of several threads makes of an expression that all of them write alike, at one time.
std::vector<std::vector<float>> OfThreads(const std::function<Tensor()>& make) {
  std::vector<std::vector<float>> out(kThreads);
  std::atomic<int> ready = 0;
  std::vector<std::thread> threads;
  for (auto& values : out) {
    threads.emplace_back([&] {
      for (++ready; ready < kThreads;) {
      }
      values = make().ToVector<float>();
    });
  }
  for (std::thread& t : threads) t.join();
  return out;
}

// 2^kSteps - 1, if each step happens to it once.
Tensor Counted(Tensor x) {
  for (int i = 0; i < kSteps; ++i) x.Assign(x * 2 + 1).Realize();
  return x;
}

TEST(AssignThreads, BeginWithEqualExpressions) {
  for (int repeat = 0; repeat < 25; ++repeat) {
    const auto make = [] { return Counted(Tensor::Zeros({kElements}).Contiguous().Realize()); };
    for (const auto& values : OfThreads(make)) {
      ASSERT_THAT(values, Each((1 << kSteps) - 1)) << "repeat " << repeat;
    }
  }
}

TEST(AssignThreads, BeginWithWhatIsComputedAlready) {
  for (int repeat = 0; repeat < 25; ++repeat) {
    const Tensor x = Tensor::Full({kElements}, repeat).Contiguous().Realize();
    const auto make = [&] { return Counted((x * 0).Contiguous().Realize()); };
    Tensor zeros = (x * 0).Contiguous();
    const UOp kept = zeros.uop();  // what the threads' expressions are as well
    zeros.Realize();
    for (const auto& values : OfThreads(make)) {
      ASSERT_THAT(values, Each((1 << kSteps) - 1)) << "repeat " << repeat;
    }
    EXPECT_EQ(zeros.Sum().Item(), 0);
  }
}

TEST(AssignThreads, CapturedStepsOfTheirOwn) {
  for (int repeat = 0; repeat < 25; ++repeat) {
    const auto make = [] {
      const Tensor x = Tensor::Zeros({kElements}).Contiguous().Realize();
      Jit step([](Tensor t) { t.Assign(t * 2 + 1); });
      for (int i = 0; i < kSteps; ++i) step({x});
      return x;
    };
    for (const auto& values : OfThreads(make)) {
      ASSERT_THAT(values, Each((1 << kSteps) - 1)) << "repeat " << repeat;
    }
  }
}

// What others hold is not written, so that they may be reading it: the next version is elsewhere.
TEST(AssignThreads, WhatIsHeldIsNotWritten) {
  const Tensor x = Tensor::From({1.f, 2.f, 3.f}).Realize();
  for (const bool captured : {false, true}) {
    Tensor a = x + 1, b = x + 1;
    a.Realize();
    b.Realize();
    ASSERT_EQ(a.uop(), b.uop());
    const void* const held = MemoryOf(b);
    if (captured) {
      Jit step([](Tensor t) { t.Assign(t * 10); });
      step({a});
    } else {
      a.Assign(a * 10).Realize();
    }
    EXPECT_EQ(MemoryOf(b), held);
    EXPECT_THAT(b.ToVector<float>(), ElementsAre(2, 3, 4));
    EXPECT_THAT(a.ToVector<float>(), ElementsAre(20, 30, 40));
    const void* const now = MemoryOf(a);
    EXPECT_NE(now, held);
    a.Assign(a + 1);
    a.Realize();  // nobody else holds this one
    EXPECT_EQ(MemoryOf(a), now);
  }
}

TEST(AssignThreads, EqualAssignmentsAreTwo) {
  const Tensor x = Tensor::From({1.f, 2.f, 3.f}).Realize();
  Tensor a = x + 1, b = x + 1;
  a.Realize();
  b.Realize();
  a.Assign(a + 1);
  b.Assign(b + 1);
  EXPECT_NE(a.uop(), b.uop());
  std::vector<Tensor> both = {a, b};
  Tensor::Realize(absl::MakeSpan(both));
  EXPECT_THAT(a.ToVector<float>(), ElementsAre(3, 4, 5));
  EXPECT_THAT(b.ToVector<float>(), ElementsAre(3, 4, 5));
  a.Assign(a + 1).Realize();
  EXPECT_THAT(a.ToVector<float>(), ElementsAre(4, 5, 6));
  EXPECT_THAT(b.ToVector<float>(), ElementsAre(3, 4, 5));
}

}  // namespace
}  // namespace tessera
