// Memory of a plan: offsets of its temps.
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "graph/fault.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kMostBytes = int64_t{1} << 62;

struct Life {
  int buffer;
  int first, last;  // steps
  int64_t bytes;
};

// Of more lives, each is not compared with each. (Of a loop of 8,000 steps, 64,000 lives, that
// takes 6 s, and a second in the order of time; in which some plans need a fifth more.)
constexpr size_t kMostCompared = 8192;

// Largest first, each at the lowest offset free during its whole life. Gives the bytes they need.
int64_t PlaceBySize(Plan& plan, std::vector<Life> lives) {
  struct Placed {
    int first, last;
    int64_t begin, end;
  };
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  const int early = FaultPlanted(Fault::kFreedEarly) ? 1 : 0;
  const int64_t overlap = FaultPlanted(Fault::kTempsOverlap) ? kAlignment : 0;
  int64_t arena = 0;
  std::vector<Placed> placed;  // by where they begin
  for (const Life& l : lives) {
    int64_t offset = 0;
    for (const Placed& p : placed) {
      if (offset + l.bytes <= p.begin) break;
      if (p.last - early < l.first || l.last - early < p.first) continue;
      offset = std::max(offset, p.end - overlap);
    }
    plan.buffers[l.buffer].offset = offset;
    arena = std::max(arena, offset + l.bytes);
    const auto later = [](int64_t at, const Placed& p) { return at < p.begin; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, later),
                  {l.first, l.last, offset, offset + l.bytes});
  }
  return arena;
}

using Gaps = std::map<int64_t, int64_t>;  // where one begins, how long it is

// Makes room free again, as one gap with those that it touches.
void GiveBack(Gaps& free, int64_t offset, int64_t bytes) {
  const auto next = free.lower_bound(offset);
  const auto gap = free.emplace_hint(next, offset, bytes);
  if (next != free.end() && offset + bytes == next->first) {
    gap->second += next->second;
    free.erase(next);
  }
  if (gap == free.begin()) return;
  const auto before = std::prev(gap);
  if (before->first + before->second < offset) return;
  before->second += gap->second;
  free.erase(gap);
}

// In the order of time, each at the lowest offset that is free when it begins.
int64_t PlaceByTime(Plan& plan, std::vector<Life> lives) {
  std::stable_sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) {
    return std::tie(a.first, b.bytes) < std::tie(b.first, a.bytes);
  });
  Gaps free = {{0, kMostBytes}};
  using End = std::pair<int, const Life*>;
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends;
  int64_t arena = 0;
  for (const Life& l : lives) {
    if (l.bytes == 0) {  // it has no place among the gaps
      plan.buffers[l.buffer].offset = 0;
      continue;
    }
    for (; !ends.empty() && ends.top().first < l.first; ends.pop()) {
      const Life& past = *ends.top().second;
      GiveBack(free, plan.buffers[past.buffer].offset, past.bytes);
    }
    auto gap = free.begin();
    while (gap->second < l.bytes) ++gap;
    const auto [offset, length] = *gap;
    free.erase(gap);
    if (length > l.bytes) free.emplace(offset + l.bytes, length - l.bytes);
    plan.buffers[l.buffer].offset = offset;
    arena = std::max(arena, offset + l.bytes);
    ends.emplace(l.last, &l);
  }
  return arena;
}

}  // namespace

void PlanMemory(Plan& plan) {
  std::vector<Life> lives(plan.buffers.size(), Life{-1, -1, -1, 0});
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    for (int b : plan.steps[s].buffers) {
      if (plan.buffers[b].kind != PlanBuffer::kTemp || plan.buffers[b].kept) continue;
      Life& life = lives[b];
      if (life.buffer < 0) life = {b, s, s, 0};
      life.last = s;
      life.bytes = (plan.buffers[b].bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  lives.erase(
      std::remove_if(lives.begin(), lives.end(), [](const Life& l) { return l.buffer < 0; }),
      lives.end());
  std::vector<std::pair<Device, std::vector<Life>>> by_device;
  for (const Life& l : lives) {
    const Device device = plan.buffers[l.buffer].device;
    auto at = std::find_if(by_device.begin(), by_device.end(),
                           [&](const auto& d) { return d.first == device; });
    if (at == by_device.end()) at = by_device.emplace(at, device, std::vector<Life>());
    at->second.push_back(l);
  }
  for (const auto& [device, of_device] : by_device) {
    const bool few = of_device.size() <= kMostCompared;
    plan.arenas.emplace_back(device,
                             few ? PlaceBySize(plan, of_device) : PlaceByTime(plan, of_device));
  }
}

}  // namespace tessera
