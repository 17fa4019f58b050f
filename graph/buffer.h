// Storage of a tensor: bytes that the runtime supplies and frees.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/device.h"
#include "graph/dtype.h"

namespace tessera {

// A number that none was before, in this process.
uint64_t NextStamp();

// Bytes on one device. The deleter is the runtime's.
struct Storage {
  void* data = nullptr;
  int64_t bytes = 0;
  std::function<void(Storage&)> deleter;
  // Of a tensor on a Sharding: the storage of each place, in order; there is no data of its own.
  std::vector<std::shared_ptr<Storage>> parts;
  // Changes whenever a plan writes here: see Contents.
  std::atomic<uint64_t> stamp{NextStamp()};
  // Where an error stopped a plan that was writing here: that error's message. Nobody knows what
  // the bytes are, and nothing reads them.
  std::shared_ptr<const std::string> lost;
  // Whether others may write here at any time: memory of the caller, or lent to another library.
  std::atomic<bool> is_shared{false};
  Storage() = default;
  Storage(const Storage&) = delete;
  ~Storage() {
    if (deleter) deleter(*this);
  }
};

// What a storage holds: equal for as long as no plan has written to it or to one of its parts.
struct Contents {
  uint64_t own = 0, newest = 0;
  friend bool operator==(const Contents&, const Contents&) = default;
};
Contents ContentsOf(const Storage& storage);
// Before a plan writes to a storage.
void WillWrite(Storage& storage);
// Whether its contents may change without a plan that writes to it.
bool MayChangeUnseen(const Storage& storage);

// An error that says what to do, about what is named, where the bytes are lost.
absl::Status CheckNotLost(const Storage& storage, const std::string& what);

struct History;

// What a BUFFER node stands for. Two buffers are never the same one, whatever they hold. The
// storage is empty until something is computed into it.
struct Buffer : std::enable_shared_from_this<Buffer> {
  const int64_t id;
  std::shared_ptr<Storage> storage;
  std::shared_ptr<const History> history;  // see graph/history.h
  std::vector<size_t> computed_from;       // hashes of the nodes, where there is no history
  bool stands_for_input = false;           // of a function that is traced: it never has values
  Buffer();
  ~Buffer();
  Buffer(const Buffer&) = delete;
};

// The buffer of this id, if it is alive.
std::shared_ptr<Buffer> FindBuffer(int64_t id);

}  // namespace tessera
