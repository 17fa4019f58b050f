// Errors before a plan, after which all is as it was, and in the middle of one, with what is
// assigned in it on one place and on several: every value that can be read afterwards is right,
// what may be half written is an error, and what is assigned anew works again.
#include "graph/flags.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/sim/sim.h"
#include "tests/support/check.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using sim::Fault;
using ::testing::HasSubstr;

// ---- before the first step

TEST(BeforeThePlan, WhatWasNeverGivenDataStaysSo) {
  Tensor e = Tensor::Empty({3, 771});
  const Tensor r = e + 1;
  e.Assign(2);
  {
    const SetFlagForTest no_compiler(Flag::kJit, "0"), no_cache(Flag::kCache, "0");
    EXPECT_THAT(ErrorOf([&] { e.Realize(); }), HasSubstr("JIT=0"));
  }
  EXPECT_THAT(ErrorOf([&] { r.ToVector<float>(); }), HasSubstr("was never given data"));
  EXPECT_EQ(e.ToVector<float>()[770], 2);
  EXPECT_THAT(ErrorOf([&] { r.ToVector<float>(); }), HasSubstr("was never given data"));
}

TEST(BeforeThePlan, WhatACapturedStepFillsFirst) {
  Jit step([](Tensor t) { t.Assign(2); });
  Tensor e = Tensor::Empty({3, 773});
  const Tensor r = e + 1;
  step({e});
  EXPECT_EQ(e.ToVector<float>()[770], 2);
  EXPECT_THAT(ErrorOf([&] { r.ToVector<float>(); }), HasSubstr("was never given data"));
}

// Too much for the device, while one lives.
struct LittleMemory {
  LittleMemory() { sim::SetMemory(0, 1 << 19); }
  ~LittleMemory() { sim::SetMemory(0, int64_t{4} << 30); }
};
Tensor Large(const Tensor& t) {
  return Tensor::Zeros({1 << 20}, kFloat32, "SIM") + t.Sum().To("SIM");
}

TEST(BeforeThePlan, MemoryOfTheCallerIsAssignedAfterwards) {
  std::vector<float> memory(8, 1);
  Tensor x = Tensor::FromBlob(memory.data(), {8}, kFloat32);
  const Tensor before = x * 3;  // goes on with a copy
  x.Assign(x + 1);
  {
    Tensor both[] = {x, Large(x)};
    const LittleMemory little;
    EXPECT_THAT(ErrorOf([&] { Tensor::Realize(absl::MakeSpan(both)); }),
                HasSubstr("there is no memory for"));
  }
  EXPECT_EQ(memory, std::vector<float>(8, 1));
  x.Realize();
  EXPECT_EQ(memory, std::vector<float>(8, 2));
  EXPECT_EQ(before.ToVector<float>(), std::vector<float>(8, 3));
}

TEST(BeforeThePlan, MemoryOfTheCallerStaysTheInputs) {
  Jit step([](Tensor t) {
    t.Assign(t + 1);
    return Large(t);
  });
  Tensor other = Tensor::From(std::vector<float>(8, 1)).Realize();
  step({other});  // captured
  std::vector<float> memory(8, 1);
  Tensor x = Tensor::FromBlob(memory.data(), {8}, kFloat32);
  const Tensor before = x * 3;
  {
    const LittleMemory little;
    EXPECT_THAT(ErrorOf([&] { step({x}); }), HasSubstr("there is no memory for"));
  }
  EXPECT_EQ(x.Data<float>(), memory.data());
  step({x});
  EXPECT_EQ(memory, std::vector<float>(8, 2));
  EXPECT_EQ(before.ToVector<float>(), std::vector<float>(8, 3));
}

// ---- in the middle of one

constexpr int64_t kElements = 24;
constexpr char kLost[] = "holds no values any more: an error stopped what was writing to it (";

class MidPlan : public testing::TestWithParam<bool> {
 protected:
  void TearDown() override { sim::ClearFaults(); }
  // On one place or in parts.
  static Tensor Filled(float value) {
    const Device one = Place("SIM", 0), parts = Line(3, 0, {}, "SIM");
    return Tensor::From(std::vector<float>(kElements, value))
        .To(GetParam() ? parts : one)
        .Contiguous()
        .Realize();
  }
};

// Whether the values are there; then they are these.
bool Holds(const Tensor& t, float want) {
  std::vector<float> values;
  const std::string error = ErrorOf([&] { values = t.ToVector<float>(); });
  if (error.empty()) {
    EXPECT_EQ(values, std::vector<float>(kElements, want));
    return true;
  }
  EXPECT_THAT(error, HasSubstr(kLost));
  EXPECT_THAT(error, HasSubstr("Assign to all of it"));
  return false;
}

TEST_P(MidPlan, ALaunchThatFails) {
  int lost = 0, kept = 0;
  bool failed = true;
  for (int skip = 0; failed; ++skip) {
    ASSERT_LT(skip, 60);
    Tensor x = Filled(1), y = Filled(5), other = Filled(7), unread = Filled(3);
    x.Assign(x + 1);
    y.Assign(y + x.Sum());
    unread.Assign(unread * 2);
    Tensor both[] = {x, y};
    sim::Plant(Fault::kLaunch, skip);
    failed = !ErrorOf([&] { Tensor::Realize(absl::MakeSpan(both)); }).empty();
    sim::ClearFaults();
    for (int again = 0; again < 2; ++again) {
      const bool has_x = Holds(x, 2);
      ++(has_x ? kept : lost);
      if (!Holds(y, 5 + 2 * kElements)) {
        EXPECT_TRUE(failed);
      } else {
        EXPECT_TRUE(has_x);  // an x that is lost leaves no way to y
      }
    }
    EXPECT_TRUE(Holds(other + 1, 8));
    EXPECT_TRUE(Holds(unread, 6));
    if (!Holds(x, 2)) {  // a part that is assigned does not bring back the rest
      x.SliceAxis(0, {0, 4}).Assign(9);
      EXPECT_FALSE(Holds(x, 9));
    }
    x.Assign(4);
    y.Assign(x.Sum() + other);
    EXPECT_TRUE(Holds(x, 4));
    EXPECT_TRUE(Holds(y, 4 * kElements + 7));
    x.Assign(x + 1);
    EXPECT_TRUE(Holds(x, 5));
  }
  EXPECT_GT(lost, 0);
  EXPECT_GT(kept, 0);
}

// Where the old version is read elsewhere, the new one is written beside it, and still can be.
TEST_P(MidPlan, OldVersionsThatAreReadElsewhere) {
  bool failed = true;
  for (int skip = 0; failed; ++skip) {
    ASSERT_LT(skip, 60);
    Tensor x = Filled(1);
    const Tensor before = x * 3;
    x.Assign(x + 1);
    Tensor then = x + before.Sum();
    sim::Plant(Fault::kLaunch, skip);
    failed = !ErrorOf([&] { then.Realize(); }).empty();
    sim::ClearFaults();
    EXPECT_TRUE(Holds(before, 3)) << skip;
    EXPECT_TRUE(Holds(x, 2)) << skip;
  }
}

TEST_P(MidPlan, MemoryThatRunsOutLeavesEverything) {
  Tensor x = Filled(1);
  x.Assign(x + 1);
  {
    constexpr int64_t kMany = int64_t{3} << 18;
    Tensor big = Tensor::Zeros({kMany}, kFloat32, x.device()) + x.Sum();
    for (int i = 0; i < 3; ++i) sim::SetMemory(i, 1 << 19);
    EXPECT_THAT(ErrorOf([&] { big.Realize(); }), HasSubstr("there is no memory for"));
    for (int i = 0; i < 3; ++i) sim::SetMemory(i, int64_t{4} << 30);
  }
  EXPECT_TRUE(Holds(x, 2));
}

TEST_P(MidPlan, ACapturedStepThatFails) {
  int lost = 0;
  bool failed = true;
  for (int skip = 0; failed; ++skip) {
    ASSERT_LT(skip, 60);
    Tensor state = Filled(1);
    Jit step([&state](const Tensor& t) {
      state.Assign(state + t);
      return (state * 2).Contiguous() + state.Sum();
    });
    const Tensor one = Filled(1);
    EXPECT_TRUE(Holds(step.One({one}), 4 + 2 * kElements));
    sim::Plant(Fault::kLaunch, skip);
    failed = !ErrorOf([&] { step.One({one}); }).empty();
    sim::ClearFaults();
    if (!failed) break;
    if (Holds(state, 2)) continue;
    ++lost;
    EXPECT_THAT(ErrorOf([&] { step.One({one}); }), HasSubstr(kLost));
    state.Assign(0);
    EXPECT_TRUE(Holds(step.One({one}), 2 + kElements));
  }
  EXPECT_GT(lost, 0);
}

// The device's own words come first; what lay there stays an error.
TEST_P(MidPlan, WithCheckNanNothingWasAssigned) {
  const SetFlagForTest check(Flag::kCheckNan, "1");
  bool failed = true;
  for (int skip = 0; failed; ++skip) {
    ASSERT_LT(skip, 60);
    Tensor x = Filled(1);
    x.Assign(x + 1);
    Tensor then = (x * 2).Contiguous() + x.Sum();
    sim::Plant(Fault::kLaunch, skip);
    failed = !ErrorOf([&] { then.Realize(); }).empty();
    sim::ClearFaults();
    EXPECT_TRUE(Holds(x, 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Places, MidPlan, testing::Bool(),
                         [](const auto& info) { return info.param ? "InParts" : "OnOne"; });

}  // namespace
}  // namespace tessera
