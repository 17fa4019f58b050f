// Loops: a thousand steps of a simulation are one node of the graph, and have gradients. The
// stiffness and the friction of a spring are found from how it was seen to swing.
#include <cstdio>

#include "graph/grad.h"
#include "graph/loop.h"
#include "runtime/capture.h"

using namespace tessera;

namespace {

constexpr int64_t kSteps = 1000;
constexpr double kStep = 0.01;  // seconds

// Where the spring is after each step: position and speed are carried on, the position is stacked.
Tensor Swing(const Tensor& stiffness, const Tensor& friction) {
  const Looped path = Loop(
      [&](const Tensor& position, const Tensor& speed) {
        const Tensor faster = speed - kStep * (stiffness * position + friction * speed);
        const Tensor moved = position + kStep * faster;
        return std::vector<Tensor>{moved, faster, moved};
      },
      {Tensor::Ones({}, kFloat64), Tensor::Zeros({}, kFloat64)}, {}, {.turns = kSteps});
  return path.stacked[0];
}

}  // namespace

int main() {
  const Tensor seen = Swing(Tensor::Full({}, 4.0, kFloat64), Tensor::Full({}, 0.3, kFloat64));
  // One step down the slope, captured once: the loop of the gradient goes back through all turns.
  Jit step([&](const Tensor& guess) {
    const Tensor loss = (Swing(guess[{0}], guess[{1}]) - seen).Square().Mean();
    return std::vector<Tensor>{guess - Grad(loss, {guess})[0], loss};
  });
  Tensor guess = Tensor::From({3.0, 1.0});
  for (int i = 0; i < 60; ++i) {
    const std::vector<Tensor> out = step({guess});
    guess = out[0];
    if (i % 10 == 0) std::printf("step %2d  mean square %.5f\n", i, out[1].Item());
  }
  const double stiffness = guess[{0}].Item(), friction = guess[{1}].Item();
  std::printf("stiffness %.3f, friction %.3f\n", stiffness, friction);
  return stiffness > 3.99 && stiffness < 4.01 && friction > 0.29 && friction < 0.31 ? 0 : 1;
}
