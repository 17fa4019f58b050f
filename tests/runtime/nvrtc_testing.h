// NVRTC for tests, where it is installed.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "runtime/cuda_compiler.h"
#include "tests/testing.h"

namespace tessera {

// Skips where there is no NVRTC.
class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto table = cuda::NvrtcFromLibrary();
    if (!table.ok()) GTEST_SKIP() << table.status();
    nvrtc_ = *table;
    int major = 0, minor = 0;
    nvrtc_->nvrtcVersion(&major, &minor);
    const bool blackwell = major > 12 || (major == 12 && minor >= 8);
    archs_ = absl::StrSplit(blackwell ? "sm_80,sm_90,sm_100" : "sm_80,sm_90", ',');
  }

  const cuda::NvrtcTable* nvrtc_ = nullptr;
  std::vector<std::string> archs_;  // that this NVRTC compiles for
};

}  // namespace tessera
