// What calls do under NoGrad: their results become constants to derivatives.
#pragma once

#include "graph/tensor.h"

namespace tessera::internal {

// The value without a derivative; as it is where it has none.
UOp AsConstant(const UOp& u);

// At the begin and the end of a call of the user's, and wherever a tensor comes to be.
void CallBegins();
void MadeInCall(const Tensor& t);
void CallEnds();

}  // namespace tessera::internal
