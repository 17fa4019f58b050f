// The best number so far, and how many since then were worse.
#include "runtime/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::Fail;

Plateau::Plateau(Optimizer& optimizer, PlateauOptions options, CallSite at)
    : optimizer_(&optimizer), options_(options) {
  Call call("Plateau", at);
  const PlateauOptions& o = options_;
  if (!(o.factor >= 0 && o.factor < 1)) {
    Fail("factor must be at least 0 and less than 1, not ", o.factor);
  }
  if (o.patience < 0 || o.cooldown < 0) {
    Fail("patience and cooldown must be 0 or more, not ", o.patience, " and ", o.cooldown);
  }
  if (!(o.threshold >= 0 && o.least >= 0 && o.eps >= 0)) {
    Fail("threshold, least and eps must be 0 or more, not ", o.threshold, ", ", o.least, " and ",
         o.eps);
  }
  best_ =
      o.rising ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

bool Plateau::Step(double watched, CallSite at) {
  Call call("Step", at);
  const PlateauOptions& o = options_;
  const double by = o.rising ? o.threshold : -o.threshold;
  const double bound = o.relative ? best_ * (1 + by) : best_ + by;
  if (o.rising ? watched > bound : watched < bound) {
    best_ = watched;
    worse_ = 0;
  } else {
    ++worse_;
  }
  if (cooling_ > 0) {
    --cooling_;
    worse_ = 0;
  }
  if (worse_ <= o.patience) return false;
  cooling_ = o.cooldown;
  worse_ = 0;
  bool lowered = false;
  for (size_t i = 0; i < optimizer_->groups(); ++i) {
    const double rate = optimizer_->rate(i), lower = std::max(rate * o.factor, o.least);
    if (!(rate - lower > o.eps)) continue;
    optimizer_->SetRate(i, lower, at);
    lowered = true;
  }
  return lowered;
}

}  // namespace tessera
