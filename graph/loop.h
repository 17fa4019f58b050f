// A turn that repeats, as one node: a graph does not grow with the number of turns.
//
//   // A recurrent network: h is carried from turn to turn, each turn takes a row of xs.
//   Looped out = Loop([&](const Tensor& h, const Tensor& x) {
//     const Tensor next = (x + h.MatMul(w)).Tanh();
//     return std::vector<Tensor>{next, next};  // what is carried on; what is stacked
//   }, {h0}, {xs});
//   out.carried[0];  // h after the last turn
//   out.stacked[0];  // all of them: [turns, ...]
//
// The function is called once (and once more where nothing that is passed is on a device yet, and
// what it captures is on several) with what is carried and an element along the first axis of each
// sequence; it returns as many values to carry on, of the same dtypes, shapes and devices, and then
// any number that are stacked. What it captures is the same in each turn, and computed once: so are
// random numbers that it draws (draw them outside, whole, and pass them as a sequence). It may
// branch on shapes, but not read values; what it assigns to is its own, anew in each turn. A loop
// has gradients, of any order, by a loop that goes back and computes each turn again, from what was
// carried into it: that is kept of all turns. No turns leave what was carried as it was. A loop may
// lie within a loop, a Jit, a Vmap. On one device it is compiled once for all turns; where what it
// takes is on several places each turn is written out by a call of its own, and the number of turns
// is known.
#pragma once

#include <optional>
#include <vector>

#include "graph/tensor_function.h"

namespace tessera {

struct Looped {
  std::vector<Tensor> carried;  // after the last turn
  std::vector<Tensor> stacked;  // a value of each turn, where its element of the sequences lies
};

struct LoopOptions {
  std::optional<Extent> turns = std::nullopt;  // needed where there is no sequence
  bool backwards = false;                      // from the last elements to the first
};

Looped Loop(const TensorFunction& turn, const std::vector<Tensor>& carried,
            const std::vector<Tensor>& sequences = {}, const LoopOptions& options = {});

}  // namespace tessera
