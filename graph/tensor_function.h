// Functions from tensors to tensors: what Jit, Vmap, Jvp, Jacobian and others take.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

using TensorsToTensors = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

namespace internal {

// An Error unless a function of so many tensors is given as many; `what` is the function's name.
void CheckArity(const char* what, size_t takes, size_t given);

inline constexpr int kMostArity = 8;

// What fn makes of these, as a vector: it gives one, one tensor or none.
template <typename Fn, typename... Args>
std::vector<Tensor> ResultsOf(Fn& fn, const Args&... args) {
  using Result = std::invoke_result_t<Fn&, const Args&...>;
  if constexpr (std::is_void_v<Result>) {
    fn(args...);
    return {};
  } else if constexpr (std::is_same_v<Result, Tensor>) {
    return {fn(args...)};
  } else {
    return fn(args...);
  }
}

template <size_t>
using EachTensor = const Tensor&;

// A function from a vector of tensors, or from up to 8 of them, to a vector, one or none.
template <int arity = 0, typename Fn>
TensorsToTensors AsTensorsToTensors(const char* what, Fn fn) {
  using Inputs = std::vector<Tensor>;
  if constexpr (std::is_invocable_v<Fn&, const Inputs&>) {
    return [fn = std::move(fn)](const Inputs& inputs) mutable { return ResultsOf(fn, inputs); };
  } else {
    static_assert(arity <= kMostArity, "a function takes a vector of tensors or up to 8 of them");
    const auto of_each = [&]<size_t... i>(std::index_sequence<i...>)->TensorsToTensors {
      if constexpr (std::is_invocable_v<Fn&, EachTensor<i>...>) {
        return [what, fn = std::move(fn)](const Inputs& inputs) mutable {
          CheckArity(what, arity, inputs.size());
          return ResultsOf(fn, inputs[i]...);
        };
      } else {
        return AsTensorsToTensors<arity + 1>(what, std::move(fn));
      }
    };
    return of_each(std::make_index_sequence<arity>());
  }
}

}  // namespace internal

// One that is passed to Vmap and its like: a lambda becomes one, and where it is passed is the call
// that errors name.
class TensorFunction {
 public:
  template <typename Fn>
  requires(!std::is_same_v<std::decay_t<Fn>, TensorFunction>)
      TensorFunction(Fn fn, CallSite at = CallSite::Here())
      : function_(internal::AsTensorsToTensors("the function", std::move(fn))), at_(at) {}

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    return function_(inputs);
  }
  CallSite at() const { return at_; }

 private:
  TensorsToTensors function_;
  CallSite at_;
};

}  // namespace tessera
