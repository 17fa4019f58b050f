// Numbers of a graph or kernel that become VARs, so that one plan or kernel serves others too.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "graph/uop.h"

namespace tessera {

// What the VARs begin with whose values say how many random numbers were drawn before.
inline constexpr absl::string_view kDrawVariable = "@draw";

// A constant as the integer that its VAR has: of a float the bits.
int64_t NumberOf(const UOp& constant);

// What stands for constants of a dtype: their value is that of the VAR.
UOp ConstantFrom(DType dtype, const std::string& var);

// Whether a number that this node takes is best known: masks, shifts and divisors of integers,
// which whole kernels are recognised by.
bool RecognisedByNumbers(const UOp& u);

}  // namespace tessera
