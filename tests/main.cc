// The main of every test binary: SPEC=2 and a kernel cache of the build folder's own, unless
// already set.
#include <link.h>

#include <cstdlib>
#include <cstring>

#include <memory>

#include "tests/build_paths.h"
#include "tests/support/tile_emulator.h"
#include "tests/testing.h"

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer itself crashes at times (signal 11) at the end of a process that has had NVRTC.
extern "C" int __lsan_is_turned_off() {
  const auto is_nvrtc = [](dl_phdr_info* library, size_t, void*) {
    return static_cast<int>(std::strstr(library->dlpi_name, "libnvrtc") != nullptr);
  };
  return dl_iterate_phdr(is_nvrtc, nullptr);
}
#endif

// Which of many processes this one is (tests/CMakeLists.txt) is not said of those that tests start.
class ShardIsOwn : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override {
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
  }
};

int main(int argc, char** argv) {
  setenv("SPEC", "2", /*overwrite=*/0);
  setenv("CACHE_DIR", tessera::kTestCacheDir, /*overwrite=*/0);
  // For CPU_FEATURES=+amx-bf16 on a chip that has no such unit.
  std::unique_ptr<tessera::EmulateTiles> tiles;
  if (std::getenv("EMULATE_TILES") != nullptr) tiles = std::make_unique<tessera::EmulateTiles>();
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new ShardIsOwn);
  return RUN_ALL_TESTS();
}
