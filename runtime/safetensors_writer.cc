// Writing safetensors files, and reading one into tensors.
#include "runtime/safetensors_writer.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/tensor_internal.h"
#include "runtime/file_writer.h"
#include "runtime/safetensors.h"
#include "runtime/tensor_bytes.h"

namespace tessera {
namespace {

using internal::Call;
using internal::Fail;
using internal::Show;
using internal::ThrowAsCall;

struct Name {
  DType dtype;
  WeightFormat format;
};
constexpr Name kNames[] = {
    {kBool, WeightFormat::kBool},         {kInt8, WeightFormat::kI8},
    {kInt16, WeightFormat::kI16},         {kInt32, WeightFormat::kI32},
    {kInt64, WeightFormat::kI64},         {kUInt8, WeightFormat::kU8},
    {kUInt16, WeightFormat::kU16},        {kUInt32, WeightFormat::kU32},
    {kUInt64, WeightFormat::kU64},        {kFloat8E4M3, WeightFormat::kF8E4M3},
    {kFloat8E5M2, WeightFormat::kF8E5M2}, {kFloat16, WeightFormat::kF16},
    {kBFloat16, WeightFormat::kBF16},     {kFloat32, WeightFormat::kF32},
    {kFloat64, WeightFormat::kF64}};

const Name& NameOf(DType dtype) {
  for (const Name& n : kNames) {
    if (n.dtype == dtype) return n;
  }
  Fail(dtype.ToString(), " has no name in safetensors files; cast it");
}

const Name& NameOf(const Weight& w) {
  for (const Name& n : kNames) {
    if (n.format == w.format) return n;
  }
  Fail("tensor ", ShowName(w.name), ": no dtype holds ", InfoOf(w.format).name,
       "; save it as F32 or BF16");
}

// Text in quotes, as JSON has it.
std::string Quoted(absl::string_view text) {
  if (ValidUtf8Prefix(text) != text.size()) Fail("the name ", ShowName(text), " is not UTF-8");
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

void SaveSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata, CallSite at) {
  Call call("SaveSafetensors", at);
  std::vector<std::string> entries, texts;
  std::vector<std::vector<uint8_t>> data;
  for (const auto& [key, value] : metadata) {
    texts.push_back(absl::StrCat(Quoted(key), ":", Quoted(value)));
  }
  if (!texts.empty()) {
    entries.push_back(absl::StrCat("\"__metadata__\":{", absl::StrJoin(texts, ","), "}"));
  }
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor) Fail("the tensor ", ShowName(name), " is empty");
    if (name == "__metadata__") Fail("no tensor can have the name __metadata__");
    if (!tensor.shape().is_static()) Fail("the shape of ", Show(tensor), " is symbolic");
    const char* format = InfoOf(NameOf(tensor.dtype()).format).name;
    data.push_back(BytesOf(tensor));
    std::vector<int64_t> shape;
    for (const Extent& e : tensor.shape()) shape.push_back(e.value());
    const uint64_t end = offset + data.back().size();
    entries.push_back(absl::StrCat(Quoted(name), ":{\"dtype\":\"", format, "\",\"shape\":[",
                                   absl::StrJoin(shape, ","), "],\"data_offsets\":[", offset, ",",
                                   end, "]}"));
    offset = end;
  }
  std::string header = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 255);
  std::vector<absl::string_view> parts = {length, header};
  for (const auto& bytes : data) {
    parts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  ThrowAsCall(WriteFile(path, parts));
}

std::map<std::string, Tensor> LoadSafetensors(const std::string& path, Device device, CallSite at) {
  Call call("LoadSafetensors", at);
  const auto file = MappedFile::Open(path);
  ThrowAsCall(file.status());
  const absl::StatusOr<WeightSet> weights = ParseSafetensors((*file)->bytes(), path, *file);
  ThrowAsCall(weights.status());
  std::map<std::string, Tensor> out;
  for (const Weight& w : weights->all()) {
    const DType dtype = NameOf(w).dtype;
    // Bytes of booleans may be any; a kernel relies on 0 and 1.
    const DType stored = dtype.IsBool() ? kUInt8 : dtype;
    const Tensor t = Tensor::FromBytes(w.bytes.data(), w.shape, stored, device, at);
    out[w.name] = dtype.IsBool() ? t != 0 : t;
  }
  return out;
}

}  // namespace tessera
