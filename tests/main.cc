// The main of every test binary: SPEC=2 and a kernel cache of the build folder's own, unless
// already set.
#include <cstdlib>

#include <memory>

#include "tests/build_paths.h"
#include "tests/support/tile_emulator.h"
#include "tests/testing.h"

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

#ifdef __SANITIZE_ADDRESS__
// NVRTC keeps some of its own.
extern "C" const char* __lsan_default_suppressions() { return "leak:libnvrtc\n"; }
#endif

int main(int argc, char** argv) {
  setenv("SPEC", "2", /*overwrite=*/0);
  setenv("CACHE_DIR", tessera::kTestCacheDir, /*overwrite=*/0);
  // For CPU_FEATURES=+amx-bf16 on a chip that has no such unit.
  std::unique_ptr<tessera::EmulateTiles> tiles;
  if (std::getenv("EMULATE_TILES") != nullptr) tiles = std::make_unique<tessera::EmulateTiles>();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
