// Rates that are lowered where a number that is watched no longer gets better.
//
//   Plateau plateau(adam, {.factor = 0.5, .patience = 3});
//   plateau.Step(loss.Item());  // after each round
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/optimizer.h"

namespace tessera {

struct PlateauOptions {
  bool rising = false;    // whether more is better, not less
  double factor = 0.1;    // by which rates are lowered
  int64_t patience = 10;  // so many numbers in a row may be no better than the best one
  // By what share of the best one, or by how much, a number must be better.
  double threshold = 1e-4;
  bool relative = true;
  int64_t cooldown = 0;  // so many numbers after rates were lowered do not count
  double least = 0;      // no rate is lowered below this
  double eps = 1e-8;     // nor by less than this
};

// Of all groups of an optimiser without schedules, which must outlive it; captured steps see it.
class Plateau {
 public:
  explicit Plateau(Optimizer& optimizer, PlateauOptions options = {},
                   CallSite at = CallSite::Here());

  // Whether rates were lowered. NaN is never better.
  bool Step(double watched, CallSite at = CallSite::Here());
  double best() const;  // infinite where there is none

  // What it remembers, to be saved with the optimiser's, and assigned to when training goes on from
  // there.
  std::vector<Tensor> State() const { return {state_}; }

 private:
  void CheckSchedules() const;

  Optimizer* optimizer_;
  PlateauOptions options_;
  Tensor state_;  // the best number, how many since were worse, and how many do not count
};

}  // namespace tessera
