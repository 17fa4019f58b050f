// Independent work over threads of its own: compiling, which a pool of cores that spin is not for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tessera {

// Calls work(i) for every i below n, each by one of at most so many threads, of which the caller is
// one; by fewer where the system starts no more. The first exception is the caller's, once all
// threads are done; after it no call begins.
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
  const int64_t wanted = std::max<int64_t>(std::min(threads, n) - 1, 0);
  std::vector<std::thread> others;
  others.reserve(wanted);
  try {
    while (static_cast<int64_t>(others.size()) < wanted) others.emplace_back(run);
  } catch (const std::system_error&) {
  }
  run();
  for (std::thread& t : others) t.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tessera
