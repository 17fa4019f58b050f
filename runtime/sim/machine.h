// The simulated machine: devices, streams and events, and the random order in which queues run.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/sim/fibers.h"
#include "runtime/sim/memory.h"
#include "runtime/sim/module.h"
#include "runtime/sim/sim.h"

namespace tessera::sim {

constexpr int kDevices = 16;
constexpr int64_t kDefaultMemory = int64_t{4} << 30;

struct Event {
  int device = -1;        // whose context it was made in
  uint64_t recorded = 0;  // by calls so far
  uint64_t done = 0;      // of them, how many streams have reached
};

struct Device;

// One entry of a queue: runs when it is at the head and what it waits for is done.
struct Task {
  std::function<absl::Status()> run;
  Event* wait = nullptr;
  uint64_t until = 0;  // of the event
  Event* records = nullptr;
  uint64_t record = 0;
  const void* owner = nullptr;  // the communicator that may take it back
};

struct Stream {
  Device* device = nullptr;
  int id = 0;  // in the order of creation
  std::deque<Task> queue;
};

struct Device {
  int index = 0;
  Memory memory{kDefaultMemory};
  cuda::CUresult lost = cuda::kSuccess;  // why nothing works any more
  int64_t release_threshold = 0;
  std::set<int> peers;  // that may reach what its pool gives
};

// A kernel and a copy of its arguments.
struct KernelCall {
  Function* function = nullptr;
  Launch launch;
  std::vector<uint64_t> arguments;
};

// All of it, under one lock. A caller holds the lock while tasks run.
class Machine {
 public:
  static Machine& Get();

  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  std::set<Stream*> streams;
  std::set<void*> pinned_starts;
  std::vector<std::pair<const char*, const char*>> pinned;  // ranges of host memory
  std::mt19937_64 random{1};
  Counts counts;
  std::string fault;  // the last one, in words

  // Adds to a queue; some tasks, of any queue, may run now.
  void Enqueue(Stream& stream, Task task);
  // Runs random tasks until the condition holds. False: nothing is left that could run.
  bool RunUntil(const std::function<bool()>& holds);
  absl::Status RunKernel(Device& device, const KernelCall& call);
  bool IsPinned(const void* p) const;
  void Lose(Device& device, const absl::Status& why);
  // Takes the tasks of a communicator out of all queues.
  void Drop(const void* owner);
  // Some tasks may run now.
  void RunSome();

 private:
  Machine();
  bool RunOne();
};

// The device whose context is the calling thread's, or -1.
int CurrentDevice();

}  // namespace tessera::sim
