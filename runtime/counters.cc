// Runtime counters behind one lock.
#include "runtime/counters.h"

#include <mutex>

namespace tessera {
namespace {
std::mutex& CounterLock() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
RuntimeStats stats;
}  // namespace

void Count(int64_t RuntimeStats::*counter, int64_t by) {
  std::lock_guard lock(CounterLock());
  stats.*counter += by;
}

RuntimeStats GetRuntimeStats() {
  std::lock_guard lock(CounterLock());
  return stats;
}

}  // namespace tessera
