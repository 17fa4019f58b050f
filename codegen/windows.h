// Windows of convolutions: an operand that loops over the result and loops of the sum reach by
// their sums alone.
//
// Each element of such an operand is in as many windows as these have places. Laid out for every
// place of every window, as columns in a row are (see codegen/contraction.h), it is written as
// often, which takes long where few rows use it. Laid out once, with the borders that gates would
// cut off, it is read at each place in turn, in one of two forms:
//
// Along all columns, the adjacent ones as well: lanes then run along one row of the result, those
// that it does not fill are idle, and a place further on is a vector an element further on.
//
// Along the others alone, and for every place of the adjacent ones: what is laid out is in rows as
// long as the result's, so that lanes run over their ends, and none is idle.
#pragma once

#include "codegen/contraction.h"

namespace tessera {

// The kernel with what its product reads of such an operand in a stage; or nothing where it is none
// of these, or where that is no gain. `narrow`: before it is widened, in the first form, and to be
// laid out for every place from there.
UOp StageWindows(const UOp& sink, const Contraction& c, bool narrow, int64_t lanes,
                 const Target& target);

// In how many windows an element of the operand of the columns is: steps of the sum that move it as
// a column does, of all such loops together.
int64_t WindowsOfElement(const Contraction& c, const RangeSets& sets);

}  // namespace tessera
