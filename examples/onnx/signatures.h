// What the ops of ONNX take: how many inputs and outputs, and which attributes, version by version.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::onnx {

struct Signature {
  const char* op;  // as in OpRow
  int since;       // the first version of its domain that this is of, until the next row's
  // In order: 1 one, ? one that may be left out, + or * as many as there are; those with the same
  // letter after that are of one type. Null: the op ended with this version.
  const char* inputs;
  const char* outputs = nullptr;  // the same, without letters
  // name:type, apart by spaces, with a ! where the op cannot do without it. Types: f i s t g a
  // float, int, string, tensor or graph, F I S lists of them, p what is none of these. All ops
  // before version 6 may have consumed_inputs:I besides.
  const char* attributes = "";
};

// An op's, oldest first; none of what is no op of ONNX, as those of com.microsoft, which have grown
// attributes without new versions.
absl::Span<const Signature> SignaturesOf(absl::string_view op);

// The one that holds in a version; null: none does.
const Signature* SignatureOf(absl::string_view op, int64_t version);

// The newest version of ai.onnx that this table knows.
inline constexpr int kNewestOpset = 28;

}  // namespace tessera::onnx
