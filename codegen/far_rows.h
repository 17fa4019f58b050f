// Reductions down the columns of a matrix, whose rows lie far apart: sums over axis 0, products of
// a vector and a matrix in rows.
//
// Done column by column, as registers want it, they read a few lines of a row, then of the next one
// some pages on, and wait for memory each time: no hardware fetches such lines ahead. So that rows
// are read for a page at a time, some together, a piece of the columns is reduced over a few rows,
// then over the next few, and so on; what each gives stays in scratch, from which the second
// reduction reads it; rows that are left over are reduced as they lie. With 16 rows that is an
// eighth as many bytes again, of a near cache. (One core, 1 x 2048 x 4096 of f32: 10.4 ms by
// columns, 2.7 with rows asked for ahead, 1.5 so; reading the matrix takes 1.1.)
#pragma once

#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// The kernel with its reduction in two; or nothing where it is none of these.
UOp ReduceFarRows(const UOp& sink, const RangeSets& sets, const Target& target);

}  // namespace tessera
