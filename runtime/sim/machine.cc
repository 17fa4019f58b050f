// Queues of the simulated machine.
#include "runtime/sim/machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "runtime/sim/faults.h"

namespace tessera::sim {

Machine::Machine() : random(static_cast<uint64_t>(IntFlag(Flag::kSimSeed))) {
  for (int i = 0; i < kDevices; ++i) {
    devices.push_back(std::make_unique<Device>());
    devices.back()->index = i;
  }
}

Machine& Machine::Get() {
  static Machine& machine = *new Machine;
  return machine;
}

bool Machine::IsPinned(const void* p) const {
  const char* c = static_cast<const char*>(p);
  return std::any_of(pinned.begin(), pinned.end(),
                     [&](const auto& r) { return c >= r.first && c < r.second; });
}

void Machine::Lose(Device& device, const absl::Status& why) {
  fault = std::string(why.message());
  device.lost = absl::IsFailedPrecondition(why) ? cuda::kLaunchFailed : cuda::kIllegalAddress;
  for (Stream* s : streams) {
    if (s->device != &device) continue;
    for (Task& t : s->queue) {
      if (t.records != nullptr) t.records->done = std::max(t.records->done, t.record);
    }
    s->queue.clear();
  }
}

// A random stream whose head may run, if there is one.
bool Machine::RunOne() {
  std::vector<Stream*> ready;
  for (Stream* s : streams) {
    if (s->queue.empty()) continue;
    const Task& t = s->queue.front();
    if (t.wait == nullptr || t.wait->done >= t.until) ready.push_back(s);
  }
  if (ready.empty()) return false;
  // The set's order is that of addresses, which differ from run to run.
  std::sort(ready.begin(), ready.end(),
            [](const Stream* a, const Stream* b) { return a->id < b->id; });
  Stream& s = *ready[random() % ready.size()];
  Task t = std::move(s.queue.front());
  s.queue.pop_front();
  if (t.run != nullptr) {
    if (const absl::Status status = t.run(); !status.ok()) Lose(*s.device, status);
  }
  if (t.records != nullptr) t.records->done = std::max(t.records->done, t.record);
  return true;
}

void Machine::Enqueue(Stream& stream, Task task) {
  stream.queue.push_back(std::move(task));
  RunSome();
}

void Machine::RunSome() {
  if (random() % 4 != 0) return;
  for (uint64_t n = random() % 4; n > 0 && RunOne(); --n) {
  }
}

void Machine::Drop(const void* owner) {
  for (Stream* s : streams) {
    auto& q = s->queue;
    q.erase(std::remove_if(q.begin(), q.end(), [&](const Task& t) { return t.owner == owner; }),
            q.end());
  }
}

bool Machine::RunUntil(const std::function<bool()>& holds) {
  while (!holds()) {
    if (!RunOne()) return holds();
  }
  return true;
}

absl::Status Machine::RunKernel(Device& device, const KernelCall& call) {
  ++counts.kernels;
  if (Strikes(Fault::kDeviceLost)) {
    return absl::DataLossError(absl::StrCat("planted: an access of ", call.function->name));
  }
  std::vector<void*> args;
  for (const uint64_t& a : call.arguments) args.push_back(const_cast<uint64_t*>(&a));
  Launch launch = call.launch;
  launch.args = args.data();
  return Run(launch, random);
}

void Seed(uint64_t seed) {
  Machine& m = Machine::Get();
  std::lock_guard lock(m.mutex);
  m.random.seed(seed);
}

void SetMemory(int device, int64_t bytes) {
  Machine& m = Machine::Get();
  std::lock_guard lock(m.mutex);
  m.devices[device]->memory.set_capacity(bytes);
}

Counts GetCounts() {
  Machine& m = Machine::Get();
  std::lock_guard lock(m.mutex);
  return m.counts;
}

}  // namespace tessera::sim
