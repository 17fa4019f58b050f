// Independent work over threads of its own: compiling, which a pool of cores that spin is not for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

// Calls work(i) for every i below n, each by one of at most so many threads, of which the caller is
// one. The first exception is the caller's, once all threads are done; after it no call begins.
template <class Work>
void OverThreads(int64_t n, int64_t threads, const Work& work) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  const auto run = [&] {
    try {
      for (int64_t i; (i = next.fetch_add(1)) < n;) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::current_exception();
      next.store(n);
    }
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min(threads, n); ++i) others.emplace_back(run);
  run();
  for (std::thread& t : others) t.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tessera
