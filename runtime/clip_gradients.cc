// Norms of gradients that lie on several devices, and what they are multiplied by.
#include "runtime/clip_gradients.h"

#include <cmath>
#include <vector>

#include "graph/no_grad.h"
#include "graph/tensor_internal.h"
#include "runtime/kept_beside.h"

namespace tessera {

using internal::Call;
using internal::Fail;
using internal::OfNumbers;

namespace {

std::vector<Tensor> GradientsOf(absl::Span<const Tensor> parameters) {
  std::vector<Tensor> out;
  for (const Tensor& p : parameters) {
    if (!p) Fail("parameter ", &p - parameters.data(), " is empty");
    if (const Tensor gradient = p.grad()) out.push_back(gradient);
  }
  return out;
}

}  // namespace

Tensor ClipGradNorm(absl::Span<const Tensor> parameters, double most, double p, CallSite at) {
  Call call("ClipGradNorm", at, parameters);
  if (!(most >= 0)) Fail("takes a norm from 0 on, not ", most);
  if (!(p > 0)) Fail("takes a p-norm of p above 0, not ", p);
  NoGrad scope;
  std::vector<Tensor> gradients = GradientsOf(parameters);
  if (gradients.empty()) return Tensor::Scalar(0.0);
  std::vector<Tensor> norms;
  for (const Tensor& g : gradients) {
    norms.push_back(g.Cast(AccumulateType(g.dtype())).Norm(p).Cast(kFloat64));
  }
  const Device device = OfNumbers(gradients[0].device());
  for (Tensor& n : norms) n = n.To(device);
  const Tensor norm = Stack(norms).Norm(p);
  const Tensor factor = (most / (norm + 1e-6)).Minimum(1);
  for (Tensor& g : gradients) {
    g *= factor.To(OfNumbers(g.device())).Cast(AccumulateType(g.dtype()));
  }
  return norm;
}

void ClipGradValue(absl::Span<const Tensor> parameters, double most, CallSite at) {
  Call call("ClipGradValue", at, parameters);
  if (!(most >= 0)) Fail("takes a limit from 0 on, not ", most);
  NoGrad scope;
  for (Tensor& g : GradientsOf(parameters)) g.Assign(g.Clip(-most, most));
}

}  // namespace tessera
