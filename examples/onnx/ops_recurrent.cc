// Recurrent networks, written out over their steps.
#include <algorithm>

#include "examples/onnx/activation.h"
#include "examples/onnx/call.h"
#include "examples/onnx/quantize.h"

namespace tessera::onnx {
namespace {

// One activation with its numbers.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
  double clip = 0;  // what it takes is cut to -clip to clip; 0: as it is
};

Tensor Apply(const Activation& a, const Tensor& x) {
  const Tensor in = a.clip > 0 ? x.Clip(-a.clip, a.clip) : x;
  return FindActivation(a.name)->fn(in, a.alpha, a.beta);
}

// What one direction of a network is made of: weights without the axis of directions.
struct Direction {
  Tensor w, r, bias_w, bias_r, peepholes;  // biases and peepholes may be empty
  std::vector<Activation> activations;
  bool linear_before_reset = false, input_forget = false;
};
struct State {
  Tensor h, c;
};

// Gate g of the rows of a matrix or vector of `count` gates.
Tensor Gate(const Tensor& t, int64_t count, int64_t g) {
  const int64_t hidden = t.size(0) / count;
  return t.SliceAxis(0, {g * hidden, (g + 1) * hidden});
}
// x [batch, ..] under the rows of gate g, with its bias.
Tensor Under(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t count, int64_t g) {
  const Tensor y = x.MatMul(Gate(weight, count, g).T());
  return bias ? y + Gate(bias, count, g) : y;
}

State RnnStep(const Direction& d, const Tensor& x, const State& s) {
  return {Apply(d.activations[0], Under(x, d.w, d.bias_w, 1, 0) + Under(s.h, d.r, d.bias_r, 1, 0)),
          {}};
}

// Gates: update, reset, hidden.
State GruStep(const Direction& d, const Tensor& x, const State& s) {
  const auto from_x = [&](int g) { return Under(x, d.w, d.bias_w, 3, g); };
  const auto from_h = [&](const Tensor& h, int g) { return Under(h, d.r, d.bias_r, 3, g); };
  const Tensor update = Apply(d.activations[0], from_x(0) + from_h(s.h, 0));
  const Tensor reset = Apply(d.activations[0], from_x(1) + from_h(s.h, 1));
  const Tensor recurrent = d.linear_before_reset ? reset * from_h(s.h, 2) : from_h(reset * s.h, 2);
  const Tensor hidden = Apply(d.activations[1], from_x(2) + recurrent);
  return {(1 - update) * hidden + update * s.h, {}};
}

// Gates: input, output, forget, cell; the first three look at the cell through peepholes.
State LstmStep(const Direction& d, const Tensor& x, const State& s) {
  const auto gate = [&](int g) {
    return Under(x, d.w, d.bias_w, 4, g) + Under(s.h, d.r, d.bias_r, 4, g);
  };
  const auto peep = [&](int p, const Tensor& y, const Tensor& cell) {
    return d.peepholes ? y + Gate(d.peepholes, 3, p) * cell : y;
  };
  const Tensor in = Apply(d.activations[0], peep(0, gate(0), s.c));
  const Tensor forget = d.input_forget ? 1 - in : Apply(d.activations[0], peep(2, gate(2), s.c));
  const Tensor cell = forget * s.c + in * Apply(d.activations[1], gate(3));
  const Tensor out = Apply(d.activations[0], peep(1, gate(1), cell));
  return {out * Apply(d.activations[2], cell), cell};
}

// The activations of each direction; numbers are taken in order by those that have them.
std::vector<std::vector<Activation>> ActivationsOf(Call& c, int64_t directions,
                                                   const std::vector<std::string>& defaults) {
  std::vector<std::string> names = c.Strings("activations");
  if (names.empty()) {
    for (int64_t i = 0; i < directions; ++i) {
      names.insert(names.end(), defaults.begin(), defaults.end());
    }
  }
  if (names.size() != directions * defaults.size()) {
    c.Fail(names.size(), " activations for ", directions, " directions of ", defaults.size());
  }
  const std::vector<double> alphas = c.Floats("activation_alpha");
  const std::vector<double> betas = c.Floats("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<std::vector<Activation>> out(directions);
  for (size_t i = 0; i < names.size(); ++i) {
    const NamedActivation* known = FindActivation(names[i]);
    if (known == nullptr) c.Fail("the activation '", names[i], "' is none");
    Activation a{names[i], known->alpha, known->beta, c.Float("clip", 0)};
    if (known->numbers > 0 && alpha < alphas.size()) a.alpha = alphas[alpha++];
    if (known->numbers > 1 && beta < betas.size()) a.beta = betas[beta++];
    out[i / defaults.size()].push_back(a);
  }
  return out;
}

using Step = State (*)(const Direction& d, const Tensor& x, const State& s);
constexpr int kWeights = 1, kRecurrent = 2, kBias = 3, kLengths = 4, kFirstH = 5, kFirstC = 6,
              kPeepholes = 7;

// Runs all directions; every network has its inputs in this order.
void Recurrent(Call& c, Step step, int64_t gates, const std::vector<std::string>& defaults) {
  const bool batch_first = c.Int("layout", 0) != 0, has_cell = gates == 4;
  const Tensor x = batch_first ? c.In(0).Transpose(0, 1) : c.In(0);
  const Tensor w = c.In(kWeights), r = c.In(kRecurrent);
  const std::string way = c.String("direction", "forward");
  const int64_t directions = way == "bidirectional" ? 2 : 1;
  if (x.rank() != 3 || w.rank() != 3 || w.size(0) != directions) {
    c.Fail("direction ", way, " for inputs of ", x.shape().ToString(), " and weights of ",
           w.shape().ToString());
  }
  const int64_t steps = x.size(0), batch = x.size(1), hidden = r.size(2);
  const auto activations = ActivationsOf(c, directions, defaults);
  const auto first = [&](int input, int64_t d) {
    if (!c.Has(input)) return Tensor::Zeros({batch, hidden}, x.dtype());
    return c.In(input).Select(batch_first ? 1 : 0, d);
  };
  std::vector<Tensor> all, last_h, last_c;
  for (int64_t d = 0; d < directions; ++d) {
    Direction net;
    net.w = w.Select(0, d);
    net.r = r.Select(0, d);
    if (c.Has(kBias)) {
      const Tensor bias = c.In(kBias).Select(0, d);
      net.bias_w = Gate(bias, 2, 0);
      net.bias_r = Gate(bias, 2, 1);
    }
    if (has_cell && c.Has(kPeepholes)) net.peepholes = c.In(kPeepholes).Select(0, d);
    net.activations = activations[d];
    net.linear_before_reset = c.Int("linear_before_reset", 0) != 0;
    net.input_forget = c.Int("input_forget", 0) != 0;
    State s = {first(kFirstH, d), has_cell ? first(kFirstC, d) : Tensor()};
    const bool backward = way == "reverse" || d == 1;
    std::vector<Tensor> outputs(steps);
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = backward ? steps - 1 - i : i;
      State next = step(net, x.Select(0, t), s);
      outputs[t] = next.h;
      if (c.Has(kLengths)) {  // a sequence that has ended keeps its state and gives zeros
        const Tensor runs = (c.In(kLengths) > t).Unsqueeze(1);
        outputs[t] = Where(runs, next.h, 0);
        next.h = Where(runs, next.h, s.h);
        if (has_cell) next.c = Where(runs, next.c, s.c);
      }
      s = next;
    }
    all.push_back(steps == 0 ? Tensor::Zeros({0, batch, hidden}, x.dtype()) : Stack(outputs, 0));
    last_h.push_back(s.h);
    last_c.push_back(s.c);
  }
  const Tensor y = Stack(all, 1);  // [steps, directions, batch, hidden]
  const int at = batch_first ? 1 : 0;
  c.Out(batch_first ? y.Permute({2, 0, 1, 3}) : y);
  c.Out(Stack(last_h, at));
  if (has_cell) c.Out(Stack(last_c, at));
}

void Rnn(Call& c) { Recurrent(c, RnnStep, 1, {"Tanh"}); }
void Gru(Call& c) { Recurrent(c, GruStep, 3, {"Sigmoid", "Tanh"}); }
void Lstm(Call& c) { Recurrent(c, LstmStep, 4, {"Sigmoid", "Tanh", "Tanh"}); }

// x as u8 by its range, and back.
Tensor ThroughRange(const Tensor& x) {
  const Quantised q = QuantisedByRange(x);
  return (q.y - q.zero_point) * q.scale;
}
State DynamicLstmStep(const Direction& d, const Tensor& x, const State& s) {
  return LstmStep(d, x, {ThroughRange(s.h), s.c});
}
// Weights [directions, in, 4 * hidden], with a scale for each direction or column. What they meet
// is quantised as well: the inputs of all steps together, the state at each.
void DynamicQuantizeLstm(Call& c) {
  const auto weights = [&](int input, int scale) {
    const Tensor w = c.In(input);
    const auto along = [&](const Tensor& t) { return t.Reshape({w.size(0), 1, -1}); };
    const Tensor centred = w.Cast(kInt32) - along(c.In(scale + 1)).Cast(kInt32);
    return (centred.Cast(kFloat32) * along(c.In(scale))).Transpose();
  };
  std::vector<Tensor> inputs = {ThroughRange(c.In(0)), weights(kWeights, 8),
                                weights(kRecurrent, 10)};
  for (int i = kBias; i <= kPeepholes; ++i) inputs.push_back(c.InOr(i));
  std::vector<Value> values;
  for (const Tensor& t : inputs) values.push_back({t, c.all_known()});
  Call inner(c.importer(), c.node(), c.opset(), std::move(values));
  Recurrent(inner, DynamicLstmStep, 4, {"Sigmoid", "Tanh", "Tanh"});
  for (const Value& v : inner.outputs()) c.Out(v);
}

constexpr OpRow kRows[] = {
    {"GRU", Gru},
    {"LSTM", Lstm},
    {"RNN", Rnn},
    {"com.microsoft.DynamicQuantizeLSTM", DynamicQuantizeLstm},
};

}  // namespace

absl::Span<const OpRow> RecurrentOps() { return kRows; }

}  // namespace tessera::onnx
