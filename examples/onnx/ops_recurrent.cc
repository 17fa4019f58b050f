// Recurrent networks: a loop over their steps for each direction.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "examples/onnx/activation.h"
#include "examples/onnx/call.h"
#include "examples/onnx/quantize.h"
#include "graph/loop.h"

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

// What one direction of a network is made of, without the axis of directions; gates lie side by
// side on the last axis. What inputs give to gates is computed for all steps at once.
struct Direction {
  Tensor from_x;     // [steps, batch, gates * hidden], with the biases that are only added
  Tensor r;          // [hidden, gates * hidden]
  Tensor bias_r;     // of GRU's hidden gate, where it is added before the reset; may be empty
  Tensor peepholes;  // may be empty
  std::vector<Activation> activations;
  bool linear_before_reset = false, input_forget = false;
};
struct State {
  Tensor h, c;
};

// Gates from g on of `count` ones.
Tensor Gate(const Tensor& t, int64_t count, int64_t g, int64_t gates = 1) {
  const int64_t hidden = t.size(-1) / count;
  return t.SliceAxis(-1, {g * hidden, (g + gates) * hidden});
}

// The steps take what the inputs give to the gates, [batch, gates * hidden].
State RnnStep(const Direction& d, const Tensor& x, const State& s) {
  return {Apply(d.activations[0], x + s.h.MatMul(d.r)), {}};
}

// Gates: update, reset, hidden.
State GruStep(const Direction& d, const Tensor& x, const State& s) {
  const Tensor r = Gate(d.r, 3, 2);
  const Tensor both = Gate(x, 3, 0, 2) + s.h.MatMul(Gate(d.r, 3, 0, 2));
  const Tensor update = Apply(d.activations[0], Gate(both, 2, 0));
  const Tensor reset = Apply(d.activations[0], Gate(both, 2, 1));
  Tensor recurrent;
  if (d.linear_before_reset) {
    const Tensor h = s.h.MatMul(r);
    recurrent = reset * (d.bias_r ? h + d.bias_r : h);
  } else {
    recurrent = (reset * s.h).MatMul(r);
  }
  const Tensor hidden = Apply(d.activations[1], Gate(x, 3, 2) + recurrent);
  return {(1 - update) * hidden + update * s.h, {}};
}

// Gates: input, output, forget, cell; the first three look at the cell through peepholes.
State LstmStep(const Direction& d, const Tensor& x, const State& s) {
  const Tensor gates = x + s.h.MatMul(d.r);
  const auto peep = [&](int g, int p, const Tensor& cell) {
    const Tensor y = Gate(gates, 4, g);
    return d.peepholes ? y + Gate(d.peepholes, 3, p) * cell : y;
  };
  const Tensor in = Apply(d.activations[0], peep(0, 0, s.c));
  const Tensor forget = d.input_forget ? 1 - in : Apply(d.activations[0], peep(2, 2, s.c));
  const Tensor cell = forget * s.c + in * Apply(d.activations[1], Gate(gates, 4, 3));
  const Tensor out = Apply(d.activations[0], peep(1, 1, cell));
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

// Direction d but for its activations; x is [steps, batch, inputs].
Direction DirectionOf(Call& c, const Tensor& x, int64_t d, int64_t gates) {
  Direction net;
  net.linear_before_reset = c.Int("linear_before_reset", 0) != 0;
  net.input_forget = c.Int("input_forget", 0) != 0;
  net.r = c.In(kRecurrent).Select(0, d).T();
  net.from_x = x.MatMul(c.In(kWeights).Select(0, d).T());
  if (c.Has(kBias)) {
    const Tensor bias = c.In(kBias).Select(0, d);
    Tensor added = Gate(bias, 2, 0), of_r = Gate(bias, 2, 1);
    if (gates == 3 && net.linear_before_reset) {
      net.bias_r = Gate(of_r, 3, 2);
      of_r = Cat({Gate(of_r, 3, 0, 2), Tensor::Zeros(Sizes(net.bias_r), net.bias_r.dtype())}, 0);
    }
    net.from_x = net.from_x + (added + of_r);
  }
  net.from_x = net.from_x.Contiguous();
  if (gates == 4 && c.Has(kPeepholes)) net.peepholes = c.In(kPeepholes).Select(0, d);
  return net;
}

// Runs all directions; every network has its inputs in this order.
void Recurrent(Call& c, Step step, int64_t gates, const std::vector<std::string>& defaults) {
  const bool batch_first = c.Int("layout", 0) != 0, has_cell = gates == 4;
  const Tensor x = batch_first ? c.In(0).Transpose(0, 1) : c.In(0);
  const Tensor w = c.In(kWeights), r = c.In(kRecurrent);
  const std::string way = c.Choice("direction", {"forward", "reverse", "bidirectional"});
  const int64_t directions = way == "bidirectional" ? 2 : 1;
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3 || w.size(0) != directions) {
    c.Fail("direction ", way, " for inputs of ", x.shape().ToString(), " and weights of ",
           w.shape().ToString());
  }
  const int64_t steps = x.size(0), batch = x.size(1), hidden = r.size(2);
  const auto check = [&](const char* what, const Tensor& t, const std::vector<int64_t>& want) {
    if (Sizes(t) == want) return;
    c.Fail(what, " is of shape ", t.shape().ToString(), "; of ", directions, " directions, ",
           x.size(2), " inputs and ", hidden, " hidden it is [", absl::StrJoin(want, ", "), "]");
  };
  check("W", w, {directions, gates * hidden, x.size(2)});
  check("R", r, {directions, gates * hidden, hidden});
  if (c.Has(kBias)) check("B", c.In(kBias), {directions, 2 * gates * hidden});
  if (has_cell && c.Has(kPeepholes)) check("P", c.In(kPeepholes), {directions, 3 * hidden});
  if (c.Int("hidden_size", hidden) != hidden) {
    c.Fail("hidden_size is ", c.Int("hidden_size", hidden), ", R is of ", hidden);
  }
  const auto activations = ActivationsOf(c, directions, defaults);
  const auto first = [&](int input, int64_t d) {
    if (!c.Has(input)) return Tensor::Zeros({batch, hidden}, x.dtype());
    return c.In(input).Select(batch_first ? 1 : 0, d);
  };
  Tensor runs;  // [steps, batch, 1]: which sequences go on; in memory, not made at each step
  if (c.Has(kLengths)) {
    const Tensor step_of = Tensor::Arange(steps, kInt64).Reshape({steps, 1, 1});
    runs = (c.In(kLengths).Reshape({1, batch, 1}) > step_of).Contiguous();
  }
  std::vector<Tensor> all, last_h, last_c;
  for (int64_t d = 0; d < directions; ++d) {
    Direction net = DirectionOf(c, x, d, gates);
    net.activations = activations[d];
    std::vector<Tensor> carried = {first(kFirstH, d)}, sequences = {net.from_x};
    if (has_cell) carried.push_back(first(kFirstC, d));
    if (runs) sequences.push_back(runs);
    const auto turn = [&](const std::vector<Tensor>& in) {
      const State s = {in[0], has_cell ? in[1] : Tensor()};
      State next = step(net, in[carried.size()], s);
      if (runs) {  // a sequence that has ended keeps its state
        next.h = Where(in.back(), next.h, s.h);
        if (has_cell) next.c = Where(in.back(), next.c, s.c);
      }
      return has_cell ? std::vector<Tensor>{next.h, next.c, next.h}
                      : std::vector<Tensor>{next.h, next.h};
    };
    const Looped looped = Loop(turn, carried, sequences, {.backwards = way == "reverse" || d == 1});
    all.push_back(runs ? Where(runs, looped.stacked[0], 0) : looped.stacked[0]);  // and gives zeros
    last_h.push_back(looped.carried[0]);
    if (has_cell) last_c.push_back(looped.carried[1]);
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
