// Capture and replay: a step written with Tensors, scheduled and compiled once, then only run.
//
//   Variable position("position", 0, 4095);
//   Jit step([&](const Tensor& token) {
//     cache.Slice({{position, position + 1}}).Assign(token);
//     return cache.Slice({{0, position + 1}}).Sum({0});
//   });
//   Tensor sum = step.One({token}, {{"position", 5}});
//
// What a step may rely on:
//   Inputs, and tensors that it captures from outside, are read as they are at each call, and what
//   it assigns to them happens at each call, returned or not. Results are new tensors each time;
//   an extent that depends on a Variable becomes the number it has in that call. An input or a
//   captured tensor that is returned is that tensor itself. Random numbers go on with the process's
//   counter and seed. Gradients of tensors from outside are made, added to and cleared at each
//   call. Inputs of other shapes, dtypes or devices are captured beside the others.
//   What depends on captured tensors alone, as a weight laid out for a product, is computed again
//   only when one of them has changed, and kept until then (KEEP_MIB in graph/flags.h).
//   Everything else that C++ computes runs once, at capture: `x * rate` keeps the rate that it
//   had then. Pass what changes as a tensor or as a Variable.
// What is an Error: reading values or seeding inside the step; an empty input; storing a tensor
// made by the step in a variable outside instead of returning or assigning it; a captured tensor
// that nothing else holds any more (its variable was given another tensor: Assign to it instead);
// a step that overwrites a tensor which it also gets by another way in the same call.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/tensor_function.h"
#include "runtime/realize.h"

namespace tessera {

class Jit {
 public:
  using Step = TensorsToTensors;

  // Of a function from a vector of tensors, or from up to 8 of them, to a vector, one or none.
  template <typename Fn>
  requires(!std::is_same_v<std::decay_t<Fn>, Jit>) explicit Jit(Fn fn)
      : Jit(Erased{internal::AsTensorsToTensors("Jit: the step", std::move(fn))}) {}
  ~Jit();
  Jit(Jit&&) noexcept;

  // Any number of threads may call at once, as long as they do not assign to the same tensors and
  // those that they share, given or captured, are realised.
  // Inside a step that is being captured, a Jit is a plain function.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, const Bindings& values = {},
                                 CallSite at = CallSite::Here());
  // The only result of the step.
  Tensor One(const std::vector<Tensor>& inputs, const Bindings& values = {},
             CallSite at = CallSite::Here());

  // How many steps are kept: one for each signature of the inputs, of those last used; at most 64.
  int captures() const;

 private:
  struct Erased {
    Step step;
  };
  struct Impl;
  explicit Jit(Erased step);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
