// Loops that go by the places of several values put between one another.
//
// What a stride takes apart, as the gradient of a convolution does, or repeats, as that of a pool
// does, is put together again by index: point i has to do with element i / s of what i % s says.
// Lanes along such a loop would be gathered, or each chosen from all that it might be. As a loop
// over elements, and within it one over the s places of each, which is written out, lanes run along
// the former: each place reads vectors, and what they make is interleaved where it is stored.
#pragma once

#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// The kernel of one store with such loops in two, or nothing where it has none.
UOp SplitResidues(const UOp& sink, const Target& target);

}  // namespace tessera
