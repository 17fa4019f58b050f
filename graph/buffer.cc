// The buffers alive, by id.
#include "graph/buffer.h"

#include <mutex>

#include "absl/container/flat_hash_map.h"

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
