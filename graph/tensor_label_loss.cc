// Losses of several labels: classes of one sample, and sequences of them.
#include <limits>

#include "graph/tensor.h"
#include "graph/tensor_internal.h"

namespace tessera {

using internal::Call;
using internal::CheckIndex;
using internal::CountAlong;
using internal::Ended;
using internal::Fail;
using internal::Show;
using internal::WideFloat;

// Pairs of a label and a class are two axes.
Tensor Tensor::MultiLabelMarginLoss(const Tensor& target, LossReduction reduction,
                                    CallSite at) const {
  Call call("MultiLabelMarginLoss", at, *this, target);
  CheckIndex(target);
  if (rank() < 1 || !(target.shape() == shape())) {
    Fail("takes logits [..., classes] and targets of their shape, not ", Show(*this), " and ",
         Show(target));
  }
  const int last = rank() - 1;
  const Extent n = shape()[last];
  const Tensor x = WideFloat(*this), labels = target.Cast(kInt64);
  const Tensor counts = (labels < 0).Cast(kInt32).CumSum(last) == 0;
  const Tensor is = labels.Unsqueeze(-1) == CountAlong(last + 1, rank() + 1, n, kInt64);
  const Tensor own = (is & counts.Unsqueeze(-1)).Any(-2, /*keepdim=*/true);
  const Tensor right = x.Gather(last, Where(counts, labels, 0)).Unsqueeze(-1);
  const Tensor over = (1 - right + x.Unsqueeze(-2)).Relu();
  const Tensor sum = Where(counts.Unsqueeze(-1) & own.LogicalNot(), over, 0).Sum({-2, -1});
  return Ended(sum / FromExtent(n).Cast(x.dtype()), reduction, dtype());
}

Tensor Tensor::MultiLabelSoftMarginLoss(const Tensor& target, LossReduction reduction,
                                        const Tensor& weight, CallSite at) const {
  Call call("MultiLabelSoftMarginLoss", at, *this, target, weight);
  if (rank() < 1) Fail("takes logits [N, classes], not ", Show(*this));
  const Tensor each = WideFloat(*this).BinaryCrossEntropyWithLogits(WideFloat(target),
                                                                    LossReduction::kNone, weight);
  return Ended(each.Mean(-1), reduction, Promote(dtype(), target.dtype()));
}

namespace {

// The logarithm of what cannot happen: sums of a few thousand of it are finite.
constexpr double kNever = -1e30;

void CheckSequences(const Tensor& logs, const Tensor& target, const Tensor& input_lengths,
                    const Tensor& target_lengths, int64_t blank) {
  for (const Tensor& t : {target, input_lengths, target_lengths}) CheckIndex(t);
  const bool ranks = logs.rank() == 3 && target.rank() == 2;
  const auto is_length = [&](const Tensor& t) {
    return t.rank() == 1 && t.shape()[0] == logs.shape()[1];
  };
  if (!ranks || !(target.shape()[0] == logs.shape()[1]) || !is_length(input_lengths) ||
      !is_length(target_lengths)) {
    Fail("takes log-probabilities [T, N, classes], targets [N, S] and their lengths [N], not ",
         Show(logs), ", ", Show(target), ", ", Show(input_lengths), " and ", Show(target_lengths));
  }
  if (blank < 0 || blank >= logs.size(2)) {
    Fail("the blank ", blank, " is none of the classes of ", Show(logs));
  }
}

// ln(e^a + e^b + e^c), of finite numbers.
Tensor LogSum(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor most = a.Maximum(b).Maximum(c).Detach();
  return most + ((a - most).Exp() + (b - most).Exp() + (c - most).Exp()).Log();
}

// The element so many positions before, along axis 1.
Tensor Before(const Tensor& x, int64_t distance) {
  const int64_t n = x.size(1), cut = std::min(distance, n);
  return x.SliceAxis(1, {0, n - cut}).Pad({{0, 0}, {cut, 0}}, kNever);
}

}  // namespace

// Over the labels with a blank before, between and after them: the probability of being at each
// after t steps, from that of being there, one before, or, past a blank between two labels that
// differ, two before. Before the first step it is at the first blank.
Tensor Tensor::CtcLoss(const Tensor& target, const Tensor& input_lengths,
                       const Tensor& target_lengths, int64_t blank, LossReduction reduction,
                       bool zero_infinity, CallSite at) const {
  Call call("CtcLoss", at, *this, target, input_lengths, target_lengths);
  CheckSequences(*this, target, input_lengths, target_lengths, blank);
  const int64_t steps = size(0), n = size(1), s = target.size(1), places = 2 * s + 1;
  const Tensor labels = target.Cast(kInt32), blanks = Full({n, s}, blank, kInt32);
  const Tensor path =
      Cat({Stack({blanks, labels}, 2).Reshape({n, 2 * s}), Full({n, 1}, blank, kInt32)}, 1);
  const Tensor x = WideFloat(*this).Maximum(kNever);
  const Tensor emitted = x.Gather(2, path.Unsqueeze(0).Expand({steps, n, places})).Contiguous();
  const Tensor place = CountAlong(1, 2, places, kInt32);
  const Tensor two_before = path.SliceAxis(1, {0, std::max<int64_t>(places - 2, 0)})
                                .Pad({{0, 0}, {std::min<int64_t>(2, places), 0}}, blank);
  const Tensor jumps = (place >= 2) & (path != blank) & (path != two_before);
  const Tensor until = input_lengths.Cast(kInt32).Unsqueeze(1);
  const Tensor lasts = (until > CountAlong(0, 3, steps, kInt32)).Contiguous();
  Tensor log = Where(place == 0, 0, Full({n, places}, kNever, x.dtype()));
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor next = LogSum(log, Before(log, 1), Where(jumps, Before(log, 2), kNever));
    log = Where(lasts.Select(0, t), next + emitted.Select(0, t), log).Contiguous();
  }
  // At the last label, or the blank after it.
  const Tensor length = target_lengths.Cast(kInt32).Unsqueeze(1);
  const Tensor ends = (place == length * 2) | (place == length * 2 - 1);
  const Tensor all = Where(ends, log, kNever).LogSumExp(1), never = all < kNever / 2;
  const double lost = zero_infinity ? 0 : std::numeric_limits<double>::infinity();
  Tensor each = Where(never, lost, -all);
  if (reduction == LossReduction::kMean) {
    each = each / target_lengths.Maximum(1).Cast(each.dtype());
  }
  return Ended(each, reduction, dtype());
}

}  // namespace tessera
