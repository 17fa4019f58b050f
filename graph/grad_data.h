// The adjoints of movement, reductions, and what brings data together or to other places.
#pragma once

#include "absl/container/inlined_vector.h"
#include "graph/tensor.h"

namespace tessera {

// A cotangent of each source, or none where nothing flows there.
using Cotangents = absl::InlinedVector<Tensor, 3>;

// Given the node's cotangent g. Where `y` is asked for it is the finished result, whichever places
// took part in it.
Tensor OfReduce(const UOp& reduce, const Tensor& y, const Tensor& g);
Tensor OfMovement(const UOp& u, const Tensor& g);
Cotangents OfScatter(const UOp& u, const Tensor& y, const Tensor& g);
// Of all other ops that are not elementwise.
Cotangents OfData(const UOp& u, const Tensor& g);

// A cotangent where what it is of lies.
UOp CotangentAt(const Tensor& g, Device device);

// Whether an ALLREDUCE combines what is each place's own.
bool IsOwn(const UOp& all_reduce);

}  // namespace tessera
