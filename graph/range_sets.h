// Sets of RANGEs as small integers, so that the many nodes that depend on the same ranges share
// one.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace tessera {

class RangeSets {
 public:
  using Id = int;  // 0 is the empty set
  RangeSets() { Intern({}); }
  Id Union(Id a, Id b);
  Id With(Id a, int range);
  Id Without(Id a, absl::Span<const int> ranges);
  bool Contains(Id a, int range) const;
  bool Disjoint(Id a, Id b) const;
  absl::Span<const int> Elements(Id a) const { return sets_[a]; }  // ascending

 private:
  Id Intern(std::vector<int> set);
  std::vector<std::vector<int>> sets_;
  absl::flat_hash_map<std::vector<int>, Id> ids_;
  absl::flat_hash_map<std::pair<Id, Id>, Id> unions_;
};

}  // namespace tessera
