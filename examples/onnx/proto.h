// What this importer reads of ONNX files: models and tensors as plain structs.
//
// Everything points into the bytes it was parsed from, which must outlive it. Files are not
// trusted: every count and offset is checked, nothing is allocated that the file's own size does
// not bound, graphs within graphs are parsed from a list, not by recursion.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/onnx/element_types.h"

namespace tessera::onnx {

// Part of another file that a model names.
struct Elsewhere {
  std::string location;  // relative to the model's folder; empty: the data is in the model
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // none: to the end
};

// A TensorProto. Its data has been checked against its shape where its dtype is known and it is not
// in another file (other_files.h); of a narrow type it is the values, not the codes of the file.
struct TensorData {
  std::string name;
  std::vector<int64_t> dims;
  int64_t element = 0;
  absl::string_view raw;  // row-major little-endian elements, where `own` is empty
  std::string own;        // the same, collected from typed fields
  Elsewhere elsewhere;

  absl::string_view bytes() const { return own.empty() ? raw : absl::string_view(own); }
  std::optional<DType> dtype() const { return DTypeOfElement(element); }
};

struct Attribute {
  enum class Type {
    kNone,
    kFloat,
    kInt,
    kString,
    kTensor,
    kGraph,
    kFloats,
    kInts,
    kStrings,
    kOther
  };
  Type type = Type::kNone;
  float f = 0;
  int64_t i = 0;
  absl::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<absl::string_view> strings;
  std::vector<TensorData> tensors;  // one
  int graph = -1;                   // in Model::graphs
  std::string reference;            // the attribute of the function around it that it stands for
};

struct Node {
  std::string op, domain, name;
  std::string overload;                      // which of the functions of that name
  std::vector<std::string> inputs, outputs;  // "" where an optional one is left out
  std::map<std::string, Attribute> attributes;
};

struct ValueInfo {
  enum class Kind { kNone, kTensor, kSparse, kSequence, kMap, kOptional };
  std::string name;
  Kind kind = Kind::kNone;
  int64_t element = 0;  // of a tensor, as is its shape, in which -1 is any extent
  std::optional<std::vector<int64_t>> dims;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<TensorData> initializers;
  bool has_sparse_initializers = false;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<ValueInfo> values;  // what is said of other names
};

// A FunctionProto: a graph without types, whose nodes may refer to attributes of the caller.
struct Function {
  std::string name, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, Attribute> defaults;
  std::vector<Node> nodes;
  std::map<std::string, int64_t> opsets;
};

struct Model {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;  // version by domain; "" is ai.onnx
  std::vector<Graph> graphs;              // the first is the model's, others belong to attributes
  std::vector<Function> functions;
};

// How deep graphs may lie in graphs.
inline constexpr int kMaxNesting = 32;

// `name` is used in messages.
absl::StatusOr<Model> ParseModel(absl::string_view bytes, const std::string& name);
absl::StatusOr<TensorData> ParseTensor(absl::string_view bytes, const std::string& name);

// What a file of a value holds: a tensor, a sequence of them, or nothing.
struct ValueData {
  bool is_sequence = false;
  std::vector<TensorData> tensors;  // at most one where it is no sequence
};
absl::StatusOr<ValueData> ParseValue(absl::string_view bytes, ValueInfo::Kind kind,
                                     const std::string& name);

}  // namespace tessera::onnx
