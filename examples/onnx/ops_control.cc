// Control flow, whose course is found while the graph is built: each branch and turn is written
// out.
#include <limits>

#include "examples/onnx/call.h"
#include "examples/onnx/import.h"

namespace tessera::onnx {
namespace {

constexpr int64_t kMostTurns = 10'000;

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

void Loop(Call& c) {
  const int64_t turns = c.Has(0) ? c.HostInt(0) : std::numeric_limits<int64_t>::max();
  bool goes_on = !c.Has(1) || c.HostInt(1) != 0;
  std::vector<Value> carried;
  for (int i = 2; i < c.inputs(); ++i) carried.push_back(c.Any(i));
  const size_t count = carried.size();
  std::vector<std::vector<Value>> scans(c.node().outputs.size() -
                                        std::min(c.node().outputs.size(), count));
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

// Version 8 has a batch axis and lengths before what later versions have.
void Scan(Call& c) {
  const bool batched = c.opset() < 9;
  const int first = batched ? 1 : 0;
  if (batched && c.Has(0)) c.Unsupported("lengths of sequences");
  const auto scanned = static_cast<int>(c.Int("num_scan_inputs"));
  const int states = c.inputs() - first - scanned;
  if (scanned < 1 || scanned > c.inputs() || states < 0) c.Fail("num_scan_inputs is ", scanned);
  const auto outputs = static_cast<int>(c.node().outputs.size()) - states;
  if (outputs < 0) c.Fail("fewer outputs than states");
  const std::vector<int64_t> in_axes = c.IntsFor("scan_input_axes", scanned, 0);
  const std::vector<int64_t> out_axes = c.IntsFor("scan_output_axes", outputs, 0);
  const std::vector<int64_t> backward =
      c.IntsFor(batched ? "directions" : "scan_input_directions", scanned, 0);
  const std::vector<int64_t> prepend = c.IntsFor("scan_output_directions", outputs, 0);
  const int64_t batches = batched ? c.Input(first).tensor.size(0) : 1;
  if (batches < 1) c.Unsupported("no batches");
  std::vector<std::vector<Value>> results(states + outputs);
  for (int64_t batch = 0; batch < batches; ++batch) {
    const auto of_batch = [&](const Value& v) {
      return batched ? Value{v.tensor.Select(0, batch), v.known} : v;
    };
    std::vector<Value> state, inputs;
    for (int i = 0; i < states; ++i) state.push_back(of_batch(c.Input(first + i)));
    for (int i = 0; i < scanned; ++i) inputs.push_back(of_batch(c.Input(first + states + i)));
    const auto axis_of = [&](int i) { return c.Axis(in_axes[i], inputs[i].tensor.rank()); };
    const int64_t turns = inputs[0].tensor.size(axis_of(0));
    std::vector<std::vector<Value>> scans(outputs);
    for (int64_t turn = 0; turn < turns; ++turn) {
      std::vector<Value> arguments = state;
      for (int i = 0; i < scanned; ++i) {
        const int64_t at = backward[i] != 0 ? turns - 1 - turn : turn;
        arguments.push_back({inputs[i].tensor.Select(axis_of(i), at), inputs[i].known});
      }
      std::vector<Value> made = c.RunGraph("body", std::move(arguments));
      if (static_cast<int>(made.size()) < states + outputs)
        c.Fail("the body gives too few results");
      for (int i = 0; i < states; ++i) state[i] = made[i];
      for (int i = 0; i < outputs; ++i) {
        const auto where = prepend[i] != 0 ? scans[i].begin() : scans[i].end();
        scans[i].insert(where, made[states + i]);
      }
    }
    for (int i = 0; i < states; ++i) results[i].push_back(state[i]);
    if (turns == 0 && outputs > 0) {
      std::vector<Value> arguments = state;
      for (int i = 0; i < scanned; ++i) {
        std::vector<int64_t> sizes = Sizes(inputs[i].tensor);
        sizes.erase(sizes.begin() + axis_of(i));
        arguments.push_back({Tensor::Zeros(sizes, inputs[i].tensor.dtype(), "CPU"), true});
      }
      std::vector<Value> none = NoTurns(c, std::move(arguments), states, out_axes);
      for (int i = 0; i < outputs; ++i) scans[i] = {none[i]};
    }
    for (int i = 0; i < outputs; ++i) {
      results[states + i].push_back(
          turns == 0 ? scans[i][0] : Joined(c, scans[i], static_cast<int>(out_axes[i]), true));
    }
  }
  for (const std::vector<Value>& r : results) {
    c.Out(batched ? Joined(c, r, 0, true) : r[0]);
  }
}

constexpr OpRow kRows[] = {
    {"If", If, HostInput({0})},
    {"Loop", Loop, HostInput({0, 1})},
    {"Scan", Scan},
};

}  // namespace

absl::Span<const OpRow> ControlOps() { return kRows; }

}  // namespace tessera::onnx
