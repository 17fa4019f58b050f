// Control flow, whose course is found while the graph is built: a branch that is taken is written
// out, and so are turns, but for those of which each is like the others: they are one loop.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "examples/onnx/call.h"
#include "examples/onnx/import.h"
#include "graph/loop.h"

namespace tessera::onnx {
namespace {

constexpr int64_t kMostTurns = 10'000;  // written out
constexpr int64_t kMostOfLoop = int64_t{1} << 20;
constexpr int64_t kFewTurns = 6;

void If(Call& c) {
  const bool condition = c.HostInt(0) != 0;
  for (const Value& v : c.RunGraph(condition ? "then_branch" : "else_branch", {})) c.Out(v);
}

// What is joined of the results of no turns: a turn is written out for their shapes alone.
std::vector<Value> NoTurns(Call& c, std::vector<Value> arguments, size_t first,
                           absl::Span<const int64_t> axes) {
  std::vector<Value> rows, out;
  try {
    rows = c.RunGraph("body", std::move(arguments));
  } catch (const Error& e) {
    c.Unsupported("a scan output of no turns has no known shape: ", e.what());
  }
  if (rows.size() < first + axes.size()) c.Fail("the body gives too few results");
  for (size_t i = 0; i < axes.size(); ++i) {
    const Value& row = rows[first + i];
    if (!row.tensor) c.Fail("joins sequences, not tensors");
    std::vector<int64_t> sizes = Sizes(row.tensor);
    sizes.insert(sizes.begin() + c.Axis(axes[i], row.tensor.rank() + 1), 0);
    out.push_back({Tensor::Zeros(sizes, row.tensor.dtype(), "CPU"), true, row.element});
  }
  return out;
}

// Neither so few that they are better written out, nor more than a loop may have.
bool AreForALoop(int64_t turns) { return turns > kFewTurns && turns <= kMostOfLoop; }

// Values of one turn, or of all: what is carried, then what is stacked.
using Body = std::function<std::vector<Value>(std::vector<Value>)>;

// All turns of a body, which takes what is carried and a row of each sequence, as one loop. An
// Error where a turn is not like the one before: where a shape, or what the host reads, follows
// from what it takes.
std::vector<Value> LoopOf(Call& c, int64_t turns, size_t carried, const std::vector<Value>& taken,
                          const Body& body) {
  const auto known = [](const Value& v) { return v.known; };
  if (std::all_of(taken.begin(), taken.end(), known)) {
    std::vector<Value> first = taken;
    for (size_t i = carried; i < first.size(); ++i) first[i].tensor = first[i].tensor.Select(0, 0);
    const std::vector<Value> then = body(std::move(first));
    if (std::all_of(then.begin(), then.end(), known)) c.Unsupported("turns that the host knows");
  }
  const auto data_of = [&](const Value& v) {
    if (!v.tensor) c.Unsupported("sequences in a loop");
    return v.known ? c.importer().Placed(v.tensor) : v.tensor;
  };
  std::vector<Tensor> begin, rows;
  for (const Value& v : taken) (begin.size() < carried ? begin : rows).push_back(data_of(v));
  std::vector<Value> out;
  const auto turn = [&](const std::vector<Tensor>& in) {
    std::vector<Value> arguments;
    for (size_t i = 0; i < in.size(); ++i) arguments.push_back({in[i], false, taken[i].element});
    out = body(std::move(arguments));
    std::vector<Tensor> made;
    for (const Value& v : out) made.push_back(data_of(v));
    return made;
  };
  const Looped looped = tessera::Loop(turn, begin, rows, {.turns = turns});
  for (size_t i = 0; i < out.size(); ++i) {
    const bool stays = i >= carried || out[i].element == taken[i].element;
    if (!stays) c.Unsupported("a type that changes");
    out[i].tensor = i < carried ? looped.carried[i] : looped.stacked[i - carried];
    out[i].known = false;
  }
  return out;
}

// The same; nothing where turns are to be written out.
std::optional<std::vector<Value>> InALoop(Call& c, int64_t turns, absl::Span<const Value> carried,
                                          absl::Span<const Value> sequences, const Body& body) {
  if (!AreForALoop(turns)) return {};
  std::vector<Value> taken(carried.begin(), carried.end());
  taken.insert(taken.end(), sequences.begin(), sequences.end());
  const int64_t draws = c.importer().draws();
  try {
    std::vector<Value> out = LoopOf(c, turns, carried.size(), taken, body);
    if (c.importer().draws() != draws) return {};  // a loop would draw the same in each turn
    return out;
  } catch (const Error&) {  // the body's own are thrown again
    return {};
  }
}

// The same for Loop, whose body takes the number of the turn and a condition as well, and gives the
// next condition: where that is the one it has taken, or known to hold.
std::optional<std::vector<Value>> LoopInALoop(Call& c, int64_t turns,
                                              absl::Span<const Value> carried, size_t results) {
  if (!AreForALoop(turns)) return {};
  const Value number = {Tensor::Arange(turns, kInt64), true};
  return InALoop(c, turns, carried, {number}, [&](std::vector<Value> in) {
    const Value goes_on = {Tensor::From(std::vector<bool>{true}, {}, "CPU"), true};
    std::vector<Value> arguments = {in.back(), goes_on};
    arguments.insert(arguments.end(), in.begin(), in.end() - 1);
    std::vector<Value> out = c.RunGraph("body", std::move(arguments));
    if (out.size() < 1 + results) c.Fail("the body gives too few results");
    Tensor next = out[0].tensor;
    if (!next || !out[0].known || next.Item<int64_t>() == 0) c.Unsupported("turns that end");
    return std::vector<Value>(out.begin() + 1, out.begin() + 1 + static_cast<ptrdiff_t>(results));
  });
}

void Loop(Call& c) {
  const int64_t turns = c.Has(0) ? c.HostInt(0) : std::numeric_limits<int64_t>::max();
  bool goes_on = !c.Has(1) || c.HostInt(1) != 0;
  std::vector<Value> carried;
  for (int i = 2; i < c.inputs(); ++i) carried.push_back(c.Any(i));
  const size_t count = carried.size();
  std::vector<std::vector<Value>> scans(c.node().outputs.size() -
                                        std::min(c.node().outputs.size(), count));
  if (goes_on) {
    if (const auto all = LoopInALoop(c, turns, carried, count + scans.size())) {
      for (const Value& v : *all) c.Out(v);
      return;
    }
  }
  const auto arguments_of = [&](int64_t turn) {
    std::vector<Value> arguments = {{Tensor::From(std::vector<int64_t>{turn}, {}, "CPU"), true},
                                    {Tensor::From(std::vector<bool>{true}, {}, "CPU"), true}};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    return arguments;
  };
  for (int64_t turn = 0; turn < turns && goes_on; ++turn) {
    if (turn >= kMostTurns) c.Unsupported("more than ", kMostTurns, " turns");
    std::vector<Value> results = c.RunGraph("body", arguments_of(turn));
    if (results.size() < 1 + count + scans.size()) c.Fail("the body gives too few results");
    // What the next condition may follow from is computed now: each turn is the same few kernels,
    // not one with all turns before.
    if (!results[0].tensor) c.Fail("the body gives no condition");
    const auto decides = [&](const Value& v) { return v.tensor && (v.known || !results[0].known); };
    std::vector<Tensor> computed = {results[0].tensor};
    for (size_t i = 0; i < count; ++i) {
      carried[i] = results[1 + i];
      if (decides(carried[i])) computed.push_back(carried[i].tensor);
    }
    if (results[0].known) {
      Tensor::Realize(absl::MakeSpan(computed));
    } else {
      c.importer().Compute(absl::MakeSpan(computed));
    }
    goes_on = computed[0].Item<int64_t>() != 0;
    auto next = computed.begin() + 1;
    for (Value& v : carried) {
      if (decides(v)) v.tensor = *next++;
    }
    for (size_t i = 0; i < scans.size(); ++i) scans[i].push_back(results[1 + count + i]);
  }
  for (const Value& v : carried) c.Out(v);
  if (!scans.empty() && scans[0].empty()) {
    const std::vector<int64_t> axes(scans.size(), 0);
    for (const Value& v : NoTurns(c, arguments_of(0), 1 + count, axes)) c.Out(v);
    return;
  }
  for (const std::vector<Value>& scan : scans) c.Out(Joined(c, scan, 0, true));
}

// The attributes of a Scan; version 8 has a batch axis and lengths before what later versions have.
struct ScanForm {
  bool batched;
  int first, scanned, states, outputs;
  std::vector<int64_t> in_axes, out_axes, backward, prepend;

  explicit ScanForm(Call& c)
      : batched(c.opset() < 9),
        first(batched ? 1 : 0),
        scanned(static_cast<int>(c.Int("num_scan_inputs"))),
        states(c.inputs() - first - scanned),
        outputs(static_cast<int>(c.node().outputs.size()) - states) {
    if (batched && c.Has(0)) c.Unsupported("lengths of sequences");
    if (scanned < 1 || scanned > c.inputs() || states < 0) c.Fail("num_scan_inputs is ", scanned);
    if (outputs < 0) c.Fail("fewer outputs than states");
    in_axes = c.IntsFor("scan_input_axes", scanned, 0);
    out_axes = c.IntsFor("scan_output_axes", outputs, 0);
    backward = c.IntsFor(batched ? "directions" : "scan_input_directions", scanned, 0);
    prepend = c.IntsFor("scan_output_directions", outputs, 0);
  }
};

// Of one sample: the last states, then what is scanned out. `inputs` have the turns first, in
// order.
std::vector<Value> ScanOne(Call& c, const ScanForm& form, std::vector<Value> state,
                           const std::vector<Value>& inputs) {
  const auto results = static_cast<size_t>(form.states + form.outputs);
  const Body body = [&](std::vector<Value> in) {
    std::vector<Value> made = c.RunGraph("body", std::move(in));
    if (made.size() < results) c.Fail("the body gives too few results");
    made.resize(results);
    return made;
  };
  const int64_t turns = inputs[0].tensor.size(0);
  if (auto all = InALoop(c, turns, state, inputs, body)) {
    for (int i = 0; i < form.outputs; ++i) {
      Tensor& t = (*all)[form.states + i].tensor;
      if (form.prepend[i] != 0) t = t.Flip(0);
      t = t.MoveAxis(0, c.Axis(form.out_axes[i], t.rank()));
    }
    return *std::move(all);
  }
  std::vector<std::vector<Value>> scans(form.outputs);
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::vector<Value> arguments = state;
    for (const Value& v : inputs) arguments.push_back({v.tensor.Select(0, turn), v.known});
    const std::vector<Value> made = body(std::move(arguments));
    std::copy_n(made.begin(), form.states, state.begin());
    for (int i = 0; i < form.outputs; ++i) {
      const auto where = form.prepend[i] != 0 ? scans[i].begin() : scans[i].end();
      scans[i].insert(where, made[form.states + i]);
    }
  }
  std::vector<Value> out = state;
  if (turns == 0 && form.outputs > 0) {
    std::vector<Value> arguments = state;
    for (const Value& v : inputs) {
      std::vector<int64_t> sizes = Sizes(v.tensor);
      sizes.erase(sizes.begin());
      arguments.push_back({Tensor::Zeros(sizes, v.tensor.dtype(), "CPU"), true});
    }
    const auto none = NoTurns(c, std::move(arguments), form.states, form.out_axes);
    out.insert(out.end(), none.begin(), none.end());
    return out;
  }
  for (int i = 0; i < form.outputs; ++i) {
    out.push_back(Joined(c, scans[i], static_cast<int>(form.out_axes[i]), true));
  }
  return out;
}

void Scan(Call& c) {
  const ScanForm form(c);
  const int64_t batches = form.batched ? c.Input(form.first).tensor.size(0) : 1;
  if (batches < 1) c.Unsupported("no batches");
  std::vector<std::vector<Value>> results(form.states + form.outputs);
  for (int64_t batch = 0; batch < batches; ++batch) {
    const auto of_batch = [&](int i) {
      Value v = c.Input(form.first + i);
      if (form.batched) v.tensor = v.tensor.Select(0, batch);
      return v;
    };
    std::vector<Value> state, inputs;
    for (int i = 0; i < form.states; ++i) state.push_back(of_batch(i));
    for (int i = 0; i < form.scanned; ++i) {
      Value v = of_batch(form.states + i);
      v.tensor = v.tensor.MoveAxis(c.Axis(form.in_axes[i], v.tensor.rank()), 0);
      if (form.backward[i] != 0) v.tensor = v.tensor.Flip(0);
      inputs.push_back(std::move(v));
    }
    const std::vector<Value> one = ScanOne(c, form, std::move(state), inputs);
    for (size_t i = 0; i < one.size(); ++i) results[i].push_back(one[i]);
  }
  for (const std::vector<Value>& r : results) c.Out(form.batched ? Joined(c, r, 0, true) : r[0]);
}

constexpr OpRow kRows[] = {
    {"If", If, HostInput({0})},
    {"Loop", Loop, HostInput({0, 1})},
    {"Scan", Scan},
};

}  // namespace

absl::Span<const OpRow> ControlOps() { return kRows; }

}  // namespace tessera::onnx
