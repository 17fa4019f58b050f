// Running a model's nodes in order, and finding out which of its inputs the host reads.
#include "examples/onnx/import.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "examples/onnx/check_model.h"
#include "examples/onnx/strings.h"
#include "runtime/mapped_file.h"

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

Importer::Importer(const Model& model, Device data)
    : model_(model), functions_(model.functions), data_(data) {
  CheckModel(model);
}

Tensor Importer::Placed(const Tensor& known) {
  if (!known.device() || known.device() == data_) return known;
  // It is put there before the computation starts, as the inputs are.
  const auto kept = placed_.find(known.uop());
  if (kept == placed_.end()) return known.To(data_).Realize();
  if (!kept->second) kept->second = known.To(data_).Realize();
  return kept->second;
}

std::vector<Value> Importer::Run(const absl::flat_hash_map<std::string, Value>& inputs) {
  const Graph& graph = model_.graphs[0];
  nodes_ = 0;
  draws_ = 0;
  std::vector<Value> arguments;
  for (const ValueInfo& info : graph.inputs) {
    const auto it = inputs.find(info.name);
    arguments.push_back(it == inputs.end() ? Value{} : it->second);
    const std::string fault = Contradiction(info, arguments.back(), true);
    if (fault.empty()) continue;
    throw Error(absl::InvalidArgumentError(
        absl::StrCat("Importer: the input ", ShowName(info.name), " ", fault)));
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
    auto it = initializers_.find(&t);
    if (it == initializers_.end()) {
      it = initializers_.emplace(&t, MakeValue(t, "CPU", true)).first;
      placed_.emplace(it->second.tensor.uop(), Tensor());
    }
    scope.names[t.name] = it->second;
  }
  for (size_t i = 0; i < graph.inputs.size() && i < arguments.size(); ++i) {
    // An empty optional is a value, an input that was left out none.
    if (arguments[i].empty() && graph.inputs[i].kind != ValueInfo::Kind::kOptional) continue;
    scope.lazy.push_back(graph.inputs[i].name);
    scope.names[graph.inputs[i].name] = std::move(arguments[i]);
  }
  scope.nodes = graph.nodes;
  for (const ValueInfo& info : graph.outputs) scope.outputs.push_back(info.name);
  std::vector<Value> outputs = RunNodes(scope);
  CheckValues(graph, scope.names, outputs);
  return outputs;
}

// A graph within another may run for other shapes than it was written for. So may the model, where
// its inputs leave extents open: then what tools say of other shapes is often of one example.
// Of pools with ceil_mode ONNX's own shape inference counts a window too many, in all after them.
void Importer::CheckValues(const Graph& graph, const Names& names,
                           absl::Span<const Value> outputs) const {
  const auto rounds_up = [](const Node& node) {
    const auto it = node.attributes.find("ceil_mode");
    return it != node.attributes.end() && it->second.i != 0;
  };
  const bool exact = &graph == &model_.graphs[0] &&
                     std::none_of(graph.nodes.begin(), graph.nodes.end(), rounds_up);
  const bool closed = std::all_of(graph.inputs.begin(), graph.inputs.end(), [](const ValueInfo& i) {
    return i.dims && std::find(i.dims->begin(), i.dims->end(), -1) == i.dims->end();
  });
  const auto check = [&](const ValueInfo& info, const Value& value, bool shapes) {
    const std::string fault = Contradiction(info, value, shapes);
    if (fault.empty()) return;
    for (const Node& node : graph.nodes) {
      if (std::find(node.outputs.begin(), node.outputs.end(), info.name) == node.outputs.end()) {
        continue;
      }
      throw AtNode(Error(absl::InvalidArgumentError(absl::StrCat(
                       absl::CEscape(node.op), ": its output ", ShowName(info.name), " ", fault))),
                   node);
    }
    throw Error(
        absl::InvalidArgumentError(absl::StrCat("GraphProto: ", ShowName(info.name), " ", fault)));
  };
  for (const ValueInfo& info : graph.values) {
    const auto it = names.find(info.name);
    if (it != names.end()) check(info, it->second, exact && closed);
  }
  for (size_t i = 0; i < outputs.size(); ++i) check(graph.outputs[i], outputs[i], exact && closed);
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

std::vector<Value> Importer::RunNodes(Scope& scope) {
  if (depth_ >= kMaxNesting) {
    throw Error(absl::InvalidArgumentError(absl::StrCat(
        "GraphProto: graphs and functions call each other deeper than ", kMaxNesting)));
  }
  scope.caller = scope_;
  const absl::Cleanup back = [this, &scope] {
    scope_ = scope.caller;
    --depth_;
  };
  scope_ = &scope;
  ++depth_;
  for (const Node& node : scope.nodes) {
    scope.at = static_cast<size_t>(&node - scope.nodes.data());
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
  return Outputs(scope.outputs);
}

const Importer::LastUses& Importer::LastUsesOf(absl::Span<const Node> nodes) {
  const auto [it, is_new] = last_uses_.try_emplace(nodes.data());
  if (!is_new) return it->second;
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<const Node*> left = {&nodes[i]};
    while (!left.empty()) {
      const Node& node = *left.back();
      left.pop_back();
      for (const std::string& name : node.inputs) it->second[name] = i;
      for (const auto& [key, a] : node.attributes) {
        if (a.graph < 0) continue;
        const Graph& body = model_.graphs[a.graph];
        for (const Node& inner : body.nodes) left.push_back(&inner);
        for (const ValueInfo& info : body.outputs) it->second[info.name] = i;
      }
    }
  }
  return it->second;
}

void Importer::Compute(absl::Span<Tensor> wanted) {
  std::vector<Tensor> all(wanted.begin(), wanted.end());
  std::vector<Value*> values;
  for (Scope* s = scope_; s != nullptr; s = s->caller) {
    if (s->lazy.empty()) continue;
    const LastUses& uses = LastUsesOf(s->nodes);
    for (const std::string& name : s->lazy) {
      const auto use = uses.find(name);
      const bool later = (use != uses.end() && use->second >= s->at) ||
                         std::find(s->outputs.begin(), s->outputs.end(), name) != s->outputs.end();
      Value& v = s->names.at(name);
      if (!later) continue;
      if (v.is_sequence()) {  // its tensors are ours to change once they are a copy
        auto copy = std::make_shared<std::vector<Value>>(*v.sequence);
        for (Value& part : *copy) values.push_back(&part);
        v.sequence = std::move(copy);
      } else {
        values.push_back(&v);
      }
    }
    s->lazy.clear();
  }
  std::erase_if(values, [](const Value* v) { return !v->tensor || v->known; });
  for (const Value* v : values) all.push_back(v->tensor);
  Tensor::Realize(absl::MakeSpan(all));
  std::copy_n(all.begin(), wanted.size(), wanted.begin());
  for (size_t i = 0; i < values.size(); ++i) values[i]->tensor = all[wanted.size() + i];
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
  if (const Function* f = functions_.Of(node)) return CallFunction(*f, node);
  const OpRow* row = FindOp(node);
  if (row == nullptr) {
    throw Error(absl::UnimplementedError(
        absl::StrCat(absl::CEscape(node.op), ": there is no such op",
                     node.domain.empty() ? "" : " of " + absl::CEscape(node.domain))));
  }
  std::vector<Value> inputs;
  for (const std::string& name : node.inputs) {
    if (name.empty()) {
      inputs.emplace_back();
      continue;
    }
    const Value* v = Find(name);
    if (v == nullptr) {  // CheckModel found where it is made: by whoever runs the model
      throw Error(absl::InvalidArgumentError(
          absl::StrCat(absl::CEscape(node.op), ": its input ", ShowName(name),
                       " is one of the model's, and was not given")));
    }
    inputs.push_back(*v);
  }
  const auto it = scope_->opsets->find(node.domain);
  const int64_t version = it == scope_->opsets->end() ? 1 : it->second;
  CheckTypes(node, version, inputs);
  CheckStrings(node, inputs);
  Call call(*this, node, version, std::move(inputs));
  try {
    row->import(call);
  } catch (const Error& error) {
    throw AtNode(error, node);
  }
  for (int i = 0; call.computed_inputs() && i < call.inputs(); ++i) {  // for what else takes them
    if (call.Has(i)) *Find(node.inputs[i]) = call.Input(i);
  }
  if (call.outputs().size() < node.outputs.size()) {
    call.Unsupported("output ", call.outputs().size(), " is not made");
  }
  SetOutputs(node, std::move(call.outputs()));
}

void Importer::SetOutputs(const Node& node, std::vector<Value> values) {
  for (size_t i = 0; i < node.outputs.size() && i < values.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    Value& v = scope_->names[node.outputs[i]] = std::move(values[i]);
    if (v.is_sequence() || (v.tensor && !v.known)) scope_->lazy.push_back(node.outputs[i]);
  }
}

void Importer::CallFunction(const Function& function, const Node& node) {
  Scope scope;  // a function sees only its own names
  for (size_t i = 0; i < function.inputs.size() && i < node.inputs.size(); ++i) {
    const Value* v = Find(node.inputs[i]);
    if (v == nullptr) continue;
    scope.lazy.push_back(function.inputs[i]);
    scope.names[function.inputs[i]] = *v;
  }
  scope.opsets = &function.opsets;
  scope.attributes = &node.attributes;
  scope.defaults = &function.defaults;
  scope.nodes = function.nodes;
  scope.outputs = function.outputs;
  SetOutputs(node, RunNodes(scope));
}

}  // namespace tessera::onnx
