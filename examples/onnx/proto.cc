// Parsing models: graphs, nodes, attributes and functions.
#include "examples/onnx/proto.h"

#include <algorithm>
#include <cstring>

#include "examples/onnx/proto_tensor.h"
#include "examples/onnx/sort_nodes.h"
#include "examples/onnx/wire.h"

namespace tessera::onnx {
namespace {

// Calls read(field) for each field of a message, until one fails.
template <typename Fn>
absl::Status EachField(WireReader& in, Fn read) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, in.Next());
    if (!more) return absl::OkStatus();
    RETURN_IF_ERROR(read(in.field()));
  }
}

absl::Status ReadString(const WireReader& in, absl::string_view what, std::string* to) {
  ASSIGN_OR_RETURN(const absl::string_view text, in.Bytes(what));
  to->assign(text.data(), text.size());
  return absl::OkStatus();
}
absl::Status AppendString(const WireReader& in, absl::string_view what,
                          std::vector<std::string>* to) {
  ASSIGN_OR_RETURN(const absl::string_view text, in.Bytes(what));
  to->emplace_back(text);
  return absl::OkStatus();
}

std::string Domain(std::string name) { return name == "ai.onnx" ? "" : name; }

class ModelParser {
 public:
  // The first place in the list is the model's own graph, wherever in the file it lies.
  ModelParser(absl::string_view file, const std::string& name)
      : file_(file), name_(name), pending_{{absl::string_view(), 0}} {}

  absl::StatusOr<Model> Parse() {
    WireReader in(file_, name_);
    bool found = false;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      switch (field) {
        case 1: {
          ASSIGN_OR_RETURN(model_.ir_version, in.Int("ir_version"));
          return absl::OkStatus();
        }
        case 7: {
          if (found) return in.Error("a second graph");
          found = true;
          ASSIGN_OR_RETURN(const absl::string_view graph, in.Bytes("graph"));
          pending_[0].bytes = graph;
          return absl::OkStatus();
        }
        case 8:
          return Opset(in, &model_.opsets);
        case 25: {
          ASSIGN_OR_RETURN(WireReader function, in.Message("function"));
          return ReadFunction(function);
        }
      }
      return absl::OkStatus();
    }));
    if (!found) return in.Error("there is no graph: this is no ONNX model");
    for (size_t i = 0; i < pending_.size(); ++i) {
      const Pending next = pending_[i];
      WireReader graph(file_, next.bytes.empty() ? file_.substr(0, 0) : next.bytes, name_);
      depth_ = next.depth;
      ASSIGN_OR_RETURN(Graph parsed, ReadGraph(graph));
      model_.graphs.push_back(std::move(parsed));
    }
    SortNodes(model_);
    return std::move(model_);
  }

 private:
  struct Pending {
    absl::string_view bytes;
    int depth;
  };
  // The index that a graph will have once its turn has come.
  int Later(absl::string_view bytes, int depth) {
    pending_.push_back({bytes, depth});
    return static_cast<int>(pending_.size()) - 1;
  }

  absl::Status Opset(const WireReader& outer, std::map<std::string, int64_t>* to) {
    ASSIGN_OR_RETURN(WireReader in, outer.Message("opset_import"));
    std::string domain;
    int64_t version = 0;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      if (field == 1) return ReadString(in, "domain", &domain);
      if (field == 2) {
        ASSIGN_OR_RETURN(version, in.Int("version"));
      }
      return absl::OkStatus();
    }));
    const auto [it, is_new] = to->emplace(Domain(domain), version);
    if (!is_new && it->second != version) {
      return in.Error("opset_import has two versions of ", domain.empty() ? "ai.onnx" : domain,
                      ": ", it->second, " and ", version);
    }
    return absl::OkStatus();
  }

  // Extents that are named, or left out, or negative, as some tools write them, are -1.
  absl::StatusOr<std::vector<int64_t>> ReadDims(const WireReader& outer) {
    ASSIGN_OR_RETURN(WireReader in, outer.Message("shape"));
    std::vector<int64_t> dims;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      if (field != 1) return absl::OkStatus();
      ASSIGN_OR_RETURN(WireReader dim, in.Message("dim"));
      dims.push_back(-1);
      return EachField(dim, [&](uint32_t part) -> absl::Status {
        if (part == 1) {
          ASSIGN_OR_RETURN(const int64_t extent, dim.Int("dim_value"));
          dims.back() = std::max<int64_t>(extent, -1);
        }
        return absl::OkStatus();
      });
    }));
    return dims;
  }

  absl::StatusOr<ValueInfo> ReadValueInfo(const WireReader& outer) {
    ASSIGN_OR_RETURN(WireReader in, outer.Message("value info"));
    ValueInfo info;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      if (field == 1) return ReadString(in, "name", &info.name);
      if (field != 2) return absl::OkStatus();
      ASSIGN_OR_RETURN(WireReader type, in.Message("type"));
      return EachField(type, [&](uint32_t kind) -> absl::Status {
        using Kind = ValueInfo::Kind;
        if (kind == 4) info.kind = Kind::kSequence;
        if (kind == 5) info.kind = Kind::kMap;
        if (kind == 9) info.kind = Kind::kOptional;
        if (kind != 1 && kind != 8) return absl::OkStatus();
        info.kind = kind == 1 ? Kind::kTensor : Kind::kSparse;
        ASSIGN_OR_RETURN(WireReader tensor, type.Message("tensor type"));
        return EachField(tensor, [&](uint32_t part) -> absl::Status {
          if (part == 1) {
            ASSIGN_OR_RETURN(info.element, tensor.Int("elem_type"));
          }
          if (part == 2) {
            ASSIGN_OR_RETURN(info.dims, ReadDims(tensor));
          }
          return absl::OkStatus();
        });
      });
    }));
    return info;
  }

  absl::Status ReadAttribute(const WireReader& outer, std::map<std::string, Attribute>* to) {
    ASSIGN_OR_RETURN(WireReader in, outer.Message("attribute"));
    std::string name, floats;
    Attribute a;
    int64_t type = 0, value_type = 0;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      if (field >= 2 && field <= 11) {  // values, one field for each of the first ten types
        const int64_t of = field - 1;
        if (value_type != 0 && value_type != of) {
          return in.Error("attribute '", name, "' has values of two types, ", value_type, " and ",
                          of);
        }
        value_type = of;
      }
      switch (field) {
        case 1:
          return ReadString(in, "attribute name", &name);
        case 2: {
          ASSIGN_OR_RETURN(const uint32_t bits, in.Fixed32("f"));
          std::memcpy(&a.f, &bits, sizeof(bits));
          return absl::OkStatus();
        }
        case 3: {
          ASSIGN_OR_RETURN(a.i, in.Int("i"));
          return absl::OkStatus();
        }
        case 4: {
          ASSIGN_OR_RETURN(a.s, in.Bytes("s"));
          return absl::OkStatus();
        }
        case 5: {
          ASSIGN_OR_RETURN(WireReader tensor, in.Message("t"));
          ASSIGN_OR_RETURN(TensorData data, ReadTensor(tensor));
          a.tensors.push_back(std::move(data));
          return absl::OkStatus();
        }
        case 6: {
          if (depth_ + 1 >= kMaxNesting) return in.Error("graphs lie deeper than ", kMaxNesting);
          ASSIGN_OR_RETURN(const absl::string_view graph, in.Bytes("g"));
          a.graph = Later(graph, depth_ + 1);
          return absl::OkStatus();
        }
        case 7:
          return in.Floats("floats", &floats);
        case 8:
          return in.Ints("ints", &a.ints);
        case 9: {
          ASSIGN_OR_RETURN(const absl::string_view s, in.Bytes("strings"));
          a.strings.push_back(s);
          return absl::OkStatus();
        }
        case 20: {
          ASSIGN_OR_RETURN(type, in.Int("type"));
          return absl::OkStatus();
        }
        case 21:
          return ReadString(in, "ref_attr_name", &a.reference);
      }
      return absl::OkStatus();
    }));
    if (type == 0) type = value_type;  // files of the first versions say no type
    if (value_type != 0 && type != value_type) {
      return in.Error("attribute '", name, "' says that it is of type ", type,
                      " and has a value of type ", value_type);
    }
    a.floats.resize(floats.size() / sizeof(float));
    if (!floats.empty()) std::memcpy(a.floats.data(), floats.data(), floats.size());
    using Type = Attribute::Type;
    constexpr Type kTypes[] = {Type::kNone,   Type::kFloat,  Type::kInt,
                               Type::kString, Type::kTensor, Type::kGraph,
                               Type::kFloats, Type::kInts,   Type::kStrings};
    a.type = type >= 0 && type < 9 ? kTypes[type] : Type::kOther;
    const bool lacks = (a.type == Type::kTensor && a.tensors.size() != 1) ||
                       (a.type == Type::kGraph && a.graph < 0);
    if (lacks && a.reference.empty()) return in.Error("attribute '", name, "' has no value");
    if (!to->emplace(name, std::move(a)).second) {
      return in.Error("attribute '", name, "' is there twice");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Node> ReadNode(const WireReader& outer) {
    ASSIGN_OR_RETURN(WireReader in, outer.Message("node"));
    Node node;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      switch (field) {
        case 1:
          return AppendString(in, "input", &node.inputs);
        case 2:
          return AppendString(in, "output", &node.outputs);
        case 3:
          return ReadString(in, "node name", &node.name);
        case 4:
          return ReadString(in, "op_type", &node.op);
        case 5:
          return ReadAttribute(in, &node.attributes);
        case 7:
          return ReadString(in, "domain", &node.domain);
        case 8:
          return ReadString(in, "overload", &node.overload);
      }
      return absl::OkStatus();
    }));
    node.domain = Domain(node.domain);
    if (node.op.empty()) return in.Error("a node without op_type");
    return node;
  }

  absl::StatusOr<Graph> ReadGraph(WireReader& in) {
    Graph graph;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      switch (field) {
        case 1: {
          ASSIGN_OR_RETURN(Node node, ReadNode(in));
          graph.nodes.push_back(std::move(node));
          return absl::OkStatus();
        }
        case 2:
          return ReadString(in, "graph name", &graph.name);
        case 5: {
          ASSIGN_OR_RETURN(WireReader tensor, in.Message("initializer"));
          ASSIGN_OR_RETURN(TensorData data, ReadTensor(tensor));
          graph.initializers.push_back(std::move(data));
          return absl::OkStatus();
        }
        case 11:
        case 12:
        case 13: {
          ASSIGN_OR_RETURN(ValueInfo info, ReadValueInfo(in));
          (field == 11   ? graph.inputs
           : field == 12 ? graph.outputs
                         : graph.values)
              .push_back(std::move(info));
          return absl::OkStatus();
        }
        case 15:
          graph.has_sparse_initializers = true;
          return absl::OkStatus();
      }
      return absl::OkStatus();
    }));
    return graph;
  }

  absl::Status ReadFunction(WireReader& in) {
    Function f;
    depth_ = 0;
    RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
      switch (field) {
        case 1:
          return ReadString(in, "function name", &f.name);
        case 4:
          return AppendString(in, "function input", &f.inputs);
        case 5:
          return AppendString(in, "function output", &f.outputs);
        case 7: {
          ASSIGN_OR_RETURN(Node node, ReadNode(in));
          f.nodes.push_back(std::move(node));
          return absl::OkStatus();
        }
        case 9:
          return Opset(in, &f.opsets);
        case 10:
          return ReadString(in, "function domain", &f.domain);
        case 11:
          return ReadAttribute(in, &f.defaults);
        case 13:
          return ReadString(in, "function overload", &f.overload);
      }
      return absl::OkStatus();
    }));
    f.domain = Domain(f.domain);
    model_.functions.push_back(std::move(f));
    return absl::OkStatus();
  }

  absl::string_view file_;
  const std::string& name_;
  Model model_;
  std::vector<Pending> pending_;
  int depth_ = 0;  // of the graph that is being read
};

}  // namespace

absl::StatusOr<Model> ParseModel(absl::string_view bytes, const std::string& name) {
  return ModelParser(bytes, name).Parse();
}

absl::StatusOr<TensorData> ParseTensor(absl::string_view bytes, const std::string& name) {
  WireReader in(bytes, name);
  return ReadTensor(in);
}

namespace {

absl::StatusOr<ValueData> ReadSequence(WireReader& in) {
  ValueData out;
  out.is_sequence = true;
  RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
    if (field > 3 && field < 8) return in.Error("a sequence of what are no tensors");
    if (field != 3) return absl::OkStatus();
    ASSIGN_OR_RETURN(WireReader tensor, in.Message("tensor of a sequence"));
    ASSIGN_OR_RETURN(TensorData data, ReadTensor(tensor));
    out.tensors.push_back(std::move(data));
    return absl::OkStatus();
  }));
  return out;
}

absl::StatusOr<ValueData> ReadOptional(WireReader& in) {
  ValueData out;
  RETURN_IF_ERROR(EachField(in, [&](uint32_t field) -> absl::Status {
    if (field == 3) {
      ASSIGN_OR_RETURN(WireReader tensor, in.Message("optional tensor"));
      ASSIGN_OR_RETURN(TensorData data, ReadTensor(tensor));
      out = {false, {std::move(data)}};
    } else if (field == 5) {
      ASSIGN_OR_RETURN(WireReader sequence, in.Message("optional sequence"));
      ASSIGN_OR_RETURN(out, ReadSequence(sequence));
    } else if (field == 4 || field > 5) {
      return in.Error("an optional of what is neither a tensor nor a sequence");
    }
    return absl::OkStatus();
  }));
  return out;
}

}  // namespace

absl::StatusOr<ValueData> ParseValue(absl::string_view bytes, ValueInfo::Kind kind,
                                     const std::string& name) {
  WireReader in(bytes, name);
  if (kind == ValueInfo::Kind::kSequence) return ReadSequence(in);
  if (kind == ValueInfo::Kind::kOptional) return ReadOptional(in);
  if (bytes.empty()) return ValueData();  // an input that was left out
  ASSIGN_OR_RETURN(TensorData data, ReadTensor(in));
  ValueData out;
  if (data.element != 0) out.tensors.push_back(std::move(data));
  return out;
}

}  // namespace tessera::onnx
