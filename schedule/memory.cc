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
  for (Device device : devices) {
    int64_t arena = 0;
    std::vector<const Life*> placed;  // by offset
    for (const Life& l : lives) {
      if (!(plan.buffers[l.buffer].device == device)) continue;
      int64_t offset = 0;
      for (const Life* p : placed) {
        const int early = FaultPlanted(Fault::kFreedEarly) ? 1 : 0;
        if (p->last - early < l.first || l.last - early < p->first) continue;
        const int64_t begin = plan.buffers[p->buffer].offset;
        if (offset + l.bytes <= begin) break;
        const int64_t overlap = FaultPlanted(Fault::kTempsOverlap) ? kAlignment : 0;
        offset = std::max(offset, begin + p->bytes - overlap);
      }
      plan.buffers[l.buffer].offset = offset;
      arena = std::max(arena, offset + l.bytes);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), &l,
                                     [&](const Life* a, const Life* b) {
                                       return plan.buffers[a->buffer].offset <
                                              plan.buffers[b->buffer].offset;
                                     }),
                    &l);
    }
    plan.arenas.emplace_back(device, arena);
  }
}

}  // namespace tessera
