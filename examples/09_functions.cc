// Functions of functions: a loss is written for one sample. Its gradient for each of many at once
// shows which samples pull hardest; its Hessian finds the weights in a few steps of Newton's.
#include <cstdio>

#include "graph/derivatives.h"
#include "graph/grad.h"
#include "graph/vmap.h"

using namespace tessera;

int main() {
  Tensor::ManualSeed(1);
  const Tensor truth = Tensor::From({1.5, -2.0, 0.5});
  const Tensor x = Tensor::RandN({200, 3}, kFloat64).Realize();
  // Labels are drawn as the true weights say.
  const Tensor likely = x.MatMul(truth).Sigmoid();
  const Tensor y = (Tensor::Rand({200}, kFloat64) < likely).Cast(kFloat64).Realize();

  const auto loss = [](const Tensor& w, const Tensor& sample, const Tensor& label) {
    return sample.Dot(w).BinaryCrossEntropyWithLogits(label);
  };
  const auto mean_loss = [&](const Tensor& w) {
    return Vmap(loss, Whole(w), x, y).Mean() + 1e-3 * w.Square().Sum();
  };

  Tensor w = Tensor::Zeros({3}, kFloat64);
  for (int i = 0; i < 6; ++i) {
    const Tensor gradient = Jacobian(mean_loss, w), curvature = Hessian(mean_loss, w);
    w = (w - curvature.Solve(gradient.Unsqueeze(1)).Squeeze(1)).Realize();
    std::printf("step %d  loss %.6f  gradient before %.1e\n", i, mean_loss(w).Item(),
                gradient.Norm().Item());
  }
  std::printf("weights %.2f %.2f %.2f\n", w[0].Item(), w[1].Item(), w[2].Item());

  const Tensor of_each =
      Vmap([&](const Tensor& sample,
               const Tensor& label) { return Grad(loss(w, sample, label), {w})[0]; },
           x, y);
  const Tensor pull = of_each.Norm(2, 1);
  std::printf("sample %d pulls hardest, %.1f times as hard as the mean\n",
              pull.ArgMax().Item<int>(), (pull.Max() / pull.Mean()).Item());
  return Jacobian(mean_loss, w).Norm().Item() < 1e-6 ? 0 : 1;
}
