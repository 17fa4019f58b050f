// What is done to storage before a plan runs, and taken back where it does not run.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "graph/buffer.h"

namespace tessera {

// Which storage leaves were given for a plan: taken back with it, unless it has run or begun to
// write there.
class Rollback {
 public:
  Rollback() = default;
  Rollback(const Rollback&) = delete;
  ~Rollback() {
    for (auto c = changes_.rbegin(); c != changes_.rend(); ++c) {
      if (c->written->lost == nullptr) c->buffer->storage = std::move(c->before);
    }
  }
  // The plan has run.
  void Keep() { changes_.clear(); }

  void Give(Buffer& buffer, std::shared_ptr<Storage> storage) {
    changes_.push_back({buffer.shared_from_this(), nullptr, storage});
    buffer.storage = std::move(storage);
  }
  // The plan writes to what the buffer had until now.
  void Replace(Buffer& buffer, std::shared_ptr<Storage> storage) {
    changes_.push_back({buffer.shared_from_this(), buffer.storage, buffer.storage});
    buffer.storage = std::move(storage);
  }
  bool WasGiven(const Buffer& buffer) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& c) {
      return c.buffer.get() == &buffer && c.before == nullptr;
    });
  }

 private:
  struct Change {
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<Storage> before, written;
  };
  std::vector<Change> changes_;
};

}  // namespace tessera
