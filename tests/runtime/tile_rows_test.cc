// The benchmark of the CPU's matrix unit, where there is one or an emulator of it (see
// EMULATE_TILES in tests/main.cc).
#include <gtest/gtest.h>

#include "graph/panel.h"
#include "runtime/host_target.h"
#include "tools/benchmarks/row.h"

namespace tessera {
namespace {

TEST(TileRows, ProductsBesideTilesAlone) {
  if (!HasTiles(kBFloat16, HostTarget())) GTEST_SKIP() << "this CPU has no matrix unit";
  const benchmarks::Row row = benchmarks::TileRow("of_tiles", 96);
  EXPECT_GT(row.ours_ms.value(), 0);
  EXPECT_GT(row.peer_ms.value(), 0);
  EXPECT_EQ(row.kernels, 1);
}

}  // namespace
}  // namespace tessera
