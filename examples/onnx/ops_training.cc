// One step of training: parameters and what belongs to each, by their gradients.
#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

// Inputs are the rate, how many steps there were, all parameters, all gradients, then `states`
// lists of what each parameter has besides; outputs all of these but the gradients.
struct Step {
  Tensor rate, count;
  int parameters = 0, states = 0;
};
Step StepOf(Call& c, int states) {
  const int lists = 2 + states;
  if (c.inputs() < 2 + lists || (c.inputs() - 2) % lists != 0) {
    c.Fail("has ", c.inputs(), " inputs; they are 2, then ", lists, " for each parameter");
  }
  return {c.In(0), c.In(1).Cast(kFloat32), (c.inputs() - 2) / lists, states};
}
// Calls update(x, regularised gradient, its states), which gives what each becomes.
template <typename Update>
void OutSteps(Call& c, const Step& step, Update update) {
  const int n = step.parameters;
  std::vector<Tensor> out((1 + step.states) * n);
  for (int i = 0; i < n; ++i) {
    const Tensor x = c.In(2 + i);
    std::vector<Tensor> states;
    for (int s = 0; s < step.states; ++s) states.push_back(c.In(2 + (2 + s) * n + i));
    const Tensor g = x * c.Float("norm_coefficient", 0) + c.In(2 + n + i);
    const std::vector<Tensor> made = update(x, g, states);
    for (size_t s = 0; s < made.size(); ++s) out[s * n + i] = made[s].Cast(x.dtype());
  }
  for (const Tensor& t : out) c.Out(t);
}

void Adagrad(Call& c) {
  const Step step = StepOf(c, 1);
  const double epsilon = c.Float("epsilon", 1e-6f);
  const Tensor rate = step.rate / (step.count * c.Float("decay_factor", 0) + 1);
  OutSteps(c, step, [&](const Tensor& x, const Tensor& g, const std::vector<Tensor>& states) {
    const Tensor squares = states[0] + g * g;
    return std::vector<Tensor>{x - rate * g / (squares.Sqrt() + epsilon), squares};
  });
}

void Adam(Call& c) {
  const Step step = StepOf(c, 2);
  const double alpha = c.Float("alpha", 0.9f), beta = c.Float("beta", 0.999f);
  const double epsilon = c.Float("epsilon", 1e-6f), after = c.Float("norm_coefficient_post", 0);
  const auto lacking = [&](double v) { return 1 - Tensor::Full({}, v).Pow(step.count); };
  const Tensor rate =
      Where(step.count > 0, step.rate * lacking(beta).Sqrt() / lacking(alpha), step.rate);
  OutSteps(c, step, [&](const Tensor& x, const Tensor& g, const std::vector<Tensor>& states) {
    const Tensor mean = states[0] * alpha + g * (1 - alpha);
    const Tensor squares = states[1] * beta + g * g * (1 - beta);
    const Tensor y = x - rate * mean / (squares.Sqrt() + epsilon);
    return std::vector<Tensor>{y * (1 - after), mean, squares};
  });
}

void Momentum(Call& c) {
  const Step step = StepOf(c, 1);
  const std::string mode = c.Choice("mode", {"standard", "nesterov"});
  const double alpha = c.Float("alpha", 0);
  const Tensor beta = Where(step.count > 0, c.Float("beta", 1), 1.0);
  OutSteps(c, step, [&](const Tensor& x, const Tensor& g, const std::vector<Tensor>& states) {
    const Tensor moved = states[0] * alpha + beta * g;
    return std::vector<Tensor>{x - step.rate * (mode == "nesterov" ? g + moved * alpha : moved),
                               moved};
  });
}

constexpr OpRow kRows[] = {
    {"ai.onnx.preview.training.Adagrad", Adagrad},
    {"ai.onnx.preview.training.Adam", Adam},
    {"ai.onnx.preview.training.Momentum", Momentum},
};

}  // namespace

absl::Span<const OpRow> TrainingOps() { return kRows; }

}  // namespace tessera::onnx
