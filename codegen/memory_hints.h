// Which accesses of a kernel say how they use the caches: results that leave them, rows fetched
// ahead.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

inline constexpr int64_t kLineBytes = 64;  // of a cache

struct MemoryHints {
  // STOREs of vectors to a result that no cache holds until it is read: a plain store would read
  // each line first, and drive out what is still wanted.
  absl::flat_hash_set<const Node*> streamed;
  // LOADs, with the elements from each to its like in the next row. Hardware follows no stream
  // across pages, so the first touch of each row waits for memory. Rows of a large buffer are
  // asked for while the row before is worked on, short ones some rows before. Where several loops
  // read a row one after another, all but the first from the caches, memory would idle meanwhile:
  // rows are asked for further before, by the last of them, and short ones by the last that does
  // not write. Of several streams that are read on and on far from one another less is asked for,
  // the least where there is little to compute, but as much as the target wants.
  absl::flat_hash_map<const Node*, int64_t> ahead;
  // FRAGMENTs of a panel of tiles that lies in memory, of which each part is read for one square of
  // rows after another: meanwhile the next part is asked for, a tile's rows shared by the squares.
  // To the second cache: both parts are more than the first holds. (4096 x 4096: 6 % less time.)
  struct NextPart {
    UOp square;        // the loop over squares
    int64_t by = 0;    // elements to the next part's like
    int64_t row = 0;   // from one row of a tile to the next
    int64_t rows = 0;  // that each square asks for
  };
  absl::flat_hash_map<const Node*, NextPart> parts;
  // FRAGMENTs of the squares' rows, each read once while a part of a panel is read by all of them:
  // they leave the first cache to it. (Parts of twice the size fit then: bf16 products of 512 and
  // 2048 took 9 % less time.)
  absl::flat_hash_set<const Node*> once;
};

// For a kernel whose lanes are expanded.
MemoryHints FindMemoryHints(const RangeSets& sets, const Target& target);

}  // namespace tessera
