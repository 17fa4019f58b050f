// CorePool: one mailbox word per thread carries every hand-over, sleeping and stealing included.
#include "runtime/core_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <thread>
#include <utility>

#include "graph/status.h"
#include "runtime/host_target.h"

namespace tessera {
namespace {

// The states of a mailbox. The owner of each transition:
//   kIdle -> kAsleep (thread), kIdle/kAsleep -> kPosted (caller), kPosted -> kRunning (thread),
//   kPosted -> kIdle (caller takes the share back), kRunning -> kAwaited (caller goes to sleep),
//   kRunning/kAwaited -> kIdle (thread), kIdle/kAsleep -> kQuit (destructor).
enum MailboxState : uint32_t { kIdle, kAsleep, kPosted, kRunning, kAwaited, kQuit };

constexpr auto kNextSpin = std::chrono::microseconds(100);  // a thread, for the next kernel
constexpr auto kJoinSpin = std::chrono::microseconds(50);   // a caller, for the last worker
constexpr int kPausesPerLook = 32;                          // between two looks at the clock

using Clock = std::chrono::steady_clock;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

// Workers that nobody has taken yet, one after another.
struct alignas(128) CorePool::Share {
  void Set(int64_t first, int64_t end) { left.store(Pack(first, end), std::memory_order_relaxed); }

  // The first of them, or the last; -1 if none is left.
  int64_t Take(bool from_end) {
    uint64_t now = left.load(std::memory_order_relaxed);
    for (;;) {
      const auto first = static_cast<int64_t>(now >> 32),
                 end = static_cast<int64_t>(now << 32 >> 32);
      if (first >= end) return -1;
      const uint64_t less = from_end ? Pack(first, end - 1) : Pack(first + 1, end);
      if (left.compare_exchange_weak(now, less, std::memory_order_relaxed)) {
        return from_end ? end - 1 : first;
      }
    }
  }

 private:
  static uint64_t Pack(int64_t first, int64_t end) {
    return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(end);
  }
  std::atomic<uint64_t> left{0};  // both ends in one word, so that none is taken twice
};

struct alignas(128) CorePool::Mailbox {
  std::atomic<uint32_t> state{kIdle};
  int64_t share = 0;  // which share is this thread's: one and up
  int avoided = -1;   // the core that `thread` keeps off: its caller's
  std::thread thread;
};

CorePool& CorePool::Global() {
  static CorePool* pool = new CorePool(HostTarget().cores);
  // A forked child has none of the threads: it gets a pool of its own. What the old one held is
  // left behind, as a thread of the parent's may have been in the midst of it.
  static const int handler =
      pthread_atfork(nullptr, nullptr, [] { pool = new CorePool(pool->cores()); });
  static_cast<void>(handler);
  return *pool;
}

CorePool::CorePool(int cores)
    : cores_(std::max(cores, 1)), shares_(std::make_unique<Share[]>(cores_)) {
  boxes_.reserve(cores_);
}

CorePool::~CorePool() {
  CHECK(!taken_.load(), "a CorePool dies under a Run");
  for (auto& box : boxes_) {
    box->state.store(kQuit);
    FutexWake(box->state);
    box->thread.join();
  }
}

void CorePool::Start() {
  // The program's signal handlers run on threads of its own, but for those of faults, which only
  // the thread that met one can handle.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  CPU_ZERO(&allowed_);
  pthread_getaffinity_np(pthread_self(), sizeof allowed_, &allowed_);
  try {
    for (int i = 1; i < cores_; ++i) {
      auto box = std::make_unique<Mailbox>();
      box->share = i;
      box->thread = std::thread([this, at = box.get()] { ThreadMain(*at); });
      pthread_setname_np(box->thread.native_handle(), "tessera-core");
      boxes_.push_back(std::move(box));
    }
  } catch (const std::exception&) {  // no more threads, or no memory: those that there are do it
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The kernel may wake a thread on its caller's core while others idle, and leave it waiting there.
void CorePool::KeepOffCaller(Mailbox& box) {
  const int here = sched_getcpu();
  if (here < 0 || here == box.avoided) return;
  cpu_set_t others = allowed_;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return;
  pthread_setaffinity_np(box.thread.native_handle(), sizeof others, &others);
  box.avoided = here;
}

// Waits until the mailbox holds a share and takes it; false on quitting.
bool CorePool::AwaitWork(Mailbox& box) {
  for (;;) {
    const auto begin = Clock::now();
    uint32_t state;
    for (;;) {
      for (int i = 0; i < kPausesPerLook; ++i) {
        state = box.state.load(std::memory_order_relaxed);
        if (state != kIdle) break;
        Pause();
      }
      if (state != kIdle) break;
      if (plans_.load(std::memory_order_relaxed) > 1 || Clock::now() - begin > kNextSpin) break;
    }
    if (state == kIdle && box.state.compare_exchange_strong(state, kAsleep)) {
      do FutexWait(box.state, kAsleep);
      while (box.state.load() == kAsleep);
    }
    state = kPosted;
    if (box.state.compare_exchange_strong(state, kRunning, std::memory_order_acquire)) return true;
    if (state == kQuit) return false;
  }
}

void CorePool::ThreadMain(Mailbox& box) {
  while (AwaitWork(box)) {
    RunShares(box.share);
    const uint32_t before = box.state.exchange(kIdle, std::memory_order_acq_rel);
    if (before == kAwaited) FutexWake(box.state);
  }
}

void CorePool::RunShares(int64_t own) {
  for (int64_t i = 0; i < num_shares_; ++i) {
    Share& share = shares_[(own + i) % num_shares_];
    for (int64_t w; (w = share.Take(i > 0)) >= 0;) fn_(arg_, w, workers_);
  }
}

void CorePool::Run(CoreFn fn, void* arg, int64_t workers) {
  if (workers <= 1 || cores_ <= 1 || taken_.exchange(true, std::memory_order_acquire)) {
    for (int64_t w = 0; w < workers; ++w) fn(arg, w, workers);
    return;
  }
  if (boxes_.empty()) Start();
  fn_ = fn;
  arg_ = arg;
  workers_ = workers;
  num_shares_ = std::min<int64_t>(workers, static_cast<int64_t>(boxes_.size()) + 1);
  for (int64_t i = 0; i < num_shares_; ++i) {
    const int64_t first = i == 0 ? 1 : i * workers / num_shares_;  // 0 is the caller's
    shares_[i].Set(first, (i + 1) * workers / num_shares_);
  }
  for (int64_t i = 1; i < num_shares_; ++i) {
    Mailbox& box = *boxes_[i - 1];
    KeepOffCaller(box);
    if (box.state.exchange(kPosted, std::memory_order_release) == kAsleep) FutexWake(box.state);
  }
  fn(arg, 0, workers);
  RunShares(0);
  for (int64_t i = 1; i < num_shares_; ++i) {  // a thread that has not begun finds nothing left
    uint32_t posted = kPosted;
    boxes_[i - 1]->state.compare_exchange_strong(posted, kIdle);
  }
  for (int64_t i = 1; i < num_shares_; ++i) {
    std::atomic<uint32_t>& state = boxes_[i - 1]->state;
    const auto begin = Clock::now();
    for (int spins = 0;; ++spins) {
      uint32_t now = state.load(std::memory_order_acquire);
      if (now == kIdle || now == kAsleep) break;
      Pause();
      if (spins % kPausesPerLook != 0 || Clock::now() - begin < kJoinSpin) continue;
      if (now == kAwaited || state.compare_exchange_strong(now, kAwaited)) {
        FutexWait(state, kAwaited);
      }
    }
  }
  taken_.store(false, std::memory_order_release);
}

}  // namespace tessera
