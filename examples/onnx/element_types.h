// The element types of ONNX: the dtype that each is held in, and how files lay it out.
//
// Types of fewer bits than any dtype's (INT4, FLOAT4E2M1, ...), and those of 8 that no dtype has,
// are held as their values, in i8, u8 or f32, strings as numbers in u64 (strings.h): "narrow"
// below. A Value (call.h) says of which it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "graph/dtype.h"

namespace tessera::onnx {

// Types by their number in files; more have no name here.
enum Element : int64_t {
  kElementUInt8 = 2,
  kElementString = 8,
  kElementFloat8E8M0 = 24,
};

// The dtype of a type's values; none of complex numbers and what is no type.
std::optional<DType> DTypeOfElement(int64_t element);
std::string ElementName(int64_t element);  // "FLOAT", "INT4", "type 99"
bool IsNarrow(int64_t element);
int64_t ElementOfDType(DType dtype);  // the type that is not narrow

// The least and the most of a type of integers.
struct IntRange {
  int64_t least = 0, most = 0;
};
IntRange RangeOfElement(int64_t element);

// Of a type of floats of at most 8 bits.
struct SmallFloat {
  int mantissa = 0;  // bits
  int lowest = 0;    // the exponent of its least normal number
  double most = 0;
  bool has_nan = false;
};
std::optional<SmallFloat> SmallFloatOf(int64_t element);

// ---- narrow types in files
// How many bits each element takes: in raw data those of its code, the least first; in int32_data,
// whose integers are bytes, codes of 6 bits have one each.
int BitsInFile(int64_t element, bool raw);
// The values of so many elements, in the dtype that holds them.
std::string Unpacked(int64_t element, absl::string_view data, int bits, uint64_t elements);

}  // namespace tessera::onnx
