// The kernel table in memory, and the way from a text to a function through the disk cache.
#include "runtime/jit.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/fault.h"
#include "graph/flags.h"
#include "graph/status.h"
#include "runtime/jit_compiler.h"
#include "runtime/kernel_cache.h"
#include "runtime/over_threads.h"

namespace tessera {
namespace {

// Each takes two or three mappings, of which Linux gives a process 65530.
constexpr int64_t kMaxKernels = 4096;

// One kernel that is there or being made. (The race detector sees through std::mutex, and not
// through the absl::Mutex of a packaged abseil.)
struct Entry {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;  // with the mutex held, as the next
  absl::StatusOr<CpuKernelPtr> kernel = CpuKernelPtr();
  uint64_t used = 0;  // by the table's clock; with the table's mutex held
};

struct Table {
  std::mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<Entry>> entries;  // with the mutex held
  uint64_t clock = 0;                                                // likewise, as the next
  int64_t limit = kMaxKernels;
  std::atomic<int64_t> memory_hits{0}, disk_hits{0}, compiles{0}, broken_entries{0};
};

// Leaked: threads may still compile while the process exits.
Table& GetTable() {
  static Table* const table = new Table;
  return *table;
}

// Forgets the kernels asked for longest ago, with the mutex held. A look at all entries costs less
// than the kernel whose making needs one.
void Forget(Table& table, int64_t limit) {
  while (static_cast<int64_t>(table.entries.size()) > limit) {
    auto oldest = table.entries.begin();
    for (auto it = table.entries.begin(); it != table.entries.end(); ++it) {
      if (it->second->used < oldest->second->used) oldest = it;
    }
    table.entries.erase(oldest);
  }
}

// Lengths keep the parts of a key apart.
std::string TableKey(absl::string_view text, absl::string_view entry, const Target& target) {
  const std::string target_key = target.Key();
  const std::string length = absl::StrCat(text.size());
  if (FaultPlanted(Fault::kKernelKeyByLength)) text = length;
  return absl::StrCat(entry.size(), ",", target_key.size(), ",", IntFlag(Flag::kJit), "\n", entry,
                      "\n", target_key, "\n", text);
}

absl::StatusOr<CpuKernelPtr> Link(absl::string_view object, absl::string_view entry) {
  auto kernel = std::make_shared<CpuKernel>();
  ASSIGN_OR_RETURN(kernel->object, LoadedObject::Load(object));
  kernel->fn = reinterpret_cast<CpuKernelFn>(kernel->object->Symbol(entry));
  if (kernel->fn == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a kernel's text defines no extern \"C\" function '", entry, "'"));
  }
  return CpuKernelPtr(std::move(kernel));
}

absl::StatusOr<CpuKernelPtr> MakeKernel(absl::string_view text, absl::string_view entry,
                                        const Target& target) {
  Table& table = GetTable();
  const KernelCache cache = KernelCache::FromFlags();
  const std::string compiler = CompilerIdentity();
  const auto cached = cache.Load(KernelCacheKey(text, target, compiler));
  if (cached.ok()) {
    auto kernel = Link(*cached, entry);
    if (!absl::IsDataLoss(kernel.status())) {
      if (kernel.ok()) table.disk_hits.fetch_add(1);
      return kernel;
    }
    table.broken_entries.fetch_add(1);
  } else if (absl::IsDataLoss(cached.status())) {
    table.broken_entries.fetch_add(1);
  }
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const std::string object, CompileToObject(text, target));
  ASSIGN_OR_RETURN(CpuKernelPtr kernel, Link(object, entry));
  table.compiles.fetch_add(1);
  if (IntFlag(Flag::kDebug) >= 2) {
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "tessera: compiled %s in %.1f ms, %zu bytes\n", std::string(entry).c_str(),
                 ms.count(), object.size());
  }
  // The compiler is named again: the plugin may have turned out to be unusable. The store may
  // fail, and reports that itself.
  (void)cache.Store(KernelCacheKey(text, target, CompilerIdentity()), object);
  return kernel;
}

// The same, where whatever is thrown (there is no memory) is an error: others wait for the kernel.
absl::StatusOr<CpuKernelPtr> TryMakeKernel(absl::string_view text, absl::string_view entry,
                                           const Target& target) {
  try {
    return MakeKernel(text, entry, target);
  } catch (const std::exception& e) {
    return absl::ResourceExhaustedError(
        absl::StrCat("jit: the kernel ", entry, " cannot be made: ", e.what()));
  }
}

bool InMemory(const KernelRequest& request, const Target& target) {
  Table& table = GetTable();
  const std::string key = TableKey(request.text, request.entry, target);
  std::lock_guard<std::mutex> lock(table.mutex);
  return table.entries.contains(key);
}

}  // namespace

absl::StatusOr<CpuKernelPtr> GetKernel(absl::string_view text, absl::string_view entry,
                                       const Target& target) {
  Table& table = GetTable();
  std::string key = TableKey(text, entry, target);
  std::shared_ptr<Entry> found;
  bool ours = false;
  {
    std::lock_guard<std::mutex> lock(table.mutex);
    std::shared_ptr<Entry>& slot = table.entries[key];
    ours = slot == nullptr;
    if (ours) slot = std::make_shared<Entry>();
    slot->used = ++table.clock;
    found = slot;
    if (ours) Forget(table, table.limit);
  }
  if (!ours) {
    std::unique_lock<std::mutex> lock(found->mutex);
    found->ready.wait(lock, [&] { return found->done; });
    if (found->kernel.ok()) table.memory_hits.fetch_add(1);
    return found->kernel;
  }
  absl::StatusOr<CpuKernelPtr> kernel = TryMakeKernel(text, entry, target);
  if (!kernel.ok()) {
    std::lock_guard<std::mutex> lock(table.mutex);
    const auto at = table.entries.find(key);
    if (at != table.entries.end() && at->second == found) table.entries.erase(at);
  }
  std::lock_guard<std::mutex> lock(found->mutex);
  found->kernel = kernel;
  found->done = true;
  found->ready.notify_all();
  return kernel;
}

absl::StatusOr<std::vector<CpuKernelPtr>> CompileAll(absl::Span<const KernelRequest> requests,
                                                     const Target& target) {
  const int64_t n = requests.size();
  int64_t missing = 0;
  for (const KernelRequest& request : requests) missing += InMemory(request, target) ? 0 : 1;
  std::vector<absl::StatusOr<CpuKernelPtr>> results(n, CpuKernelPtr());
  OverThreads(n, std::min<int64_t>(target.cores, missing), [&](int64_t i) {
    results[i] = GetKernel(requests[i].text, requests[i].entry, target);
  });
  std::vector<CpuKernelPtr> kernels;
  for (auto& result : results) {
    RETURN_IF_ERROR(result.status());
    kernels.push_back(*std::move(result));
  }
  return kernels;
}

void ClearKernels() {
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  table.entries.clear();
}

int64_t SetKernelLimit(int64_t kernels) {
  CHECK(kernels > 0);
  Table& table = GetTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  Forget(table, kernels);
  return std::exchange(table.limit, kernels);
}

JitStats GetJitStats() {
  const Table& table = GetTable();
  return {table.memory_hits.load(), table.disk_hits.load(), table.compiles.load(),
          table.broken_entries.load()};
}

}  // namespace tessera
