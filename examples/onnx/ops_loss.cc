// Losses over classes.
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// -log p of each target, weighted, without those to be ignored; `log_p` is [N, C, D1, ...] and the
// targets [N, D1, ...].
Tensor Loss(Call& c, const Tensor& log_p, const Tensor& target, const Tensor& weight) {
  const DType dtype = log_p.dtype();
  const int64_t classes = log_p.size(1);
  const Tensor t = target.Cast(kInt64);
  std::vector<int64_t> along(log_p.rank(), 1);
  along[1] = classes;
  // Picking by comparison leaves every axis but that of classes where it lies; a gather would not.
  const Tensor hot = Tensor::Arange(classes, kInt64).Reshape(along) == t.Unsqueeze(1);
  const Tensor picked = Where(hot, log_p, 0).Sum({1});
  Tensor w = weight ? Where(hot, weight.Reshape(along), 0).Sum({1})
                    : ((t >= 0) & (t < classes)).Cast(dtype);
  if (c.Find("ignore_index") != nullptr) {
    w = Where(t == c.Int("ignore_index"), 0, w);
  }
  // What is ignored may have picked an infinity.
  const Tensor loss = Where(w == 0, 0, -picked * w);
  const std::string reduction = c.String("reduction", "mean");
  if (reduction == "none") return loss.Cast(dtype);
  if (reduction == "sum") return loss.Sum().Cast(dtype);
  if (reduction == "mean") return (loss.Sum() / w.Sum()).Cast(dtype);
  c.Fail("reduction '", reduction, "' is none; it is none, sum or mean");
}

void NegativeLogLikelihoodLoss(Call& c) { c.Out(Loss(c, c.In(0), c.In(1), c.InOr(2))); }
void SoftmaxCrossEntropyLoss(Call& c) {
  const Tensor log_p = c.In(0).LogSoftmax(1);
  c.Out(Loss(c, log_p, c.In(1), c.InOr(2)));
  if (c.Wants(1)) c.Out(log_p);
}

constexpr OpRow kRows[] = {
    {"NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss},
};

}  // namespace

absl::Span<const OpRow> LossOps() { return kRows; }

}  // namespace tessera::onnx
