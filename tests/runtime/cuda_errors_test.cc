// Bad luck with CUDA, one kind each: libraries that are missing, stubs or old, and devices that run
// out of memory or are lost in the middle of a program. Each a typed error that says what to do.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>

#include "graph/flags.h"
#include "runtime/capture.h"
#include "runtime/cuda_compiler.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_tables.h"
#include "runtime/device.h"
#include "runtime/sim/sim.h"
#include "tests/build_paths.h"
#include "tests/support/check.h"

namespace tessera {
namespace {

using absl::StatusCode;
using sim::Fault;

// ---- libraries

std::string FakeDriver() { return std::string(kBinDir) + "/libfake_driver.so"; }

absl::StatusOr<std::unique_ptr<const cuda::DriverTable>> WithAnswers(int init, int version) {
  void* const library = dlopen(FakeDriver().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return absl::InternalError("no fake driver");
  *static_cast<int*>(dlsym(library, "fake_init_result")) = init;
  *static_cast<int*>(dlsym(library, "fake_version")) = version;
  return cuda::OpenDriver(FakeDriver());
}

TEST(CudaErrors, NoDriver) {
  EXPECT_THAT(cuda::OpenDriver("/nowhere/libcuda.so.1"),
              StatusIs(StatusCode::kUnavailable, "there is no driver (/nowhere/libcuda.so.1: "));
  EXPECT_THAT(cuda::OpenDriver("/nowhere/libcuda.so.1"),
              StatusIs(StatusCode::kUnavailable, "install NVIDIA's driver"));
}
TEST(CudaErrors, TheStubLibrary) {
  EXPECT_THAT(WithAnswers(34, 13000),
              StatusIs(StatusCode::kUnavailable, "the toolkit's stub library"));
}
TEST(CudaErrors, NoGpu) {
  EXPECT_THAT(WithAnswers(100, 13000), StatusIs(StatusCode::kUnavailable, "CUDA_VISIBLE_DEVICES"));
}
TEST(CudaErrors, ADriverThatIsHalfUpdated) {
  EXPECT_THAT(WithAnswers(803, 13000), StatusIs(StatusCode::kUnavailable, "reboot"));
}
TEST(CudaErrors, AnOldDriver) {
  EXPECT_THAT(WithAnswers(0, 11080),
              StatusIs(StatusCode::kFailedPrecondition, "is for CUDA 11.8, and 12.0 is needed"));
  EXPECT_OK(WithAnswers(0, 12000));
}
TEST(CudaErrors, AnotherLibrary) {
  EXPECT_THAT(cuda::OpenDriver("libm.so.6"),
              StatusIs(StatusCode::kUnavailable, "libm.so.6 has no function cuInit"));
  const std::string text = OwnTempDir() + "/libcuda.so.1";
  std::ofstream(text) << "no library";
  EXPECT_THAT(cuda::OpenDriver(text), StatusIs(StatusCode::kUnavailable, text));
}
TEST(CudaErrors, NoNvrtc) {
  EXPECT_THAT(cuda::OpenNvrtc("/nowhere/libnvrtc.so"),
              StatusIs(StatusCode::kUnavailable, "there is no NVRTC (/nowhere/libnvrtc.so: "));
  EXPECT_THAT(cuda::OpenNvrtc("/nowhere/libnvrtc.so"),
              StatusIs(StatusCode::kUnavailable, "install the package cuda-nvrtc"));
}

std::string FakeNvrtc() { return std::string(kBinDir) + "/libfake_nvrtc.so"; }

absl::StatusOr<std::unique_ptr<const cuda::NvrtcTable>> NvrtcOf(int major, int minor, int driver,
                                                                const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return absl::InternalError("no fake NVRTC");
  *static_cast<int*>(dlsym(library, "fake_major")) = major;
  *static_cast<int*>(dlsym(library, "fake_minor")) = minor;
  return cuda::OpenNvrtc(file, driver);
}

TEST(CudaErrors, AnOldNvrtc) {
  EXPECT_THAT(NvrtcOf(12, 2, 13000, FakeNvrtc()),
              StatusIs(StatusCode::kUnavailable, "it is NVRTC 12.2, and 12.3 is needed"));
  EXPECT_OK(NvrtcOf(12, 3, 12000, FakeNvrtc()));
}
TEST(CudaErrors, AnNvrtcOfALaterGenerationThanTheDriver) {
  EXPECT_THAT(NvrtcOf(13, 0, 12080, FakeNvrtc()),
              StatusIs(StatusCode::kUnavailable,
                       "it is NVRTC 13.0, and the driver is for CUDA 12.8, which does not load"));
  EXPECT_OK(NvrtcOf(13, 2, 13000, FakeNvrtc()));
  EXPECT_OK(NvrtcOf(13, 0, 0, FakeNvrtc()));
}
// Which it opens by their bare name, and so from anywhere once they are open.
TEST(CudaErrors, NvrtcsBuiltinsAreOpenedBesideIt) {
  const std::string nvrtc = OwnTempDir() + "/libnvrtc.so.12";
  const std::string builtins = OwnTempDir() + "/libnvrtc-builtins.so.12.9";
  std::filesystem::copy_file(FakeNvrtc(), nvrtc);
  std::filesystem::copy_file(FakeDriver(), builtins);
  EXPECT_EQ(dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  EXPECT_OK(NvrtcOf(12, 9, 0, nvrtc));
  EXPECT_NE(dlopen(builtins.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}
TEST(CudaErrors, AnNvrtcWithoutAnOptionThatOnlySavesTime) {
  cuda::NvrtcTable table = *sim::Nvrtc();
  table.nvrtcCompileProgram = [](cuda::nvrtcProgram, int count, const char* const* options) {
    for (int i = 0; i < count; ++i) {
      if (std::string(options[i]) == "--minimal") return 5;
    }
    return count == 1 ? 0 : 6;
  };
  table.nvrtcGetCUBINSize = [](cuda::nvrtcProgram, size_t* bytes) { return *bytes = 1, 0; };
  table.nvrtcGetCUBIN = [](cuda::nvrtcProgram, char* out) { return *out = 'x', 0; };
  const auto compiled = cuda::CompileText(table, "", "f", {"--minimal", "--std=c++17"});
  ASSERT_OK(compiled);
  EXPECT_EQ(compiled->image, "x");
}

TEST(CudaErrors, NoNccl) {
  EXPECT_THAT(cuda::OpenNccl("/nowhere/libnccl.so"),
              StatusIs(StatusCode::kUnavailable, "install the package libnccl2"));
}

// ---- devices; each its own, as some are lost

class GpuErrors : public testing::Test {
 protected:
  void TearDown() override { sim::ClearFaults(); }
};

Tensor Ones(int index, int64_t n) {
  const std::vector<float> values(n, 1.0f);
  return Tensor::FromBytes(values.data(), {n}, kFloat32, Place("SIM", index));
}
DeviceRuntime& At(int index) { return **GetDevice(Place("SIM", index)); }

TEST_F(GpuErrors, ADriverTooOldForTheKernel) {
  const SetFlagForTest no_cache(Flag::kCache, "0");
  const Tensor x = Ones(0, 107).Realize();
  sim::Plant(Fault::kOldDriver);
  const std::string error = ErrorOf([&] { (x * 3).ToVector<float>(); });
  EXPECT_THAT(error, testing::HasSubstr("SIM: the driver does not take a kernel for sm_90"));
  EXPECT_THAT(error, testing::HasSubstr("update the driver, or name an NVRTC of its own version"));
  EXPECT_EQ((x * 3).ToVector<float>()[1], 3);
}

// Errors after which a device answers nothing any more.
TEST_F(GpuErrors, WhatEndsAContext) {
  static auto& devices =
      *new std::vector<std::unique_ptr<cuda::DriverDevice>>;  // as long as others
  for (const int error : {214, 220, 226, 700, 719, 721, 810}) {
    auto device = cuda::DriverDevice::Open(sim::Driver(), 9, "SIM:9");
    ASSERT_OK(device);
    devices.push_back(*std::move(device));
    EXPECT_THAT(devices.back()->Check(error, "launching"),
                StatusIs(StatusCode::kUnavailable, "SIM:9: the device is lost"));
    EXPECT_TRUE(devices.back()->IsLost()) << error;
  }
}

TEST_F(GpuErrors, ADriverThatWritesNoCounters) {
  const Tensor x = Ones(13, 100).Realize();
  sim::Plant(Fault::kNoCounter);
  EXPECT_EQ((x + 1).ToVector<float>(), std::vector<float>(100, 2.0f));
  EXPECT_EQ((x + 2).ToVector<float>(), std::vector<float>(100, 3.0f));
}

TEST_F(GpuErrors, MemoryExhaustedInMidPlan) {
  constexpr int64_t kElements = 1 << 16;
  sim::SetMemory(13, 1 << 20);
  const Tensor x = Ones(13, kElements).Realize();
  const int64_t before = At(13).Memory().live_bytes;
  // Four results of a quarter each, beside x.
  std::string error;
  {
    Tensor results[] = {x + 1, x * 2, x - 3, x * x};
    error = ErrorOf([&] { Tensor::Realize(absl::MakeSpan(results)); });
  }
  EXPECT_THAT(error, testing::HasSubstr("SIM:13: there is no memory for 262144 bytes"));
  EXPECT_THAT(error, testing::HasSubstr("drop tensors, or use smaller batches"));
  EXPECT_EQ(At(13).Memory().live_bytes, before);  // what it had got is given back
  EXPECT_EQ((x + 1).ToVector<float>(), std::vector<float>(kElements, 2.0f));
}

// What is cached, or freed but not yet reached by the stream, is no reason to fail.
TEST_F(GpuErrors, MemoryIsTrimmedInMidPlan) {
  const Tensor x = Ones(13, 1000).Realize();
  for (int skip = 0; skip < 3; ++skip) {
    sim::Plant(Fault::kAllocation, skip);
    Tensor results[] = {x + 1, x * 2, (x * 3).Sum()};
    Tensor::Realize(absl::MakeSpan(results));
    EXPECT_EQ(results[0].ToVector<float>()[999], 2);
    EXPECT_EQ(results[2].Item(), 3000);
  }
}

// The error comes later than the launch, and names the kernel that made it.
TEST_F(GpuErrors, AFaultInAReplayedStepIsLaidToIt) {
  const Tensor x = Ones(14, 50).Realize();
  Jit step([](const Tensor& t) { return (t + 1).Contiguous().Sum() * 2; });
  EXPECT_EQ(step.One({x}).Item(), 200);
  sim::Plant(Fault::kDeviceLost, 1);
  const std::string error = ErrorOf([&] { step.One({x}).Item(); });
  EXPECT_THAT(error,
              testing::HasSubstr("SIM:14: the device is lost to the kernel one of a replay's"));
  EXPECT_THAT(ErrorOf([&] { step.One({x}).Item(); }),
              testing::HasSubstr("SIM:14: the device is lost"));
  EXPECT_EQ((Ones(0, 5) + 1).ToVector<float>(), std::vector<float>(5, 2.0f));  // others go on
}

TEST_F(GpuErrors, AFaultLongAfterItsLaunchNamesItsKernel) {
  const Tensor x = Ones(15, 64).Realize();
  (x + 1).Realize();
  ASSERT_OK(At(15).Wait());
  sim::Plant(Fault::kDeviceLost);
  std::string error = ErrorOf([&] {
    const Tensor sum = x.Sum().Realize();  // the one that is struck
    std::vector<Tensor> later;
    for (int i = 0; i < 20; ++i) later.push_back((x * i).Realize());
    later.back().ToVector<float>();
  });
  EXPECT_THAT(error, testing::HasSubstr("lost to the kernel reduce_"));
  EXPECT_THAT(error, testing::HasSubstr("start the process again"));
}

}  // namespace
}  // namespace tessera
