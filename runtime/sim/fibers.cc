// Fibers with a switch in assembly, turns by policy, and faults caught.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "runtime/sim/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/status.h"

namespace tessera::sim {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr size_t kMostShared = size_t{256} << 10;
constexpr int kLaneBytes = 16;

// ---- switching stacks

// TSan keeps a stack of the calls that it has seen begin and end, one for each thread: what begins
// on one fiber and ends, if at all, after a switch to another must not be counted.
// Nor must a switch from a fiber that has ended, of which there are more than that stack holds.
#if defined(__SANITIZE_THREAD__)
#define TESSERA_SWITCHES_FIBERS __attribute__((no_sanitize_thread))
#else
#define TESSERA_SWITCHES_FIBERS
#endif

// What a fiber left on its stack, red zones among it, is gone: for the next, and for whatever is
// mapped there later.
void Forget([[maybe_unused]] char* stack, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
}

#if defined(__x86_64__)
extern "C" void tessera_sim_switch(void** from, void* to);
// Saves what a function must keep on the stack that it leaves, and takes it from the other.
asm(R"(
.text
.globl tessera_sim_switch
.hidden tessera_sim_switch
.type tessera_sim_switch,@function
tessera_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_sim_switch,.-tessera_sim_switch
)");

struct Context {
  void* stack_pointer = nullptr;
};
TESSERA_SWITCHES_FIBERS void Switch(Context& from, Context& to) {
  tessera_sim_switch(&from.stack_pointer, to.stack_pointer);
}
void Prepare(Context& c, char* stack, size_t bytes, void (*entry)()) {
  Forget(stack, bytes);
  // As after a call: the return address at 16n + 8, then six registers.
  void** top = reinterpret_cast<void**>(stack + bytes - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  c.stack_pointer = top - 6;
  std::memset(c.stack_pointer, 0, 6 * sizeof(void*));
}
#else
struct Context {
  ucontext_t context;
};
TESSERA_SWITCHES_FIBERS void Switch(Context& from, Context& to) {
  swapcontext(&from.context, &to.context);
}
void Prepare(Context& c, char* stack, size_t bytes, void (*entry)()) {
  Forget(stack, bytes);
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = stack;
  c.context.uc_stack.ss_size = bytes;
  c.context.uc_link = nullptr;
  makecontext(&c.context, entry, 0);
}
#endif

// ---- memory of a runner: stacks and shared memory, each before an unmapped page

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : bytes_(bytes), total_(bytes + 2 * PageBytes()) {
    void* p = mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED, "no address space for the simulated GPU");
    base_ = static_cast<char*>(p);
    CHECK(mprotect(data(), bytes_, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  ~GuardedMemory() {
    Forget(data(), bytes_);
    munmap(base_, total_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  char* data() const { return base_ + PageBytes(); }
  size_t bytes() const { return bytes_; }

 private:
  char* base_;
  size_t bytes_, total_;
};

struct Fiber {
  Thread thread;  // first: a kernel's thread is its fiber
  enum State : uint8_t { kReady, kAtBlock, kAtWarp, kDone } state = kReady;
  bool started = false;
  Context context;
  char* stack = nullptr;
  struct Fetch {
    void* to;
    const void* from;
    int32_t bytes;
    int group;
  };
  std::vector<Fetch> fetches;  // that have not arrived
  int groups = 0;              // so far
};

class Runner;
thread_local Runner* running = nullptr;  // the one that a fiber of this thread belongs to
thread_local sigjmp_buf fault_jump;
thread_local volatile uintptr_t fault_address = 0;

struct sigaction before_segv, before_bus;

void OnFault(int signal, siginfo_t* info, void* context) {
  if (running != nullptr) {
    fault_address = reinterpret_cast<uintptr_t>(info->si_addr);
    siglongjmp(fault_jump, 1);
  }
  const struct sigaction& before = signal == SIGSEGV ? before_segv : before_bus;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    std::signal(signal, SIG_DFL);  // and the access is made again
  }
}

void CatchFaults() {
  static const bool once = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
    return true;
  }();
  (void)once;
  // A fiber's stack may be what has run over.
  struct AltStack {
    std::unique_ptr<char[]> bytes = std::make_unique<char[]>(64 << 10);
    AltStack() {
      stack_t old;
      sigaltstack(nullptr, &old);
      if ((old.ss_flags & SS_DISABLE) == 0) return;
      stack_t s = {};
      s.ss_sp = bytes.get();
      s.ss_size = 64 << 10;
      sigaltstack(&s, nullptr);
      ours = true;
    }
    ~AltStack() {
      stack_t s = {};
      s.ss_flags = SS_DISABLE;
      if (ours) sigaltstack(&s, nullptr);
    }
    bool ours = false;
  };
  thread_local AltStack stack;
  (void)stack;
}

class Runner {
 public:
  Runner(const Launch& launch, std::mt19937_64& random)
      : launch_(launch), random_(random), fibers_(launch.threads * launch.rows) {
    exchange_.resize((fibers_.size() + kWarp - 1) / kWarp * kWarp * kLaneBytes);
  }

  absl::Status RunAll() {
    CatchFaults();
    std::vector<int> blocks(launch_.blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    Runner* const outer = running;
    running = this;
    absl::Status status;
    if (sigsetjmp(fault_jump, 1) == 0) {
      for (int b : blocks) {
        status = RunBlock(b);
        if (!status.ok()) break;
      }
    } else {
      status = absl::DataLossError(Fault());
    }
    running = outer;
    return status;
  }

 private:
  std::string Fault() const {
    return absl::StrFormat("an access to %#x by thread %d of block %d of %s", fault_address,
                           current_ != nullptr ? static_cast<int>(current_ - fibers_.data()) : -1,
                           current_ != nullptr ? current_->thread.block : -1, launch_.name);
  }

  TESSERA_SWITCHES_FIBERS static void Enter() {
    Runner* const r = running;
    Fiber* const f = r->current_;
    r->launch_.entry(&f->thread, r->launch_.args);
    f->state = Fiber::kDone;
    r->idle_stacks_.push_back(f->stack);
    Switch(f->context, r->main_);
    std::abort();
  }

  TESSERA_SWITCHES_FIBERS static void Arrive(Thread* t, Fiber::State state) {
    Fiber* const f = reinterpret_cast<Fiber*>(t);
    f->state = state;
    Switch(f->context, running->main_);
  }

  // ---- copies that do not wait

  static void Arrived(const Fiber::Fetch& f) {
    if (f.from != nullptr) {
      std::memcpy(f.to, f.from, f.bytes);
    } else {
      std::memset(f.to, 0, f.bytes);
    }
  }
  static void Fetch(Thread* t, void* to, const void* from, int32_t bytes) {
    for (const void* p : {static_cast<const void*>(to), from}) {
      if (reinterpret_cast<uintptr_t>(p) % bytes != 0) Misaligned(t, p);
    }
    Fiber* const f = reinterpret_cast<Fiber*>(t);
    const Fiber::Fetch fetch = {to, from, bytes, f->groups};
    if (running->random_() % 2 == 0) return Arrived(fetch);
    f->fetches.push_back(fetch);
  }
  static void Commit(Thread* t) { ++reinterpret_cast<Fiber*>(t)->groups; }
  static void Wait(Thread* t, int32_t left) {
    Fiber* const f = reinterpret_cast<Fiber*>(t);
    const auto late = [&](const Fiber::Fetch& x) { return x.group >= f->groups - left; };
    const auto begin = std::stable_partition(f->fetches.begin(), f->fetches.end(), late);
    std::for_each(begin, f->fetches.end(), Arrived);
    f->fetches.erase(begin, f->fetches.end());
  }
  static void Misaligned(Thread*, const void* at) {
    fault_address = reinterpret_cast<uintptr_t>(at);
    siglongjmp(fault_jump, 1);
  }

  char* TakeStack() {
    // Kept by the thread: a launch takes as many as threads wait at once.
    thread_local std::vector<std::unique_ptr<GuardedMemory>> stacks;
    if (!idle_stacks_.empty()) {
      char* stack = idle_stacks_.back();
      idle_stacks_.pop_back();
      return stack;
    }
    if (used_stacks_ == stacks.size()) {
      stacks.push_back(std::make_unique<GuardedMemory>(kStackBytes));
    }
    return stacks[used_stacks_++]->data();
  }

  void Step(Fiber& f) {
    if (f.state != Fiber::kReady) return;
    if (!f.started) {
      f.started = true;
      f.stack = TakeStack();
      Prepare(f.context, f.stack, kStackBytes, &Runner::Enter);
    }
    current_ = &f;
    Switch(main_, f.context);
    current_ = nullptr;
  }

  unsigned char* Shared() const {
    thread_local GuardedMemory memory(kMostShared);
    const size_t bytes = (launch_.shared_bytes + 15) / 16 * 16;
    char* const at = memory.data() + memory.bytes() - bytes;
    std::memset(at, 0xff, bytes);
    return reinterpret_cast<unsigned char*>(at);
  }

  int warps() const { return (static_cast<int>(fibers_.size()) + kWarp - 1) / kWarp; }
  Fiber* begin(int warp) { return &fibers_[warp * kWarp]; }
  Fiber* end(int warp) {
    return fibers_.data() + std::min<size_t>(fibers_.size(), (warp + 1) * kWarp);
  }

  // Lets a warp go on whose lanes have all arrived at an exchange.
  bool ReleaseWarp(int warp) {
    const auto arrived = std::count_if(begin(warp), end(warp),
                                       [](const Fiber& f) { return f.state == Fiber::kAtWarp; });
    if (arrived != kWarp) return false;
    for (Fiber* f = begin(warp); f != end(warp); ++f) f->state = Fiber::kReady;
    return true;
  }

  absl::Status RunBlock(int block) {
    unsigned char* const shared = Shared();
    for (size_t i = 0; i < fibers_.size(); ++i) {
      const int id = static_cast<int>(i);
      Fiber& f = fibers_[i];
      f.state = Fiber::kReady;
      f.started = false;
      f.thread = {id % launch_.threads,
                  id / launch_.threads,
                  block,
                  launch_.blocks,
                  id % kWarp,
                  shared,
                  exchange_.data() + id / kWarp * kWarp * kLaneBytes,
                  [](Thread* t) TESSERA_SWITCHES_FIBERS { Arrive(t, Fiber::kAtBlock); },
                  [](Thread* t) TESSERA_SWITCHES_FIBERS { Arrive(t, Fiber::kAtWarp); },
                  Fetch,
                  Commit,
                  Wait,
                  Misaligned};
      f.fetches.clear();
      f.groups = 0;
    }
    enum { kForward, kReverse, kRandom, kGreedy, kPolicies };
    const int policy = static_cast<int>(random_() % kPolicies);
    std::vector<int>& order = order_;  // a fault jumps out of here: nothing to be destroyed
    order.resize(policy == kGreedy ? warps() : static_cast<int>(fibers_.size()));
    std::iota(order.begin(), order.end(), 0);
    if (policy == kReverse) std::reverse(order.begin(), order.end());
    for (;;) {
      if (policy >= kRandom) std::shuffle(order.begin(), order.end(), random_);
      bool released = false;
      for (int i : order) {
        if (policy != kGreedy) {
          Step(fibers_[i]);
          continue;
        }
        do {
          for (Fiber* f = begin(i); f != end(i); ++f) Step(*f);
        } while (ReleaseWarp(i));
      }
      for (int w = 0; w < warps(); ++w) released |= ReleaseWarp(w);
      if (released) continue;
      size_t done = 0, at_block = 0;
      for (const Fiber& f : fibers_) {
        done += f.state == Fiber::kDone;
        at_block += f.state == Fiber::kAtBlock;
      }
      if (done == fibers_.size()) return absl::OkStatus();
      if (at_block != fibers_.size()) {
        return absl::FailedPreconditionError(
            absl::StrCat("a barrier or exchange of ", launch_.name,
                         " that not all threads reach: in block ", block, ", ", at_block, " of ",
                         fibers_.size(), " wait at a barrier, ", done, " have ended"));
      }
      for (Fiber& f : fibers_) f.state = Fiber::kReady;
    }
  }

  const Launch& launch_;
  std::mt19937_64& random_;
  std::vector<Fiber> fibers_;
  std::vector<int> order_;  // of turns
  std::vector<unsigned char> exchange_;
  std::vector<char*> idle_stacks_;
  size_t used_stacks_ = 0;
  Context main_;
  Fiber* current_ = nullptr;
};

}  // namespace

absl::Status Run(const Launch& launch, std::mt19937_64& random) {
  return Runner(launch, random).RunAll();
}

}  // namespace tessera::sim
