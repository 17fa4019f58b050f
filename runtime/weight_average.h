// Averages of weights over the steps of training, to be evaluated with.
//
//   WeightAverage average({w, b}, 0.999);
//   Jit step([&](const Tensor& x, const Tensor& label) {
//     ...
//     adam.Step();
//     average.Update();
//   });
//   average.Use();      // w and b are the averages
//   average.Restore();  // and what they were
#pragma once

#include <optional>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

// In the parameters' dtype, or f32 of narrower ones, on their devices, spread as they are.
class WeightAverage {
 public:
  // Each update counts alike, or makes all before it count `decay` as much.
  explicit WeightAverage(std::vector<Tensor> parameters, std::optional<double> decay = {},
                         CallSite at = CallSite::Here());

  // Takes in the parameters as they are now; of the first ones it is them. Computed at once; in a
  // step that is being captured, at each call.
  void Update(CallSite at = CallSite::Here());

  // Puts the averages in place of the parameters, and what was there back. Between the two there
  // is no update.
  void Use(CallSite at = CallSite::Here());
  void Restore(CallSite at = CallSite::Here());

  const std::vector<Tensor>& values() const { return values_; }
  // The averages and how many updates there were, to be saved, and assigned to when training goes
  // on from there.
  std::vector<Tensor> State() const;

 private:
  std::optional<double> decay_;
  std::vector<Tensor> parameters_, values_, counts_, put_by_;
};

}  // namespace tessera
