// Staging: a value kept in a core's scratch instead of being computed or gathered again.
#pragma once

#include "graph/kernel_form.h"
#include "graph/target.h"

namespace tessera {

// What reads `value` reads a STAGE of it instead, filled over `ranges` (all of constant extent).
// The value's other ranges stay those of the loops around.
UOp StageValue(const UOp& sink, const UOp& value, const std::vector<UOp>& ranges);

// Stages expensive values that more than one loop of a row would compute, where a row fits cache.
UOp StageRecomputed(const UOp& sink, const Target& target);

}  // namespace tessera
