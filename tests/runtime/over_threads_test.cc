// Work over threads of its own: all of it, and what one of them throws.
#include "runtime/over_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/no_threads.h"

namespace tessera {
namespace {

TEST(OverThreads, EveryCallOnce) {
  for (const int64_t threads : {1, 3, 8}) {
    std::vector<std::atomic<int>> calls(100);
    OverThreads(100, threads, [&](int64_t i) { ++calls[i]; });
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
  }
  OverThreads(0, 4, [](int64_t) { FAIL(); });
}

TEST(OverThreads, WhatOneThrowsIsTheCallers) {
  for (const int64_t threads : {1, 4}) {
    std::atomic<int> calls = 0;
    EXPECT_THROW(OverThreads(1 << 20, threads,
                             [&](int64_t i) {
                               ++calls;
                               if (i % 8 == 7) throw std::runtime_error("no");
                             }),
                 std::runtime_error);
    EXPECT_LT(calls, 1 << 20);  // what had not begun is left out
  }
}

TEST(OverThreads, TheCallerAloneWhereNoThreadStarts) {
  const NoThreads none;
  std::vector<std::atomic<int>> calls(100);
  OverThreads(100, 8, [&](int64_t i) { ++calls[i]; });
  for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace tessera
