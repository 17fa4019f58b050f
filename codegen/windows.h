// Windows of convolutions: an operand that loops over the result and loops of the sum reach by
// their sums alone.
//
// Each element of such an operand is in as many windows as these have places. Laid out for every
// place of every window, as columns in a row are (see codegen/contraction.h), it is written as
// often, which takes long where few rows use it. Laid out once, with the borders that gates would
// cut off, it is read at each place in turn, which moves the vector by an element.
#pragma once

#include "codegen/contraction.h"

namespace tessera {

// The kernel with what its product reads of such an operand in a stage; or nothing where it is none
// of these, or where that is no gain.
UOp StageWindows(const UOp& sink, const Contraction& c, int64_t lanes, const Target& target);

}  // namespace tessera
