// Counters of planted faults.
#include "runtime/sim/faults.h"

#include <array>
#include <mutex>

namespace tessera::sim {
namespace {

constexpr size_t kFaults = static_cast<size_t>(Fault::kPeerCorrupt) + 1;
std::mutex mutex;
std::array<int, kFaults> calls_left;  // 0: not planted; n: the n-th call from now

}  // namespace

void Plant(Fault fault, int skip) {
  std::lock_guard lock(mutex);
  calls_left[static_cast<size_t>(fault)] = skip + 1;
}

void ClearFaults() {
  std::lock_guard lock(mutex);
  calls_left.fill(0);
}

bool Strikes(Fault fault) {
  std::lock_guard lock(mutex);
  int& left = calls_left[static_cast<size_t>(fault)];
  if (left == 0) return false;
  if (fault == Fault::kPeerCorrupt) return true;
  return --left == 0;
}

}  // namespace tessera::sim
