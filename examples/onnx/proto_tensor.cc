// Parsing tensors: shapes, and elements from raw bytes or typed fields.
#include "examples/onnx/proto_tensor.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "examples/onnx/string_table.h"
#include "runtime/mapped_file.h"

namespace tessera::onnx {
namespace {

// The elements of the typed fields, as the dtype lays them out.
struct Typed {
  std::vector<int64_t> ints;    // of int32_data
  std::vector<int64_t> longs;   // of int64_data and uint64_data
  std::string floats, doubles;  // as they are
  std::string strings;          // their numbers, in u64
};

std::string Collect(const Typed& typed, DType dtype) {
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

// One entry of external_data: a key and a value, both text.
absl::Status ReadElsewhere(const WireReader& outer, Elsewhere* to) {
  ASSIGN_OR_RETURN(WireReader in, outer.Message("external_data"));
  absl::string_view key, value;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, in.Next());
    if (!more) break;
    if (in.field() == 1) {
      ASSIGN_OR_RETURN(key, in.Bytes("key"));
    } else if (in.field() == 2) {
      ASSIGN_OR_RETURN(value, in.Bytes("value"));
    }
  }
  if (key == "location") to->location = std::string(value);
  if (key != "offset" && key != "length") return absl::OkStatus();
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value, &number)) {
    return in.Error("external_data: the ", key, " ", ShowName(value), " is no number of bytes");
  }
  if (key == "offset") {
    to->offset = number;
  } else {
    to->length = number;
  }
  return absl::OkStatus();
}

// Extents are not negative, and their product fits 62 bits.
uint64_t Elements(const TensorData& t) {
  uint64_t elements = 1;
  for (const int64_t d : t.dims) elements *= static_cast<uint64_t>(d);
  return elements;
}

}  // namespace

std::string FitData(TensorData& t, bool raw) {
  const uint64_t elements = Elements(t);
  const bool strings = t.element == kElementString;
  if (strings && raw) return absl::StrCat("tensor ", ShowName(t.name), ": strings in raw_data");
  const bool narrow = IsNarrow(t.element) && !strings;
  const int bits = narrow ? BitsInFile(t.element, raw) : 8 * t.dtype()->bytes();
  uint64_t all_bits = 0;
  if (!CheckedMul(elements, static_cast<uint64_t>(bits), &all_bits) ||
      all_bits / 8 + (all_bits % 8 != 0) != t.bytes().size()) {
    return absl::StrCat("tensor ", ShowName(t.name), " of ", elements, " ", ElementName(t.element),
                        " elements has ", t.bytes().size(), " bytes of data");
  }
  if (narrow) t.own = Unpacked(t.element, t.bytes(), bits, elements);
  return "";
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
      case 6: {
        ASSIGN_OR_RETURN(const absl::string_view text, in.Bytes("string_data"));
        const uint64_t number = NumberOf(text);
        typed.strings.append(reinterpret_cast<const char*>(&number), sizeof(number));
        break;
      }
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
      case 13:
        RETURN_IF_ERROR(ReadElsewhere(in, &t.elsewhere));
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
    if (d < 0) return in.Error("tensor ", ShowName(t.name), " has an extent of ", d);
    // Extents whose product leaves 62 bits are refused even beside a zero.
    if (d != 0 && !CheckedMul(elements, static_cast<uint64_t>(d), &elements)) elements = ~0ull;
    if (elements >> 62) return in.Error("tensor ", ShowName(t.name), " has too many elements");
  }
  const std::optional<DType> dtype = t.dtype();
  if (!external) t.elsewhere = {};
  if (external && t.elsewhere.location.empty()) {
    return in.Error("tensor ", ShowName(t.name),
                    " has its data in another file, and none is named");
  }
  if (!dtype || external) return t;  // nobody will read its elements here
  if (!has_raw && t.element == kElementString) {
    t.own = std::move(typed.strings);
  } else if (!has_raw) {
    t.own = Collect(typed, IsNarrow(t.element) ? kUInt8 : *dtype);
  }
  const std::string fault = FitData(t, has_raw);
  if (!fault.empty()) return in.Error(fault);
  return t;
}

}  // namespace tessera::onnx
