// Functions over batches: what is written for one sample, run for many at once.
//
//   // The gradient of each sample:
//   Tensor g = Vmap([&](const Tensor& x, const Tensor& y) {
//     return Grad((x.Dot(w) - y).Square(), {w})[0];
//   }, xs, ys);
//   // Columns instead of rows, beside one table for all:
//   Tensor y = Vmap(f, Along(x, 1), Whole(table));
//
// The function is called once, with a tensor of a sample's shape for each input, and the graph that
// it writes is rewritten with the batch as one more axis of all that depends on a sample: no loop
// over samples, the same kernels as of a function that was written for batches. It may branch on
// shapes, but not read values; what it captures is the same for all samples, and so are the random
// numbers that it draws; what it assigns to must be its own. Backward would leave a sample's
// gradient behind: use Grad. Vmap within Vmap, under Jit, and of what is sharded work as any
// expression does; the batch may be sharded, or symbolic.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/tensor_function.h"

namespace tessera {

// An input: the axis of it along which samples lie; or none, where it is the same for all.
struct VmapInput {
  Tensor tensor;
  std::optional<int> axis;
  VmapInput(const Tensor& t, std::optional<int> along = 0) : tensor(t), axis(along) {}
};
inline VmapInput Along(const Tensor& t, int axis) { return {t, axis}; }
inline VmapInput Whole(const Tensor& t) { return {t, std::nullopt}; }

// Of each result, the samples lie along an axis (-1: the last). What does not depend on a sample is
// repeated.
std::vector<Tensor> Vmap(const TensorFunction& function, const std::vector<VmapInput>& inputs,
                         int out_axis = 0);

// Of one result, along its first axis.
template <typename... Inputs>
requires(sizeof...(Inputs) > 0 && (std::is_convertible_v<const Inputs&, VmapInput> && ...)) Tensor
    Vmap(const TensorFunction& function, const Inputs&... inputs) {
  std::vector<Tensor> out = Vmap(function, std::vector<VmapInput>{VmapInput(inputs)...});
  internal::CheckArity("Vmap: what returns one tensor", 1, out.size());
  return std::move(out[0]);
}

}  // namespace tessera
