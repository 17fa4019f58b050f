// Training: the network of 04_mlp learns to read its digits.
//
// One step of it is written as a function and captured: from the second call on nothing is
// scheduled, the kernels just run. Each call draws other noise over other digits.
#include <cstdio>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "runtime/capture.h"
#include "runtime/optimizer.h"

using namespace tessera;

namespace {

// The digits 0 to 9 side by side, in 5 x 7 dots.
const std::vector<std::string> kDrawing = {
    ".###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.",
    "#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#",
    "#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#",
    "#.#.# ..#.. ..##. .###. #..#. ....# ####. ..#.. .###. .####",
    "##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#",
    "#...# ..#.. #.... ....# ...#. #...# #...# ..#.. #...# ....#",
    ".###. .###. ##### ####. ...#. .###. .###. ..#.. .###. .###.",
};

Tensor Digits() {
  std::vector<float> dots;
  for (const std::string& row : kDrawing) {
    for (char c : row) {
      if (c != ' ') dots.push_back(c == '#' ? 1.0f : 0.0f);
    }
  }
  return Tensor::From(dots, {7, 10, 5}).Permute({1, 0, 2}).Reshape({10, 35}).Contiguous();
}

}  // namespace

int main() {
  Tensor::ManualSeed(1);
  const Tensor digits = Digits().Realize();
  Tensor w1 = Tensor::RandN({32, 35}) * 0.2, b1 = Tensor::Zeros({32});
  Tensor w2 = Tensor::RandN({10, 32}) * 0.2, b2 = Tensor::Zeros({10});
  Optimizer adam({w1, b1, w2, b2}, AdamOptions{.rate = 1e-2});

  // A batch of digits of which every dot is turned over with a probability of an eighth.
  const auto draw = [&](const Tensor& label) {
    const Tensor image = digits.Take(label);
    return Where(Tensor::Rand({label.size(0), 35}) < 0.125, 1 - image, image);
  };
  const auto read = [&](const Tensor& image) { return image.Linear(w1, b1).Relu().Linear(w2, b2); };
  Jit step([&](const std::vector<Tensor>&) {
    const Tensor label = Tensor::RandInt(0, 10, {128});
    const Tensor loss = read(draw(label)).CrossEntropy(label);
    loss.Backward();
    adam.Step();
    return loss;
  });

  for (int i = 0; i <= 500; ++i) {
    if (i == 400) adam.SetRate(1e-3);
    const Tensor loss = step.One({});
    if (i % 100 == 0) std::printf("step %3d  loss %.3f\n", i, loss.Item());
  }
  const Tensor label = Tensor::Arange(1000) % 10;
  const double right = (read(draw(label)).ArgMax(1) == label).Cast(kFloat32).Mean().Item();
  std::printf("%.1f %% of 1000 noisy digits read right\n", 100 * right);
  return right > 0.9 ? 0 : 1;
}
