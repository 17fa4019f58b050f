// What DEBUG=2 prints, the measured peak, and memory by device.
#include "runtime/debug.h"

#include "graph/flags.h"
#include "graph/loop.h"
#include "graph/tensor.h"
#include "runtime/device.h"
#include "runtime/peak.h"
#include "runtime/units.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string Printed(Tensor t, const char* level) {
  SetFlagForTest debug(Flag::kDebug, level);
  testing::internal::CaptureStderr();
  t.Realize();
  return testing::internal::GetCapturedStderr();
}

TEST(Debug, Level2ShowsLaunchesWithRatesAndShareOfPeak) {
  const Tensor x = Tensor::From({{1, 2}, {3, 4}}, kFloat32).Realize();
  const std::string text = Printed((x + 1).Contiguous() * 2, "2");
  EXPECT_THAT(text, HasSubstr("of peak"));
  EXPECT_THAT(text,
              ContainsRegex("map_2x2_f32 +1 +[0-9.]+ us +[0-9.]+ +[0-9.]+ +[0-9]+ % (mem|fma) "
                            " debug_test.cc:[0-9]+"));
  EXPECT_THAT(text, HasSubstr("all 2"));
  EXPECT_THAT(text, Not(HasSubstr("RT_KERNEL")));
}

TEST(Debug, StepsOfALoopHaveOneLine) {
  const Tensor w = Tensor::Eye(8).Realize();
  const auto turn = [&](const Tensor& h) { return h.MatMul(w) + 1; };
  const std::string text =
      Printed(Loop(turn, {Tensor::Ones({8, 8})}, {}, {.turns = 30}).carried[0], "2");
  EXPECT_THAT(text, ContainsRegex("\ndot_8x8x8_f32 x 30 +1 "));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20);
}

TEST(Debug, TransfersHaveTheirOwnNames) {
  const Tensor x = Tensor::Ones({4, 6}).Shard({"CPU:0", "CPU:1"}, 0).Realize();
  const std::string summed = Printed(x.Sum({0}), "2");
  EXPECT_THAT(summed, HasSubstr("\nall-reduce ADD of groups of 2 along "));
  EXPECT_THAT(summed, Not(HasSubstr("copy CPU")));
  EXPECT_THAT(Printed(x.Flip({0}) + 0, "2"), HasSubstr("\nexchange "));
  EXPECT_THAT(Printed(Tensor::Ones({3}).To("CPU").Realize().To("CPU:1"), "2"),
              HasSubstr("\ncopy CPU -> CPU:1 "));
}

TEST(Debug, HigherLevelsAddPlansAndTexts) {
  const Tensor x = Tensor::From({1, 2, 3, 4, 5}, kFloat32).Realize();
  EXPECT_THAT(Printed(x + 1, "3"), AllOf(HasSubstr("plan: 1 steps"), Not(HasSubstr("RT_KERNEL"))));
  EXPECT_THAT(Printed(x + 2, "4"), AllOf(HasSubstr("RT_KERNEL"), Not(HasSubstr("SINK"))));
  EXPECT_THAT(Printed(x + 3, "5"), HasSubstr("SINK"));
}

TEST(Debug, Level0PrintsNothing) {
  EXPECT_EQ(Printed(Tensor::From({1, 2, 3}, kFloat32) + 7, "0"), "");
}

TEST(Debug, OnNullNothingHasARate) {
  const Tensor x = Tensor::Zeros({4}, kFloat32, "NULL").Contiguous();
  EXPECT_THAT(Printed(x + 1, "2"), ContainsRegex(" - +- +- "));
}

TEST(Peak, IsMeasuredAndPlausible) {
  const Peak& peak = MeasuredPeak();
  EXPECT_GT(peak.read, 1e8);
  EXPECT_LT(peak.read, 1e14);
  EXPECT_GT(peak.copy, 1e8);
  EXPECT_GT(peak.flops, 1e8);
  EXPECT_EQ(&peak, &MeasuredPeak());
  const PeakShare half = ShareOfPeak(peak, peak.bandwidth() / 2, peak.flops / 4);
  EXPECT_NEAR(half.share, 0.5, 1e-9);
  EXPECT_TRUE(half.memory);
  EXPECT_FALSE(ShareOfPeak(peak, 0, peak.flops).memory);
  EXPECT_EQ(&peak, &MeasuredPeak(Place("CPU", 0)));
}

TEST(Peak, OfAnotherPlaceIsItsOwn) {
  const Peak& peak = MeasuredPeak(Place("SIM", 0));
  EXPECT_NE(&peak, &MeasuredPeak());
  EXPECT_GT(peak.copy, 1e8);
  EXPECT_EQ(peak.flops, 0);
  EXPECT_NEAR(ShareOfPeak(peak, peak.copy / 4, 1e15).share, 0.25, 1e-9);
  EXPECT_EQ(MeasuredPeak(Place("NULL", 0)).bandwidth(), 0);
  EXPECT_EQ(ShareOfPeak(Peak(), 1e9, 1e9).share, 0);
}

TEST(Memory, IsCountedByDevice) {
  ASSERT_OK_AND_ASSIGN(DeviceRuntime * device, GetDevice(Place("CPU", 9)));
  const MemoryStats before = device->Memory();
  {
    const Tensor x = Tensor::Zeros({1000}, kFloat32, "CPU:9").Contiguous().Realize();
    EXPECT_GE(device->Memory().live_bytes, before.live_bytes + 4000);
    EXPECT_GE(device->Memory().peak_bytes, 4000);
    EXPECT_THAT(MemoryReport(), ContainsRegex("CPU:9 +[0-9]+ +[0-9]+"));
  }
  EXPECT_EQ(device->Memory().live_bytes, before.live_bytes);
  EXPECT_GE(device->Memory().peak_bytes, 4000);
  device->Trim();
  EXPECT_EQ(device->Memory().cached_bytes, 0);
}

TEST(Memory, OfNullIsOnPaper) {
  ASSERT_OK_AND_ASSIGN(DeviceRuntime * device, GetDevice(Place("NULL", 9)));
  const Tensor x = Tensor::Zeros({int64_t{1} << 40}, kFloat32, "NULL:9").Contiguous().Realize();
  EXPECT_EQ(device->Memory().live_bytes, int64_t{1} << 42);
}

TEST(Units, ReadWell) {
  EXPECT_EQ(ShowBytes(17), "17 B");
  EXPECT_EQ(ShowBytes(1536), "1.5 KiB");
  EXPECT_EQ(ShowBytes(3.0 * (1 << 30)), "3.0 GiB");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowCount(12000), "12 k");
  EXPECT_EQ(ShowSeconds(2.5e-6), "2.5 us");
  EXPECT_EQ(ShowSeconds(0.0125), "12.50 ms");
  EXPECT_EQ(ShowSeconds(2), "2.00 s");
}

}  // namespace
}  // namespace tessera
