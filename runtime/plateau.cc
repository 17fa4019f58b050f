// The best number so far, and how many since then were worse.
#include "runtime/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/tensor_internal.h"
#include "graph/trace.h"

namespace tessera {

using internal::Call;
using internal::Fail;

namespace {

Tensor Numbers(double best, double worse, double cooling) {
  return Tensor::From(std::vector<double>{best, worse, cooling});
}

}  // namespace

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
  CheckSchedules();
  const double infinity = std::numeric_limits<double>::infinity();
  state_ = Numbers(o.rising ? -infinity : infinity, 0, 0).Realize();
}

void Plateau::CheckSchedules() const {
  for (size_t i = 0; i < optimizer_->groups(); ++i) {
    if (!optimizer_->scheduled(i)) continue;
    Fail("group ", i,
         " of the optimizer has a schedule, which a lowered rate would end; give it a ",
         "rate by SetRate(", i, ", rate)");
  }
}

double Plateau::best() const { return state_.ToVector<double>()[0]; }

bool Plateau::Step(double watched, CallSite at) {
  Call call("Step", at);
  if (internal::Trace::Current() != nullptr) {
    Fail("is no part of a captured step, as it looks at a number; call it between steps");
  }
  CheckSchedules();
  const PlateauOptions& o = options_;
  const std::vector<double> state = state_.ToVector<double>();
  double best = state[0], worse = state[1], cooling = state[2];
  const double by = o.rising ? o.threshold : -o.threshold;
  // Any finite number is better than none, whatever the threshold.
  const double bound = std::isinf(best) ? best : o.relative ? best * (1 + by) : best + by;
  if (o.rising ? watched > bound : watched < bound) {
    best = watched;
    worse = 0;
  } else {
    ++worse;
  }
  if (cooling > 0) {
    --cooling;
    worse = 0;
  }
  const bool lower_now = worse > static_cast<double>(o.patience);
  if (lower_now) {
    cooling = static_cast<double>(o.cooldown);
    worse = 0;
  }
  state_.Assign(Numbers(best, worse, cooling)).Realize();
  if (!lower_now) return false;
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
