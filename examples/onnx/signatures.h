// What the ops of ONNX take: how many inputs and outputs, and which attributes, version by version.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::onnx {

struct Signature {
  const char* op;      // as in OpRow
  int since;           // the first version of its domain that this is of, until the next row's
  const char* inputs;  // in order: 1 one, ? one that may be left out, + or * as many as there are;
                       // null: the op ended with this version
  const char* outputs = nullptr;  // the same
  // name:type, apart by spaces, with a ! where the op cannot do without it. Types: f i s t g a
  // float, int, string, tensor or graph, F I S lists of them, p what is none of these. All ops
  // before version 6 may have consumed_inputs:I besides.
  const char* attributes = "";
};

// An op's, oldest first; none of what is no op of ONNX, as those of com.microsoft, which have grown
// attributes without new versions.
absl::Span<const Signature> SignaturesOf(absl::string_view op);

// The newest version of ai.onnx that this table knows.
inline constexpr int kNewestOpset = 28;

}  // namespace tessera::onnx
