// The table of element types, and the values of packed codes.
#include "examples/onnx/element_types.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tessera::onnx {
namespace {

struct Row {
  const char* name;
  DType dtype = kVoid;     // void where tensors cannot have it
  int narrow = 0;          // bits of a narrow type
  SmallFloat floats = {};  // of a type of small floats
};
const Row kRows[] = {
    {"UNDEFINED"},
    {"FLOAT", kFloat32},
    {"UINT8", kUInt8},
    {"INT8", kInt8},
    {"UINT16", kUInt16},
    {"INT16", kInt16},
    {"INT32", kInt32},
    {"INT64", kInt64},
    {"STRING", kUInt64, 64},
    {"BOOL", kBool},
    {"FLOAT16", kFloat16},
    {"DOUBLE", kFloat64},
    {"UINT32", kUInt32},
    {"UINT64", kUInt64},
    {"COMPLEX64"},
    {"COMPLEX128"},
    {"BFLOAT16", kBFloat16},
    {"FLOAT8E4M3FN", kFloat8E4M3, 0, {3, -6, 448, true}},
    {"FLOAT8E4M3FNUZ", kFloat32, 8, {3, -7, 240, true}},
    {"FLOAT8E5M2", kFloat8E5M2, 0, {2, -14, 57344, true}},
    {"FLOAT8E5M2FNUZ", kFloat32, 8, {2, -15, 57344, true}},
    {"UINT4", kUInt8, 4},
    {"INT4", kInt8, 4},
    {"FLOAT4E2M1", kFloat32, 4, {1, 0, 6, false}},
    {"FLOAT8E8M0", kFloat32, 8, {0, -127, 0x1p127, true}},
    {"UINT2", kUInt8, 2},
    {"INT2", kInt8, 2},
    {"FLOAT6E2M3", kFloat32, 6, {3, 0, 7.5, false}},
    {"FLOAT6E3M2", kFloat32, 6, {2, -2, 28, false}},
};
constexpr int64_t kCount = sizeof(kRows) / sizeof(kRows[0]);

const Row* Find(int64_t element) {
  return element < 0 || element >= kCount ? nullptr : &kRows[element];
}

float ValueOfCode(int64_t element, uint8_t code) {
  if (element == kElementFloat8E8M0) return code == 0xff ? NAN : std::ldexp(1.0f, code - 127);
  const Row& row = kRows[element];
  const int sign = 1 << (row.narrow - 1), mantissa = row.floats.mantissa;
  if (row.floats.has_nan && code == sign) return NAN;  // in place of -0
  const int exponent = (code & (sign - 1)) >> mantissa;
  const int fraction = code & ((1 << mantissa) - 1);
  const int digits = exponent == 0 ? fraction : fraction + (1 << mantissa);
  const float v = std::ldexp(static_cast<float>(digits),
                             std::max(exponent, 1) - 1 + row.floats.lowest - mantissa);
  return code & sign ? -v : v;
}

}  // namespace

std::optional<DType> DTypeOfElement(int64_t element) {
  const Row* row = Find(element);
  if (row == nullptr || row->dtype.IsVoid()) return {};
  return row->dtype;
}

std::string ElementName(int64_t element) {
  const Row* row = Find(element);
  return row == nullptr ? absl::StrCat("type ", element) : row->name;
}

bool IsNarrow(int64_t element) {
  const Row* row = Find(element);
  return row != nullptr && row->narrow != 0;
}

int64_t ElementOfDType(DType dtype) {
  for (int64_t i = 0; i < kCount; ++i) {
    if (kRows[i].dtype == dtype && kRows[i].narrow == 0) return i;
  }
  return 0;
}

IntRange RangeOfElement(int64_t element) {
  const Row& row = *Find(element);
  if (row.narrow == 0 || element == kElementString) return {MinInt(row.dtype), MaxInt(row.dtype)};
  const int64_t count = int64_t{1} << row.narrow;
  return row.dtype == kInt8 ? IntRange{-count / 2, count / 2 - 1} : IntRange{0, count - 1};
}

std::optional<SmallFloat> SmallFloatOf(int64_t element) {
  const Row* row = Find(element);
  if (row == nullptr || row->floats.most == 0) return {};
  return row->floats;
}

int BitsInFile(int64_t element, bool raw) {
  const int bits = kRows[element].narrow;
  return raw || 8 % bits == 0 ? bits : 8;
}

std::string Unpacked(int64_t element, absl::string_view data, int bits, uint64_t elements) {
  const Row& row = kRows[element];
  const IntRange range = row.dtype.IsFloat() ? IntRange() : RangeOfElement(element);
  std::string out;
  out.reserve(elements * static_cast<uint64_t>(row.dtype.bytes()));
  for (uint64_t i = 0; i < elements; ++i) {
    const uint64_t bit = i * static_cast<uint64_t>(bits);
    uint32_t code = static_cast<uint8_t>(data[bit / 8]);
    if (bit / 8 + 1 < data.size()) code |= static_cast<uint8_t>(data[bit / 8 + 1]) << 8;
    code = code >> bit % 8 & ((1u << row.narrow) - 1);
    if (row.dtype.IsFloat()) {
      const float v = ValueOfCode(element, static_cast<uint8_t>(code));
      out.append(reinterpret_cast<const char*>(&v), sizeof(v));
    } else {
      const int64_t v = code;
      out.push_back(static_cast<char>(v > range.most ? v - (int64_t{1} << row.narrow) : v));
    }
  }
  return out;
}

}  // namespace tessera::onnx
