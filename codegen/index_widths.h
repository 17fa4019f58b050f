// In which dtype a text computes i64: positions in memory are that, and on a GPU cost several times
// as much as i32.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "graph/uop.h"

namespace tessera {

class IndexWidths {
 public:
  explicit IndexWidths(bool may_narrow = false) : may_narrow_(may_narrow) {}

  // A node's: i32 where its bounds fit, and those of what it is computed from.
  DType Of(const UOp& u);
  // That of a node's i64 operands: i32 if all are and the result is, and not where all 64 bits are
  // asked for, by what takes them apart.
  DType OfOperands(const UOp& u);

 private:
  bool may_narrow_;
  absl::flat_hash_map<const Node*, DType> of_;
};

}  // namespace tessera
