// Making LOOPs of bodies. Private to the files of loops, their gradients and batches.
#pragma once

#include <map>
#include <vector>

#include "graph/loop_form.h"

namespace tessera::internal {

// A loop that is not made yet. The body's nodes stand for what a turn takes by placeholders: nodes
// of the caller's that nothing outside of the body has.
struct LoopParts {
  UOp turns;
  std::vector<UOp> carried, sequences;             // what they begin with, and read
  std::vector<UOp> carried_items, sequence_items;  // the placeholders
  std::vector<UOp> results;                        // of a turn: carried values, then stacked ones
  bool backwards = false;
};

// The LOOP. What the results are made of besides placeholders becomes fixed: computed once,
// outside.
UOp MakeLoop(const LoopParts& parts);

// A result of it, by number.
UOp ResultOf(const UOp& loop, int number);

// A leaf that stands for nothing else: of the shape, on the device if there is one.
UOp NewItem(DType dtype, const Shape& shape, Device device);

// What the turns of a loop give, over placeholders of its own: equal ITEMs of other loops are the
// same nodes.
struct OpenBody {
  std::vector<UOp> results;
  std::map<int64_t, UOp> items;  // by number, those that are there
};
OpenBody Opened(const LoopForm& loop);

}  // namespace tessera::internal
