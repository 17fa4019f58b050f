// Types and values as the prelude (codegen/prelude/) writes them.
#pragma once

#include <string>

#include "graph/dtype.h"

namespace tessera {

// rt_f32, rt_vec<rt_f32, 16>
std::string TypeName(DType t);

// A value; narrow floats are given by their bits.
std::string Literal(Scalar v, DType t);

}  // namespace tessera
