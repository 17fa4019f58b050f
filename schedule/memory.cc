// Memory of a plan: offsets of its temps.
#include <algorithm>

#include "graph/fault.h"
#include "schedule/passes.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 256;

struct Life {
  int buffer;
  int first, last;  // steps
  int64_t bytes;
};

// A life that has its place.
struct Placed {
  int first, last;
  int64_t begin, end;
};

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
  std::vector<Device> devices;
  for (const Life& l : lives) {
    const Device d = plan.buffers[l.buffer].device;
    if (std::find(devices.begin(), devices.end(), d) == devices.end()) devices.push_back(d);
  }
  // Largest first, each at the lowest offset free during its whole life.
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  const int early = FaultPlanted(Fault::kFreedEarly) ? 1 : 0;
  const int64_t overlap = FaultPlanted(Fault::kTempsOverlap) ? kAlignment : 0;
  for (Device device : devices) {
    int64_t arena = 0;
    std::vector<Placed> placed;  // by where they begin
    for (const Life& l : lives) {
      if (!(plan.buffers[l.buffer].device == device)) continue;
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
    plan.arenas.emplace_back(device, arena);
  }
}

}  // namespace tessera
