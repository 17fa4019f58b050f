// The reference evaluator: what a tensor graph means, computed element by element on the host.
//
// It shares nothing with the compiler but the op table. Elementwise ops are computed in double or
// 64-bit integers and rounded to the node's dtype; sums of floats are added in double and rounded
// at the end, so that its sums are at least as exact as any kernel's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/uop.h"

namespace tessera {

// Values in row-major order, as StoreScalar lays them out.
struct HostArray {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  int64_t elements() const { return static_cast<int64_t>(bytes.size()) / dtype.bytes(); }
  Scalar At(int64_t flat) const { return LoadScalar(&bytes[flat * dtype.bytes()], dtype); }
  double AsDouble(int64_t flat) const;  // of any dtype
};

struct EvaluateOptions {
  absl::flat_hash_map<std::string, int64_t> vars;  // values of VARs
  // Bytes of a BUFFER or PARAM; where it is empty, and for buffers where it returns null, the bytes
  // in the buffer's own storage are read.
  std::function<const uint8_t*(const UOp& leaf)> contents;
  // Takes the bytes of realised nodes rather than computing them again, where they are on the CPU.
  bool stop_at_realized = true;
};

// The values of the roots. Every tensor op is covered; ops of kernels and programs are an error, as
// are a VAR without a value and a buffer without contents.
absl::StatusOr<std::vector<HostArray>> Evaluate(absl::Span<const UOp> roots,
                                                const EvaluateOptions& options = {});

}  // namespace tessera
