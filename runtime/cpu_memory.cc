// The CPU allocator.
#include "runtime/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <mutex>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Sizes are rounded so that near ones share a class: to 1/8 of their power of two.
int64_t SizeClass(int64_t bytes) {
  int64_t unit = kAlignment;
  while (unit * 16 <= bytes) unit *= 2;
  return RoundUp(std::max<int64_t>(bytes, kAlignment), unit);
}

// Blocks that are alike serve one another.
struct BlockKind {
  int64_t size;
  Written written;
  auto operator<=>(const BlockKind&) const = default;
};

void* MapBlock(const BlockKind& kind) {
  void* p = nullptr;
  const bool large = kind.size >= kLargePage;
  if (posix_memalign(&p, large ? kLargePage : kAlignment, kind.size) != 0) return nullptr;
  const bool whole = kind.written == Written::kWhole;
  if (large) madvise(p, kind.size, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return p;
}

}  // namespace

struct CpuMemory::State {
  // Free blocks of a kind, and when one of it was last taken or given back.
  struct Blocks {
    std::vector<void*> free;
    int64_t last_used = 0;
  };
  explicit State(int64_t most_cached) : most_cached(most_cached) {}
  const int64_t most_cached;
  mutable std::mutex mutex;
  std::map<BlockKind, Blocks> kinds;
  int64_t clock = 0;
  MemoryStats stats;

  ~State() { Drop(); }
  void Drop() {
    for (auto& [kind, blocks] : kinds) {
      for (void* p : blocks.free) std::free(p);
    }
    kinds.clear();
    stats.cached_bytes = 0;
  }
  void Count(int64_t bytes) {
    stats.live_bytes += bytes;
    stats.peak_bytes = std::max(stats.peak_bytes, stats.live_bytes);
  }

  void* Take(const BlockKind& kind) {
    const auto it = kinds.find(kind);
    if (it == kinds.end() || it->second.free.empty()) return nullptr;
    void* block = it->second.free.back();
    it->second.free.pop_back();
    it->second.last_used = ++clock;
    stats.cached_bytes -= kind.size;
    return block;
  }

  // Kept for the next of its kind, in place of kinds that have not been asked for longest: a
  // program that goes on to other shapes would have each of their results faulted in anew else.
  void Keep(const BlockKind& kind, void* block) {
    if (kind.size > most_cached) return std::free(block);
    while (stats.cached_bytes + kind.size > most_cached) {
      auto oldest = kinds.end();
      for (auto it = kinds.begin(); it != kinds.end(); ++it) {
        if (it->second.free.empty()) continue;
        if (oldest == kinds.end() || it->second.last_used < oldest->second.last_used) oldest = it;
      }
      std::free(oldest->second.free.back());
      oldest->second.free.pop_back();
      stats.cached_bytes -= oldest->first.size;
    }
    Blocks& blocks = kinds[kind];
    blocks.free.push_back(block);
    blocks.last_used = ++clock;
    stats.cached_bytes += kind.size;
  }
};

CpuMemory::CpuMemory(int64_t most_cached) : state_(std::make_shared<State>(most_cached)) {}

namespace {

// The block and an unmapped page on each side; its end meets the second one, up to alignment.
absl::StatusOr<std::shared_ptr<Storage>> GuardedBlock(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t inner = RoundUp(std::max<int64_t>(bytes, 1), page);
  char* base = static_cast<char*>(
      mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (base == MAP_FAILED || mprotect(base + page, inner, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("allocate: no memory for ", bytes, " bytes"));
  }
  std::memset(base + page, 0xFF, inner);
  auto storage = std::make_shared<Storage>();
  storage->data = base + page + (inner - bytes) / 8 * 8;
  storage->bytes = bytes;
  storage->deleter = [base, inner, page](Storage&) { munmap(base, inner + 2 * page); };
  return storage;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Storage>> CpuMemory::Allocate(int64_t bytes, Written written) {
  if (bytes < 0 || bytes > (int64_t{1} << 47)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("allocate: ", bytes, " bytes are more than a process can have"));
  }
  if (IntFlag(Flag::kGuardPages) != 0) return GuardedBlock(bytes);
  const int64_t size = SizeClass(bytes);
  const BlockKind kind{size, size >= kLargePage ? written : Written::kWhole};
  void* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    block = state_->Take(kind);
  }
  if (block == nullptr) {
    block = MapBlock(kind);
    if (block == nullptr) {
      Trim();
      block = MapBlock(kind);
    }
    if (block == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("allocate: no memory for ", bytes, " bytes; ", Stats().live_bytes,
                       " are in use. Free tensors, or compute in smaller pieces"));
    }
    std::lock_guard<std::mutex> lock(state_->mutex);
    ++state_->stats.allocations;
  }
  auto storage = std::make_shared<Storage>();
  storage->data = block;
  storage->bytes = bytes;
  storage->deleter = [state = state_, kind](Storage& s) {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->stats.live_bytes -= kind.size;
    state->Keep(kind, s.data);
  };
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->Count(size);
  return storage;
}

MemoryStats CpuMemory::Stats() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->stats;
}

void CpuMemory::Trim() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->Drop();
}

}  // namespace tessera
