// The cores of this process as one pool: a kernel's workers run on the caller and on its threads.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera {

// One call per worker; calls of one Run may execute one after the other on one thread, so a worker
// must never wait for another. It does not throw.
using CoreFn = void (*)(void* arg, int64_t worker, int64_t workers);

// A caller and cores - 1 threads, or as many as the system grants. The threads start with the first
// Run that can use them. One that finishes a kernel spins up to 100 microseconds for the next, of
// this plan or of the one after it, before it sleeps on a futex: programs run one small plan after
// another, and to be woken takes longer than such a plan. While more than one PlanScope is alive it
// sleeps at once.
//
// The pool serves one Run at a time. A Run that finds it taken, by another thread or by the Run
// that it is nested in, executes all its workers itself, in order: many plans at once already keep
// the cores busy, and would only wait for one another. Each core has a contiguous share of the
// workers and does them in order; one that is done takes those of others, the last first, so that
// neither is far from where it was. So a core that something else slows down holds nobody up for
// longer than one worker takes.
class CorePool {
 public:
  // The pool of the process, as wide as HostTarget().cores. Never destroyed; a forked child has one
  // of its own.
  static CorePool& Global();

  explicit CorePool(int cores);
  ~CorePool();  // no Run may be under way
  CorePool(const CorePool&) = delete;
  CorePool& operator=(const CorePool&) = delete;

  // Executes fn(arg, w, workers) once for each w in [0, workers) and returns when all have ended;
  // what they wrote is visible then. Worker 0 is always the caller's. Thread-safe.
  void Run(CoreFn fn, void* arg, int64_t workers);

  int cores() const { return cores_; }

 private:
  friend class PlanScope;
  struct Share;
  struct Mailbox;

  void Start();
  void ThreadMain(Mailbox& box);
  void KeepOffCaller(Mailbox& box);
  bool AwaitWork(Mailbox& box);
  void RunShares(int64_t own);

  const int cores_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;  // one per thread, made by Start
  cpu_set_t allowed_;                            // the cores that the program may use
  std::atomic<bool> taken_{false};
  std::atomic<int> plans_{0};

  // The Run under way: written while every mailbox is idle.
  CoreFn fn_ = nullptr;
  void* arg_ = nullptr;
  int64_t workers_ = 0;
  int64_t num_shares_ = 0;
  std::unique_ptr<Share[]> shares_;  // one a core
};

// While one lives, a plan runs.
class PlanScope {
 public:
  explicit PlanScope(CorePool& pool = CorePool::Global()) : pool_(pool) {
    pool_.plans_.fetch_add(1);
  }
  ~PlanScope() { pool_.plans_.fetch_sub(1); }
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;

 private:
  CorePool& pool_;
};

}  // namespace tessera
