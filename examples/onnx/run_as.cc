// Running an op of ONNX as part of another.
#include "examples/onnx/run_as.h"

#include "examples/onnx/activation.h"
#include "graph/status.h"

namespace tessera::onnx {

std::vector<Value> RunAs(Call& c, const std::string& op, int64_t opset,
                         const std::vector<Tensor>& inputs) {
  Node named;
  const size_t dot = op.rfind('.');
  if (dot != std::string::npos) named.domain = op.substr(0, dot);
  named.op = op.substr(dot + 1);  // npos + 1 is 0
  const OpRow* row = FindOp(named);
  CHECK(row != nullptr, op, " is in no table");
  std::vector<Value> values;
  for (const Tensor& t : inputs) values.push_back({t, c.all_known()});
  Call inner(c.importer(), c.node(), opset, std::move(values));
  row->import(inner);
  return inner.outputs();
}

Tensor ChannelsFirst(const Tensor& x) { return x.rank() < 3 ? x : x.MoveAxis(-1, 1); }
Tensor ChannelsLast(const Tensor& x) { return x.rank() < 3 ? x : x.MoveAxis(1, -1); }

Tensor Activated(Call& c, const Tensor& x, const std::vector<double>& numbers) {
  if (c.Find("activation") == nullptr) return x;
  const std::string name = c.String("activation", "");
  if (name == "Clip") {
    if (numbers.size() != 2) c.Fail("Clip has ", numbers.size(), " numbers, not 2");
    return x.Clip(numbers[0], numbers[1]);
  }
  const NamedActivation* a = FindActivation(name);
  if (a == nullptr) c.Fail("the activation '", name, "' is none");
  return a->fn(x, numbers.empty() ? a->alpha : numbers[0],
               numbers.size() < 2 ? a->beta : numbers[1]);
}

}  // namespace tessera::onnx
