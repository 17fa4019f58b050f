// Programs at the limits: more inputs than a kernel takes, more bytes than there are, names that
// are taken, processes that fork.
#include <sys/wait.h>
#include <unistd.h>

#include "graph/grad.h"
#include "runtime/capture.h"
#include "runtime/runtime.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(Limits, MoreInputsThanAKernelTakes) {
  constexpr int kMany = 1300;
  std::vector<Tensor> parts;
  for (int i = 0; i < kMany; ++i) parts.push_back(Tensor::Full({2}, i, kFloat32).Contiguous());
  Tensor::Realize(absl::MakeSpan(parts));
  Tensor sum = parts[0];
  for (int i = 1; i < kMany; ++i) sum = sum + parts[i];
  const float all = kMany * (kMany - 1) / 2;
  EXPECT_THAT(sum.ToVector<float>(), ElementsAre(all, all));
  const Tensor joined = Cat(parts, 0), stacked = Stack(parts, 1);
  EXPECT_EQ(joined.Sum().Item(), 2 * all);
  EXPECT_EQ((joined * 2).ToVector<float>()[2 * kMany - 1], 2 * (kMany - 1));
  EXPECT_EQ(stacked.ToVector<float>()[kMany + 5], 5);
  std::vector<Tensor> computed;
  for (int i = 0; i < kMany; ++i) computed.push_back(parts[i] * 2 + parts[(i + 1) % kMany]);
  EXPECT_EQ(Cat(computed, 0).Sum().Item<double>(), 6.0 * all);
}

TEST(Limits, MoreBytesThanThereAre) {
  constexpr int64_t kHuge = int64_t{1} << 31;
  EXPECT_ERROR(Tensor::Ones({kHuge, kHuge}).Contiguous().ToVector<float>(), "ToVector",
               "than any memory holds");
  Tensor t = Tensor::Empty({kHuge, kHuge});
  EXPECT_ERROR(t.Assign(1).ToVector<float>(), "ToVector", "than any memory holds");
  EXPECT_ERROR(Tensor::Zeros({4}).Pad({{INT64_MAX - 4, 0}}).ToVector<float>(), "ToVector",
               "than any memory holds");
  EXPECT_ERROR(Tensor::Zeros({4}).Pad({{INT64_MAX, INT64_MAX}}), "Pad", "does not fit in 64 bits");
  EXPECT_EQ((Tensor::Ones({3}) + 1).Sum().Item(), 6);  // all else goes on
}

TEST(Limits, NamesOfGeneratedCodeAreNoVariables) {
  for (const char* name : {"rt_worker", "rt_workers", "@draw0", "@x"}) {
    EXPECT_ERROR(Variable(name, 0, 7), "Variable", "begin with");
  }
  EXPECT_ERROR(Variable("n\n", 0, 7), "Variable", "'n\\n' has control characters");
}

// Kernels of many steps are cut, whatever the steps are: else one kernel's text, or the time that
// it takes to compile, is above all bounds.
void MoveOften(int steps) {
  Tensor padded = Tensor::Arange(3, kFloat32);
  for (int i = 0; i < steps; ++i) padded = padded.Pad({{1, 0}});
  EXPECT_EQ(padded.Sum().Item(), 3);
  EXPECT_EQ(padded.SliceAxis(0, {steps, {}}).ToVector<int>(), (std::vector<int>{0, 1, 2}));
  const Tensor x = Tensor::Arange(12, kFloat32).Reshape({3, 4});
  Tensor turned = x;
  for (int i = 0; i < steps; ++i) turned = turned.Reshape({4, 3}).Permute({1, 0}).Flip({1});
  EXPECT_EQ(turned.Sum().Item(), 66);
  Tensor taken = x;
  const Tensor order = Tensor::From({2, 0, 1}).Realize();
  for (int i = 0; i < 300; ++i) taken = taken.Take(order, 0);
  EXPECT_EQ(taken.ToVector<int>(), x.ToVector<int>());
}

TEST(Limits, LongChainsOfMovementAreCut) { MoveOften(1000); }
TEST(Limits, LongerChainsOfMovementAreCutSlow) { MoveOften(4000); }

// A child has none of the threads that ran kernels.
TEST(Limits, AForkedChildComputes) {
  Tensor x = Tensor::Ones({1 << 20}).Contiguous();
  Tensor::Realize({&x, 1});
  EXPECT_EQ((x * 3).Sum().Item(), 3 << 20);
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const bool right = (x * 3).Sum().Item() == 3 << 20 && (x * 3).Contiguous().Sum().Item() > 0;
      _exit(right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ((x * 3).Sum().Item(), 3 << 20);
}

// A view that a step assigns is a view of what its base was then.
TEST(Limits, AViewAssignedBeforeItsBase) {
  const auto both = [](bool captured) {
    Tensor x = Tensor::From({1.f, 2.f, 3.f, 4.f});
    Tensor v = x.Reshape({2, 2});
    const auto step = [&] {
      v.Assign(v + 1);
      x.Assign(x * 10);
    };
    Jit jit([&](const Tensor& none) {
      step();
      return none + 1;
    });
    std::vector<float> seen;
    const Tensor none = Tensor::From({0.f}).Contiguous();
    for (int i = 0; i < 3; ++i) {
      if (captured) {
        jit({none});
      } else {
        step();
      }
      for (float f : v.ToVector<float>()) seen.push_back(f);
      for (float f : x.ToVector<float>()) seen.push_back(f);
    }
    return seen;
  };
  EXPECT_EQ(both(true), both(false));
}

TEST(Limits, ACapturedSymbolicTensorIsAnError) {
  const Variable n("limit_n", 1, 4);
  Tensor x = Tensor::From({1.f, 2.f, 3.f, 4.f});
  const Tensor part = x.Slice({{0, n}});
  Jit jit([&](const Tensor& y) { return part.Sum() + y; });
  EXPECT_ERROR(jit.One({Tensor::From({0.f}).Contiguous()}, {{"limit_n", 2}}), "Jit", "limit_n");
}

}  // namespace
}  // namespace tessera
