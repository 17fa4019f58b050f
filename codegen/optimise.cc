// Optimisation choices (none yet).
#include "codegen/passes.h"

namespace tessera {

UOp Optimise(const UOp& sink, const Target& target) { return sink; }
UOp Expand(const UOp& sink) { return sink; }

}  // namespace tessera
