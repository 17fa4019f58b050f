// Averages as tensors that each update assigns to.
#include "runtime/weight_average.h"

#include <utility>

#include "absl/types/span.h"
#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "graph/trace.h"
#include "runtime/kept_beside.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::Filled;
using internal::Show;

WeightAverage::WeightAverage(std::vector<Tensor> parameters, std::optional<double> decay,
                             CallSite at)
    : decay_(decay), parameters_(std::move(parameters)) {
  Call call("WeightAverage", at);
  if (decay && !(*decay >= 0 && *decay <= 1)) Fail("decay must be from 0 to 1, not ", *decay);
  internal::CheckParameters(parameters_);
  for (Tensor& p : parameters_) {
    if (!p.dtype().IsFloat()) Fail("takes floats, not ", Show(p));
    p.Realize();
    values_.push_back(Filled(p.shape(), AccumulateType(p.dtype()), p.device(), 0));
    counts_.push_back(Filled(Shape(), kFloat64, internal::OfNumbers(p.device()), 0));
  }
}

void WeightAverage::Update(CallSite at) {
  Call call("Update", at);
  if (!put_by_.empty()) Fail("the averages are in place of the parameters; Restore them first");
  NoGrad scope;
  std::vector<Tensor> changed;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor &mean = values_[i], &count = counts_[i];
    const Tensor share =
        decay_ ? Where(count == 0, count.OnesLike(), 1 - *decay_) : (count + 1).Reciprocal();
    const Tensor now = parameters_[i].Cast(mean.dtype());
    mean.Assign(mean.Lerp(now, share.Cast(mean.dtype())));
    count.Assign(count + 1);
    changed.insert(changed.end(), {mean, count});
  }
  if (internal::Trace::Current() == nullptr) Tensor::Realize(absl::MakeSpan(changed), at);
}

void WeightAverage::Use(CallSite at) {
  Call call("Use", at);
  if (!put_by_.empty()) Fail("the averages are in place of the parameters already");
  NoGrad scope;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& p = parameters_[i];
    put_by_.push_back(p.Contiguous().Realize());
    p.Assign(values_[i].Cast(p.dtype())).Realize();
  }
}

void WeightAverage::Restore(CallSite at) {
  Call call("Restore", at);
  if (put_by_.empty()) Fail("the averages are not in place of the parameters; Use puts them there");
  NoGrad scope;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].Assign(put_by_[i]).Realize();
  put_by_.clear();
}

std::vector<Tensor> WeightAverage::State() const {
  std::vector<Tensor> out = values_;
  out.insert(out.end(), counts_.begin(), counts_.end());
  return out;
}

}  // namespace tessera
