// CHECK_NAN: the op that makes the first NaN is named, and nothing else is.
#include "runtime/check_nan.h"

#include <cmath>
#include <limits>

#include "graph/flags.h"
#include "graph/tensor.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string MessageOf(Tensor t) {
  try {
    t.Realize();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class CheckNan : public testing::Test {
  SetFlagForTest check_{Flag::kCheckNan, "1"};
};

TEST_F(CheckNan, NamesTheOpItsPlaceAndWhereItWasWritten) {
  const Tensor x = Tensor::From({{4, 1}, {-1, 2}}, kFloat32);
  const Tensor root = x.Sqrt();
  const int line = __LINE__ - 1;
  EXPECT_THAT(
      MessageOf((root * 2 + 1).Exp()),
      AllOf(StartsWith("Realize: SQRT makes the first NaN, at [1, 0] of f32[2, 2]"),
            HasSubstr(absl::StrCat("check_nan_test.cc:", line)), HasSubstr("CHECK_NAN: kernel")));
}

TEST_F(CheckNan, FindsTheOpInsideOfAReduction) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::From({{1, 2}, {inf, 3}}, kFloat32);
  EXPECT_THAT(MessageOf((x - x).Sum()), HasSubstr("makes the first NaN, at [1, 0]"));
  const Tensor y = Tensor::From({inf, -inf}, kFloat32);
  EXPECT_THAT(MessageOf(y.Sum()), HasSubstr("REDUCE makes the first NaN, at [0]"));
}

TEST_F(CheckNan, FollowsNoNanThatWasReadAlready) {
  const Tensor x = Tensor::From({1.0f, std::nanf("")}, kFloat32);
  EXPECT_EQ(MessageOf((x * 2).Exp()), "no error");
}

TEST_F(CheckNan, SaysNothingWithoutNans) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(MessageOf(Tensor::From({inf, 1}, kFloat32) * 2), "no error");
  EXPECT_EQ(MessageOf(Tensor::From({1, 2}) + 1), "no error");
}

TEST_F(CheckNan, LeavesTheTensorsUsable) {
  Tensor x = Tensor::From({-1, 4}, kFloat32);
  EXPECT_THAT(MessageOf(x.Log()), HasSubstr("makes the first NaN"));
  EXPECT_EQ((x + 1).ToVector<float>(), (std::vector<float>{0, 5}));
}

TEST_F(CheckNan, NamesTheKernelWhereAnAssignHasChangedWhatWasRead) {
  Tensor x = Tensor::From({-1, 4}, kFloat32).Realize();
  x.Assign(x.Sqrt());
  EXPECT_THAT(MessageOf(x), AllOf(HasSubstr("CHECK_NAN: kernel"), HasSubstr("made a NaN at [0]")));
}

TEST_F(CheckNan, AssignsNothingWhereItFindsOne) {
  for (const bool sharded : {false, true}) {
    Tensor x = Tensor::From({1, 2, 3}, kFloat32);
    if (sharded) x = x.Shard({"CPU:0", "CPU:1"}, 0);
    x.Realize();
    x.Assign(x + 1);
    Tensor bad = (-x).Log();
    std::vector<Tensor> both = {x, bad};
    EXPECT_THAT(ErrorOf([&] { Tensor::Realize(absl::MakeSpan(both)); }), HasSubstr("CHECK_NAN"));
    EXPECT_THAT(x.ToVector<float>(), testing::ElementsAre(2, 3, 4));  // added once
  }
}

TEST_F(CheckNan, OnShardings) {
  const Tensor x = Tensor::From({4, 1, 3, -1, 9}, kFloat32).Shard({"CPU:0", "CPU:1", "CPU:2"}, 0);
  EXPECT_THAT(MessageOf(x.Sqrt() + 1), AllOf(HasSubstr("made a NaN"), HasSubstr("on CPU:1")));
  EXPECT_EQ(MessageOf(x + 1), "no error");
  EXPECT_EQ(MessageOf(x.Abs().Sqrt().Sum()), "no error");
}

TEST_F(CheckNan, CoversNarrowFloats) {
  const Tensor x = Tensor::From({-1, 4}, kFloat32).Cast(kFloat16).Realize();
  EXPECT_THAT(MessageOf(x.Sqrt()), HasSubstr("makes the first NaN, at [0]"));
}

TEST(CheckNanOff, IsTheDefault) {
  EXPECT_EQ(MessageOf(Tensor::From({-1, 4}, kFloat32).Sqrt()), "no error");
}

TEST(FindNan, OfEveryFloat) {
  const double d[] = {1, std::nan("")};
  EXPECT_EQ(FindNan(d, kFloat64, 2), 1);
  EXPECT_EQ(FindNan(d, kFloat64, 1), -1);
  const uint16_t half[] = {0x3c00, 0x7c00, 0x7e00};  // 1, infinity, NaN
  EXPECT_EQ(FindNan(half, kFloat16, 3), 2);
  EXPECT_EQ(FindNan(half, kInt16, 3), -1);
}

}  // namespace
}  // namespace tessera
