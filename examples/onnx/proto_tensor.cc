// Parsing tensors: shapes, and elements from raw bytes or typed fields.
#include "examples/onnx/proto_tensor.h"

#include <cstring>

#include "runtime/mapped_file.h"

namespace tessera::onnx {
namespace {

struct Element {
  const char* name;
  DType dtype;  // void where tensors cannot have it
};
constexpr Element kElements[] = {
    {"UNDEFINED", kVoid},      {"FLOAT", kFloat32},
    {"UINT8", kUInt8},         {"INT8", kInt8},
    {"UINT16", kUInt16},       {"INT16", kInt16},
    {"INT32", kInt32},         {"INT64", kInt64},
    {"STRING", kVoid},         {"BOOL", kBool},
    {"FLOAT16", kFloat16},     {"DOUBLE", kFloat64},
    {"UINT32", kUInt32},       {"UINT64", kUInt64},
    {"COMPLEX64", kVoid},      {"COMPLEX128", kVoid},
    {"BFLOAT16", kBFloat16},   {"FLOAT8E4M3FN", kFloat8E4M3},
    {"FLOAT8E4M3FNUZ", kVoid}, {"FLOAT8E5M2", kFloat8E5M2},
    {"FLOAT8E5M2FNUZ", kVoid}, {"UINT4", kVoid},
    {"INT4", kVoid},           {"FLOAT4E2M1", kVoid},
    {"FLOAT8E8M0", kVoid},     {"UINT2", kVoid},
    {"INT2", kVoid},
};
constexpr int64_t kElementCount = sizeof(kElements) / sizeof(kElements[0]);

// The elements of the typed fields, as the dtype lays them out.
struct Typed {
  std::vector<int64_t> ints;    // of int32_data
  std::vector<int64_t> longs;   // of int64_data and uint64_data
  std::string floats, doubles;  // as they are
};

absl::StatusOr<std::string> Collect(const WireReader& in, const Typed& typed, DType dtype) {
  if (dtype == kFloat32) return typed.floats;
  if (dtype == kFloat64) return typed.doubles;
  const bool wide = dtype == kInt64 || dtype == kUInt64 || dtype == kUInt32;
  const std::vector<int64_t>& numbers = wide ? typed.longs : typed.ints;
  const auto size = static_cast<size_t>(dtype.bytes());
  std::string out;
  out.reserve(numbers.size() * size);
  for (const int64_t v : numbers) {  // small floats are stored as their bits
    char bytes[sizeof(v)];
    std::memcpy(bytes, &v, sizeof(v));
    if (dtype.IsBool()) bytes[0] = v != 0;
    out.append(bytes, size);
  }
  return out;
}

}  // namespace

std::optional<DType> DTypeOfElement(int64_t element) {
  if (element < 0 || element >= kElementCount || kElements[element].dtype.IsVoid()) return {};
  return kElements[element].dtype;
}

std::string ElementName(int64_t element) {
  if (element < 0 || element >= kElementCount) return absl::StrCat("type ", element);
  return kElements[element].name;
}

absl::StatusOr<TensorData> ReadTensor(WireReader& in) {
  TensorData t;
  Typed typed;
  bool has_raw = false, external = false;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, in.Next());
    if (!more) break;
    switch (in.field()) {
      case 1:
        RETURN_IF_ERROR(in.Ints("dims", &t.dims));
        break;
      case 2: {
        ASSIGN_OR_RETURN(t.element, in.Int("data_type"));
        break;
      }
      case 4:
        RETURN_IF_ERROR(in.Floats("float_data", &typed.floats));
        break;
      case 5:
        RETURN_IF_ERROR(in.Ints("int32_data", &typed.ints));
        break;
      case 7:
        RETURN_IF_ERROR(in.Ints("int64_data", &typed.longs));
        break;
      case 8: {
        ASSIGN_OR_RETURN(const absl::string_view name, in.Bytes("tensor name"));
        t.name = std::string(name);
        break;
      }
      case 9: {
        ASSIGN_OR_RETURN(t.raw, in.Bytes("raw_data"));
        has_raw = true;
        break;
      }
      case 10:
        RETURN_IF_ERROR(in.Doubles("double_data", &typed.doubles));
        break;
      case 11:
        RETURN_IF_ERROR(in.Ints("uint64_data", &typed.longs));
        break;
      case 14: {
        ASSIGN_OR_RETURN(const int64_t location, in.Int("data_location"));
        external = location != 0;
        break;
      }
    }
  }
  uint64_t elements = 1;
  for (const int64_t d : t.dims) {
    if (d < 0) return in.Error("tensor '", ShowName(t.name), "' has an extent of ", d);
    // Extents whose product leaves 62 bits are refused even beside a zero.
    if (d != 0 && !CheckedMul(elements, static_cast<uint64_t>(d), &elements)) elements = ~0ull;
    if (elements >> 62) return in.Error("tensor '", ShowName(t.name), "' has too many elements");
  }
  for (const int64_t d : t.dims) elements = d == 0 ? 0 : elements;
  const std::optional<DType> dtype = t.dtype();
  if (!dtype) return t;  // nobody will read its elements
  if (external) return in.Error("tensor '", ShowName(t.name), "' has its data in another file");
  if (!has_raw) {
    ASSIGN_OR_RETURN(t.own, Collect(in, typed, *dtype));
  }
  uint64_t bytes = 0;
  if (!CheckedMul(elements, static_cast<uint64_t>(dtype->bytes()), &bytes) ||
      bytes != t.bytes().size()) {
    return in.Error("tensor '", ShowName(t.name), "' of ", elements, " ", ElementName(t.element),
                    " elements has ", t.bytes().size(), " bytes of data");
  }
  return t;
}

}  // namespace tessera::onnx
