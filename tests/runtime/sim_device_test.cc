// The CUDA runtime over the simulated driver: values, graphs, orders of streams, and planted
// faults.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/sim/sim.h"
#include "tests/support/check.h"
#include "tests/support/raw_kernel.h"
#include "tests/support/samples.h"

namespace tessera {
namespace {

using sim::Fault;

class SimDevice : public testing::Test {
 protected:
  void TearDown() override { sim::ClearFaults(); }

  static DeviceRuntime& Device(int index) {
    const auto device = GetDevice(Place("SIM", index));
    CHECK(device.ok(), device.status().ToString());
    return **device;
  }
};

std::vector<float> Counted(int64_t n, float first) {
  std::vector<float> out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = first + static_cast<float>(i % 97);
  return out;
}

Tensor On(const char* device, const std::vector<float>& values) {
  return Tensor::FromBytes(values.data(), {static_cast<int64_t>(values.size())}, kFloat32, device);
}

TEST_F(SimDevice, FirstTensor) {
  const Tensor x = Tensor::Rand({1000}, kFloat32, "SIM");
  const Tensor y = x * 2 + 1;
  const std::vector<float> got = y.ToVector<float>(), from = x.ToVector<float>();
  ASSERT_EQ(got.size(), 1000u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], from[i] * 2 + 1);
}

TEST_F(SimDevice, RandomBitsAreThoseOfTheCpu) {
  const Tensor bits = Tensor::Rand({5000});
  EXPECT_EQ(bits.To("SIM:1").ToVector<float>(), bits.To("CPU").ToVector<float>());
}

// Register tiles of every height, with and without vectors, and one thread for each output.
TEST_F(SimDevice, ProductsOfEveryTile) {
  const int64_t sizes[][3] = {{256, 7, 512}, {512, 5, 512},  {264, 9, 1000},
                              {130, 3, 520}, {1, 40, 20000}, {96, 16, 700}};
  for (const auto& [m, k, n] : sizes) {
    const Tensor a = Tensor::RandInt(-4, 5, {m, k}).Cast(kFloat32).Realize();
    const Tensor b = Tensor::RandInt(-4, 5, {k, n}).Cast(kFloat32).Realize();
    const Tensor c = (a.To("SIM").MatMul(b.To("SIM")) + 1).Relu();
    EXPECT_EQ(c.ToVector<float>(), (a.MatMul(b) + 1).Relu().ToVector<float>()) << m << "x" << n;
  }
}

TEST_F(SimDevice, CopiesLargerThanTheStaging) {
  const std::vector<float> values = Counted((18 << 20) / 4 + 3, 1);
  const Tensor there = On("SIM", values).Realize();
  EXPECT_EQ(there.ToVector<float>(), values);
}

TEST_F(SimDevice, CopiesWithoutPinnedMemory) {
  Device(7);  // opened before: it needs a little pinned memory itself
  sim::Plant(Fault::kPinned);
  const std::vector<float> values = Counted(1000, 2);
  EXPECT_EQ((On("SIM:7", values) + 1).ToVector<float>(), Counted(1000, 3));
}

// ---- captured steps

TEST_F(SimDevice, AStepReplaysAsAGraph) {
  Jit step([](const Tensor& x, const Tensor& w) {
    const Tensor h = (x.MatMul(w)).Contiguous();
    return (h.Softmax() * 2).Contiguous() + h.Sum({1}, true);
  });
  Tensor w = (Tensor::Rand({24, 40}) - 0.5).To("SIM").Realize();
  for (int i = 0; i < 5; ++i) {
    const Tensor x = (Tensor::Rand({3, 24}) + i).To("SIM").Realize();
    const int64_t before = sim::GetCounts().graph_launches;
    const std::vector<float> got = step.One({x, w}).ToVector<float>();
    EXPECT_EQ(sim::GetCounts().graph_launches, before + 1);
    const Tensor h = x.MatMul(w).Contiguous();
    const auto want = ((h.Softmax() * 2).Contiguous() + h.Sum({1}, true)).ToVector<float>();
    EXPECT_EQ(got, want) << i;
  }
}

TEST_F(SimDevice, VariablesAreArgumentsOfAGraph) {
  Variable n("n", 0, 500);
  const Tensor x = On("SIM", Counted(500, 1)).Realize();
  Jit step([&] { return (x.Slice({{0, n}}) + 1).Contiguous().Sum() * 2; });
  const int captures = step.captures();
  for (int64_t v : {500, 3, 0, 499, 257}) {
    double want = 0;
    for (int64_t i = 0; i < v; ++i) want += 2.0 * (2 + static_cast<double>(i % 97));
    EXPECT_EQ(step.One({}, {{"n", v}}).Item(), want) << v;
  }
  EXPECT_EQ(step.captures(), captures + 1);
}

// ---- several devices

// A text is compiled once for all places of a mesh, and its module loaded on each.
TEST_F(SimDevice, AMeshCompilesOnceAndLoadsOnEachPlace) {
  const SetFlagForTest no_cache(Flag::kCache, "0");
  const std::vector<float> values = Counted(4 * 109, 1);
  const Tensor x = Tensor::From(values, {4, 109}).To("CPU").To(Line(4, 0, {}, "SIM")).Realize();
  Jit step([](const Tensor& t) { return t * 2 + 1; });
  for (int call = 0; call < 3; ++call) {
    const sim::Counts before = sim::GetCounts();
    const std::vector<float> got = step.One({x}).ToVector<float>();
    EXPECT_EQ(sim::GetCounts().compiles - before.compiles, call == 0 ? 1 : 0);
    EXPECT_EQ(sim::GetCounts().modules - before.modules, call == 0 ? 4 : 0);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], values[i] * 2 + 1) << i;
  }
}

TEST_F(SimDevice, AKernelRunsOnlyWhereItWasLoaded) {
  const auto kernel = RawKernel(Device(1), "elsewhere", "b0[rt_thread()] = 1.0f;");
  const auto memory = Device(2).Allocate(64 * 4);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  const RecordedLaunch launch = {kernel.get(), {buffers, {}, 1}};
  EXPECT_THAT(Device(2).Run(*kernel, launch.launch),
              StatusIs(absl::StatusCode::kInternal, "launching elsewhere failed with 400"));
  EXPECT_THAT(Device(2).Record({&launch, 1}),
              StatusIs(absl::StatusCode::kInternal, "adding elsewhere to a graph failed with 400"));
}

// ---- orders of streams

// Copies in and out, kernels, assignments and copies between devices; captured and not.
void RunProgram(uint64_t seed, Jit& step, Tensor& state) {
  sim::Seed(seed);
  const float first = static_cast<float>(seed % 13);
  const Tensor a = On("SIM", Counted(300, first)), b = On("SIM:1", Counted(300, first + 1));
  const Tensor sum = a + b.To("SIM") * 2;
  state.Assign(sum - 1);
  const Tensor back = (sum.To("SIM:1") + b).To("SIM");
  const Tensor stepped = step.One({back});
  const std::vector<float> got = stepped.ToVector<float>(), kept = state.ToVector<float>();
  for (int64_t i = 0; i < 300; ++i) {
    const float x = first + static_cast<float>(i % 97), y = x + 1, s = x + 2 * y;
    ASSERT_EQ(kept[i], s - 1) << "seed " << seed << " at " << i;
    ASSERT_EQ(got[i], (s + y) * 3 + (s - 1)) << "seed " << seed << " at " << i;
  }
}

void RunOrders(uint64_t count) {
  Tensor state = Tensor::Zeros({300}, kFloat32).To("SIM").Contiguous().Realize();
  Jit step([&](const Tensor& x) { return (x * 3).Contiguous() + state; });
  for (uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) {
    RunProgram(seed, step, state);
  }
}
TEST_F(SimDevice, ManyOrdersOfStreams) { RunOrders(200); }
TEST_F(SimDevice, TenThousandOrdersOfStreamsLong) { RunOrders(10000); }

// Whether some order shows a fault that is planted before each run: a wrong value or an error.
template <typename Run>
bool SomeOrderShows(Fault fault, int skip, const std::vector<float>& want, Run run) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    sim::Seed(seed);
    sim::Plant(fault, skip);
    try {
      if (run() != want) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

TEST_F(SimDevice, AMissingWaitForACopyIsSeen) {
  const std::vector<float> values = Counted(5000, 1);
  const auto run = [&] { return (On("SIM:2", values) + 1).ToVector<float>(); };
  EXPECT_EQ(run(), Counted(5000, 2));
  // The second wait of a copy to the device is that of the kernels for the copy.
  EXPECT_TRUE(SomeOrderShows(Fault::kDropWait, 1, Counted(5000, 2), run));
}

TEST_F(SimDevice, AMissingBarrierIsSeen) {
  const SetFlagForTest no_cache(Flag::kCache, "0");
  Tensor x = On("SIM", Counted(16 * 4099, 0)).Reshape({16, 4099}).Realize();
  sim::Plant(Fault::kDropBarrier);
  const auto run = [&] { return (x * 0.01).Softmax().ToVector<float>(); };
  const std::vector<float> values = run();  // compiled here, and kept
  const std::vector<float> want = (x.To("CPU") * 0.01).Softmax().ToVector<float>();
  bool seen = false;
  for (uint64_t seed = 1; seed <= 40 && !seen; ++seed) {
    sim::Seed(seed);
    const std::vector<float> got = run();
    for (size_t i = 0; i < got.size(); ++i) seen |= !(std::abs(got[i] - want[i]) < 1e-6);
  }
  EXPECT_TRUE(seen);
}

// ---- faults of kernels

TEST_F(SimDevice, AnIndexOutOfBoundsLosesTheDeviceAndNamesTheKernel) {
  DeviceRuntime& device = Device(3);
  const auto memory = device.Allocate(64 * 4);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  const auto good = RawKernel(device, "good", "b0[rt_block() * 32 + rt_thread()] = 1.0f;");
  const auto bad = RawKernel(device, "bad", "b0[rt_block() * 32 + rt_thread() + 4] = 1.0f;");
  for (int i = 0; i < 3; ++i) ASSERT_OK(device.Run(*good, {buffers, {}, 1}));
  ASSERT_OK(device.Wait());
  absl::Status status = device.Run(*bad, {buffers, {}, 1});
  for (int i = 0; i < 10 && status.ok(); ++i) status = device.Run(*good, {buffers, {}, 1});
  if (status.ok()) status = device.Wait();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               "SIM:3: the device is lost to the kernel bad"));
  EXPECT_THAT(device.Run(*good, {buffers, {}, 1}),
              StatusIs(absl::StatusCode::kUnavailable, "lost to the kernel bad"));
  EXPECT_EQ((On("SIM", Counted(10, 1)) + 1).ToVector<float>(), Counted(10, 2));
}

TEST_F(SimDevice, AUseAfterFreeLosesTheDevice) {
  DeviceRuntime& device = Device(4);
  const auto kernel = RawKernel(device, "late", "b0[rt_block() * 32 + rt_thread()] = 1.0f;");
  auto memory = device.Allocate(64 * 4);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  ASSERT_OK(device.Run(*kernel, {buffers, {}, 1}));
  *memory = nullptr;
  absl::Status status = device.Run(*kernel, {buffers, {}, 1});
  if (status.ok()) status = device.Wait();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "lost to the kernel late"));
}

TEST_F(SimDevice, ABarrierThatNotAllReachLosesTheDevice) {
  DeviceRuntime& device = Device(5);
  const auto kernel =
      RawKernel(device, "torn", "if (rt_thread() < 7) rt_barrier();\nb0[rt_thread()] = 1.0f;");
  const auto memory = device.Allocate(64 * 4);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  absl::Status status = device.Run(*kernel, {buffers, {}, 1});
  if (status.ok()) status = device.Wait();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "that not all threads reach"));
}

// ---- faults of the driver: an error, and the next operation is right

TEST_F(SimDevice, MemoryIsTrimmedBeforeItRunsOut) {
  DeviceRuntime& device = Device(6);
  sim::Plant(Fault::kAllocation);
  EXPECT_OK(device.Allocate(1000));
  sim::SetMemory(6, 1 << 20);
  const auto too_much = device.Allocate(2 << 20);
  EXPECT_THAT(too_much,
              StatusIs(absl::StatusCode::kResourceExhausted, "SIM:6: there is no memory"));
  for (int i = 0; i < 8; ++i) {  // each after the last, which is freed in the stream's order
    EXPECT_OK(device.Allocate(700 << 10));
  }
  EXPECT_EQ((On("SIM:6", Counted(10, 1)) + 1).ToVector<float>(), Counted(10, 2));
  EXPECT_EQ(device.Memory().live_bytes, 0);
}

TEST_F(SimDevice, ALaunchThatFails) {
  const Tensor x = On("SIM", Counted(100, 1)).Realize();
  sim::Plant(Fault::kLaunch);
  try {
    (x * 5).ToVector<float>();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(std::string(e.what()), testing::HasSubstr("launching map_100_f32 failed with 701"));
  }
  EXPECT_EQ((x + 1).ToVector<float>(), Counted(100, 2));
}

TEST_F(SimDevice, ATextThatDoesNotCompile) {
  const SetFlagForTest no_cache(Flag::kCache, "0");
  const Tensor x = On("SIM", Counted(101, 1)).Realize();
  sim::Plant(Fault::kCompile);
  try {
    (x * 7).ToVector<float>();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_THAT(what, testing::HasSubstr("planted: the compiler refuses this text"));
    EXPECT_THAT(what, testing::HasSubstr(": RT_GLOBAL(map_101_f32"));  // the numbered text
    EXPECT_THAT(what, testing::HasSubstr("= PROGRAM"));                // and the graph
  }
  EXPECT_EQ((x * 7).ToVector<float>()[1], 14);
}

TEST_F(SimDevice, PeerCopiesThatCorruptAreFoundAndStaged) {
  sim::Plant(Fault::kPeerCorrupt);
  const std::vector<float> values = Counted(1000, 1);
  EXPECT_EQ(On("SIM:7", values).To("SIM:2").ToVector<float>(), values);
}

TEST_F(SimDevice, PeerCopiesThatFailAreStaged) {
  sim::Plant(Fault::kPeerRefused);
  const std::vector<float> values = Counted(1000, 1);
  EXPECT_EQ(On("SIM:7", values).To("SIM:1").ToVector<float>(), values);
}

TEST_F(SimDevice, ThereAreOnlySoMany) {
  EXPECT_THAT(GetDevice(Place("SIM", 99)),
              StatusIs(absl::StatusCode::kNotFound, "there is no SIM:99"));
}

// Last, as others use the device.
TEST_F(SimDevice, AVectorThatIsNotAlignedLosesTheDevice) {
  DeviceRuntime& device = Device(6);
  const auto memory = device.Allocate(64 * 4 + 16);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  const auto kernel = [&](const std::string& name, int offset) {
    return RawKernel(device, name,
                     absl::StrCat("rt_store<2>(b0, ", offset,
                                  " + 2 * rt_thread(), rt_load<rt_f32, 2>(b0, 2 * rt_block()));"));
  };
  ASSERT_OK(device.Run(*kernel("even", 2), {buffers, {}, 1}));
  ASSERT_OK(device.Wait());
  absl::Status status = device.Run(*kernel("odd", 1), {buffers, {}, 1});
  if (status.ok()) status = device.Wait();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "lost to the kernel odd"));
}

}  // namespace
}  // namespace tessera
