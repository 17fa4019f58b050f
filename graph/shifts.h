// Movements along a sharded axis by a number of elements that only a variable knows: what a SHRINK
// from there, a PAD before it, a FLIP of a symbolic axis and a CAT after one have in common.
//
// A place's elements of the result are some window of the source, as far ahead as the variable
// says. What moves is fixed before: each place gets all that its elements may be, for any value,
// and picks its own. So plans, captured steps and the counts of collectives are the same for all
// values, and no place gets what it has no use for, as it would if the axis were gathered. (Boxes
// that shift at run time would move less for each value, and would have every back end size its
// messages anew.)
#pragma once

#include <vector>

#include "graph/layout.h"
#include "graph/uop.h"

namespace tessera {

struct Shift {
  int axis = 0;
  // The element at i of the result is that at i + ahead of the source, or at ahead - 1 - i where it
  // turns; ahead lies between these.
  int64_t low = 0, high = 0;
  bool turns = false;
  // Where a place's own elements begin in all that they may be.
  Extent start = 0;

  // The source positions that a piece of the result may come from, in bounds or not; and those of
  // them within the source's n elements.
  Interval MayBe(const Interval& piece) const;
  Interval Reads(const Interval& piece, int64_t n) const;
};

// Those of a node on a Sharding from source k, by axis; none where all pieces stay where they lie,
// or move by as much for all values.
std::vector<Shift> ShiftsOf(const UOp& u, int k = 0);

}  // namespace tessera
