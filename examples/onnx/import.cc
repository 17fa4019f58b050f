// Running a model's nodes in order, and finding out which of its inputs the host reads.
#include "examples/onnx/import.h"

#include <algorithm>

namespace tessera::onnx {
namespace {

// Marks the names that must be known on the host. Names are unique over a model's graphs.
class HostNames {
 public:
  explicit HostNames(const Model& model) : model_(model) {
    // What a graph within a graph needs shows one level further out each time.
    for (int i = 0; i <= kMaxNesting; ++i) {
      const size_t before = names_.size();
      for (const Graph& g : model.graphs) MarkGraph(g);
      if (names_.size() == before) break;
    }
  }
  const std::set<std::string>& names() const { return names_; }

 private:
  void Mark(const std::string& name) {
    if (!name.empty()) names_.insert(name);
  }
  bool Has(const std::string& name) const { return names_.contains(name); }

  void MarkGraph(const Graph& g) {
    for (size_t i = g.nodes.size(); i-- > 0;) {
      const Node& node = g.nodes[i];
      const OpRow* row = FindOp(node);
      if (row == nullptr) continue;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        if (k < 32 && (row->host_inputs >> k & 1)) Mark(node.inputs[k]);
      }
      const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](const std::string& name) { return Has(name); });
      for (const auto& [name, a] : node.attributes) {
        if (a.graph >= 0) MarkBody(node, model_.graphs[a.graph]);
      }
      // What comes of samples is data, whatever shapes follow from it: a detector's boxes.
      if (wanted && !row->shape_only && row->flow != Flow::kBatch) {
        for (const std::string& name : node.inputs) Mark(name);
      }
    }
  }
  // Ties the inputs and outputs of a graph attribute to those of its node.
  void MarkBody(const Node& node, const Graph& body) {
    const bool loop = node.op == "Loop";
    const size_t first = loop ? 1 : 0;  // a loop's body gives its condition first
    if (loop && !body.outputs.empty()) Mark(body.outputs[0].name);
    for (size_t k = first; k < body.outputs.size(); ++k) {
      const bool out = k - first < node.outputs.size() && Has(node.outputs[k - first]);
      const bool carried = loop && k + 1 < body.inputs.size() && Has(body.inputs[k + 1].name);
      if (out || carried) Mark(body.outputs[k].name);
    }
    for (size_t k = 0; k < body.inputs.size() && k < node.inputs.size(); ++k) {
      if (Has(body.inputs[k].name)) Mark(node.inputs[k]);
    }
  }

  const Model& model_;
  std::set<std::string> names_;
};

}  // namespace

std::set<std::string> HostInputs(const Model& model) {
  const HostNames names(model);
  std::set<std::string> out;
  for (const ValueInfo& input : model.graphs[0].inputs) {
    if (names.names().contains(input.name)) out.insert(input.name);
  }
  return out;
}

Tensor MakeTensor(const TensorData& data, Device device) {
  const std::optional<DType> dtype = data.dtype();
  if (!dtype) {
    throw Error(absl::UnimplementedError(absl::StrCat("TensorProto: the element type ",
                                                      ElementName(data.element), " of '", data.name,
                                                      "' is none of a Tensor")));
  }
  if (!data.elsewhere.location.empty()) {
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("TensorProto: the data of '", data.name, "' is in the file '",
                     data.elsewhere.location, "', which was not read")));
  }
  if (!dtype->IsBool()) return Tensor::FromBytes(data.bytes().data(), data.dims, *dtype, device);
  std::string bytes(data.bytes());  // any byte but 0 is true
  for (char& b : bytes) b = b != 0;
  return Tensor::FromBytes(bytes.data(), data.dims, *dtype, device);
}

Value MakeValue(const TensorData& data, Device device, bool known) {
  return {MakeTensor(data, device), known, IsNarrow(data.element) ? data.element : 0};
}

Value MakeValue(const ValueData& data, Device device, bool known) {
  if (data.is_sequence) {
    std::vector<Value> values;
    for (const TensorData& t : data.tensors) values.push_back(MakeValue(t, device, known));
    Value out;
    out.sequence = std::make_shared<const std::vector<Value>>(std::move(values));
    return out;
  }
  return data.tensors.empty() ? Value() : MakeValue(data.tensors[0], device, known);
}

Importer::Importer(const Model& model, Device data) : model_(model), data_(data) {}

Tensor Importer::Placed(const Tensor& known) const {
  if (!known.device() || known.device() == data_) return known;
  // It is put there before the computation starts, as the inputs are.
  return known.To(data_).Realize();
}

std::vector<Value> Importer::Run(const absl::flat_hash_map<std::string, Value>& inputs) {
  const Graph& graph = model_.graphs[0];
  std::vector<Value> arguments;
  for (const ValueInfo& info : graph.inputs) {
    const auto it = inputs.find(info.name);
    arguments.push_back(it == inputs.end() ? Value{} : it->second);
  }
  return RunGraph(graph, std::move(arguments));
}

std::vector<Value> Importer::RunGraph(const Graph& graph, std::vector<Value> arguments) {
  if (graph.has_sparse_initializers) {
    throw Error(absl::UnimplementedError("GraphProto: sparse initializers are not supported"));
  }
  Scope scope;
  scope.outer = scope_;
  scope.opsets = scope_ == nullptr ? &model_.opsets : scope_->opsets;
  if (scope_ != nullptr) {
    scope.attributes = scope_->attributes;
    scope.defaults = scope_->defaults;
  }
  for (const TensorData& t : graph.initializers) {
    scope.names[t.name] = MakeValue(t, "CPU", true);
  }
  for (size_t i = 0; i < graph.inputs.size() && i < arguments.size(); ++i) {
    // An empty optional is a value, an input that was left out none.
    if (arguments[i].empty() && graph.inputs[i].kind != ValueInfo::Kind::kOptional) continue;
    scope.names[graph.inputs[i].name] = std::move(arguments[i]);
  }
  Scope* const before = scope_;
  scope_ = &scope;
  std::vector<Value> out;
  try {
    RunNodes(graph.nodes);
    std::vector<std::string> names;
    for (const ValueInfo& info : graph.outputs) names.push_back(info.name);
    out = Outputs(names);
  } catch (...) {
    scope_ = before;
    throw;
  }
  scope_ = before;
  return out;
}

std::vector<Value> Importer::Outputs(absl::Span<const std::string> names) const {
  std::vector<Value> out;
  for (const std::string& name : names) {
    const Value* v = Find(name);
    if (v == nullptr) {
      throw Error(absl::InvalidArgumentError(
          absl::StrCat("GraphProto: nothing makes the output '", name, "'")));
    }
    out.push_back(*v);
  }
  return out;
}

Value* Importer::Find(const std::string& name) const {
  for (Scope* s = scope_; s != nullptr; s = s->outer) {
    const auto it = s->names.find(name);
    if (it != s->names.end()) return &it->second;
  }
  return nullptr;
}

void Importer::RunNodes(absl::Span<const Node> nodes) {
  if (++depth_ > kMaxNesting) {
    throw Error(absl::InvalidArgumentError(absl::StrCat(
        "GraphProto: graphs and functions call each other deeper than ", kMaxNesting)));
  }
  for (const Node& node : nodes) {
    const bool refers =
        scope_->attributes != nullptr &&
        std::any_of(node.attributes.begin(), node.attributes.end(),
                    [](const auto& entry) { return !entry.second.reference.empty(); });
    if (refers) {
      RunNode(Resolved(node));
    } else {
      RunNode(node);
    }
  }
  --depth_;
}

// A function's node with the attributes that it takes from the function's call.
Node Importer::Resolved(const Node& node) const {
  Node out = node;
  for (const auto& [name, a] : node.attributes) {
    if (a.reference.empty()) continue;
    out.attributes.erase(name);
    for (const auto* from : {scope_->attributes, scope_->defaults}) {
      const auto it = from->find(a.reference);
      if (it == from->end()) continue;
      out.attributes[name] = it->second;
      break;
    }
  }
  return out;
}

void Importer::RunNode(const Node& node) {
  if (++nodes_ > kMostNodes) {
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("GraphProto: more than ", kMostNodes, " nodes, with those of all turns")));
  }
  for (const Function& f : model_.functions) {
    if (f.name == node.op && f.domain == node.domain && f.overload == node.overload) {
      return CallFunction(f, node);
    }
  }
  const OpRow* row = FindOp(node);
  if (row == nullptr) {
    throw Error(absl::UnimplementedError(absl::StrCat(
        node.op, ": there is no such op", node.domain.empty() ? "" : " of " + node.domain)));
  }
  std::vector<Value> inputs;
  for (const std::string& name : node.inputs) {
    if (name.empty()) {
      inputs.emplace_back();
      continue;
    }
    const Value* v = Find(name);
    if (v == nullptr) {
      throw Error(absl::InvalidArgumentError(
          absl::StrCat(node.op, ": nothing before it makes its input '", name, "'")));
    }
    inputs.push_back(*v);
  }
  const auto version = scope_->opsets->find(node.domain);
  Call call(*this, node, version == scope_->opsets->end() ? 1 : version->second, std::move(inputs));
  row->import(call);
  for (int i = 0; call.computed_inputs() && i < call.inputs(); ++i) {  // for what else takes them
    if (call.Has(i)) *Find(node.inputs[i]) = call.Input(i);
  }
  if (call.outputs().size() < node.outputs.size()) {
    call.Unsupported("output ", call.outputs().size(), " is not made");
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty()) scope_->names[node.outputs[i]] = std::move(call.outputs()[i]);
  }
}

void Importer::CallFunction(const Function& function, const Node& node) {
  Scope scope;  // a function sees only its own names
  for (size_t i = 0; i < function.inputs.size() && i < node.inputs.size(); ++i) {
    const Value* v = Find(node.inputs[i]);
    if (v != nullptr) scope.names[function.inputs[i]] = *v;
  }
  scope.opsets = &function.opsets;
  scope.attributes = &node.attributes;
  scope.defaults = &function.defaults;
  Scope* const before = scope_;
  scope_ = &scope;
  std::vector<Value> out;
  try {
    RunNodes(function.nodes);
    out = Outputs(function.outputs);
  } catch (...) {
    scope_ = before;
    throw;
  }
  scope_ = before;
  for (size_t i = 0; i < node.outputs.size() && i < out.size(); ++i) {
    if (!node.outputs[i].empty()) scope_->names[node.outputs[i]] = std::move(out[i]);
  }
}

}  // namespace tessera::onnx
