// Models as Tensor expressions: each node becomes public Tensor functions on lazy values.
//
// Inputs that set shapes or attributes, and what follows from them or from shapes alone, are read
// on the host while the graph is built. Where a shape or the course of control flow follows from
// data, these are computed at that point, and with them what later nodes take, so that nothing is
// computed twice; nothing else is before the results are.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "examples/onnx/call.h"
#include "examples/onnx/functions.h"
#include "examples/onnx/proto.h"
#include "graph/tensor.h"

namespace tessera::onnx {

// The names of the model's inputs that set shapes or attributes: they are given as known values.
std::set<std::string> HostInputs(const Model& model);

// A tensor of a file, copied to a device.
Tensor MakeTensor(const TensorData& data, Device device);
Value MakeValue(const TensorData& data, Device device, bool known);
Value MakeValue(const ValueData& data, Device device, bool known);

// Functions that call each other and loops may not write out more nodes than this.
inline constexpr int64_t kMostNodes = 1 << 20;

class Importer {
 public:
  // `data` is where initializers and known values go when they meet data: the place of the inputs,
  // or a Sharding that replicates over theirs. The model must outlive the importer. Throws what
  // CheckModel does.
  Importer(const Model& model, Device data);

  // The values of the model's outputs for its inputs, by name. Throws tessera::Error; what is not
  // supported has the code kUnimplemented. May be called again: initializers are copied once.
  std::vector<Value> Run(const absl::flat_hash_map<std::string, Value>& inputs);

  // ---- for nodes that hold graphs
  std::vector<Value> RunGraph(const Graph& graph, std::vector<Value> arguments);
  const Model& model() const { return model_; }
  Device data_device() const { return data_; }
  // How often random numbers were drawn, so that results cannot be foretold.
  int64_t draws() const { return draws_; }
  void CountDraw() { ++draws_; }
  // A known value where data lies.
  Tensor Placed(const Tensor& known);
  // Computes these, and at once all that is not computed yet and that a node still to come takes:
  // what they are made of would else be computed again with each of those that is asked for.
  void Compute(absl::Span<Tensor> wanted);

 private:
  using Names = absl::flat_hash_map<std::string, Value>;
  // The last node of a list that takes a name, itself or in a graph of its own.
  using LastUses = absl::flat_hash_map<absl::string_view, size_t>;
  // The names of one graph or function; those of the graphs around it are seen through it.
  struct Scope {
    Names names;
    Scope* outer = nullptr;
    Scope* caller = nullptr;  // whose node runs this one; the same but for functions
    absl::Span<const Node> nodes;
    size_t at = 0;  // the node that runs
    std::vector<std::string> outputs;
    std::vector<std::string> lazy;  // what it got or made since the last Compute
    const std::map<std::string, int64_t>* opsets = nullptr;
    const std::map<std::string, Attribute>* attributes = nullptr;  // of the function's call
    const std::map<std::string, Attribute>* defaults = nullptr;
  };
  Value* Find(const std::string& name) const;
  std::vector<Value> RunNodes(Scope& scope);
  // Throws where a value of a graph that has run is none that the graph declares it to be.
  void CheckValues(const Graph& graph, const Names& names, absl::Span<const Value> outputs) const;
  const LastUses& LastUsesOf(absl::Span<const Node> nodes);
  void RunNode(const Node& node);
  void CallFunction(const Function& function, const Node& node);
  void SetOutputs(const Node& node, std::vector<Value> values);
  Node Resolved(const Node& node) const;
  std::vector<Value> Outputs(absl::Span<const std::string> names) const;

  const Model& model_;
  const Functions functions_;
  Device data_;
  absl::flat_hash_map<const TensorData*, Value> initializers_;
  absl::flat_hash_map<UOp, Tensor> placed_;  // of initializers, those that data met where it lies
  Scope* scope_ = nullptr;
  absl::flat_hash_map<const Node*, LastUses> last_uses_;  // by the first node of a list
  int depth_ = 0;
  int64_t draws_ = 0;
  int64_t nodes_ = 0;
};

}  // namespace tessera::onnx
