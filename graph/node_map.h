// Nodes by who they are, for walks over graphs: as flat_hash_map and flat_hash_set, but nothing is
// ever erased and values move as the map grows.
//
// Half of what passes do is to look nodes up: a table that is at most half full answers at the
// first or second place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "graph/status.h"
#include "graph/uop.h"

namespace tessera {

template <typename Value>
class NodeMap {
 public:
  NodeMap() = default;
  explicit NodeMap(size_t expected) { Resize(absl::bit_ceil(2 * expected + kFewest)); }

  // The value of a node, and whether that is new.
  std::pair<Value*, bool> TryEmplace(const Node* node, Value value = {}) {
    if (2 * (size_ + 1) > slots_.size()) Resize(std::max(kFewest, 4 * slots_.size()));
    Slot& slot = slots_[PlaceOf(node)];
    const bool fresh = slot.node == nullptr;
    if (fresh) slot = {node, std::move(value)}, ++size_;
    return {&slot.value, fresh};
  }

  const Value* Find(const Node* node) const {  // null where there is none
    if (size_ == 0) return nullptr;
    const Slot& slot = slots_[PlaceOf(node)];
    return slot.node != nullptr ? &slot.value : nullptr;
  }

  bool Contains(const Node* node) const { return Find(node) != nullptr; }

  const Value& At(const Node* node) const {
    const Value* found = Find(node);
    CHECK(found != nullptr, "a node that the map does not have");
    return *found;
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    [[no_unique_address]] Value value{};
  };
  static constexpr size_t kFewest = 32;

  // Where a node is, or would be.
  size_t PlaceOf(const Node* node) const {
    size_t at = (reinterpret_cast<uintptr_t>(node) * 0x9e3779b97f4a7c15u >> 32) & mask_;
    while (slots_[at].node != nullptr && slots_[at].node != node) at = (at + 1) & mask_;
    return at;
  }

  void Resize(size_t power_of_two) {
    std::vector<Slot> old(power_of_two);
    slots_.swap(old);
    mask_ = power_of_two - 1;
    for (Slot& s : old) {
      if (s.node != nullptr) slots_[PlaceOf(s.node)] = std::move(s);
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, size_ = 0;
};

class SeenNodes {
 public:
  // Whether the node is new.
  bool Insert(const Node* node) { return nodes_.TryEmplace(node).second; }
  bool Contains(const Node* node) const { return nodes_.Contains(node); }

 private:
  struct Nothing {};
  NodeMap<Nothing> nodes_;
};

}  // namespace tessera
