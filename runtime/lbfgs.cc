// The two loops over what is remembered (Nocedal, 1980), and the search along a direction.
#include "runtime/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/kept_beside.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::OfNumbers;
using internal::Show;

namespace {

using Vector = std::vector<Tensor>;

// In f64, where the first part lies.
Tensor Dot(const Vector& a, const Vector& b) {
  Tensor sum;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor part = (a[i] * b[i]).Sum().Cast(kFloat64);
    sum = sum ? sum + part.To(sum.device()) : part.To(OfNumbers(a[i].device()));
  }
  return sum;
}

Vector Scaled(const Vector& a, const Tensor& by) {
  Vector out;
  for (const Tensor& t : a) out.push_back(t * by.To(OfNumbers(t.device())).Cast(t.dtype()));
  return out;
}
Vector Sum(const Vector& a, const Vector& b) {
  Vector out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] + b[i]);
  return out;
}
Vector Minus(const Vector& a) {
  Vector out;
  for (const Tensor& t : a) out.push_back(-t);
  return out;
}
// A number as data, so that plans do not differ in it.
Tensor AsTensor(double x) { return Tensor::From(std::vector<double>{x}).Reshape({}); }

// NaN where there is one.
double Largest(const Vector& a) {
  double most = 0;
  for (const Tensor& t : a) {
    const double here = t.elements() == 0 ? 0 : t.Abs().Max().Item();
    if (!(here <= most)) most = std::isnan(most) ? most : here;
  }
  return most;
}

struct Side {
  double t, loss, slope;
};

// The minimum of the cubic through two points with their slopes, within bounds.
double CubicMinimum(const Side& a, const Side& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at = a.t <= b.t
                        ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                        : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::isnan(at) ? (low + high) / 2 : std::min(std::max(at, low), high);
}

}  // namespace

Lbfgs::Lbfgs(std::vector<Tensor> parameters, LbfgsOptions options, CallSite at)
    : options_(options), parameters_(std::move(parameters)) {
  Call call("Lbfgs", at);
  if (parameters_.empty()) Fail("is given no parameters; name the tensors that it shall change");
  if (options_.iterations < 1 || options_.history < 1 || options_.evaluations < 0) {
    Fail("takes one iteration or more and a history of one or more, not ", options_.iterations,
         " and ", options_.history);
  }
  if (!(options_.rate > 0) || std::isinf(options_.rate)) {
    Fail("rate must be above 0 and finite, not ", options_.rate);
  }
  if (options_.evaluations == 0) options_.evaluations = options_.iterations * 5 / 4;
  internal::CheckParameters(parameters_);
  for (Tensor& p : parameters_) {
    if (!p.dtype().IsFloat()) Fail("takes floats, not ", Show(p));
    p.Realize();
    p.RequireGrad();
  }
}

Lbfgs::Point Lbfgs::Evaluated(const std::function<Tensor()>& loss) {
  ++evaluations_;
  for (Tensor& p : parameters_) p.ClearGrad();  // what another Backward left
  const Tensor value = [&] {
    Call::Pause pause;
    Tensor l = loss();
    l.Backward();
    return l;
  }();
  Point point;
  for (Tensor& p : parameters_) {
    const Tensor gradient = p.grad();
    const DType wide = AccumulateType(p.dtype());
    point.gradient.push_back(gradient ? gradient.Cast(wide).Detach() : p.ZerosLike(wide));
    p.ClearGrad();
  }
  Vector all = point.gradient;
  all.push_back(value.Detach());
  Tensor::Realize(absl::MakeSpan(all));
  point.loss = all.back().Item();
  return point;
}

// So far along the direction.
Lbfgs::Point Lbfgs::At(double t, const Vector& from, const std::function<Tensor()>& loss) {
  {
    NoGrad scope;
    const Vector moved = Sum(from, Scaled(direction_, AsTensor(t)));
    for (size_t i = 0; i < moved.size(); ++i) {
      parameters_[i].Assign(moved[i].Cast(parameters_[i].dtype()));
    }
    Tensor::Realize(absl::MakeSpan(parameters_));
  }
  if (!loss) return {};
  Point point = Evaluated(loss);
  point.t = t;
  point.slope = Dot(point.gradient, direction_).Item();
  return point;
}

void Lbfgs::Remember(const Vector& gradient) {
  Change change{Scaled(direction_, AsTensor(t_)), Sum(gradient, Minus(before_)), {}};
  const Tensor product = Dot(change.difference, change.step);
  const double size = product.Item();
  if (!(size > 1e-10)) return;
  change.curvature = product.Reciprocal();
  scale_ = size / Dot(change.difference, change.difference).Item();
  Vector all = change.step;
  all.insert(all.end(), change.difference.begin(), change.difference.end());
  all.push_back(change.curvature);
  Tensor::Realize(absl::MakeSpan(all));
  if (static_cast<int64_t>(changes_.size()) == options_.history) changes_.erase(changes_.begin());
  changes_.push_back(std::move(change));
}

void Lbfgs::ChooseDirection(const Vector& gradient) {
  Vector d = Minus(gradient);
  std::vector<Tensor> shares(changes_.size());
  for (size_t i = changes_.size(); i-- > 0;) {
    shares[i] = Dot(changes_[i].step, d) * changes_[i].curvature;
    d = Sum(d, Scaled(changes_[i].difference, -shares[i]));
  }
  d = Scaled(d, AsTensor(scale_));
  for (size_t i = 0; i < changes_.size(); ++i) {
    const Tensor share = Dot(changes_[i].difference, d) * changes_[i].curvature;
    d = Sum(d, Scaled(changes_[i].step, shares[i] - share));
  }
  direction_ = d;
  Tensor::Realize(absl::MakeSpan(direction_));
}

// A loss that is NaN is above all others. Steps grow until two of them have a minimum between them
// that meets the conditions, or one meets them; then the two come nearer.
Lbfgs::Point Lbfgs::Searched(double t, const Point& from, const Vector& start,
                             const std::function<Tensor()>& loss) {
  constexpr double kFall = 1e-4, kFlat = 0.9;  // the shares of the slope that are asked for
  constexpr int kMost = 25;
  const auto side = [](const Point& p) { return Side{p.t, p.loss, p.slope}; };
  const auto falls = [&](const Point& p) { return p.loss <= from.loss + kFall * p.t * from.slope; };
  const auto in_order = [](Point& low, Point& high) {
    if (high.loss < low.loss || std::isnan(low.loss)) std::swap(low, high);
  };
  const auto flat = [&](const Point& p) { return std::fabs(p.slope) <= -kFlat * from.slope; };
  const double longest = Largest(direction_);
  Point before = from, now = At(t, start, loss);
  int tries = 0;
  for (; tries < kMost; ++tries) {
    if (!falls(now) || (tries > 1 && now.loss >= before.loss)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double next =
        CubicMinimum(side(before), side(now), now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, At(next, start, loss));
  }
  if (tries == kMost) before = from;
  Point low = before, high = now;
  in_order(low, high);
  bool slow = false;
  for (; tries < kMost && !(std::fabs(high.t - low.t) * longest < options_.least_change); ++tries) {
    const auto [least, most] = std::minmax(low.t, high.t);
    double next = low.t <= high.t ? CubicMinimum(side(low), side(high), least, most)
                                  : CubicMinimum(side(high), side(low), least, most);
    const double margin = 0.1 * (most - least);
    if (std::min(most - next, next - least) < margin) {
      const bool at_end = next >= most || next <= least;
      if (slow || at_end) {
        next = std::fabs(next - most) < std::fabs(next - least) ? most - margin : least + margin;
        slow = false;
      } else {
        slow = true;
      }
    } else {
      slow = false;
    }
    Point point = At(next, start, loss);
    if (!falls(point) || point.loss >= low.loss) {
      high = std::move(point);
      in_order(low, high);
      continue;
    }
    const bool done = flat(point);
    if (!done && point.slope * (high.t - low.t) >= 0) high = low;
    low = std::move(point);
    if (done) break;
  }
  return low;
}

double Lbfgs::Step(const std::function<Tensor()>& loss, CallSite at) {
  Call call("Step", at);
  if (!loss) Fail("takes a function that gives the loss, not an empty one");
  if (internal::Trace::Current() != nullptr) {
    Fail("is no part of a captured step, as it looks at losses; call it by itself");
  }
  evaluations_ = 0;
  Point point = Evaluated(loss);
  const double first = point.loss;
  const double steepest = Largest(point.gradient);
  if (!std::isfinite(steepest)) {
    Fail("the gradient holds ", steepest, " where it begins, of a loss of ", first,
         "; begin where the loss can be differentiated");
  }
  if (steepest <= options_.least_gradient) return first;
  for (int64_t i = 1; i <= options_.iterations; ++i) {
    ++iterations_;
    if (iterations_ > 1) Remember(point.gradient);
    ChooseDirection(point.gradient);
    before_ = point.gradient;
    t_ = options_.rate;
    if (iterations_ == 1) {
      double sum = 0;
      for (const Tensor& g : point.gradient) sum += g.Abs().Sum().Item();
      t_ *= std::min(1.0, 1 / sum);
    }
    point.t = 0;
    point.slope = Dot(point.gradient, direction_).Item();
    if (!(point.slope <= -options_.least_change)) break;
    Vector start;
    for (const Tensor& p : parameters_) {
      start.push_back(p.Detach().Cast(AccumulateType(p.dtype())).Contiguous().Realize());
    }
    const double loss_before = point.loss;
    if (options_.strong_wolfe) {
      point = Searched(t_, point, start, loss);
      t_ = point.t;
      At(t_, start, {});
    } else {
      const bool last = i == options_.iterations;
      Point moved = At(t_, start, last ? nullptr : loss);
      if (last) break;
      point = std::move(moved);
    }
    if (i == options_.iterations || evaluations_ >= options_.evaluations) break;
    const double steepest_here = Largest(point.gradient);
    if (!std::isfinite(steepest_here) || steepest_here <= options_.least_gradient) break;
    if (Largest(direction_) * t_ <= options_.least_change) break;
    if (std::fabs(point.loss - loss_before) < options_.least_change) break;
  }
  return first;
}

}  // namespace tessera
