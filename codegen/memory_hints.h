// Which accesses of a kernel say how they use the caches: results that leave them, rows fetched
// ahead.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

struct MemoryHints {
  // STOREs of vectors to a result that no cache holds until it is read: a plain store would read
  // each line first, and drive out what is still wanted.
  absl::flat_hash_set<const Node*> streamed;
  // LOADs, with the elements from each to its like in the next row. A row that several loops read
  // one after another waits for memory in the first only, while the others leave memory idle: the
  // last of them asks for the row after. (Hardware follows no stream across pages.)
  absl::flat_hash_map<const Node*, int64_t> ahead;
};

// For a kernel whose lanes are expanded.
MemoryHints FindMemoryHints(const RangeSets& sets, const Target& target);

}  // namespace tessera
