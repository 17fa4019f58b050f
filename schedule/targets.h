// The chips that one graph runs on.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/device.h"
#include "graph/target.h"

namespace tessera {

// A Target for each kind of place. What has no device runs at home.
class Targets {
 public:
  Targets(Target home) : home_(std::move(home)) {}
  Targets(Device home, Target target) : home_(std::move(target)) { kind_ = KindOf(home); }

  bool Knows(Device device) const { return Find(device) != nullptr; }
  void Add(Device device, Target target) {
    others_.emplace_back(KindOf(device), std::move(target));
  }
  const Target& home() const { return home_; }
  // Of a kind that was not added: home's.
  const Target& Of(Device device) const {
    const Target* const found = Find(device);
    return found != nullptr ? *found : home_;
  }

 private:
  // All places of a device are of one kind.
  static std::string KindOf(Device device) { return device.places()[0].kind(); }
  const Target* Find(Device device) const {
    if (!device || KindOf(device) == kind_) return &home_;
    for (const auto& [kind, target] : others_) {
      if (kind == KindOf(device)) return &target;
    }
    return nullptr;
  }

  Target home_;
  std::string kind_;
  std::vector<std::pair<std::string, Target>> others_;
};

}  // namespace tessera
