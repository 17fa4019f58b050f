// The buffers alive, by id.
#include "graph/buffer.h"

#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

struct Registry {
  std::mutex mutex;
  int64_t next_id = 0;
  absl::flat_hash_map<int64_t, Buffer*> alive;
  static Registry& Get() {
    static Registry& registry = *new Registry;
    return registry;
  }
  int64_t Add(Buffer* buffer) {
    std::lock_guard<std::mutex> lock(mutex);
    alive.emplace(next_id, buffer);
    return next_id++;
  }
};

}  // namespace

uint64_t NextStamp() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Contents ContentsOf(const Storage& storage) {
  Contents out;
  out.own = out.newest = storage.stamp.load(std::memory_order_acquire);
  for (const auto& part : storage.parts) {
    out.newest = std::max(out.newest, part->stamp.load(std::memory_order_acquire));
  }
  return out;
}

void WillWrite(Storage& storage) {
  storage.stamp.store(NextStamp(), std::memory_order_release);
  for (const auto& part : storage.parts) {
    part->stamp.store(NextStamp(), std::memory_order_release);
  }
}

bool MayChangeUnseen(const Storage& storage) {
  return storage.is_shared || std::any_of(storage.parts.begin(), storage.parts.end(),
                                          [](const auto& part) { return part->is_shared.load(); });
}

absl::Status CheckNotLost(const Storage& storage, const std::string& what) {
  if (storage.lost == nullptr) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(what, " holds no values any more: an error stopped what was writing to it (",
                   *storage.lost, "); Assign to all of it, or make it anew"));
}

Buffer::Buffer() : id(Registry::Get().Add(this)) {}

Buffer::~Buffer() {
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.alive.erase(id);
}

std::shared_ptr<Buffer> FindBuffer(int64_t id) {
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto it = registry.alive.find(id);
  // A buffer that is being destroyed is still listed, and has no owner left to share.
  return it == registry.alive.end() ? nullptr : it->second->weak_from_this().lock();
}

}  // namespace tessera
