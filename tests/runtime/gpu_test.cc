// What the CUDA runtime does on any GPU, simulated or real: copies, graphs, several streams and
// devices, errors.
#include "tests/support/gpu.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "runtime/capture.h"
#include "tests/support/check.h"
#include "tests/support/raw_kernel.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

Values Counted(int64_t n, float first) {
  Values out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = first + static_cast<float>(i % 97);
  return out;
}
Tensor On(const Place& place, const Values& values) {
  return Tensor::FromBytes(values.data(), {static_cast<int64_t>(values.size())}, kFloat32, place);
}
DeviceRuntime& Runtime(int index = 0) {
  const auto device = GetDevice(Gpu(index));
  CHECK(device.ok(), device.status().ToString());
  return **device;
}

TEST(GpuDevice, DescribesItself) {
  const Target& target = Runtime().target();
  EXPECT_EQ(target.dialect, Dialect::kCuda);
  EXPECT_EQ(target.arch.rfind("sm_", 0), 0u);
  EXPECT_GE(target.cores, 1);
  EXPECT_GE(target.shared_bytes, 48 << 10);
  EXPECT_FALSE(Runtime().IsHost());
}

// The child has neither the driver's threads nor its memory.
TEST(GpuDevice, AForkedChildIsTold) {
  const Tensor x = On(Gpu(), Counted(10, 1)).Realize();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::string error;
    try {
      (void)(x * 2).ToVector<float>();
    } catch (const Error& e) {
      error = e.what();
    }
    const bool cpus_go_on = Tensor::Ones({5}, kFloat32, "CPU").Sum().Item() == 5;
    _exit(error.find("before this process was forked") != std::string::npos && cpus_go_on ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((x * 2).ToVector<float>()[0], 2);
}

TEST(GpuDevice, CopiesOfEverySize) {
  for (int64_t n : {0, 1, 3, 1000, (1 << 20) + 1, (18 << 20) / 4 + 3}) {
    const Values values = Counted(n, 1);
    EXPECT_EQ(On(Gpu(), values).Realize().ToVector<float>(), values) << n;
  }
}

// Small integers, which any order of summation adds to the same bits.
TEST(GpuDevice, ProductsOfEveryTile) {
  const int64_t sizes[][3] = {{256, 7, 512}, {512, 5, 512}, {264, 9, 1000}, {130, 3, 520},
                              {96, 16, 700}, {1, 40, 2000}, {300, 33, 1},   {64, 64, 64}};
  for (const auto& [m, k, n] : sizes) {
    Values a(m * k), b(k * n);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>((i * 7) % 9) - 4;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>((i * 5) % 9) - 4;
    const Tensor x = On(Gpu(), a).Reshape({m, k}), y = On(Gpu(), b).Reshape({k, n});
    const Values got = (x.MatMul(y) + 1).Relu().ToVector<float>();
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float want = 1;
        for (int64_t l = 0; l < k; ++l) want += a[i * k + l] * b[l * n + j];
        ASSERT_EQ(got[i * n + j], std::max(want, 0.0f))
            << m << "x" << k << "x" << n << " at " << i << ", " << j;
      }
    }
  }
}

// So many that every multiprocessor has a tile of the largest: of 16 bits by units of several warps
// where the chip has them, whose sums of small integers are those of f32.
TEST(GpuDevice, LargeProductsOf16BitsSlow) {
  const bool real = GpuKind() == "CUDA";
  const int64_t sizes[][3] = {{real ? 1920 : 264, 192, real ? 4000 : 520}, {1500, 130, 1532}};
  for (const auto& [m, k, n] : sizes) {
    if (!real && m > 264) continue;
    for (int turn = 0; turn < 4; ++turn) {
      const auto given = [](int64_t rows, int64_t columns, int64_t step) {
        Values v(rows * columns);
        for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>((i * step) % 9) - 4;
        return On(Gpu(), v).Reshape({rows, columns}).Cast(kBFloat16).Contiguous().Realize();
      };
      const Tensor a = turn & 1 ? given(k, m, 7).T() : given(m, k, 7);
      const Tensor b = turn & 2 ? given(n, k, 5).T() : given(k, n, 5);
      const Tensor by_units = a.Cast(kFloat32).MatMul(b.Cast(kFloat32)) + 1;
      const Tensor by_threads =
          (a.Cast(kFloat32) * 1).Contiguous().MatMul((b.Cast(kFloat32) * 1).Contiguous()) + 1;
      EXPECT_EQ(by_units.ToVector<float>(), by_threads.ToVector<float>())
          << m << "x" << k << "x" << n << ", turn " << turn;
    }
  }
}

TEST(GpuDevice, AStepReplaysWithOtherArguments) {
  Tensor state = On(Gpu(), Values(300)).Realize();
  Jit step([&](const Tensor& x) {
    const Tensor doubled = (x * 2).Contiguous();
    state.Assign(state + doubled);
    return doubled.Sum();
  });
  Values want(300);
  for (int call = 0; call < 20; ++call) {
    const Values values = Counted(300, static_cast<float>(call));
    double sum = 0;
    for (int i = 0; i < 300; ++i) {
      want[i] += 2 * values[i];
      sum += 2.0 * values[i];
    }
    EXPECT_EQ(step.One({On(Gpu(), values)}).Item(), sum) << call;
  }
  EXPECT_EQ(state.ToVector<float>(), want);
  EXPECT_EQ(step.captures(), 1);
}

TEST(GpuDevice, VariablesAreArgumentsOfAGraph) {
  const Variable n("n", 0, 500);
  const Tensor x = On(Gpu(), Counted(500, 1)).Realize();
  Jit step([&] { return (x.Slice({{0, n}}) + 1).Contiguous().Sum() * 2; });
  for (int64_t v : {500, 3, 0, 499, 257}) {
    double want = 0;
    for (int64_t i = 0; i < v; ++i) want += 2.0 * (2 + static_cast<double>(i % 97));
    EXPECT_EQ(step.One({}, {{"n", v}}).Item(), want) << v;
  }
}

TEST(GpuDevice, BetweenDevices) {
  if (GpuCount(2) < 2) GTEST_SKIP() << "there is one GPU";
  for (int i = 0; i < 50; ++i) {
    const Values values = Counted(5000, static_cast<float>(i));
    const Tensor there = (On(Gpu(0), values) + 1).To(Gpu(1)) * 2;
    const Tensor back = there.To(Gpu(0)) - 2;
    Values want = values;
    for (float& v : want) v *= 2;
    ASSERT_EQ(back.ToVector<float>(), want) << i;
  }
}

TEST(GpuDevice, MemoryIsUsedAgain) {
  const int64_t live = Runtime().Memory().live_bytes;
  for (int i = 0; i < 200; ++i) {
    const Tensor x = (On(Gpu(), Counted(50000, 1)) + 1).Realize();
    EXPECT_EQ(x.Slice({{0, 2}}).ToVector<float>()[1], 3);
  }
  EXPECT_EQ(Runtime().Memory().live_bytes, live);
  Runtime().Trim();
  EXPECT_OK(Runtime().Wait());
}

TEST(GpuDevice, TooMuchMemoryIsAnErrorAndTheNextOperationIsRight) {
  const auto memory = Runtime().Allocate(int64_t{1} << 46);
  EXPECT_THAT(memory, StatusIs(absl::StatusCode::kResourceExhausted, "there is no memory for"));
  EXPECT_EQ((On(Gpu(), Counted(10, 1)) + 1).ToVector<float>(), Counted(10, 2));
}

TEST(GpuDevice, ThereAreOnlySoMany) {
  EXPECT_THAT(GetDevice(Gpu(99)), StatusIs(absl::StatusCode::kNotFound,
                                           absl::StrCat("there is no ", GpuKind(), ":99")));
}

// A device that is lost stays lost for this process: of simulated ones, one that no other test
// uses.
TEST(GpuFaults, AnIllegalAddressNamesTheKernelAndLosesTheDevice) {
  const int index = GpuKind() == "SIM" ? 8 : 0;
  DeviceRuntime& device = Runtime(index);
  const auto good = RawKernel(device, "good", "b0[rt_block() * 32 + rt_thread()] = 1.0f;");
  const auto wild = RawKernel(
      device, "wild", "reinterpret_cast<rt_f32*>(static_cast<rt_u64>(16))[rt_thread()] = b0[0];");
  const auto memory = device.Allocate(64 * 4);
  ASSERT_OK(memory);
  void* buffers[] = {(*memory)->data};
  for (int i = 0; i < 5; ++i) ASSERT_OK(device.Run(*good, {buffers, {}, 1}));
  absl::Status status = device.Run(*wild, {buffers, {}, 1});
  for (int i = 0; i < 10 && status.ok(); ++i) status = device.Run(*good, {buffers, {}, 1});
  if (status.ok()) status = device.Wait();
  const std::string expected =
      absl::StrCat(Gpu(index).ToString(), ": the device is lost to the kernel wild");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, expected));
  EXPECT_THAT(device.Run(*good, {buffers, {}, 1}),
              StatusIs(absl::StatusCode::kUnavailable, expected));
  EXPECT_THAT(device.Allocate(64), StatusIs(absl::StatusCode::kUnavailable, expected));
  if (GpuCount(2) < 2) return;
  EXPECT_EQ((On(Gpu(1), Counted(10, 1)) + 1).ToVector<float>(), Counted(10, 2));
}

}  // namespace
}  // namespace tessera
