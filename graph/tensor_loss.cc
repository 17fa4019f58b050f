// Losses: a number for how far a prediction is from its target.
#include <cmath>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CheckIndex;
using internal::CountAlong;
using internal::Ended;
using internal::Fail;
using internal::FloatResult;
using internal::Show;
using internal::WideFloat;

Tensor internal::Ended(const Tensor& each, LossReduction reduction, DType dtype) {
  switch (reduction) {
    case LossReduction::kNone:
      return each.Cast(FloatResult(dtype));
    case LossReduction::kMean:
      return each.Mean().Cast(FloatResult(dtype));
    case LossReduction::kSum:
      break;
    case LossReduction::kBatchMean:
      if (each.rank() == 0) Fail("kBatchMean divides by the extent of a first axis; take kSum");
      return (each.Sum() / Tensor::FromExtent(each.shape()[0]).Cast(each.dtype()))
          .Cast(FloatResult(dtype));
  }
  return each.Sum().Cast(FloatResult(dtype));
}

namespace {

// Both in the dtype that they meet in, of one shape.
struct Compared {
  Tensor x, target;
  DType type;
  Compared(const Tensor& prediction, const Tensor& to)
      : type(FloatResult(Promote(prediction.dtype(), to.dtype()))) {
    if (!(prediction.shape() == to.shape())) {
      Fail("the target ", Show(to), " must have the shape of ", Show(prediction));
    }
    x = prediction.Cast(AccumulateType(type));
    target = to.Cast(AccumulateType(type));
  }
};

// The mean of a loss under weights of its own divides by their sum.
Tensor EndedByWeight(const Tensor& each, const Tensor& weight, LossReduction reduction,
                     DType dtype) {
  if (reduction != LossReduction::kMean) return Ended(each, reduction, dtype);
  return (each.Sum() / weight.Sum()).Cast(FloatResult(dtype));
}

struct Classes {
  int axis;
  Tensor weight;  // one a class, along the axis
};

Classes ClassesOf(const Tensor& x, const ClassLossOptions& o) {
  if (x.rank() < 1) Fail("takes [N, classes, ...] or [classes], not ", Show(x));
  const int axis = x.rank() == 1 ? 0 : 1;
  const DType type = AccumulateType(FloatResult(x.dtype()));
  Extents dims(x.rank(), 1);
  dims[axis] = x.shape()[axis];
  if (!o.weight) return {axis, Tensor::Ones(dims, type)};
  if (!(o.weight.shape().Elements() == dims[axis])) {
    Fail("the weight ", Show(o.weight), " must have one element for each class of ", Show(x));
  }
  return {axis, o.weight.Cast(type).Reshape(dims)};
}

// Of log-probabilities. A target that is no class, or the ignored one, does not count.
Tensor OfClasses(const Tensor& logs, const Tensor& target, const ClassLossOptions& o, DType dtype) {
  CheckIndex(target);
  const auto [axis, weight] = ClassesOf(logs, o);
  Extents wanted(logs.shape().begin(), logs.shape().end());
  wanted.erase(wanted.begin() + axis);
  if (!(target.shape() == Shape(wanted))) {
    Fail("the target ", Show(target), " must have the shape ", Shape(wanted).ToString(), " for ",
         Show(logs));
  }
  const Extent n = logs.shape()[axis];
  const Tensor wide = target.Cast(kInt64).Unsqueeze(axis);
  Tensor hit = wide == CountAlong(axis, logs.rank(), n, kInt64);
  if (o.ignore_index) hit = hit & (wide != *o.ignore_index);
  const Tensor of_target = Where(hit, weight, 0).Sum(axis);
  Tensor each = Where(hit, logs * weight, 0).Sum(axis).Neg();
  if (o.label_smoothing != 0) {
    const Tensor all = Where(hit.Any(axis), (logs * weight).Sum(axis).Neg(), 0);
    const Tensor classes = Tensor::FromExtent(n, logs.dtype());
    each = each * (1 - o.label_smoothing) + all * o.label_smoothing / classes;
  }
  return EndedByWeight(each, of_target, o.reduction, dtype);
}

// Against a distribution over the classes; its mean is over all but the classes.
Tensor OfProbabilities(const Tensor& logs, const Tensor& target, const ClassLossOptions& o,
                       DType dtype) {
  const auto [axis, weight] = ClassesOf(logs, o);
  const double share = o.label_smoothing / static_cast<double>(logs.size(axis));
  const Tensor wanted = target.Cast(logs.dtype()) * (1 - o.label_smoothing) + share;
  return Ended((logs * wanted * weight).Sum(axis).Neg(), o.reduction, dtype);
}

}  // namespace

Tensor Tensor::MseLoss(const Tensor& target, LossReduction reduction, CallSite at) const {
  Call call("MseLoss", at, *this, target);
  const Compared c(*this, target);
  return Ended((c.x - c.target).Square(), reduction, c.type);
}

Tensor Tensor::L1Loss(const Tensor& target, LossReduction reduction, CallSite at) const {
  Call call("L1Loss", at, *this, target);
  const Compared c(*this, target);
  return Ended((c.x - c.target).Abs(), reduction, c.type);
}

Tensor Tensor::HuberLoss(const Tensor& target, double delta, LossReduction reduction,
                         CallSite at) const {
  Call call("HuberLoss", at, *this, target);
  if (!(delta > 0)) Fail("takes a delta above 0, not ", delta);
  const Compared c(*this, target);
  const Tensor difference = c.x - c.target, apart = difference.Abs();
  const Tensor line = (apart - delta / 2) * delta;
  return Ended(Where(apart <= delta, difference.Square() / 2, line), reduction, c.type);
}

Tensor Tensor::SmoothL1Loss(const Tensor& target, double beta, LossReduction reduction,
                            CallSite at) const {
  Call call("SmoothL1Loss", at, *this, target);
  if (!(beta >= 0)) Fail("takes a beta from 0 up, not ", beta);
  if (beta == 0) return L1Loss(target, reduction);
  const Compared c(*this, target);
  const Tensor difference = c.x - c.target, apart = difference.Abs();
  const Tensor each = Where(apart < beta, difference.Square() / (2 * beta), apart - beta / 2);
  return Ended(each, reduction, c.type);
}

Tensor Tensor::CrossEntropy(const Tensor& target, CallSite at) const {
  return CrossEntropy(target, ClassLossOptions(), at);
}

Tensor Tensor::CrossEntropy(const Tensor& target, const ClassLossOptions& o, CallSite at) const {
  Call call("CrossEntropy", at, *this, target);
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
    Fail("the label smoothing is a share from 0 to 1, not ", o.label_smoothing);
  }
  if (rank() < 1) Fail("takes [N, classes, ...] or [classes], not ", Show(*this));
  const Tensor logs = WideFloat(*this).LogSoftmax(rank() == 1 ? 0 : 1);
  if (target.dtype().IsFloat() && target.shape() == shape()) {
    return OfProbabilities(logs, target, o, dtype());
  }
  return OfClasses(logs, target, o, dtype());
}

Tensor Tensor::NllLoss(const Tensor& target, const ClassLossOptions& o, CallSite at) const {
  Call call("NllLoss", at, *this, target);
  if (o.label_smoothing != 0) Fail("takes no label smoothing; CrossEntropy does");
  return OfClasses(WideFloat(*this), target, o, dtype());
}

Tensor Tensor::BinaryCrossEntropy(const Tensor& target, LossReduction reduction,
                                  const Tensor& weight, CallSite at) const {
  Call call("BinaryCrossEntropy", at, *this, target, weight);
  const Compared c(*this, target);
  // At 0 and 1 the limit itself, which is flat: the logarithm's derivative there is infinite.
  const Tensor zero = c.x == 0, one = c.x == 1;
  const Tensor yes = Where(zero, -100, Where(zero, 1, c.x).Log().Maximum(-100));
  const Tensor no = Where(one, -100, (-Where(one, 0, c.x)).Log1p().Maximum(-100));
  Tensor each = -(c.target * yes + (1 - c.target) * no);
  if (weight) each = each * weight.Cast(each.dtype());
  return Ended(each, reduction, c.type);
}

// log(1 + e^-x), without the overflow of e^-x.
Tensor Tensor::BinaryCrossEntropyWithLogits(const Tensor& target, LossReduction reduction,
                                            const Tensor& weight, const Tensor& positive_weight,
                                            CallSite at) const {
  Call call("BinaryCrossEntropyWithLogits", at, *this, target, weight, positive_weight);
  const Compared c(*this, target);
  Tensor no = (-c.x).Softplus();
  if (positive_weight) no = no * ((positive_weight.Cast(no.dtype()) - 1) * c.target + 1);
  Tensor each = (1 - c.target) * c.x + no;
  if (weight) each = each * weight.Cast(each.dtype());
  return Ended(each, reduction, c.type);
}

Tensor Tensor::KlDivLoss(const Tensor& target, LossReduction reduction, bool log_target,
                         CallSite at) const {
  Call call("KlDivLoss", at, *this, target);
  const Compared c(*this, target);
  const Tensor each =
      log_target ? c.target.Exp() * (c.target - c.x) : c.target.XLogY(c.target) - c.target * c.x;
  return Ended(each, reduction, c.type);
}

Tensor Tensor::PairwiseDistance(const Tensor& b, double p, double eps, bool keepdim,
                                CallSite at) const {
  Call call("PairwiseDistance", at, *this, b);
  const DType type = FloatResult(Promote(dtype(), b.dtype()));
  const Tensor apart = WideFloat(Cast(type)) - WideFloat(b.Cast(type)) + eps;
  return apart.Norm(p, -1, keepdim).Cast(type);
}

Tensor Tensor::CosineSimilarity(const Tensor& b, int axis, double eps, CallSite at) const {
  Call call("CosineSimilarity", at, *this, b);
  const DType type = FloatResult(Promote(dtype(), b.dtype()));
  const DType wide = AccumulateType(type);
  const auto both = BroadcastTensors({Cast(wide), b.Cast(wide)});
  const int a = internal::AxisAlong(axis, both[0].rank());
  const Tensor lengths = both[0].Norm(2, a).Maximum(eps) * both[1].Norm(2, a).Maximum(eps);
  return ((both[0] * both[1]).Sum(a) / lengths).Cast(type);
}

Tensor Tensor::HingeLoss(const Tensor& target, LossReduction reduction, CallSite at) const {
  Call call("HingeLoss", at, *this, target);
  const Compared c(*this, target);
  return Ended((1 - c.target * c.x).Relu(), reduction, c.type);
}

Tensor Tensor::PoissonNllLoss(const Tensor& target, bool log_input, LossReduction reduction,
                              bool full, double eps, CallSite at) const {
  Call call("PoissonNllLoss", at, *this, target);
  const Compared c(*this, target);
  Tensor each = log_input ? c.x.Exp() - c.target * c.x : c.x - c.target * (c.x + eps).Log();
  if (full) {
    const Tensor many = c.target > 1, t = Where(many, c.target, 1);
    each = each + Where(many, t * t.Log() - t + (t * (2 * M_PI)).Log() * 0.5, 0);
  }
  return Ended(each, reduction, c.type);
}

Tensor Tensor::GaussianNllLoss(const Tensor& target, const Tensor& variance, double eps,
                               LossReduction reduction, bool full, CallSite at) const {
  Call call("GaussianNllLoss", at, *this, target, variance);
  const Compared c(*this, target);
  // Without the last axis it is that of whole rows.
  const bool of_rows =
      rank() > 0 && variance.shape() == Shape(Extents(shape().begin(), shape().end() - 1));
  const Tensor given = of_rows ? variance.Unsqueeze(-1) : variance;
  const Tensor v = given.Cast(c.x.dtype()).Maximum(eps);
  Tensor each = (v.Log() + (c.x - c.target).Square() / v) * 0.5;
  if (full) each = each + 0.5 * std::log(2 * M_PI);
  return Ended(each, reduction, c.type);
}

Tensor Tensor::SoftMarginLoss(const Tensor& target, LossReduction reduction, CallSite at) const {
  Call call("SoftMarginLoss", at, *this, target);
  const Compared c(*this, target);
  return Ended((c.x * c.target).Neg().Softplus(), reduction, c.type);
}

Tensor Tensor::HingeEmbeddingLoss(const Tensor& target, double margin, LossReduction reduction,
                                  CallSite at) const {
  Call call("HingeEmbeddingLoss", at, *this, target);
  const Compared c(*this, target);
  const Tensor far = Where(c.target == -1, (margin - c.x).Relu(), 0);
  return Ended(Where(c.target == 1, c.x, far), reduction, c.type);
}

Tensor Tensor::MarginRankingLoss(const Tensor& b, const Tensor& target, double margin,
                                 LossReduction reduction, CallSite at) const {
  Call call("MarginRankingLoss", at, *this, b, target);
  const Compared c(*this, b), order(*this, target);
  return Ended((margin - order.target * (c.x - c.target)).Relu(), reduction, c.type);
}

Tensor Tensor::CosineEmbeddingLoss(const Tensor& b, const Tensor& target, double margin,
                                   LossReduction reduction, CallSite at) const {
  Call call("CosineEmbeddingLoss", at, *this, b, target);
  const Compared c(*this, b);
  if (rank() < 1) Fail("takes rows, not ", Show(*this));
  const Tensor near = c.x.CosineSimilarity(c.target, -1, 1e-12);
  const Tensor want = target.Cast(near.dtype()).Expand(near.shape());
  const Tensor apart = Where(want == -1, (near - margin).Relu(), 0);
  return Ended(Where(want == 1, 1 - near, apart), reduction, c.type);
}

Tensor Tensor::TripletMarginLoss(const Tensor& positive, const Tensor& negative, double margin,
                                 double p, LossReduction reduction, bool swap, CallSite at) const {
  Call call("TripletMarginLoss", at, *this, positive, negative);
  if (rank() < 1) Fail("takes rows, not ", Show(*this));
  const Compared near(*this, positive), far(*this, negative), across(positive, negative);
  // Moved a little off 0, where the norm has no derivative.
  const auto distance = [&](const Compared& c) { return (c.x - c.target + 1e-6).Norm(p, -1); };
  const Tensor beyond = swap ? distance(far).Minimum(distance(across)) : distance(far);
  return Ended((distance(near) - beyond + margin).Relu(), reduction, near.type);
}

Tensor Tensor::MultiMarginLoss(const Tensor& target, int p, double margin, LossReduction reduction,
                               const Tensor& weight, CallSite at) const {
  Call call("MultiMarginLoss", at, *this, target, weight);
  CheckIndex(target);
  if (rank() < 1 || target.rank() != rank() - 1 || (p != 1 && p != 2)) {
    Fail("takes logits [N, classes], classes [N] and the power 1 or 2, not ", Show(*this), ", ",
         Show(target), " and ", p);
  }
  const Tensor x = WideFloat(*this);
  const Extent n = shape()[rank() - 1];
  if (weight && !(weight.shape() == Shape({n}))) {
    Fail("the weight ", Show(weight), " must have one element for each class of ", Show(*this));
  }
  const Tensor own = target.Cast(kInt64).Unsqueeze(-1) == CountAlong(rank() - 1, rank(), n, kInt64);
  const Tensor right = Where(own, x, 0).Sum(-1, /*keepdim=*/true);
  Tensor over = Where(own, 0, (margin - right + x).Relu());
  if (p == 2) over = over.Square();
  Tensor each = over.Sum(-1) / Tensor::FromExtent(n).Cast(x.dtype());
  if (weight) each = each * Where(own, weight.Cast(x.dtype()), 0).Sum(-1);
  return Ended(each, reduction, dtype());
}

}  // namespace tessera
