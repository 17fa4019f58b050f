// Writing small ONNX files by hand: messages as strings of protobuf fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/onnx/element_types.h"

namespace tessera::onnx {

inline std::string Varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
  return out;
}
inline std::string Tag(uint32_t field, uint32_t type) {
  return Varint(uint64_t{field} << 3 | type);
}
inline std::string Number(uint32_t field, int64_t v) {
  return absl::StrCat(Tag(field, 0), Varint(static_cast<uint64_t>(v)));
}
inline std::string Bytes(uint32_t field, const std::string& bytes) {
  return absl::StrCat(Tag(field, 2), Varint(bytes.size()), bytes);
}
template <typename T>
std::string Raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

constexpr int64_t kElementFloat = 1, kElementInt64 = 7, kElementBool = 9;

inline std::string TensorText(const std::string& name, const std::vector<int64_t>& dims,
                              int64_t element, const std::string& raw) {
  std::string out;
  for (const int64_t d : dims) out += Number(1, d);
  return out + Number(2, element) + Bytes(8, name) + Bytes(9, raw);
}
inline std::string Floats(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<float>& values) {
  return TensorText(name, dims, kElementFloat, Raw(values));
}
inline std::string Longs(const std::string& name, const std::vector<int64_t>& dims,
                         const std::vector<int64_t>& values) {
  return TensorText(name, dims, kElementInt64, Raw(values));
}

inline std::string StringsText(const std::string& name, const std::vector<int64_t>& dims,
                               const std::vector<std::string>& values) {
  std::string out;
  for (const int64_t d : dims) out += Number(1, d);
  for (const std::string& v : values) out += Bytes(6, v);
  return out + Number(2, kElementString) + Bytes(8, name);
}

// Attributes, with their type field.
inline std::string IntAttribute(const std::string& name, int64_t v) {
  return Bytes(1, name) + Number(3, v) + Number(20, 2);
}
inline std::string FloatAttribute(const std::string& name, float v) {
  return Bytes(1, name) + Tag(2, 5) + Raw<float>({v}) + Number(20, 1);
}
inline std::string FloatsAttribute(const std::string& name, const std::vector<float>& values) {
  std::string out = Bytes(1, name);
  for (const float v : values) out += Tag(7, 5) + Raw<float>({v});
  return out + Number(20, 6);
}
inline std::string TextsAttribute(const std::string& name, const std::vector<std::string>& values) {
  std::string out = Bytes(1, name);
  for (const std::string& v : values) out += Bytes(9, v);
  return out + Number(20, 8);
}
inline std::string IntsAttribute(const std::string& name, const std::vector<int64_t>& values) {
  std::string out = Bytes(1, name);
  for (const int64_t v : values) out += Number(8, v);
  return out + Number(20, 7);
}
inline std::string TextAttribute(const std::string& name, const std::string& text) {
  return Bytes(1, name) + Bytes(4, text) + Number(20, 3);
}
inline std::string TensorAttribute(const std::string& name, const std::string& tensor) {
  return Bytes(1, name) + Bytes(5, tensor) + Number(20, 4);
}
inline std::string GraphAttribute(const std::string& name, const std::string& graph) {
  return Bytes(1, name) + Bytes(6, graph) + Number(20, 5);
}
inline std::string ReferenceAttribute(const std::string& name, const std::string& to, int type) {
  return Bytes(1, name) + Bytes(21, to) + Number(20, type);
}

inline std::string NodeText(const std::string& op, const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs,
                            const std::vector<std::string>& attributes = {},
                            const std::string& domain = "") {
  std::string out;
  for (const std::string& name : inputs) out += Bytes(1, name);
  for (const std::string& name : outputs) out += Bytes(2, name);
  out += Bytes(4, op);
  for (const std::string& a : attributes) out += Bytes(5, a);
  if (!domain.empty()) out += Bytes(7, domain);
  return out;
}
inline std::string InfoText(const std::string& name, int64_t element = kElementFloat) {
  return Bytes(1, name) + Bytes(2, Bytes(1, Number(1, element)));
}
// With a shape; -1: an extent with a name.
inline std::string InfoText(const std::string& name, int64_t element,
                            const std::vector<int64_t>& dims) {
  std::string shape;
  for (const int64_t d : dims) shape += Bytes(1, d < 0 ? Bytes(2, "n") : Number(1, d));
  return Bytes(1, name) + Bytes(2, Bytes(1, Number(1, element) + Bytes(2, shape)));
}
// Inputs and outputs without types.
inline std::string GraphText(const std::vector<std::string>& nodes,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs,
                             const std::vector<std::string>& initializers = {}) {
  std::string out;
  for (const std::string& n : nodes) out += Bytes(1, n);
  for (const std::string& t : initializers) out += Bytes(5, t);
  for (const std::string& name : inputs) out += Bytes(11, Bytes(1, name));
  for (const std::string& name : outputs) out += Bytes(12, Bytes(1, name));
  return out;
}
inline std::string OpsetText(const std::string& domain, int64_t version) {
  return Bytes(1, domain) + Number(2, version);
}
// ir_version, graph, opset_import; then other fields.
inline std::string ModelText(const std::string& graph, int64_t opset = 20,
                             const std::string& more = "") {
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, OpsetText("", opset)) + more;
}

}  // namespace tessera::onnx
