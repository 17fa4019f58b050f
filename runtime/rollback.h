// What is done to storage before a plan runs, and taken back where it does not run.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "graph/buffer.h"
#include "graph/status.h"
#include "runtime/mesh.h"

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
  // Where the next version of what a buffer holds may be written, while others go on reading this
  // one: a copy. But memory that others see is written itself, and the readers get the copy; what
  // this plan was given holds nothing to be read.
  absl::StatusOr<std::shared_ptr<Storage>> ToOverwrite(Buffer& buffer, Device device) {
    const std::shared_ptr<Storage> now = buffer.storage;
    const bool given = std::any_of(changes_.begin(), changes_.end(), [&](const Change& c) {
      return c.buffer.get() == &buffer && c.before == nullptr;
    });
    std::shared_ptr<Storage> copy;
    if (!given) {
      ASSIGN_OR_RETURN(copy, CopyStorage(*now, device));
      if (!MayChangeUnseen(*now)) return copy;
    }
    changes_.push_back({buffer.shared_from_this(), now, now});
    buffer.storage = std::move(copy);
    return now;
  }

 private:
  struct Change {
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<Storage> before, written;
  };
  std::vector<Change> changes_;
};

}  // namespace tessera
