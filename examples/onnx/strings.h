// Strings of models.
//
// A tensor of them holds their numbers (string_table.h), as u64 of the element type STRING. So
// whatever moves elements, or compares them, serves strings as well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "examples/onnx/call.h"
#include "examples/onnx/string_table.h"

namespace tessera::onnx {

// The numbers of many, row by row.
Tensor StringTensor(absl::Span<const std::string> texts, absl::Span<const int64_t> shape);
// Of an input, an Error where it has no strings; it is computed now.
std::vector<absl::string_view> StringsOf(Call& c, int input);
bool IsStrings(const Value& v);

// Throws where an input has strings, and the op is none of those that take them.
void CheckStrings(const Node& node, absl::Span<const Value> inputs);

// An output of strings.
void OutStrings(Call& c, absl::Span<const std::string> texts, absl::Span<const int64_t> shape);

// Cast where either side has strings: numbers as their texts.
void CastStrings(Call& c, int64_t to);

}  // namespace tessera::onnx
