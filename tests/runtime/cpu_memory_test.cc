// Blocks of memory that are kept for reuse.
#include "runtime/cpu_memory.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace tessera {
namespace {

constexpr int64_t kKiB = 1024;

// Allocates and gives back; how many blocks were made anew for it.
int64_t Made(CpuMemory& memory, int64_t bytes) {
  const int64_t before = memory.Stats().allocations;
  EXPECT_OK(memory.Allocate(bytes, Written::kWhole));
  return memory.Stats().allocations - before;
}

TEST(CpuMemory, BlocksServeTheirLike) {
  CpuMemory memory(64 * kKiB);
  EXPECT_EQ(Made(memory, 16 * kKiB), 1);
  EXPECT_EQ(Made(memory, 16 * kKiB), 0);
  EXPECT_EQ(Made(memory, 17 * kKiB), 1) << "of another size";
  EXPECT_EQ(Made(memory, 128 * kKiB), 1);
  EXPECT_EQ(Made(memory, 128 * kKiB), 1) << "more than is kept";
  EXPECT_EQ(Made(memory, 16 * kKiB), 0);
}

// What a program no longer asks for makes room for what it does.
TEST(CpuMemory, TheOldestMakeRoom) {
  CpuMemory memory(64 * kKiB);
  for (const int64_t size : {16, 20, 24}) EXPECT_EQ(Made(memory, size * kKiB), 1);
  EXPECT_EQ(memory.Stats().cached_bytes, 60 * kKiB);
  EXPECT_EQ(Made(memory, 16 * kKiB), 0);  // used again: no longer the oldest
  EXPECT_EQ(Made(memory, 10 * kKiB), 1);
  EXPECT_EQ(memory.Stats().cached_bytes, 50 * kKiB);
  EXPECT_EQ(Made(memory, 10 * kKiB), 0);
  EXPECT_EQ(Made(memory, 16 * kKiB), 0);
  EXPECT_EQ(Made(memory, 24 * kKiB), 0);
  EXPECT_EQ(Made(memory, 20 * kKiB), 1);
  memory.Trim();
  EXPECT_EQ(memory.Stats().cached_bytes, 0);
}

}  // namespace
}  // namespace tessera
