// Checking versions, names and nodes, graph by graph.
#include "examples/onnx/check_model.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "examples/onnx/call.h"
#include "examples/onnx/functions.h"
#include "examples/onnx/signatures.h"
#include "runtime/mapped_file.h"

namespace tessera::onnx {
namespace {

using Opsets = std::map<std::string, int64_t>;

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Error(absl::InvalidArgumentError(absl::StrCat(parts...)));
}
template <typename... Parts>
[[noreturn]] void FailAt(const Node& node, const Parts&... parts) {
  throw AtNode(
      Error(absl::InvalidArgumentError(absl::StrCat(absl::CEscape(node.op), ": ", parts...))),
      node);
}

void CheckOpsets(const Opsets& opsets) {
  const auto it = opsets.find("");
  if (it == opsets.end()) return;
  const int64_t version = it->second;
  if (version < 1) Fail("opset_import: version ", version, " of ai.onnx; its versions begin at 1");
  if (version > kNewestOpset) {
    throw Error(absl::UnimplementedError(absl::StrCat(
        "opset_import: version ", version, " of ai.onnx; up to ", kNewestOpset,
        " are known: export the model for one of those, or convert it (onnx.version_converter)")));
  }
}

// ---- one node

// The names of a node against the pattern of a Signature.
void CheckCount(const Node& node, absl::string_view kind, absl::Span<const std::string> names,
                absl::string_view pattern) {
  while (!names.empty() && names.back().empty()) names.remove_suffix(1);
  size_t at = 0;
  for (const char p : pattern) {
    if (absl::ascii_islower(p)) continue;  // of what type it is
    const bool there = at < names.size() && !names[at].empty();
    if (p == '+' && !there) FailAt(node, "there is no ", kind, " ", at);
    if (p == '+' || p == '*') return;
    if (p == '1' && !there) FailAt(node, kind, " ", at, " is missing");
    ++at;
  }
  if (names.size() > at) {
    FailAt(node, names.size(), " ", kind, "s; there are at most ", at, " in its opset");
  }
}

struct TypeLetter {
  char letter;
  Attribute::Type type;
  const char* name;
};
constexpr TypeLetter kTypes[] = {
    {'f', Attribute::Type::kFloat, "a float"},
    {'i', Attribute::Type::kInt, "an int"},
    {'s', Attribute::Type::kString, "a string"},
    {'t', Attribute::Type::kTensor, "a tensor"},
    {'g', Attribute::Type::kGraph, "a graph"},
    {'F', Attribute::Type::kFloats, "floats"},
    {'I', Attribute::Type::kInts, "ints"},
    {'S', Attribute::Type::kStrings, "strings"},
    {'p', Attribute::Type::kOther, "a sparse tensor or a type"},
};
const char* NameOf(Attribute::Type type) {
  for (const TypeLetter& t : kTypes) {
    if (t.type == type && type != Attribute::Type::kOther) return t.name;
  }
  return "of another type";
}

void CheckAttributes(const Node& node, const Signature& signature, int64_t version) {
  struct Known {
    TypeLetter type;
    bool needed;
  };
  std::map<absl::string_view, Known> known;
  for (const absl::string_view entry :
       absl::StrSplit(signature.attributes, ' ', absl::SkipEmpty())) {
    const size_t colon = entry.find(':');
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeLetter& t) {
      return t.letter == entry[colon + 1];
    });
    known[entry.substr(0, colon)] = {*type, entry.back() == '!'};
  }
  for (const auto& [name, a] : node.attributes) {
    if (name == "consumed_inputs" && version < 6) continue;
    if (absl::StartsWith(name, "__")) continue;  // ONNX Runtime's own notes
    const auto it = known.find(name);
    if (it == known.end()) {
      const std::string all = absl::StrJoin(known, ", ", [](std::string* out, const auto& entry) {
        absl::StrAppend(out, entry.first);
      });
      FailAt(node, "it has no attribute ", ShowName(name), " in opset ", version, "; it has ",
             all.empty() ? "none" : all);
    }
    // Files of the first versions may say no type.
    if (a.type != it->second.type.type && a.type != Attribute::Type::kNone) {
      FailAt(node, "attribute ", ShowName(name), " is ", NameOf(a.type), ", not ",
             it->second.type.name);
    }
  }
  for (const auto& [name, attribute] : known) {
    if (attribute.needed && !node.attributes.contains(std::string(name))) {
      FailAt(node, "attribute '", name, "' is missing");
    }
  }
}

// ---- names

// What one graph or function makes; those around a graph are seen through it.
struct Scope {
  absl::flat_hash_map<absl::string_view, const Node*> makers;  // null: an input or initializer
  const Scope* outer;
  const Opsets& opsets;

  bool Sees(absl::string_view name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (s->makers.contains(name)) return true;
    }
    return false;
  }
};

class Checker {
 public:
  explicit Checker(const Model& model) : model_(model), functions_(model.functions) {}

  void Run() const {
    CheckOpsets(model_.opsets);
    CheckGraph(model_.graphs[0], nullptr, model_.opsets);
    for (const Function& f : model_.functions) {
      try {
        CheckFunction(f);
      } catch (const Error& e) {
        throw Error(
            absl::Status(e.status().code(),
                         absl::StrCat(e.status().message(), "; in function ", ShowName(f.name))));
      }
    }
  }

 private:
  void CheckFunction(const Function& f) const {
    CheckOpsets(f.opsets);
    Scope scope{{}, nullptr, f.opsets};
    for (const std::string& name : f.inputs) {
      if (!scope.makers.emplace(name, nullptr).second) Twice("FunctionProto", "inputs", name);
    }
    CheckNodes(f.nodes, scope);
    for (const std::string& name : f.outputs) CheckOutput("FunctionProto", name, scope);
  }
  [[noreturn]] static void Twice(absl::string_view of, absl::string_view what,
                                 const std::string& name) {
    Fail(of, ": two ", what, " are named ", ShowName(name));
  }
  static void CheckOutput(absl::string_view of, const std::string& name, const Scope& scope) {
    if (!scope.Sees(name)) Fail(of, ": nothing makes the output ", ShowName(name));
  }

  void CheckGraph(const Graph& graph, const Scope* outer, const Opsets& opsets) const {
    Scope scope{{}, outer, opsets};
    for (const ValueInfo& info : graph.inputs) {
      if (!scope.makers.emplace(info.name, nullptr).second)
        Twice("GraphProto", "inputs", info.name);
    }
    absl::flat_hash_map<absl::string_view, int> initializers;  // inputs may have one for a default
    for (const TensorData& t : graph.initializers) {
      if (initializers[t.name]++ > 0) Twice("GraphProto", "initializers", t.name);
      scope.makers.emplace(t.name, nullptr);
    }
    CheckNodes(graph.nodes, scope);
    for (const ValueInfo& info : graph.outputs) CheckOutput("GraphProto", info.name, scope);
  }

  void CheckNodes(absl::Span<const Node> nodes, Scope& scope) const {
    for (const Node& node : nodes) {
      for (const std::string& name : node.inputs) {
        if (!name.empty() && !scope.Sees(name)) {
          FailAt(node, "nothing before it makes its input ", ShowName(name));
        }
      }
      CheckNode(node, scope.opsets);
      for (const auto& [name, a] : node.attributes) {
        if (a.graph >= 0) CheckGraph(model_.graphs[a.graph], &scope, scope.opsets);
      }
      for (const std::string& name : node.outputs) {
        if (name.empty()) continue;
        const auto [it, is_new] = scope.makers.emplace(name, &node);
        if (is_new) continue;
        const Node* first = it->second;
        FailAt(node, "its output ", ShowName(name), " is there already, ",
               first == nullptr ? "an input or initializer of the graph"
                                : absl::StrCat("made by node ", ShowName(first->name), ", ",
                                               ShowName(first->op)));
      }
    }
  }

  void CheckNode(const Node& node, const Opsets& opsets) const {
    if (const Function* f = functions_.Of(node)) {
      CheckCount(node, "input", node.inputs, std::string(f->inputs.size(), '?'));
      CheckCount(node, "output", node.outputs, std::string(f->outputs.size(), '?'));
      return;
    }
    const std::string dot = node.domain.empty() ? "" : ".";
    const absl::Span<const Signature> rows = SignaturesOf(absl::StrCat(node.domain, dot, node.op));
    if (rows.empty()) return;
    const auto it = opsets.find(node.domain);
    // Files of the first versions import nothing.
    if (it == opsets.end() && (node.domain.empty() ? model_.ir_version >= 3 : true)) {
      FailAt(node, "the model imports no opset of ",
             node.domain.empty() ? "ai.onnx" : absl::CEscape(node.domain),
             ": opset_import has to say which version of the op it is");
    }
    const int64_t version = it == opsets.end() ? 1 : it->second;
    const Signature* row = SignatureOf(rows[0].op, version);
    if (row == nullptr) FailAt(node, "it came with opset ", rows[0].since, "; this is ", version);
    if (row->inputs == nullptr) {
      FailAt(node, "it ended with opset ", row->since, "; this is ", version);
    }
    CheckCount(node, "input", node.inputs, row->inputs);
    CheckCount(node, "output", node.outputs, row->outputs);
    CheckAttributes(node, *row, version);
  }

  const Model& model_;
  const Functions functions_;
};

std::string TypeText(int64_t element, const std::optional<std::vector<int64_t>>& dims) {
  const std::string type = ElementName(element);
  if (!dims) return type;
  return absl::StrCat(type, " [",
                      absl::StrJoin(*dims, ", ",
                                    [](std::string* out, int64_t extent) {
                                      absl::StrAppend(out, extent < 0 ? "?" : absl::StrCat(extent));
                                    }),
                      "]");
}

bool Fits(absl::Span<const int64_t> dims, absl::Span<const int64_t> declared) {
  return std::equal(dims.begin(), dims.end(), declared.begin(), declared.end(),
                    [](int64_t got, int64_t said) { return said < 0 || got == said; });
}

}  // namespace

std::string Contradiction(const ValueInfo& info, const Value& value, bool shapes) {
  using Kind = ValueInfo::Kind;
  const bool tensor = info.kind == Kind::kTensor, sequence = info.kind == Kind::kSequence;
  if (value.empty() || (!tensor && !sequence)) return "";
  if (sequence != value.is_sequence()) {
    return sequence ? "is a tensor, declared as a sequence" : "is a sequence, declared as a tensor";
  }
  if (sequence) return "";
  const int64_t element = ElementOf(value);
  const std::vector<int64_t> dims = Sizes(value.tensor);
  const bool other = info.element != 0 && info.element != element;
  if (!other && (!shapes || !info.dims || Fits(dims, *info.dims))) return "";
  return absl::StrCat("is ", TypeText(element, dims), ", declared as ",
                      TypeText(info.element != 0 ? info.element : element, info.dims));
}

void CheckTypes(const Node& node, int64_t version, absl::Span<const Value> inputs) {
  const Signature* row = SignatureOf(FullName(node), version);
  if (row == nullptr || row->inputs == nullptr) return;
  std::map<char, size_t> first;  // of each letter
  size_t at = 0;
  for (const char* p = row->inputs; *p != '\0'; ++p) {
    const size_t end = *p == '+' || *p == '*' ? inputs.size() : at + 1;
    const bool tied = absl::ascii_islower(p[1]);
    for (; at < end; ++at) {
      if (!tied || at >= inputs.size() || !inputs[at].tensor) continue;
      const size_t other = first.emplace(p[1], at).first->second;
      const int64_t a = ElementOf(inputs[other]), b = ElementOf(inputs[at]);
      if (a == b) continue;
      FailAt(node, "input ", other, " is ", ElementName(a), ", input ", at, " ", ElementName(b),
             "; they have to be of one type: cast one of them");
    }
    if (tied) ++p;
  }
}

void CheckModel(const Model& model) { Checker(model).Run(); }

}  // namespace tessera::onnx
